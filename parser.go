package headgate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// ParseError says what is wrong with a notation, and where. It is an ErrInvalid.
type ParseError struct {
	Notation string
	Offset   int    // bytes into Notation
	Field    string // amount, period, burst, ...
	Problem  string
}

// Error returns the problem with the notation and the place in it.
func (e *ParseError) Error() string {
	mark := utf8.RuneCountInString(e.Notation[:e.Offset]) + 1
	return fmt.Sprintf("limit %q: %s (at character %d): %s", e.Notation, e.Field, mark, e.Problem)
}

// Unwrap returns an [*InvalidError] about the limit.
func (e *ParseError) Unwrap() error {
	return &InvalidError{Field: "limit", Problem: e.Field + ": " + e.Problem}
}

// parser splits a one-line notation into its parts, which the parse function of the algorithm then uses. The grammar is
// the same for all algorithms:
//
//	NAME AMOUNT[/PERIOD] {OPTION}
//
// Without a NAME it is a token bucket, and the rate may be written as AMOUNT per PERIOD. 0 and unlimited stand alone.
// An option is from-first, a time zone, or one of burst, capacity, history, block, prefetch, ttl, away, deadline, scale
// and notify followed by its value, each at most once.
type parser struct {
	text   string
	fields []token // all words of the text

	name      string
	amount    Cost
	amountAt  int // offset of the amount in the text
	hasPeriod bool
	period    time.Duration
	calendar  CalendarUnit // the unit if the period is one of a calendar
	periodAt  int          // offset of the period; 0: it follows the amount
	Tail

	options  map[string]token // values of options that are not yet used, by the option's word; "zone" for a time zone
	valuesAt map[string]int   // offset of the value of each option
}

// token is a word of the notation.
type token struct {
	text string
	at   int // offset in the notation
}

// optionsWithValue are the words of options that are followed by a value.
var optionsWithValue = []string{
	"burst", "capacity", "history", "block", "ttl", "prefetch", "away", "deadline", "scale", "notify",
}

// reservedOption is an option that the grammar reserves for later.
const reservedOption = "wait"

// split splits the text into fields.
func (p *parser) split() {
	at := 0
	for word := range strings.FieldsFuncSeq(p.text, func(c rune) bool { return c == ' ' || c == '\t' }) {
		at += strings.Index(p.text[at:], word)
		p.fields = append(p.fields, token{word, at})
		at += len(word)
	}
}

// periodWords are the periods that can be written as words in a notation without an algorithm.
var periodWords = map[string]string{"second": "1s", "minute": "1m", "hour": "1h", "day": "1d"}

// expandShortForm puts the name of the token bucket before a notation that begins with an amount, and rewrites AMOUNT
// per PERIOD to AMOUNT/PERIOD.
func (p *parser) expandShortForm() error {
	rate := p.fields[0]
	if rate.text[0] < '0' || rate.text[0] > '9' {
		return nil
	}
	rest := p.fields[1:]
	if len(rest) > 0 && rest[0].text == "per" {
		if len(rest) == 1 {
			return p.fail("period", len(p.text), "is missing: write for example 100 per minute")
		}
		if !strings.Contains(rate.text, "/") { // else the error is in the amount's word
			p.periodAt = rest[1].at
		}
		rate.text += "/" + rest[1].text
		rest = rest[2:]
	}
	if amount, period, ok := strings.Cut(rate.text, "/"); ok && periodWords[period] != "" {
		rate.text = amount + "/" + periodWords[period]
	}
	p.fields = append([]token{{"token-bucket", rate.at}, rate}, rest...)
	return nil
}

// parseRate parses AMOUNT[/PERIOD].
func (p *parser) parseRate(f token) error {
	amount, period, hasPeriod := strings.Cut(f.text, "/")
	var err error
	p.amountAt = f.at
	if p.amount, err = parseAmount("amount", amount); err != nil {
		return p.wrap("amount", f.at, err)
	}
	if !hasPeriod {
		return nil
	}
	if p.hasPeriod = true; p.periodAt == 0 {
		p.periodAt = f.at + len(amount) + 1
	}
	switch u := CalendarUnit(period); u {
	case Minute, Hour, Day, Week, Month:
		p.calendar = u
		if p.name != "fixed-window" {
			return p.fail("period", p.periodAt, fmt.Sprintf("%q is a calendar's, which only fixed-window follows; "+
				"write a length of time such as 1m, 1h, 1d or 30d", period))
		}
		return nil
	}
	if p.period, err = ParsePeriod(period); err != nil {
		return p.wrap("period", p.periodAt, err)
	}
	return nil
}

