package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// named returns a request with an ID that is remembered for a minute.
func named(id string, ops ...law.Op) []law.Op {
	for i := range ops {
		ops[i].ID, ops[i].TTL = id, 60*sec
	}
	return ops
}

// settled returns an op that settles a charge at n units.
func settled(op law.Op, n, now int64) law.Op {
	return law.Op{
		Verb: law.Settle, Group: op.Group, Cell: op.Cell, Params: op.Params, Window: op.Window,
		ID: op.ID, Cost: n * op.Params.Unit, Count: 1, Now: now,
	}
}

// cancelling returns an op that cancels a charge.
func cancelling(op law.Op, now int64) law.Op {
	op = settled(op, 0, now)
	op.Cost = law.Cancelled
	return op
}

// once asks the same request again, as a caller does who did not hear the answer.
func once(t *testing.T, s store.Store) {
	b, l := bucket(1, 5), slidingLog(5, 100*sec)
	ask := func(id string, n, now int64) []law.Outcome {
		return apply(t, s, named(id, take("once b", "k", b, n, now), take("once l", "k", l, 1, now))...)
	}
	first := ask("a", 3, T0)
	for _, now := range []int64{T0, T0 + 2*sec, T0 + 59*sec} {
		again := ask("a", 3, now)
		for i := range again {
			want := first[i]
			want.Clock, want.Replayed = now, true
			if again[i] != want {
				t.Errorf("asked again after %d us:\n got %+v\nwant %+v", now-T0, again[i], want)
			}
		}
	}
	for _, out := range ask("a", 2, T0+sec) {
		if !errors.Is(out.Err, law.ErrReused) {
			t.Errorf("an id used for other charges: %+v", out)
		}
	}
	if out := apply(t, s, named("a", take("once b", "k", b, 3, T0+sec))...); !errors.Is(out[0].Err, law.ErrReused) {
		t.Errorf("an id used for a part of the charges: %+v", out)
	}
	left := func(want int64) {
		t.Helper()
		check := take("once b", "k", b, 1, T0+sec)
		check.Verb = law.Check
		if out := one(t, s, check); out.Used-out.Granted*check.Cost != want*b.Unit {
			t.Errorf("%d in use, want %d units", out.Used, want)
		}
	}
	left(2) // 3, of which one second has drained
	if out := ask("b", 4, T0+sec); out[0].Granted != 0 || out[0].Replayed {
		t.Errorf("admitted without room: %+v", out)
	}
	if out := ask("b", 4, T0+3*sec); out[0].Granted != 1 || out[0].Replayed {
		t.Errorf("an id that was refused is not decided again: %+v", out)
	}
	if out := ask("a", 3, T0+60*sec); out[0].Granted != 1 || out[0].Replayed {
		t.Errorf("an id is remembered beyond its time: %+v", out)
	}
	one(t, s, law.Op{Verb: law.Reset, Cell: law.Cell{Limit: "once b", Key: "k"}, Params: b, Now: T0 + 61*sec})
	if out := ask("a", 3, T0+61*sec); out[0].Replayed || !out[1].Replayed || out[0].Granted != 1 ||
		out[1].Granted != 1 {
		t.Errorf("after a reset of one of two: %+v", out)
	}
}

// onceAtATime lets many ask with one ID at once: one of them is charged, all are
// admitted.
func onceAtATime(t *testing.T, s store.Store) {
	var admitted, charged atomic.Int64
	op := named("id", take("at once", "k", bucket(1, 5), 2, T0))
	crowd(24, func(int) bool {
		outs := make([]law.Outcome, 1)
		if err := s.Apply(context.Background(), op, outs); err != nil || outs[0].Err != nil {
			t.Errorf("apply: %v, %v", err, outs[0].Err)
		}
		admitted.Add(outs[0].Granted)
		if !outs[0].Replayed {
			charged.Add(1)
		}
		return false
	})
	if admitted.Load() != 24 || charged.Load() != 1 {
		t.Errorf("%d of 24 were admitted, %d charged; want all and one", admitted.Load(), charged.Load())
	}
}

