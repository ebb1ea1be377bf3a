package redis

import (
	"errors"
	"strings"
	"testing"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// TestAnAnswerThatCannotBeReadLeavesTheOutcomeUnknown: the script has run.
func TestAnAnswerThatCannotBeReadLeavesTheOutcomeUnknown(t *testing.T) {
	clock := strings.Repeat("\x00", 8)
	whole := clock + "=" + strings.Repeat("\x00", law.Width*8)
	for name, answer := range map[string]string{
		"empty":         "",
		"too short":     "1234567",
		"a clock alone": clock,
		"half a number": whole[:len(whole)-3],
		"garbage":       clock + "garbage",
		"too long":      whole + "more",
	} {
		ops, outs := []law.Op{takeOne("l", "k", hourly, 0)}, make([]law.Outcome, 1)
		c := &call{index: []int{0}}
		err := c.decode(answer, ops, outs)
		if got := classify("apply", err); err == nil || !errors.Is(got, store.ErrUnknownOutcome) || again(err) {
			t.Errorf("%s: %v, want ErrUnknownOutcome, not to be asked again", name, got)
		}
		p := &part{call: &answered{c, ops, outs}}
		if err := p.read(ops, outs, nil); !errors.Is(classify("apply", err), store.ErrUnknownOutcome) || p.admitted {
			t.Errorf("an answer of no values: %v", err)
		}
	}
}

// TestOfSeveralErrorsTheDoubtIsTold: nobody may ask again because another part of the
// batch was not done.
func TestOfSeveralErrorsTheDoubtIsTold(t *testing.T) {
	done := classify("apply", store.ErrConflict)
	doubt := classify("apply", errAnswer)
	for _, errs := range [][]error{{done, doubt}, {doubt, done}, {done, doubt, done, nil}} {
		if got := worst(errs); !errors.Is(got, store.ErrUnknownOutcome) {
			t.Errorf("of %v: %v", errs, got)
		}
	}
	if got := worst([]error{nil, done}); !errors.Is(got, store.ErrConflict) || errors.Is(got, store.ErrUnknownOutcome) {
		t.Errorf("a conflict: %v", got)
	}
}
