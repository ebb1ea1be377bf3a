package history

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"strings"
)

// maxMicros bounds times of the store's clock: what is beyond it no store can count.
const maxMicros = 1 << 53

// Number returns the value of an amount or a cost: a decimal or a fraction, not negative.
func Number(text string) (*big.Rat, error) {
	plain := strings.Trim(text, "0123456789./") == "" && len(text) <= 100
	r, ok := new(big.Rat).SetString(text)
	if !plain || !ok {
		return nil, fmt.Errorf("%q is no decimal and no fraction", text)
	}
	return r, nil
}

// Valid says what is wrong with an answer, or with what the store says in the end; nil if nothing is. All other events
// are as the recorder makes them.
func (e *Event) Valid() error {
	switch {
	case e.Return != nil:
		return e.Return.valid()
	case e.State != nil && !micros(e.State.At):
		return fmt.Errorf("state: at %d", e.State.At)
	case e.State != nil:
		return numbers("used", e.State.Used)
	}
	return nil
}

func (r *Return) valid() error {
	if !micros(r.At) || !micros(r.StartAt) {
		return fmt.Errorf("return %d: a time below 0, or too late", r.ID)
	}
	if slices.ContainsFunc(r.Each, func(f Figures) bool { return f.Remaining < -1 || f.RetryAfter < -1 }) {
		return fmt.Errorf("return %d: figures below 0", r.ID)
	}
	return cmp.Or(numbers("charged", r.Charged...), numbers("corrected", r.Corrected...))
}

// micros reports whether a store can count up to a time.
func micros(at int64) bool { return at >= 0 && at <= maxMicros }

func numbers(field string, texts ...string) error {
	for _, text := range texts {
		if _, err := Number(text); err != nil {
			return fmt.Errorf("%s: %w", field, err)
		}
	}
	return nil
}
