package storetest

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// testConcurrentRetries sends a request with an ID from 24 callers at once. It must be charged once, and all admitted.
func testConcurrentRetries(t *testing.T, s store.Store) {
	var admitted, charged atomic.Int64
	request := withID("id", take("at once", "k", bucket(1, 5), 2, T0))
	runAtOnce(24, 1, func(_, _ int) {
		out := try(t, s, request...)[0]
		admitted.Add(out.Granted)
		if !out.Replayed {
			charged.Add(1)
		}
	})
	if admitted.Load() != 24 || charged.Load() != 1 {
		t.Errorf("got %d of 24 admitted, %d charged; want 24 and 1", admitted.Load(), charged.Load())
	}
}

// testStartTogether reserves on several keys, which start together. A store that charges groups on trial
// has to refuse such a request before it charges anything.
func testStartTogether(t *testing.T, s store.Store, onTrial bool) {
	const keys = 6
	p := bucket(1, 1)
	request := func(id string) []law.Op {
		var ops []law.Op
		for k := range keys {
			ops = append(ops, take("apart", fmt.Sprint("key ", k), p, 1, T0))
		}
		if id != "" {
			withID(id, ops...)
		}
		return ops
	}
	if !onTrial {
		applyOne(t, s, take("apart", "key 0", p, 1, T0))
		for i, out := range apply(t, s, deferUpTo20s(request("id")...)...) {
			if out.Granted != 1 || out.StartAt != T0+sec {
				t.Errorf("charge %d: got %+v, want a start after 1 s", i+1, out)
			}
		}
		return
	}
	for _, id := range []string{"", "id"} {
		ops := deferUpTo20s(request(id)...)
		single := take("apart", "alone "+id, p, 1, T0)
		single.Group++
		outs := apply(t, s, append(ops, single)...)
		for i, out := range outs[:keys] {
			if want := (law.Outcome{Err: out.Err}); !errors.Is(out.Err, store.ErrUnsupported) ||
				!store.NothingDone(out.Err) || out != want {
				t.Errorf("charge %d: got %+v, want ErrUnsupported", i+1, out)
			}
		}
		if outs[keys].Granted != 1 {
			t.Errorf("another request of the batch: got %+v, want it admitted", outs[keys])
		}
		for i, op := range ops {
			if out := applyOne(t, s, check(op)); out.Granted != 1 || out.State != (law.State{}) {
				t.Errorf("charge %d: got state %+v, want none", i+1, out.State)
			}
			if id != "" {
				expect(t, s, "the id is not remembered", outcome{err: law.ErrUnknownID}, settle(op, 1, T0))
			}
		}
	}
	// A request with one key may start later, and one that does not wait may have several keys.
	expect(t, s, "without waiting", outcome{granted: 1}, request("id")...)
	if out := applyOne(t, s, deferUpTo20s(request("")...)[0]); out.Granted != 1 || out.StartAt != T0+sec {
		t.Errorf("one key: got %+v, want a start after 1 s", out)
	}
}

// testReserveWithoutWait reserves several keys for a later start, resets one of them, and repeats the request without
// waiting: the store has to decide the whole request again.
func testReserveWithoutWait(t *testing.T, s store.Store) {
	fullLimit, roomLimit := bucket(1, 10), bucket(1, 11)
	applyOne(t, s, take("full", "n", fullLimit, 10, T0))
	requestAt := func(now int64) []law.Op {
		return withID("no patience", take("full", "n", fullLimit, 6, now), take("room", "n", roomLimit, 11, now))
	}
	for i, out := range apply(t, s, deferUpTo20s(requestAt(T0)...)...) {
		if out.StartAt != T0+6*sec {
			t.Fatalf("charge %d: got %+v, want a start after 6 s", i+1, out)
		}
	}
	applyOne(t, s, reset(requestAt(T0)[1], T0))
	if outs := apply(t, s, requestAt(T0+sec)...); outs[0].Granted != 0 || outs[0].StartAt+outs[1].StartAt != 0 {
		t.Errorf("one key is full for 5 s: got %+v, want a refusal", outs)
	}
	expect(t, s, "a refused request was not charged", outcome{granted: 1}, take("room", "n", roomLimit, 11, T0+sec))
	for i, out := range expect(t, s, "when there is room", outcome{granted: 1}, requestAt(T0+60*sec)...) {
		if out.StartAt != 0 || out.State.Level != []int64{6, 11}[i]*1_000_000 {
			t.Errorf("when there is room, charge %d: got %+v", i+1, out)
		}
	}
}

