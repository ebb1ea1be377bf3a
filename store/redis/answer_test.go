package redis

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/dbtest"
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
		if got := classify("apply", err); err == nil || !errors.Is(got, store.ErrUnknownOutcome) || mayRetry(err) {
			t.Errorf("%s: %v, want ErrUnknownOutcome, not to be asked again", name, got)
		}
		p := &part{call: c}
		if err := p.read(ops, outs, nil); !errors.Is(classify("apply", err), store.ErrUnknownOutcome) || p.admitted {
			t.Errorf("an answer of no values: %v", err)
		}
	}
}

// TestTheMostDoubtfulErrorIsReturned: a caller must not retry because another part of the
// batch was not done.
func TestTheMostDoubtfulErrorIsReturned(t *testing.T) {
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

// TestACellOfANewerVersionIsRefused: its format is unknown, so nothing is charged.
func TestACellOfANewerVersionIsRefused(t *testing.T) {
	t.Parallel()
	s := openTest(t, dbtest.Redis(t), nil)
	for _, kind := range []law.Kind{law.Bucket, law.Window} {
		op := law.Op{
			Verb: law.Take, Group: 1, Cell: law.Cell{Limit: "l", Key: fmt.Sprint(kind)}, Cost: 1000, Count: 1,
			Params: law.Params{Kind: kind, Unit: 1000, Capacity: 9000, Step: 60_000_000, Drain: 1},
		}
		outs := make([]law.Outcome, 1)
		if err := s.Apply(t.Context(), []law.Op{op}, outs); err != nil || outs[0].Granted != 1 {
			t.Fatalf("%+v, %v", outs, err)
		}
		name := s.cellKey(op.Cell)
		const newer = "2:1 1 0 0"
		if v, err := s.client.Do(t.Context(),
			s.client.B().Getset().Key(name).Value(newer).Build()).ToString(); err != nil || v == "" {
			t.Fatalf("%q, %v", v, err)
		}
		outs[0] = law.Outcome{}
		if err := s.Apply(t.Context(), []law.Op{op}, outs); !errors.Is(err, store.ErrSchemaNewer) ||
			outs[0].Granted != 0 {
			t.Errorf("%d: %+v, %v", kind, outs, err)
		}
		if v, err := s.client.Do(t.Context(), s.client.B().Get().Key(name).Build()).ToString(); err != nil ||
			v != newer {
			t.Errorf("%d: the cell is %q, %v", kind, v, err)
		}
	}
}
