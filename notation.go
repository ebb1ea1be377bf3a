package headgate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// ParseError says what is wrong with a notation and where. It is an
// ErrInvalid.
type ParseError struct {
	Notation string
	Offset   int    // bytes into Notation
	Field    string // amount, period, burst, ...
	Problem  string
}

// Error points at the place.
func (e *ParseError) Error() string {
	mark := utf8.RuneCountInString(e.Notation[:e.Offset]) + 1
	return fmt.Sprintf("limit %q: %s (at character %d): %s", e.Notation, e.Field, mark, e.Problem)
}

// Unwrap returns an [*InvalidError] about the limit.
func (e *ParseError) Unwrap() error {
	return &InvalidError{Field: "limit", Problem: e.Field + ": " + e.Problem}
}

// notation is a one-line limit taken apart, before it is known what the
// algorithm makes of it. The grammar is the same for all of them:
//
//	NAME AMOUNT[/PERIOD] {OPTION}
//
// Without a NAME it is that of a token bucket, and the rate may be AMOUNT per PERIOD. 0 and
// unlimited stand alone. An option is from-first, a time zone, or one of burst, capacity,
// history, block, prefetch, ttl, away, deadline, scale followed by its value, each at most once.
type notation struct {
	text   string
	fields []field // the words after the name and the rate that are not yet used

	name      string
	amount    Cost
	amountAt  int
	hasPeriod bool
	period    time.Duration
	calendar  CalendarUnit
	periodAt  int // 0: behind the amount
	block     time.Duration
	prefetch  Prefetch
	away      Away
	deadline  time.Duration
	scale     uint8

	options map[string]field // not yet used, by the option's word; "zone" for a time zone
	places  map[string]int   // where the value of each option stands
}

type field struct {
	text string
	at   int
}

// valued are the options that are followed by a value.
var valued = []string{"burst", "capacity", "history", "block", "ttl", "prefetch", "away", "deadline", "scale"}

// prefetching are the algorithms that can have a prefetch. Of others it is an option
// that does not apply.
var prefetching = map[string]bool{
	"token-bucket": true, "leaky-bucket": true, "gcra": true, "interval": true,
	"fixed-window": true,
}

// later are options that the grammar reserves.
var later = []string{"wait"}

func (n *notation) split() {
	for at := 0; at < len(n.text); {
		if n.text[at] == ' ' || n.text[at] == '\t' {
			at++
			continue
		}
		end := at
		for end < len(n.text) && n.text[end] != ' ' && n.text[end] != '\t' {
			end++
		}
		n.fields = append(n.fields, field{n.text[at:end], at})
		at = end
	}
}

// words are periods that can be written as words where the algorithm is left out.
var words = map[string]string{"second": "1s", "minute": "1m", "hour": "1h", "day": "1d"}

// lengthen puts the name of the token bucket before a notation that begins with an amount,
// and writes AMOUNT per PERIOD as AMOUNT/PERIOD.
func (n *notation) lengthen() error {
	rate := n.fields[0]
	if rate.text[0] < '0' || rate.text[0] > '9' {
		return nil
	}
	rest := n.fields[1:]
	if len(rest) > 0 && rest[0].text == "per" {
		if len(rest) == 1 {
			return n.fail("period", len(n.text), "is missing: write for example 100 per minute")
		}
		if !strings.Contains(rate.text, "/") { // else what is wrong stands there
			n.periodAt = rest[1].at
		}
		rate.text += "/" + rest[1].text
		rest = rest[2:]
	}
	if amount, period, ok := strings.Cut(rate.text, "/"); ok && words[period] != "" {
		rate.text = amount + "/" + words[period]
	}
	n.fields = append([]field{{"token-bucket", rate.at}, rate}, rest...)
	return nil
}

// parseRate parses AMOUNT[/PERIOD].
func (n *notation) parseRate(f field) error {
	amount, period, has := strings.Cut(f.text, "/")
	var err error
	n.amountAt = f.at
	if n.amount, err = parseAmount("amount", amount); err != nil {
		return n.wrap("amount", f.at, err)
	}
	if !has {
		return nil
	}
	if n.hasPeriod = true; n.periodAt == 0 {
		n.periodAt = f.at + len(amount) + 1
	}
	switch u := CalendarUnit(period); u {
	case Minute, Hour, Day, Week, Month:
		n.calendar = u
		if n.name != "fixed-window" {
			return n.fail("period", n.periodAt, fmt.Sprintf("%q is a calendar's, which only fixed-window follows; "+
				"write a length of time such as 1m, 1h, 1d or 30d", period))
		}
		return nil
	}
	if n.period, err = ParsePeriod(period); err != nil {
		return n.wrap("period", n.periodAt, err)
	}
	return nil
}