// settle settles requests, as they should and as they should not be.
func settle(t *testing.T, s store.Store) {
	b, l := bucket(1, 10), slidingLog(10, 100*sec)
	ops := named("a", take("settled b", "k", b, 4, T0), take("settled l", "k", l, 4, T0))
	if out := apply(t, s, settled(ops[0], 1, T0)); !errors.Is(out[0].Err, law.ErrUnknownID) {
		t.Errorf("settled before it was charged: %+v", out)
	}
	apply(t, s, ops...)
	for _, tt := range []struct {
		name    string
		units   int64
		at      int64
		changed int64 // units
		err     error
	}{
		{"less", 1, T0, 3, nil},
		{"the same again", 1, T0 + sec, 0, nil},
		{"another cost", 2, T0 + sec, 0, law.ErrSettled},
		{"too late", 1, T0 + 60*sec, 0, law.ErrUnknownID},
	} {
		for i, out := range apply(t, s, settled(ops[0], tt.units, tt.at), settled(ops[1], tt.units, tt.at)) {
			if !errors.Is(out.Err, tt.err) || tt.err == nil && out.Granted != tt.changed*ops[i].Params.Unit {
				t.Errorf("%s: charge %d: %+v", tt.name, i+1, out)
			}
		}
	}
	// What was cancelled is decided again; what has cost something is not.
	for i, out := range apply(t, s, settled(ops[0], 1, T0+sec), settled(ops[1], 1, T0+sec)) {
		if !out.Replayed {
			t.Errorf("charge %d: %+v", i+1, out)
		}
	}
	free := named("free", take("settled b", "free", b, 4, T0))
	apply(t, s, free...)
	if out := apply(t, s, settled(free[0], 0, T0)); out[0].Granted != 4*b.Unit {
		t.Errorf("settled at 0: %+v", out)
	}
	if out := apply(t, s, free...); out[0].Granted != 1 || !out[0].Replayed || out[0].Err != nil {
		t.Errorf("asked again after it was settled at 0: %+v", out)
	}
	if out := apply(t, s, cancelling(free[0], T0)); !errors.Is(out[0].Err, law.ErrSettled) {
		t.Errorf("cancelled after it was settled at 0: %+v", out)
	}
	if out := one(t, s, take("settled b", "free", b, 10, T0)); out.Granted != 1 {
		t.Errorf("settled at 0, the key is not free: %+v", out)
	}
	gone := named("gone", take("settled b", "gone", b, 4, T0))
	apply(t, s, gone...)
	apply(t, s, cancelling(gone[0], T0))
	for range 2 {
		if out := apply(t, s, cancelling(gone[0], T0)); out[0].Err != nil || !out[0].Replayed {
			t.Errorf("cancelled again: %+v", out)
		}
	}
	if out := apply(t, s, settled(gone[0], 0, T0)); !errors.Is(out[0].Err, law.ErrSettled) {
		t.Errorf("settled after it was cancelled: %+v", out)
	}
	if out := apply(t, s, gone...); out[0].Granted != 1 || out[0].Replayed || out[0].Used != 4*b.Unit {
		t.Errorf("asked again after it was cancelled: %+v", out)
	}
	more := named("more", take("settled b", "k", b, 9, T0), take("settled l", "k", l, 9, T0))
	apply(t, s, more...)
	for i, out := range apply(t, s, settled(more[0], 12, T0), settled(more[1], 12, T0)) {
		if p := more[i].Params; out.Granted != -3*p.Unit || out.Used != 13*p.Unit {
			t.Errorf("settled for more than the capacity: %+v", out)
		}
	}
	if out := apply(t, s, settled(more[0], 1, T0), settled(settled(ops[0], 0, T0), 0, T0)); out[0].Err == nil ||
		out[1].Err == nil {
		t.Errorf("one of two charges cannot be settled: %+v", out)
	}
}

