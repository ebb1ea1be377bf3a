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

// TestAMalformedAnswerIsErrUnknownOutcome checks that a call is not retried: the script has run, and may have charged.
func TestAMalformedAnswerIsErrUnknownOutcome(t *testing.T) {
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
			t.Errorf("%s: got %v, want ErrUnknownOutcome that is not retried", name, got)
		}
		p := &part{call: c}
		if err := p.read(ops, outs, nil); !errors.Is(classify("apply", err), store.ErrUnknownOutcome) || p.admitted {
			t.Errorf("an answer of no values: got %v, want ErrUnknownOutcome", err)
		}
	}
}

// TestWorstPrefersErrUnknownOutcome checks that a part of a batch which may have charged decides its error: a retry of
// the batch would charge that part twice.
func TestWorstPrefersErrUnknownOutcome(t *testing.T) {
	conflict := classify("apply", store.ErrConflict)
	unknown := classify("apply", errAnswer)
	for _, errs := range [][]error{{conflict, unknown}, {unknown, conflict}, {conflict, unknown, conflict, nil}} {
		if got := worst(errs); !errors.Is(got, store.ErrUnknownOutcome) {
			t.Errorf("of %v: got %v, want ErrUnknownOutcome", errs, got)
		}
	}
	if got := worst([]error{nil, conflict}); !errors.Is(got, conflict) {
		t.Errorf("a conflict: got %v, want ErrConflict", got)
	}
}

// TestACellOfANewerVersionIsErrSchemaNewer checks that a cell in an unknown format is neither charged nor changed.
func TestACellOfANewerVersionIsErrSchemaNewer(t *testing.T) {
	t.Parallel()
	s := openTest(t, dbtest.Redis(t), nil)
	for _, kind := range []law.Kind{law.Bucket, law.Window} {
		op := law.Op{
			Verb: law.Take, Group: 1, Cell: law.Cell{Limit: "l", Key: fmt.Sprint(kind)}, Cost: 1000, Count: 1,
			Params: law.Params{Kind: kind, Unit: 1000, Capacity: 9000, Step: 60_000_000, Drain: 1},
		}
		outs := make([]law.Outcome, 1)
		if err := s.Apply(t.Context(), []law.Op{op}, outs); err != nil || outs[0].Granted != 1 {
			t.Fatalf("got %+v, %v; want it admitted", outs, err)
		}
		name := s.cellKey(op.Cell)
		const newerCell = "2:1 1 0 0"
		if v, err := s.client.Do(t.Context(),
			s.client.B().Getset().Key(name).Value(newerCell).Build()).ToString(); err != nil || v == "" {
			t.Fatalf("GETSET: got %q, %v; want the cell", v, err)
		}
		outs[0] = law.Outcome{}
		if err := s.Apply(t.Context(), []law.Op{op}, outs); !errors.Is(err, store.ErrSchemaNewer) ||
			outs[0].Granted != 0 {
			t.Errorf("kind %d: got %+v, %v; want ErrSchemaNewer", kind, outs, err)
		}
		if v, err := s.client.Do(t.Context(), s.client.B().Get().Key(name).Build()).ToString(); err != nil ||
			v != newerCell {
			t.Errorf("kind %d: got the cell %q, %v; want %q", kind, v, err, newerCell)
		}
	}
}
