package storetest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// onceByMany lets many keys use one id, each for a request of its own, as where each user counts his
// requests. One of them was cancelled and one reset; the others are known.
func onceByMany(t *testing.T, s store.Store) {
	const keys, cancelled, reset = 100, 40, 60
	p := bucket(1, 100)
	request := func(k int) law.Op {
		op := take("many", fmt.Sprint("key ", k), p, 5, T0)
		op.Group = uint32(k)
		return named("1", op)[0]
	}
	ask := func() (outs []law.Outcome) {
		for from := 0; from < keys; from += 25 {
			var ops []law.Op
			for k := from; k < from+25; k++ {
				ops = append(ops, request(k))
			}
			outs = append(outs, apply(t, s, ops...)...)
		}
		return outs
	}
	for k, out := range ask() {
		if out.Err != nil || out.Granted != 1 || out.Replayed {
			t.Fatalf("key %d: %+v, want it charged", k, out)
		}
	}
	if out := apply(t, s, cancelling(request(cancelled), T0))[0]; out.Err != nil || out.Granted != 5*p.Unit {
		t.Errorf("cancelled: %+v", out)
	}
	forget := law.Op{Verb: law.Reset, Cell: request(reset).Cell, Params: p, Cost: 1, Count: 1, Now: T0}
	if out := apply(t, s, forget)[0]; out.Err != nil || out.Granted != 1 {
		t.Errorf("reset: %+v", out)
	}
	if out := apply(t, s, settled(request(reset), 1, T0))[0]; !errors.Is(out.Err, law.ErrUnknownID) {
		t.Errorf("settled after a reset: %+v, want %v", out, law.ErrUnknownID)
	}
	for k, out := range ask() {
		if again := k == cancelled || k == reset; out.Err != nil || out.Granted != 1 || out.Replayed == again ||
			out.Used != 5*p.Unit {
			t.Errorf("key %d again: %+v, want replayed %v", k, out, !again)
		}
	}
	for k := range keys {
		if out := apply(t, s, settled(request(k), 2, T0))[0]; out.Err != nil || out.Granted != 3*p.Unit {
			t.Errorf("key %d, settled: %+v", k, out)
		}
	}
}
