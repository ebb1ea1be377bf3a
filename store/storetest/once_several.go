package storetest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// onceOfSeveral asks requests of several charges with an id, in one batch and in several:
// also twice in one batch, with an id that other cells know, and after a part of the request
// was settled, or one of its cells reset.
func onceOfSeveral(t *testing.T, s store.Store) {
	p := bucket(1, 100)
	request := func(id string, group uint32, cost int64, keys ...int) []law.Op {
		var ops []law.Op
		for _, k := range keys {
			op := take("several", fmt.Sprint("key ", k), p, cost, T0)
			op.Group = group
			ops = append(ops, op)
		}
		return named(id, ops...)
	}
	check := func(what string, outs []law.Outcome, replayed bool, used int64) {
		t.Helper()
		for i, out := range outs {
			if out.Err != nil || out.Granted != 1 || out.Replayed != replayed || out.Used != used*p.Unit {
				t.Errorf("%s, charge %d: %+v, want replayed %v and %d in use", what, i+1, out, replayed, used)
			}
		}
	}
	six := []int{1, 2, 3, 4, 5, 6}

	// One batch: a request, the same again, its id on other cells, and its id with other charges.
	var batch []law.Op
	batch = append(batch, request("a", 1, 5, six...)...)
	batch = append(batch, request("a", 2, 5, six...)...)
	batch = append(batch, request("a", 3, 5, 7, 8)...)
	batch = append(batch, request("a", 4, 5, 6, 9)...)
	batch = append(batch, request("b", 5, 1, six...)...)
	outs := apply(t, s, batch...)
	check("asked", outs[:6], false, 5)
	check("asked again in the batch", outs[6:12], true, 5)
	check("the id on other cells", outs[12:14], false, 5)
	for _, out := range outs[14:16] {
		if !errors.Is(out.Err, law.ErrReused) {
			t.Errorf("the id with other charges, of which one is on the same cell: %+v", out)
		}
	}
	check("another id", outs[16:], false, 6)

	// Another batch: what is known is told, and what is new is charged.
	batch = append(request("a", 1, 5, six...), request("c", 2, 1, six...)...)
	outs = apply(t, s, batch...)
	check("asked again", outs[:6], true, 5)
	check("a new id in that batch", outs[6:], false, 7)

	// Two charges are settled, beside a charge of the same cells.
	ops := request("a", 1, 5, six...)
	batch = append([]law.Op{settled(ops[0], 2, T0), settled(ops[1], 2, T0)}, request("d", 2, 1, six...)...)
	outs = apply(t, s, batch...)
	for i, out := range outs[:2] {
		if out.Err != nil || out.Granted != 3*p.Unit || out.Replayed || out.Used != 4*p.Unit {
			t.Errorf("settled, charge %d: %+v", i+1, out)
		}
	}
	check("charged after that", outs[2:4], false, 5)
	check("charged beside that", outs[4:], false, 8)
	batch = nil
	for i := range ops {
		batch = append(batch, settled(ops[i], 2, T0))
	}
	for i, out := range apply(t, s, batch...) {
		want := 3 * p.Unit
		if i < 2 {
			want = 0
		}
		if out.Err != nil || out.Granted != want || out.Replayed != (i < 2) {
			t.Errorf("the rest is settled, charge %d: %+v", i+1, out)
		}
	}
	check("asked again after all was settled", apply(t, s, ops...), true, 5)

	// A reset makes one of the cells forget its ids.
	one(t, s, law.Op{Verb: law.Reset, Cell: ops[3].Cell, Params: p, Now: T0})
	if out := apply(t, s, settled(ops[3], 2, T0))[0]; !errors.Is(out.Err, law.ErrUnknownID) {
		t.Errorf("settled after a reset: %+v", out)
	}
	outs = apply(t, s, ops...)
	check("asked again, the cells that were not reset", append(outs[:3:3], outs[4:]...), true, 5)
	check("asked again, the cell that was reset", outs[3:4], false, 5)
}
