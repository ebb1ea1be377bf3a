package service

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
)

// addHint sets who blocks a key of a limit, and a hint what can be done.
func addHint(out *api.LimitUsage, u *headgate.Usage) {
	wait := Span(time.Duration(Millis(u.RetryAfter)) * time.Millisecond)
	limit, _ := headgate.Parse(u.Rule) // always valid: a Limit wrote it
	named := headgate.ValidName(u.Limit) == nil
	raise := ""
	if named {
		raise = "raise the limit for this key: " + command("override", u, " 'NEW LIMIT'")
	}
	blocked := !u.BlockedUntil.IsZero()
	if blocked {
		out.BlockedBy = api.ByOperator
		longest := time.Duration(limit.Params().Block) * time.Microsecond
		if u.Reason == "" && u.BlockedUntil.Sub(u.At) <= longest {
			out.BlockedBy = api.ByLimit
		}
	}
	switch {
	case u.RetryAfter == headgate.Never:
		out.Hint = "a cost of 1 can never pass"
		if named {
			out.Hint += "; " + raise
		}
	case blocked && u.Capacity.Float64()-u.Used.Float64() >= 1:
		out.Hint = fmt.Sprintf("wait %s, or lift the block: %s", wait, command("block --for 0", u, ""))
	case blocked:
		out.Hint = fmt.Sprintf("wait %s, or forget the block and what was used: %s", wait, command("reset", u, ""))
	case u.RetryAfter == 0:
	case limit.Concurrency():
		out.Hint = fmt.Sprintf("wait until something is released, %s if nothing is renewed", wait)
		if named {
			out.Hint += ", or " + raise
		}
	case named:
		out.Hint = fmt.Sprintf("wait %s, or %s", wait, raise)
	default:
		out.Hint = fmt.Sprintf("wait %s, or forget what was used: %s", wait, command("reset", u, ""))
	}
}

// command returns a command line about a key of a limit. A key that begins with - is not taken for a flag.
func command(verb string, u *headgate.Usage, rest string) string {
	if strings.HasPrefix(u.Key, "-") {
		verb += " --"
	}
	return "headgate " + verb + " " + shellQuote(u.Key) + " " + shellQuote(u.Limit) + rest
}

// Span formats a duration for people, rounded up, with at most two units. A duration just below two days, an hour or a
// minute is rounded up to that, so the bounds lie one smaller unit below it.
func Span(d time.Duration) string {
	unit, small, big, perBig := time.Second, "s", "min", 60
	switch {
	case d <= 0:
		return "0 s"
	case d <= 999*time.Millisecond:
		return fmt.Sprintf("%d ms", ceil(d, time.Millisecond))
	case d <= 59*time.Second:
		return fmt.Sprintf("%d s", ceil(d, time.Second))
	case d > 47*time.Hour+59*time.Minute:
		unit, small, big, perBig = time.Hour, "h", "d", 24
	case d > 59*time.Minute+59*time.Second:
		unit, small, big, perBig = time.Minute, "min", "h", 60
	}
	n := ceil(d, unit)
	if n%perBig == 0 {
		return fmt.Sprintf("%d %s", n/perBig, big)
	}
	return fmt.Sprintf("%d %s %d %s", n/perBig, big, n%perBig, small)
}

// ceil returns the number of units in a positive duration, rounded up.
func ceil(d, unit time.Duration) int { return int((d-1)/unit) + 1 }

// plainWord matches text that a shell does not interpret.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:@%+,=-]+$`)

// shellQuote quotes text for a shell, without characters that control a terminal. Text with such characters becomes
// $'...', which bash, ksh and zsh read.
func shellQuote(text string) string {
	quoted := strconv.Quote(text)
	inner := quoted[1 : len(quoted)-1]
	switch {
	case plainWord.MatchString(text):
		return text
	// Quote has escaped nothing but quotes and backslashes.
	case strings.ReplaceAll(strings.ReplaceAll(inner, `\"`, `"`), `\\`, `\`) == text:
		return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
	}
	return "$'" + strings.ReplaceAll(inner, "'", `\'`) + "'"
}
