package storetest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

func groupsShare(t *testing.T, s store.Store) {
	p := slow()["bucket"]
	fillLimit(t, s, "group", p)
	group := func(keys ...string) []law.Outcome {
		var ops []law.Op
		for _, k := range keys {
			limit := "group"
			if k == "elsewhere" {
				limit = "another"
			}
			ops = append(ops, take(limit, k, p, 1, 0))
		}
		return apply(t, s, ops...)
	}
	for i, out := range group("own 0", "new 1", "new 2", "elsewhere") {
		if out.Err != nil || out.Granted != 1 || out.Shared != (i == 1 || i == 2) {
			t.Errorf("op %d: %+v", i, out)
		}
	}
	// One unit is left to the keys that share: a group that takes two changes nothing.
	refused := 0
	for _, out := range group("own 1", "new 3", "elsewhere", "new 4") {
		if out.Err != nil {
			t.Error(out.Err)
		}
		if out.Granted == 0 {
			refused++
		}
	}
	if refused == 0 {
		t.Error("two passed where there was room for one")
	}
	for key, want := range map[string]int64{"own 0": 2, "own 1": 1, "new 5": 2, "elsewhere": 1} {
		op := take("group", key, p, 1, 0)
		if op.Verb = law.Check; key == "elsewhere" {
			op.Cell.Limit = "another"
		}
		if out := one(t, s, op); out.Used != (want+1)*p.Unit {
			t.Errorf("%s: %d units are used, want %d", key, out.Used/p.Unit-1, want)
		}
	}
	// Several groups of one batch, of which some share, and one has a key twice.
	ops := []law.Op{
		take("group", "new 6", p, 1, 0), take("another", "elsewhere", p, 1, 0), take("group", "new 7", p, 1, 0),
		take("group", "own 2", p, 1, 0), take("group", "own 2", p, 1, 0),
	}
	for i, g := range []uint32{1, 2, 3, 4, 4} {
		ops[i].Group = g
	}
	for i, out := range apply(t, s, ops...) {
		if want := int64(1); out.Err != nil || out.Granted != want && i != 2 || i == 2 && out.Granted != 0 ||
			out.Shared != (i == 0 || i == 2) {
			t.Errorf("op %d of a batch: %+v", i, out)
		}
	}
}

func checksShare(t *testing.T, s store.Store) {
	for limit, p := range slow() {
		fillLimit(t, s, limit, p)
		one(t, s, take(limit, "first", p, 1, 0)) // so that it shares
		for i := range 4 {
			op := take(limit, fmt.Sprint("new ", i), p, 1, 0)
			op.Verb = law.Check
			check := one(t, s, op)
			op.Verb = law.Take
			out := one(t, s, op)
			if check.Granted != out.Granted || check.Used != out.Used || !check.Shared || !out.Shared {
				t.Errorf("%s: checked %+v, took %+v", limit, check, out)
			}
		}
	}
}

func idsOfTheFull(t *testing.T, s store.Store) {
	const hour = 3_600_000_000
	for limit, p := range slow() {
		known := take(limit, "own 0", p, 1, 0)
		known.ID, known.TTL = "known", hour
		fillLimit(t, s, limit, p)
		if out := one(t, s, known); out.Granted != 1 || out.Shared {
			t.Errorf("%s: a key with a cell: %+v", limit, out)
		}
		first := one(t, s, take(limit, "first", p, 1, 0))
		if out := one(t, s, known); !out.Replayed {
			t.Errorf("%s: asked again: %+v", limit, out)
		}
		asked, extended, settled, blocked, open, reset := known, known, known, known, known, known
		for _, op := range []*law.Op{&asked, &extended, &settled, &blocked, &open, &reset} {
			op.Cell.Key = "new"
		}
		extended.Verb, settled.Verb, settled.TTL = law.Extend, law.Settle, 0
		blocked.Verb, blocked.ID = law.Block, ""
		open.Verb, open.ID, open.TTL = law.Block, "", 0
		reset.Verb, reset.ID = law.Reset, ""
		for name, tt := range map[string]struct {
			op   law.Op
			want error
		}{
			"take with an id": {asked, store.ErrFull}, "settle": {settled, law.ErrUnknownID},
			"extend": {extended, law.ErrUnknownID},
			"block":    {blocked, store.ErrFull},
			"no block": {open, nil}, "reset": {reset, nil},
		} {
			out := apply(t, s, tt.op)[0]
			if !errors.Is(out.Err, tt.want) || tt.want != nil && out.Granted != 0 || tt.op.Verb == law.Reset &&
				out.Granted != 0 {
				t.Errorf("%s: %s: %+v, want %v", limit, name, out, tt.want)
			}
		}
		if out := one(t, s, take(limit, "last", p, 1, 0)); !out.Shared || out.Used != first.Used+p.Unit {
			t.Errorf("%s: what failed was charged: %+v", limit, out)
		}
	}
}