// parseOptions sorts the words after the rate into options.
func (p *parser) parseOptions(words []token) error {
	for i := 0; i < len(words); i++ {
		w := words[i]
		name, value := w.text, w
		switch {
		case slices.Contains(optionsWithValue, w.text):
			if i+1 == len(words) {
				return p.fail(w.text, len(p.text), "needs a value")
			}
			i++
			value = words[i]
		case w.text == "from-first":
		case w.text == reservedOption:
			return p.fail(w.text, w.at, "is reserved and does nothing yet")
		case strings.Contains(w.text, "/") || w.text == "UTC" || p.calendar != "" && w.text[0] >= 'A' &&
			w.text[0] <= 'Z':
			name = "zone"
		default:
			return p.fail("option", w.at, fmt.Sprintf("%q is not known; options are burst, capacity, from-first, "+
				"history, block, prefetch, ttl, away, deadline, scale, notify and a calendar's time zone", w.text))
		}
		if _, isRepeated := p.valuesAt[name]; isRepeated {
			return p.fail(name, w.at, "is said twice")
		}
		p.options[name], p.valuesAt[name] = value, value.at
	}
	return nil
}

// readTail takes the options that all algorithms share, and the prefetch if the limit refills. Else a prefetch stays
// unused, which is an error later.
func (p *parser) readTail(refills bool) (err error) {
	if p.Block, err = p.periodOption("block"); err != nil {
		return err
	}
	if refills {
		if p.Prefetch, err = p.prefetchOption(); err != nil {
			return err
		}
	}
	if p.Away, err = option(p, "away", parseAway); err != nil {
		return err
	}
	if p.Deadline, err = p.periodOption("deadline"); err != nil {
		return err
	}
	if p.Scale, err = option(p, "scale", parseScale); err != nil {
		return err
	}
	p.Notify, err = option(p, "notify", parseNotify)
	return err
}

// takeOption returns an option's value and marks it as used.
func (p *parser) takeOption(word string) (token, bool) {
	f, ok := p.options[word]
	delete(p.options, word)
	return f, ok
}

// option takes an option and reads its value. If there is no such option, the value is zero.
func option[T any](p *parser, word string, read func(string) (T, error)) (value T, err error) {
	f, ok := p.takeOption(word)
	if !ok {
		return value, nil
	}
	if value, err = read(f.text); err != nil {
		return value, p.wrap(word, f.at, err)
	}
	return value, nil
}

// periodOption takes an option whose value is a period. If there is no such option, the period is zero.
func (p *parser) periodOption(word string) (time.Duration, error) {
	return option(p, word, func(s string) (time.Duration, error) { return parsePeriod(word, s) })
}

// needPeriod returns an error if the rate has no period.
func (p *parser) needPeriod() error {
	if !p.hasPeriod {
		return p.fail("period", p.amountAt+len(p.fields[1].text), "is missing: write "+p.name+" AMOUNT/PERIOD")
	}
	return nil
}

// fail returns a ParseError about a field, at an offset.
func (p *parser) fail(field string, at int, problem string) error {
	return &ParseError{Notation: p.text, Offset: min(at, len(p.text)), Field: field, Problem: problem}
}

// wrap turns an error about a value into a ParseError at the value's offset.
func (p *parser) wrap(field string, at int, err error) error {
	if invalid, ok := errors.AsType[*InvalidError](err); ok {
		return p.fail(field, at, invalid.Problem)
	}
	return p.fail(field, at, err.Error())
}

// prefetchOption takes the option prefetch. If there is none, the Prefetch is zero.
func (p *parser) prefetchOption() (prefetch Prefetch, err error) {
	f, ok := p.takeOption("prefetch")
	if !ok {
		return prefetch, nil
	}
	amount, life, hasLife := strings.Cut(f.text, "/")
	amount, prefetch.Percent = strings.CutSuffix(amount, "%")
	if prefetch.Amount, err = parseAmount("prefetch", amount); err != nil {
		return prefetch, p.wrap("prefetch", f.at, err)
	}
	if hasLife {
		if prefetch.Life, err = parsePeriod("prefetch", life); err != nil {
			return prefetch, p.wrap("prefetch", f.at+len(f.text)-len(life), err)
		}
		if prefetch.Life == DefaultPrefetchLife {
			prefetch.Life = 0
		}
	}
	return prefetch, nil
}

func parseAway(s string) (Away, error) {
	for a := AwayDeny; a <= AwayAllow; a++ {
		if s == a.String() {
			return a, nil
		}
	}
	return AwayDeny, Invalid("away", "must be deny, share or allow")
}

func parseScale(s string) (uint8, error) {
	if len(s) != 1 || s[0] < '0'+minScale || s[0] > '0'+maxExp {
		return 0, errScale(s)
	}
	return s[0] - '0', nil
}