// testIDsOfSeveralCells sends requests of several charges with an id, in one batch and in several: also twice in one
// batch, with an id that other cells remember, and after a part of the request was settled or one of its cells reset.
func testIDsOfSeveralCells(t *testing.T, s store.Store) {
	p := bucket(1, 100)
	request := func(id string, group uint32, cost int64, keys ...int) []law.Op {
		var ops []law.Op
		for _, k := range keys {
			op := take("several", fmt.Sprint("key ", k), p, cost, T0)
			op.Group = group
			ops = append(ops, op)
		}
		return withID(id, ops...)
	}
	sixKeys := []int{1, 2, 3, 4, 5, 6}
	type part struct {
		name string
		ops  []law.Op
		want outcome
	}
	applyParts := func(parts ...part) {
		t.Helper()
		var ops []law.Op
		for _, part := range parts {
			ops = append(ops, part.ops...)
		}
		outs := apply(t, s, ops...)
		for _, part := range parts {
			n := len(part.ops)
			part.want.compare(t, part.name, part.ops, outs[:n])
			outs = outs[n:]
		}
	}
	applyParts(
		part{"sent", request("a", 1, 5, sixKeys...), outcome{granted: 1, used: 5}},
		part{"retried in the batch", request("a", 2, 5, sixKeys...), outcome{granted: 1, replayed: true, used: 5}},
		part{"the id on other cells", request("a", 3, 5, 7, 8), outcome{granted: 1, used: 5}},
		part{"the id with other charges, one on the same cell", request("a", 4, 5, 6, 9), outcome{err: law.ErrReused}},
		part{"another id", request("b", 5, 1, sixKeys...), outcome{granted: 1, used: 6}},
	)
	applyParts( // the known id is replayed, and the new one charged
		part{"retried", request("a", 1, 5, sixKeys...), outcome{granted: 1, replayed: true, used: 5}},
		part{"a new id in that batch", request("c", 2, 1, sixKeys...), outcome{granted: 1, used: 7}},
	)
	ops := request("a", 1, 5, sixKeys...)
	settlements := mapOps(ops, settle, 2, T0)
	applyParts( // two charges are settled, and their cells charged again
		part{"settled", settlements[:2], outcome{granted: 3, used: 4}},
		part{"charged after that", request("d", 2, 1, 1, 2), outcome{granted: 1, used: 5}},
		part{"charged beside that", request("d", 2, 1, 3, 4, 5, 6), outcome{granted: 1, used: 8}},
	)
	applyParts(
		part{"settled before", settlements[:2], outcome{replayed: true}},
		part{"the rest is settled", settlements[2:], outcome{granted: 3}},
	)
	expect(t, s, "retried after all was settled", outcome{granted: 1, replayed: true, used: 5}, ops...)
	applyOne(t, s, reset(ops[3], T0)) // the cell forgets its ids
	expect(t, s, "settled after a reset", outcome{err: law.ErrUnknownID}, settlements[3])
	applyParts(
		part{"retried, cells that were not reset", ops[:3], outcome{granted: 1, replayed: true, used: 5}},
		part{"retried, the cell that was reset", ops[3:4], outcome{granted: 1, used: 5}},
		part{"retried, more cells that were not reset", ops[4:], outcome{granted: 1, replayed: true, used: 5}},
	)
}

// testIDsOfManyKeys sends one id for many keys, each for another request, as if every user numbered their own requests.
// It cancels one charge and resets one cell; all other keys have to remember the id.
func testIDsOfManyKeys(t *testing.T, s store.Store) {
	const keys, cancelledKey, resetKey = 100, 40, 60
	var ops []law.Op
	for k := range keys {
		ops = append(ops, take("many", fmt.Sprint("key ", k), bucket(1, 100), 5, T0))
		ops[k].Group = uint32(k)
	}
	withID("1", ops...)
	for from := 0; from < keys; from += 25 {
		expect(t, s, fmt.Sprint("keys from ", from), outcome{granted: 1}, ops[from:from+25]...)
	}
	expect(t, s, "cancelled", outcome{granted: 5}, cancel(ops[cancelledKey], T0))
	expect(t, s, "reset", outcome{granted: 1}, reset(ops[resetKey], T0))
	expect(t, s, "settled after a reset", outcome{err: law.ErrUnknownID}, settle(ops[resetKey], 1, T0))
	for from := 0; from < keys; from += 25 {
		for i, out := range apply(t, s, ops[from:from+25]...) {
			k := from + i
			want := outcome{granted: 1, replayed: k != cancelledKey && k != resetKey, used: 5}
			want.compare(t, fmt.Sprint("again, key ", k), ops[k:k+1], []law.Outcome{out})
		}
	}
	for k := range keys {
		expect(t, s, fmt.Sprint("settled, key ", k), outcome{granted: 3}, settle(ops[k], 2, T0))
	}
}