func returnsShare(t *testing.T, s store.Store) {
	for limit, p := range slow() {
		fillLimit(t, s, limit, p)
		op := take(limit, "new", p, 2, 0)
		out := one(t, s, op)
		if back := one(t, s, law.Back(&op, &out, p.Unit)); back.Granted != p.Unit || !back.Shared {
			t.Errorf("%s: given back %+v", limit, back)
		}
		if more := one(t, s, law.Back(&op, &out, -p.Unit)); more.Granted != -p.Unit || !more.Shared ||
			more.Used != 2*p.Unit {
			t.Errorf("%s: charged in addition %+v", limit, more)
		}
		if p.Kind == law.Log {
			renew := law.Op{Verb: law.Renew, Group: 1, Cell: op.Cell, Params: p, EntryNumber: out.EntryNumber}
			if got := one(t, s, renew); got.Granted != 1 || !got.Shared {
				t.Errorf("%s: renewed %+v", limit, got)
			}
		}
		part := take(limit, "newer", p, 1, 0)
		part.Count, part.Partial = 5, true
		if got := one(t, s, part); got.Granted != 1 || !got.Shared {
			t.Errorf("%s: in part: %+v", limit, got)
		}
	}
	p := slow()["bucket"]
	late := take("bucket", "later", p, 2, 0)
	late.Deferred, late.Ceiling = true, p.Ceiling(10*p.Step)
	out := one(t, s, late)
	if out.Granted != 1 || !out.Shared || out.StartAt <= out.Clock {
		t.Fatalf("a reservation: %+v", out)
	}
	if back := one(t, s, law.Back(&late, &out, 2*p.Unit)); back.Granted != 2*p.Unit || !back.Shared {
		t.Errorf("cancelled: %+v", back)
	}
}

// returnsAfterReset gives back what was charged to a cell that was reset since: none of
// it is in the cell that the key shares now.
func returnsAfterReset(t *testing.T, s store.Store) {
	for limit, p := range slow() {
		fillLimit(t, s, limit, p)
		op := take(limit, "own 0", p, 2, 0)
		out := one(t, s, op)
		one(t, s, take(limit, "new", p, 3, 0)) // all that the keys that share may take
		one(t, s, law.Op{Verb: law.Reset, Group: 1, Cell: op.Cell, Params: p})
		back := one(t, s, law.Back(&op, &out, 2*p.Unit))
		if again := one(t, s, take(limit, "new", p, 1, 0)); back.Granted != 0 || again.Granted != 0 || !again.Shared {
			t.Errorf("%s: given back %+v, and then one who shares took %+v", limit, back, again)
		}
	}
}

func historyOfTheFull(t *testing.T, s store.Store) {
	p := slow()["log"]
	p.History = 2 * p.Step
	fillLimit(t, s, "history", p)
	for i := range 5 {
		out := one(t, s, take("history", fmt.Sprint("new ", i), p, 1, 0))
		if want := int64(min(1, max(0, 3-i))); out.Granted != want || out.EntryNumber == 0 || !out.Shared {
			t.Errorf("attempt %d: %+v", i, out)
		}
	}
	p = slow()["bucket"]
	p.Block = 3_600_000_000
	fillLimit(t, s, "blocks", p)
	one(t, s, take("blocks", "new", p, 3, 0))
	one(t, s, take("blocks", "newer", p, 1, 0)) // is refused, and blocks
	out := one(t, s, take("blocks", "newest", p, 1, 0))
	if out.Granted != 0 || out.State.BlockedUntil <= out.Clock || !out.Shared {
		t.Errorf("a blocked cell: %+v", out)
	}
	if out := one(t, s, take("blocks", "own 1", p, 1, 0)); out.Granted != 1 {
		t.Errorf("the block of the others: %+v", out)
	}
}
