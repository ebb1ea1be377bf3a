package mysql

import (
	"errors"
	"testing"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// TestAnAnswerThatCannotBeReadLeavesTheOutcomeUnknown: it comes after the commit.
func TestAnAnswerThatCannotBeReadLeavesTheOutcomeUnknown(t *testing.T) {
	p := law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 1000, Step: 1000, Drain: 1}
	for name, records := range map[string]string{
		"empty": "", "no number": "x", "cut off": "1,2,3",
		"too long": "1,2,3,4,5,6,7,8,9;1,2,3,4,5,6,7,8,9;1;",
	} {
		ops, outs := []law.Op{{
			Verb: law.Take, Group: 1, Cell: law.Cell{Limit: "l", Key: "k"}, Params: p, Cost: 1000,
			Count: 1,
		}}, make([]law.Outcome, 1)
		if err := newPlan(ops, outs).hear([]byte(records), nil, outs); !errors.Is(err, store.ErrUnknownOutcome) ||
			errors.Is(err, store.ErrSetup) {
			t.Errorf("%s: %v, want ErrUnknownOutcome", name, err)
		}
	}
}