// settleChanged settles what was charged under another rule: nothing is corrected.
func settleChanged(t *testing.T, s store.Store) {
	p := bucket(1, 10)
	for i, change := range []func(p *law.Params){
		func(p *law.Params) { p.Drain = 2 },
		func(p *law.Params) { p.Capacity *= 2 },
		func(p *law.Params) { p.Unit *= 2; p.Capacity *= 2 },
		func(p *law.Params) { p.Anchor, p.Step, p.Drain = law.Epoch, 10*sec, law.Max },
	} {
		op := named("a", take(fmt.Sprint("changed ", i), "k", p, 4, T0))[0]
		one(t, s, op)
		change(&op.Params)
		out := one(t, s, settled(op, 1, T0))
		again := one(t, s, settled(op, 1, T0))
		if out.Granted != 0 || out.Replayed || again.Granted != 0 || !again.Replayed || again.State.Level != 4*p.Unit {
			t.Errorf("change %d: settled %+v, again %+v", i, out, again)
		}
	}
}

// lifeFromStart remembers what was reserved for its life from its start on.
func lifeFromStart(t *testing.T, s store.Store) {
	p := bucket(1, 1)
	one(t, s, take("life", "k", p, 1, T0))
	reserve := func(now int64) law.Outcome {
		op := named("a", take("life", "k", p, 1, now))[0]
		op.Deferred, op.Ceiling, op.TTL = true, p.Ceiling(100*sec), sec/2
		return one(t, s, op)
	}
	first := reserve(T0)
	for _, now := range []int64{T0 + sec/4, T0 + sec, T0 + sec + sec/2 - 1} {
		if out := reserve(now); !out.Replayed || out.StartAt != first.StartAt {
			t.Errorf("asked again after %d us: %+v, want %+v", now-T0, out, first)
		}
	}
	if out := reserve(T0 + sec + sec/2); out.Replayed {
		t.Errorf("asked again after its life: %+v", out)
	}
}

// settleWindow settles a charge of a fixed window, and after its end.
func settleWindow(t *testing.T, s store.Store) {
	p := law.Params{Kind: law.Bucket, Anchor: law.Epoch, Unit: 1000, Capacity: 5000, Step: 10 * sec, Drain: law.Max}
	for _, tt := range []struct {
		id           string
		units, after int64
		changed      int64
	}{
		{"less", 1, sec, 2},
		{"more", 4, sec, -1},
		{"less, too late", 1, 11 * sec, 0},
		{"more, too late", 4, 11 * sec, 0},
	} {
		op := named(tt.id, take("settled window", tt.id, p, 3, T0))[0]
		one(t, s, op)
		if out := one(t, s, settled(op, tt.units, T0+tt.after)); out.Granted != tt.changed*p.Unit {
			t.Errorf("%s: %+v, want %d units changed", tt.id, out, tt.changed)
		}
	}
}

// lateStart reserves on several limits: one start for all, and each counts from
// there.
func lateStart(t *testing.T, s store.Store) {
	slow, quick := bucket(1, 1), bucket(10, 10)
	reserve := func(now int64, ops ...law.Op) []law.Outcome {
		t.Helper()
		for i := range ops {
			ops[i].Deferred, ops[i].Ceiling, ops[i].Now = true, ops[i].Params.Ceiling(20*sec), now
		}
		return apply(t, s, ops...)
	}
	for turn := range int64(4) {
		out := reserve(T0, take("slow", "k", slow, 1, 0), take("quick", "k", quick, 1, 0))
		for i := range out {
			if out[i].StartAt != T0+turn*sec {
				t.Errorf("turn %d starts after %d us by charge %d", turn, out[i].StartAt-T0, i+1)
			}
		}
	}
	// At 3 s one unit of the quick limit is in use, whatever it had room for now.
	if out := reserve(T0, take("quick", "k", quick, 10, 0))[0]; out.StartAt != T0+3*sec+100_000 {
		t.Errorf("the whole of the quick limit starts after %d us", out.StartAt-T0)
	}
	out := reserve(T0, take("slow", "k", slow, 2, 0), take("new", "k", quick, 1, 0))
	if out[0].Granted != 0 || out[0].RetryAt != law.Never || out[0].StartAt != 0 || out[1].StartAt != 0 {
		t.Errorf("a cost above the capacity: %+v", out)
	}
	check := take("new", "k", quick, 10, T0)
	if out := one(t, s, check); out.Granted != 1 {
		t.Errorf("a refused reservation was charged: %+v", out)
	}
}

