package memory_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// slow limits have one unit, which nobody gets back within a test.
var slow = law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 1000, Step: 3_600_000_000, Drain: 1000}

func takeOp(limit, key string, p law.Params) law.Op {
	return law.Op{Verb: law.Take, Cell: law.Cell{Limit: limit, Key: key}, Params: p, Cost: 1000, Count: 1}
}

func roomOf(t *testing.T, s *memory.Store, limit string) store.Room {
	t.Helper()
	rooms, err := s.Fullness(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rooms {
		if r.Limit == limit {
			return r
		}
	}
	return store.Room{Limit: limit}
}

// TestAFloodOfKeysIsAnswered invents as many keys of a slow limit as a store holds, and
// more. New keys are answered, no memory is taken for them, and other limits go on.
func TestAFloodOfKeysIsAnswered(t *testing.T) {
	tier.Engines(t)
	const most, more = 10_000, 60_000
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	now := t0
	s := memory.New(&memory.Config{Clock: func() int64 { return now }, MaxKeys: most})
	for i := range most {
		if b, ok := s.TakeOne(t.Context(), law.Cell{Limit: "slow", Key: fmt.Sprint(i)}, &slow, 1000); !ok ||
			!b.Granted {
			t.Fatalf("key %d: %+v, %v", i, b, ok)
		}
	}
	before := heap()
	for i := range more {
		out := apply(t, s, takeOp("slow", fmt.Sprint("new ", i), slow))
		if out.Err != nil || !out.Shared || out.Granted != 0 && i > 0 {
			t.Fatalf("new key %d: %+v", i, out)
		}
	}
	if grown := int64(heap()) - int64(before); grown > 1<<20 {
		t.Errorf("%d bytes more are in use after %d new keys", grown, more)
	}
	room := roomOf(t, s, "slow")
	if room.Keys != most || !room.Full() || room.Since != t0 || room.Shared != more {
		t.Errorf("%+v", room)
	}
	if out := apply(t, s, takeOp("another", "k", slow)); out.Shared || out.Granted != 1 {
		t.Errorf("another limit: %+v", out)
	}
	if b, ok := s.TakeOne(t.Context(), law.Cell{Limit: "slow", Key: "7"}, &slow, 1000); !ok || b.Granted {
		t.Errorf("a key that was there before: %+v, %v", b, ok)
	}

	now += slow.Step + 1 // all of them are over
	for i := range 1000 {
		for n := range 2 {
			out := apply(t, s, takeOp("slow", fmt.Sprint("new ", i), slow))
			if out.Shared || out.Granted != int64(1-n) {
				t.Fatalf("key %d after room was made, take %d: %+v", i, n+1, out)
			}
		}
	}
	if room := roomOf(t, s, "slow"); room.Full() && room.Keys >= room.Max && room.Sharing {
		t.Errorf("%+v", room)
	}
}

// TestDeadKeysMakeNoTableGrow makes 60,000 keys that die soon, and nobody sweeps: those that come later take
// their places, whatever way they come.
func TestDeadKeysMakeNoTableGrow(t *testing.T) {
	t.Parallel()
	brief := law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 1000, Step: 100_000, Drain: 1000} // empty after 0.1 s
	const keys, every = 60_000, 600
	for name, ask := range map[string]func(s *memory.Store, key string) bool{
		"one": func(s *memory.Store, key string) bool {
			b, ok := s.TakeOne(t.Context(), law.Cell{Limit: "brief", Key: key}, &brief, 1000)
			return ok && b.Granted
		},
		"a group of two": func(s *memory.Store, key string) bool {
			ops := []law.Op{takeOp("brief", key, brief), takeOp("brief", key+"b", brief)}
			ops[0].Group, ops[1].Group = 1, 1
			outs := make([]law.Outcome, 2)
			return s.Apply(t.Context(), ops, outs) == nil && outs[0].Granted == 1 && outs[1].Granted == 1
		},
	} {
		now := t0
		s := memory.New(&memory.Config{Clock: func() int64 { return now }})
		for i := range keys {
			if i%every == 0 {
				now += 2 * brief.Step
			}
			if !ask(s, fmt.Sprint(i)) {
				t.Fatalf("%s: key %d was refused", name, i)
			}
		}
		if room := roomOf(t, s, "brief"); room.Keys > keys/2 { // each table has a few places
			t.Errorf("%s: %d keys are held, of which %d can count", name, room.Keys, 2*every)
		}
	}
}

func TestDefaultMaxKeys(t *testing.T) {
	t.Parallel()
	s := memory.New(nil)
	apply(t, s, takeOp("slow", "k", slow))
	if room := roomOf(t, s, "slow"); room.Max != memory.DefaultMaxKeys {
		t.Errorf("%+v, want %d keys at most", room, memory.DefaultMaxKeys)
	}
}

