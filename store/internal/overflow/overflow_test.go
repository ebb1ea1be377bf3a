package overflow_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/leaktest"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/internal/overflow"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// driver is a store whose limits share cells of these generations; the keys that
// have cells of their own begin with "own".
type driver struct {
	sharing map[string]int64
	asked   []law.Op                   // in order
	batches int                        // so far
	before  func(d *driver, batch int) // called before each batch, from 1
	err     error                      // of every batch after the first
}

func (d *driver) apply(_ context.Context, ops []law.Op, outs []law.Outcome) error {
	d.batches++
	if d.before != nil {
		d.before(d, d.batches)
	}
	if d.err != nil && d.batches > 1 {
		return d.err
	}
	for i := 0; i < len(ops); {
		j := law.GroupEnd(ops, i)
		full := false
		for k := i; k < j; k++ {
			c := ops[k].Cell
			generation := d.sharing[c.Limit]
			outs[k] = law.Outcome{Clock: 5}
			switch {
			case law.IsShared(c) && law.Generation(c) != generation:
				outs[k].Full = law.Ended
			case !law.IsShared(c) && !strings.HasPrefix(c.Key, "own"):
				outs[k].Full = generation
			}
			full = full || outs[k].Full != 0
		}
		for k := i; k < j; k++ {
			if full {
				outs[k].Stale = outs[k].Full == 0
				continue
			}
			outs[k].Granted = 1
			d.asked = append(d.asked, ops[k])
		}
		i = j
	}
	return nil
}

func op(group uint32, limit, key string) law.Op {
	return law.Op{Verb: law.Take, Group: group, Cell: law.Cell{Limit: limit, Key: key}, Cost: 1, Count: 1}
}

func TestKeysWithoutACellAreSentToTheSharedOne(t *testing.T) {
	t.Parallel()
	d := &driver{sharing: map[string]int64{"full": 3, "other": 9}}
	counts := &overflow.Counts{}
	ops := []law.Op{
		op(1, "full", "own 1"),
		op(2, "full", "a"),
		op(3, "full", "own 2"), op(3, "free", "b"), op(3, "full", "c"), op(3, "other", "d"),
		op(4, "free", "a"),
		op(5, "full", "a"),
	}
	outs := make([]law.Outcome, len(ops))
	if err := overflow.Apply(t.Context(), ops, outs, d.apply, counts); err != nil {
		t.Fatal(err)
	}
	for i, shared := range []bool{false, true, false, false, true, true, false, true} {
		if outs[i].Granted != 1 || outs[i].Shared != shared || outs[i].Full != 0 || outs[i].Stale ||
			outs[i].Err != nil {
			t.Errorf("op %d: %+v", i, outs[i])
		}
	}
	var asked []string
	for _, o := range d.asked {
		asked = append(asked, fmt.Sprint(o.Group, " ", o.Cell.Limit, " ", o.Cell.Key))
	}
	want := "1 full own 1, 4 free a, " + // at once
		"1 full headgate:shared:3, 2 full own 2, 2 free b, 2 full headgate:shared:3, 2 other headgate:shared:9, 3 full headgate:shared:3"
	if got := strings.Join(asked, ", "); got != want {
		t.Errorf("asked for\n%s, want\n%s", got, want)
	}
	if counts.Of("full") != 3 || counts.Of("other") != 1 || len(counts.All()) != 2 {
		t.Errorf("counted %v", counts.All())
	}
	if ops[1].Cell.Key != "a" {
		t.Error("the caller's ops were changed")
	}
}

func TestAPeriodMayEndOrBeginOnTheWay(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		before func(d *driver, batch int)
		shared bool
	}{
		{"it ended", func(d *driver, batch int) { d.sharing = map[string]int64{"full": int64(batch % 2)} }, false},
		{"another began", func(d *driver, batch int) { d.sharing = map[string]int64{"full": int64(batch)} }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := &driver{before: func(d *driver, batch int) { tt.before(d, min(batch, 3)) }}
			if !tt.shared {
				d.before = func(d *driver, batch int) { tt.before(d, min(batch, 2)) }
			}
			outs := make([]law.Outcome, 1)
			if err := overflow.Apply(t.Context(), []law.Op{op(1, "full", "a")}, outs, d.apply, nil); err != nil {
				t.Fatal(err)
			}
			if outs[0].Granted != 1 || outs[0].Shared != tt.shared {
				t.Errorf("%+v after %d batches", outs[0], d.batches)
			}
		})
	}
}

func TestALimitThatNeverSettlesFailsWithNothingDone(t *testing.T) {
	t.Parallel()
	d := &driver{before: func(d *driver, batch int) { d.sharing = map[string]int64{"full": int64(batch)} }}
	outs := make([]law.Outcome, 2)
	if err := overflow.Apply(t.Context(), []law.Op{op(1, "full", "a"), op(2, "free", "b")}, outs, d.apply,
		nil); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(outs[0].Err, store.ErrConflict) || outs[1].Granted != 1 || len(d.asked) != 1 {
		t.Errorf("%+v, asked %v", outs, d.asked)
	}
}

func TestWhatCannotShareFails(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		op   func(*law.Op)
		want error
	}{
		{"id", func(o *law.Op) { o.ID, o.TTL = "i", 1 }, store.ErrFull},
		{"block", func(o *law.Op) { o.Verb, o.TTL = law.Block, 1 }, store.ErrFull},
		{"no block", func(o *law.Op) { o.Verb = law.Block }, nil},
		{"an old shared cell", func(o *law.Op) { o.Cell = law.SharedCell("full", 2) }, store.ErrInvalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := &driver{sharing: map[string]int64{"full": 3}}
			o := op(1, "full", "a")
			tt.op(&o)
			outs := make([]law.Outcome, 1)
			if err := overflow.Apply(t.Context(), []law.Op{o}, outs, d.apply, nil); err != nil {
				t.Fatal(err)
			}
			if !errors.Is(outs[0].Err, tt.want) || tt.want != nil && !store.NothingDone(outs[0].Err) ||
				outs[0].Shared || outs[0].Full != 0 {
				t.Errorf("%+v", outs[0])
			}
			if tt.want == nil && outs[0].Granted != 1 {
				t.Errorf("%+v", outs[0])
			}
			if len(d.asked) != 0 {
				t.Errorf("asked for %v", d.asked)
			}
		})
	}
}

func TestTheOthersKeepTheirAnswers(t *testing.T) {
	t.Parallel()
	d := &driver{sharing: map[string]int64{"full": 3}, err: store.ErrUnknownOutcome}
	outs := make([]law.Outcome, 2)
	if err := overflow.Apply(t.Context(), []law.Op{op(1, "full", "a"), op(2, "free", "b")}, outs, d.apply,
		nil); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(outs[0].Err, store.ErrUnknownOutcome) || outs[0].Granted != 0 || outs[1].Granted != 1 ||
		outs[1].Err != nil {
		t.Errorf("%+v", outs)
	}

	d = &driver{sharing: map[string]int64{"full": 3}}
	ctx, cancel := context.WithCancel(t.Context())
	d.before = func(*driver, int) { cancel() }
	if err := overflow.Apply(ctx, []law.Op{op(1, "full", "a"), op(2, "free", "b")}, outs, d.apply, nil); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(outs[0].Err, context.Canceled) || outs[1].Granted != 1 {
		t.Errorf("%+v", outs)
	}
}
