package history

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"strings"
)

// Bounds of times: what is beyond them no store can count.
const (
	maxMicros = 1 << 53
	maxNanos  = 1 << 60
)

// micros reports whether times of the store's clock, or durations, can be that.
func micros(times ...int64) bool {
	return !slices.ContainsFunc(times, func(t int64) bool { return t < 0 || t > maxMicros })
}

// Number returns the value of an amount or a cost: a decimal or a fraction, not negative.
func Number(text string) (*big.Rat, error) {
	plain := strings.Trim(text, "0123456789./") == "" && len(text) <= 100
	r, ok := new(big.Rat).SetString(text)
	if !plain || !ok {
		return nil, fmt.Errorf("%q is no decimal and no fraction", text)
	}
	return r, nil
}

// Valid says what is wrong with an event by itself; nil if nothing is.
func (e *Event) Valid() error {
	objects := 0
	for _, there := range []bool{
		e.Limit != nil, e.Call != nil, e.Return != nil, e.Removal != nil, e.Fault != nil, e.State != nil,
	} {
		if there {
			objects++
		}
	}
	switch {
	case objects != 1:
		return fmt.Errorf("an event has one object, not %d", objects)
	case e.T < 0 || e.T > maxNanos:
		return fmt.Errorf("t: %d is no time since the start of the run", e.T)
	case e.Limit != nil:
		return e.Limit.valid()
	case e.Call != nil:
		return e.Call.valid()
	case e.Return != nil:
		return e.Return.valid()
	case e.Fault != nil:
		return e.Fault.valid()
	case e.State != nil:
		return e.State.valid()
	}
	return nil // which override there is to be removed the checker knows
}

func (l *Limit) valid() error {
	rated := []string{TokenBucket, LeakyBucket, GCRA, Interval, SlidingWindow, SlidingLog}
	if !micros(l.Period, l.Block, l.TTL, l.PrefetchLife, l.Until, l.Felt) || l.From < 0 {
		return fmt.Errorf("limit %s: a time below 0, or too long", l.Name)
	}
	switch {
	case l.Key == "" && (l.Until > 0 || l.Felt > 0):
		return fmt.Errorf("limit %s: until and felt are of overrides, which have a key", l.Name)
	case slices.Contains(rated, l.Algorithm):
		if l.Period == 0 || l.Calendar != "" {
			return fmt.Errorf("limit %s: %s needs a period", l.Name, l.Algorithm)
		}
	case l.Algorithm == FixedWindow:
		units := []string{"", "minute", "hour", "day", "week", "month"}
		if !slices.Contains(units, l.Calendar) || (l.Calendar == "") == (l.Period == 0) {
			return fmt.Errorf("limit %s: a fixed window has either a period or a unit of the calendar", l.Name)
		}
	case l.Algorithm == Concurrency:
		if l.TTL == 0 {
			return fmt.Errorf("limit %s: concurrency needs a ttl", l.Name)
		}
	default:
		return fmt.Errorf("limit %s: %q is no algorithm", l.Name, l.Algorithm)
	}
	for i, text := range []string{l.Amount, l.Burst, l.Prefetch} {
		if i > 0 && text == "" {
			continue
		}
		if n, err := Number(text); err != nil || n.Sign() == 0 {
			return fmt.Errorf("limit %s: %q is no amount above 0", l.Name, text)
		}
	}
	return nil
}

func (c *Call) valid() error {
	verbs := []string{Take, Check, Reserve, Extend, Settle, Cancel, Acquire, Renew, Release, Reset, Block, Unblock}
	if c.ID <= 0 {
		return fmt.Errorf("call: the id %d is not above 0", c.ID)
	}
	if !slices.Contains(verbs, c.Verb) {
		return fmt.Errorf("call %d: %q is no verb", c.ID, c.Verb)
	}
	if !micros(c.Life, c.Wait, c.For) {
		return fmt.Errorf("call %d: a time below 0, or too long", c.ID)
	}
	asks := slices.Contains([]string{Take, Check, Reserve, Extend, Acquire}, c.Verb)
	if c.Verb == Extend && c.Idem == "" {
		return fmt.Errorf("call %d: extend without an id", c.ID)
	}
	if len(c.Charges) == 0 && (asks || c.Of == 0) {
		return fmt.Errorf("call %d: no charges", c.ID)
	}
	for i := range c.Charges {
		if _, err := Number(c.Charges[i].Cost); err != nil && (asks || c.Charges[i].Cost != "") {
			return fmt.Errorf("call %d: cost: %w", c.ID, err)
		}
		_, err := Number(strings.TrimSuffix(c.Charges[i].Keep, "%"))
		if err != nil && c.Charges[i].Keep != "" {
			return fmt.Errorf("call %d: keep: %w", c.ID, err)
		}
	}
	return numbers("actual", c.Actual...)
}

func (r *Return) valid() error {
	outcomes := []string{Admitted, Refused, Done, Nothing, Unknown}
	if !slices.Contains(outcomes, r.Outcome) {
		return fmt.Errorf("return %d: %q is no outcome", r.ID, r.Outcome)
	}
	if !slices.Contains([]string{"", ViaStore, ViaPrefetch, ViaRepeat, ViaFallback}, r.Via) {
		return fmt.Errorf("return %d: via %q is not known", r.ID, r.Via)
	}
	if !micros(r.At, r.StartAt) || r.Until < 0 || r.Until > maxNanos {
		return fmt.Errorf("return %d: a time below 0, or too late", r.ID)
	}
	for _, f := range r.Each {
		if f.Remaining < -1 || f.RetryAfter < -1 {
			return fmt.Errorf("return %d: figures below 0", r.ID)
		}
	}
	return cmp.Or(numbers("charged", r.Charged...), numbers("corrected", r.Corrected...))
}

func (f *Fault) valid() error {
	if !micros(max(f.By, -f.By)) || f.Since < 0 || f.Since > maxNanos ||
		f.Kind == Drift && (f.By < 0 || f.By > 100_000) {
		return fmt.Errorf("fault %s: by %d, since %d is too much", f.Kind, f.By, f.Since)
	}
	return nil
}

func (s *State) valid() error {
	if !micros(s.At) {
		return fmt.Errorf("state: at %d", s.At)
	}
	return numbers("used", s.Used)
}

func numbers(field string, texts ...string) error {
	for _, text := range texts {
		if _, err := Number(text); err != nil {
			return fmt.Errorf("%s: %w", field, err)
		}
	}
	return nil
}