// parseOptions sorts the words after the rate into options.
func (n *notation) parseOptions(words []field) error {
	for i := 0; i < len(words); i++ {
		w := words[i]
		name, value := w.text, w
		switch {
		case slices.Contains(valued, w.text):
			if i+1 == len(words) {
				return n.fail(w.text, len(n.text), "needs a value")
			}
			i++
			value = words[i]
		case w.text == "from-first":
		case slices.Contains(later, w.text):
			return n.fail(w.text, w.at, "is reserved and does nothing yet")
		case strings.Contains(w.text, "/") || w.text == "UTC" || n.calendar != "" && w.text[0] >= 'A' &&
			w.text[0] <= 'Z':
			name = "zone"
		default:
			return n.fail("option", w.at, fmt.Sprintf("%q is not known; options are burst, capacity, from-first, "+
				"history, block, prefetch, ttl, away, deadline, scale and a calendar's time zone", w.text))
		}
		if _, twice := n.places[name]; twice {
			return n.fail(name, w.at, "is said twice")
		}
		n.options[name], n.places[name] = value, value.at
	}
	var err error
	if n.block, err = n.periodOption("block"); err == nil && prefetching[n.name] {
		n.prefetch, err = n.prefetchOption()
	}
	if err == nil {
		n.away, err = n.awayOption()
	}
	if err == nil {
		n.deadline, err = n.periodOption("deadline")
	}
	if err == nil {
		n.scale, err = n.scaleOption()
	}
	return err
}

// take returns an option's value and marks it as used.
func (n *notation) take(word string) (string, bool) {
	f, ok := n.options[word]
	delete(n.options, word)
	return f.text, ok
}

// periodOption takes an option whose value is a length of time; zero if it
// is absent.
func (n *notation) periodOption(word string) (time.Duration, error) {
	f, ok := n.options[word]
	if !ok {
		return 0, nil
	}
	delete(n.options, word)
	d, err := parsePeriod(word, f.text)
	if err != nil {
		return 0, n.wrap(word, f.at, err)
	}
	return d, nil
}

// rate takes what the algorithms with a rate and a burst have in common.
func (n *notation) rate(burst string) (rated, error) {
	r := rated{Amount: n.amount, Period: n.period, Tail: n.tail()}
	if err := n.needPeriod(); err != nil {
		return r, err
	}
	if f, ok := n.options[burst]; ok {
		delete(n.options, burst)
		var err error
		if r.Burst, err = parseAmount(burst, f.text); err != nil {
			return r, n.wrap(burst, f.at, err)
		}
	}
	return r, nil
}

func (n *notation) needPeriod() error {
	if !n.hasPeriod {
		return n.fail("period", n.amountAt+len(n.fields[1].text), "is missing: write "+n.name+" AMOUNT/PERIOD")
	}
	return nil
}

func (n *notation) tail() Tail {
	return Tail{Block: n.block, Prefetch: n.prefetch, Away: n.away, Deadline: n.deadline, Scale: n.scale}
}

func (n *notation) fail(field string, at int, problem string) error {
	return &ParseError{Notation: n.text, Offset: min(at, len(n.text)), Field: field, Problem: problem}
}

// wrap turns an InvalidError into a ParseError at its place.
func (n *notation) wrap(field string, at int, err error) error {
	if wrong, ok := errors.AsType[*InvalidError](err); ok {
		return n.fail(field, at, wrong.Problem)
	}
	return n.fail(field, at, err.Error())
}

// entry is an algorithm in the catalogue.
type entry struct {
	name   string
	syntax string // what follows the name
	about  string // one sentence, for explain and docs
	parse  func(*notation) (Algorithm, error)
}

// prefetchOption takes the option from a notation.
func (n *notation) prefetchOption() (u Prefetch, err error) {
	f, ok := n.options["prefetch"]
	if !ok {
		return u, nil
	}
	delete(n.options, "prefetch")
	amount, life, timed := strings.Cut(f.text, "/")
	amount, u.Percent = strings.CutSuffix(amount, "%")
	if u.Amount, err = parseAmount("prefetch", amount); err != nil {
		return u, n.wrap("prefetch", f.at, err)
	}
	if timed {
		if u.Life, err = parsePeriod("prefetch", life); err != nil {
			return u, n.wrap("prefetch", f.at+len(f.text)-len(life), err)
		}
		if u.Life == DefaultPrefetchLife {
			u.Life = 0
		}
	}
	return u, nil
}

// awayOption takes the option away from a notation.
func (n *notation) awayOption() (Away, error) {
	f, ok := n.options["away"]
	if !ok {
		return AwayDeny, nil
	}
	delete(n.options, "away")
	for a := AwayDeny; a <= AwayAllow; a++ {
		if f.text == a.String() {
			return a, nil
		}
	}
	return AwayDeny, n.fail("away", f.at, "must be deny, share or allow")
}

// scaleOption takes the option scale from a notation.
func (n *notation) scaleOption() (uint8, error) {
	f, ok := n.options["scale"]
	if !ok {
		return 0, nil
	}
	delete(n.options, "scale")
	if len(f.text) != 1 || f.text[0] < '0'+minScale || f.text[0] > '0'+maxExp {
		return 0, n.wrap("scale", f.at, errScale(f.text))
	}
	return f.text[0] - '0', nil
}