// TestAllLimitsTogetherAreBounded invents limits as well as keys.
func TestAllLimitsTogetherAreBounded(t *testing.T) {
	t.Parallel()
	const total = 100
	now := t0
	s := memory.New(&memory.Config{Clock: func() int64 { return now }, MaxTotal: total})
	for i := range total {
		if out := apply(t, s, takeOp(fmt.Sprint("limit ", i%7), fmt.Sprint(i), slow)); out.Shared || out.Granted != 1 {
			t.Fatalf("key %d: %+v", i, out)
		}
	}
	failed := 0
	for i := range 12_000 {
		out := apply(t, s, takeOp(fmt.Sprint("new limit ", i), "k", slow))
		switch {
		case errors.Is(out.Err, store.ErrFull):
			failed++
		case !out.Shared || out.Granted != 1:
			t.Fatalf("limit %d: %+v", i, out)
		}
	}
	if failed != 2000 {
		t.Errorf("%d limits found no room to share a cell, want 2000 of 12000", failed)
	}
	if r := roomOf(t, s, ""); r.Keys != total || r.Max != total || !r.Full() || r.Shared != 10_000 {
		t.Errorf("all together: %+v", r)
	}
	now += slow.Step + 1
	for range 3 { // a sweep ends with what it has removed; the next finds the rest
		if _, err := s.Sweep(t.Context(), 100_000); err != nil {
			t.Fatal(err)
		}
	}
	if rooms, err := s.Fullness(t.Context()); err != nil || len(rooms) != 1 || rooms[0].Keys != 0 {
		t.Errorf("nothing counts any more, and yet: %+v, %v", rooms, err)
	}
}

// TestLimitsWithoutKeysAreForgotten asks for one new limit after the other.
func TestLimitsWithoutKeysAreForgotten(t *testing.T) {
	t.Parallel()
	now := t0
	s := memory.New(&memory.Config{Clock: func() int64 { return now }})
	ids := slow
	for i := range 20_000 {
		ids.Capacity = 1000 + int64(i) // so that the numbers of definitions are soon used up
		apply(t, s, takeOp(fmt.Sprint("limit ", i), "k", ids))
		if i%100 == 0 {
			now += 2 * slow.Step
			if _, err := s.Sweep(t.Context(), 1000); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := s.Limits(); n > 6000 {
		t.Errorf("%d limits are known, nearly all without a key", n)
	}
	for i := range 20_000 { // none was mixed up with another
		ids.Capacity = 1000 + int64(i)
		if out := apply(t, s, takeOp(fmt.Sprint("limit ", i), "new", ids)); out.Granted != 1 || out.Shared {
			t.Fatalf("limit %d: %+v", i, out)
		}
	}
}

// TestAHandleMakesNoCellWhileItsLimitShares binds a key without a cell before its limit
// is full, and one after.
func TestAHandleMakesNoCellWhileItsLimitShares(t *testing.T) {
	t.Parallel()
	now := t0
	s := memory.New(&memory.Config{Clock: func() int64 { return now }, MaxKeys: 2})
	before := s.Pin(law.Cell{Limit: "l", Key: "before"}, &slow)
	for _, key := range []string{"a", "b", "new"} {
		apply(t, s, takeOp("l", key, slow))
	}
	after := s.Pin(law.Cell{Limit: "l", Key: "after"}, &slow)
	if out := apply(t, s, law.Op{
		Verb: law.Reset, Cell: law.Cell{Limit: "l", Key: "a"},
		Params: slow,
	}); out.Granted != 1 {
		t.Fatal(out) // now there is room, but the shared cell counts
	}
	for name, h := range map[string]store.Pin{"before": before, "after": after} {
		if b, ok := h.TakeOne(1000); ok {
			t.Errorf("%s: decided %+v", name, b)
		}
		if _, ok := s.TakeOne(context.Background(), law.Cell{Limit: "l", Key: name}, &slow, 1000); ok {
			t.Errorf("%s: decided by TakeOne", name)
		}
		if out := apply(t, s, takeOp("l", name, slow)); !out.Shared || out.Granted != 0 {
			t.Errorf("%s: %+v", name, out)
		}
	}
	now += slow.Step + 1
	apply(t, s, takeOp("l", "before", slow)) // ends it
	if b, ok := before.TakeOne(1000); !ok || b.Granted {
		t.Errorf("a key with a cell: %+v, %v", b, ok)
	}
	if out := apply(t, s, takeOp("l", "after", slow)); out.Shared || out.Granted != 1 { // in the place of a dead one
		t.Errorf("a new key: %+v", out)
	}
	if b, ok := after.TakeOne(1000); !ok || b.Granted {
		t.Errorf("a new key by its handle: %+v, %v", b, ok)
	}
}