// lateApart reserves on several keys, which start together. A store that takes such a
// request on trial refuses it before anything is charged.
func lateApart(t *testing.T, s store.Store, onTrial bool) {
	const keys = 6
	p := bucket(1, 1)
	ask := func(id string, late bool) []law.Op {
		var ops []law.Op
		for k := range keys {
			op := take("apart", fmt.Sprint("key ", k), p, 1, T0)
			if op.Deferred = late; late {
				op.Ceiling = p.Ceiling(20 * sec)
			}
			ops = append(ops, op)
		}
		if id != "" {
			named(id, ops...)
		}
		return ops
	}
	if !onTrial {
		one(t, s, take("apart", "key 0", p, 1, T0))
		for i, out := range apply(t, s, ask("id", true)...) {
			if out.Granted != 1 || out.StartAt != T0+sec {
				t.Errorf("charge %d: %+v, want one start after 1 s", i+1, out)
			}
		}
		return
	}
	for _, id := range []string{"", "id"} {
		ops := ask(id, true)
		alone := take("apart", "alone", p, 1, T0)
		alone.Group, alone.Cell.Key = ops[0].Group+1, "alone "+id
		outs := apply(t, s, append(ops, alone)...)
		for i, out := range outs[:keys] {
			if want := (law.Outcome{Err: out.Err}); !errors.Is(out.Err, store.ErrUnsupported) ||
				!store.NothingDone(out.Err) || out != want {
				t.Errorf("charge %d: %+v, want ErrUnsupported", i+1, out)
			}
		}
		if outs[keys].Granted != 1 {
			t.Errorf("another request of the batch: %+v", outs[keys])
		}
		for i := range ops {
			check := ops[i]
			check.Verb, check.ID, check.TTL, check.Deferred, check.Ceiling = law.Check, "", 0, false, 0
			if out := one(t, s, check); out.Granted != 1 || out.State != (law.State{}) {
				t.Errorf("charge %d left %+v", i+1, out.State)
			}
			if id == "" {
				continue
			}
			if out := apply(t, s, settled(ops[i], 1, T0)); !errors.Is(out[0].Err, law.ErrUnknownID) {
				t.Errorf("charge %d is remembered: %+v", i+1, out)
			}
		}
	}
	// A request that may start later has one key, or does not wait.
	for i, out := range apply(t, s, ask("id", false)...) {
		if out.Granted != 1 || out.Replayed {
			t.Errorf("without waiting, charge %d: %+v", i+1, out)
		}
	}
	if out := one(t, s, ask("", true)[0]); out.Granted != 1 || out.StartAt != T0+sec {
		t.Errorf("one key: %+v, want a start after 1 s", out)
	}
}

// noPatience asks again for what was to start together later, without waiting, when
// one of its keys knows nothing of it any more: all of it is decided again.
func noPatience(t *testing.T, s store.Store) {
	full, room := bucket(1, 10), bucket(1, 11)
	one(t, s, take("full", "n", full, 10, T0))
	ops := func(late bool, now int64) []law.Op {
		ops := named("no patience", take("full", "n", full, 6, now), take("room", "n", room, 11, now))
		for i := range ops {
			if late {
				ops[i].Deferred, ops[i].Ceiling = true, ops[i].Params.Ceiling(20*sec)
			}
		}
		return ops
	}
	for i, out := range apply(t, s, ops(true, T0)...) {
		if out.StartAt != T0+6*sec {
			t.Fatalf("charge %d: %+v", i+1, out)
		}
	}
	reset := take("room", "n", room, 1, T0)
	reset.Verb = law.Reset
	one(t, s, reset)
	if outs := apply(t, s, ops(false, T0+sec)...); outs[0].Granted != 0 || outs[0].StartAt+outs[1].StartAt != 0 {
		t.Errorf("one key starts in 5 s, one now: %+v", outs)
	}
	if out := one(t, s, take("room", "n", room, 11, T0+sec)); out.Granted != 1 {
		t.Errorf("a refused request was charged: %+v", out)
	}
	for i, out := range apply(t, s, ops(false, T0+60*sec)...) {
		if out.Granted != 1 || out.Replayed || out.StartAt != 0 || out.State.Level != []int64{6, 11}[i]*1_000_000 {
			t.Errorf("when there is room, charge %d: %+v", i+1, out)
		}
	}
}
