package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// fullKeys is how many keys each limit may have in the tests of full limits.
const fullKeys = 8

// full tests what happens to the keys that a limit has no room for. It works by the
// store's own clock, and lets stores that do not count exactly count by Sweep.
func full(t *testing.T, o *Options) {
	for _, tt := range []struct {
		name  string
		alone bool // it asks for more than wrappers promise
		test  func(t *testing.T, s store.Store)
	}{
		{"new keys of a full limit share a cell", false, sharesOneCell},
		{"the keys of a group that share a cell add up", false, groupsShare},
		{"a check of a key that shares agrees with a take", false, checksShare},
		{"ids and blocks need a cell of their own", false, idsOfTheFull},
		{"an id is known though its limit is full and nothing of it counts", false, idsOutlive},
		{"what shares can be given back and renewed", true, returnsShare},
		{"a key that was reset gives nothing back to the keys that share", true, returnsAfterReset},
		{"a shared cell keeps a log and is blocked", false, historyOfTheFull},
		{"a reset keeps a shared cell", true, resetOfTheShared},
		{"sharing ends when the shared cell is empty", true, sharingEnds},
		{"a limit may say how many keys it has", true, limitsOwnMaximum},
		{"tells how full its limits are", true, fullness},
	} {
		through := map[string]func(store.Store) store.Store{"": func(s store.Store) store.Store { return s }}
		if !tt.alone && throughTheStack() {
			through[", through the whole stack"] = stack
		}
		for name, wrap := range through {
			t.Run(tt.name+name, func(t *testing.T) {
				s := wrap(o.Full(t, fullKeys)(t))
				t.Cleanup(func() { s.Close() })
				tt.test(t, s)
			})
		}
	}
	t.Run("who knows of no full limit makes no cell while one shares", func(t *testing.T) {
		open := o.Full(t, fullKeys)
		unaware(t, func() store.Store {
			s := open(t)
			t.Cleanup(func() { s.Close() })
			return s
		})
	})
	if o.FullAt != nil {
		t.Run("no key passes more than its limit whatever comes between", func(t *testing.T) { stepped(t, o) })
	}
	for name, wrap := range map[string]func(store.Store) store.Store{"": nil, ", through the whole stack": stack} {
		if wrap != nil && !throughTheStack() {
			continue
		}
		t.Run("no key passes more than its limit while keys come and go"+name, func(t *testing.T) {
			open := o.Full(t, fullKeys)
			crowded(t, func() store.Store {
				s := open(t)
				if wrap != nil {
					s = wrap(s)
				}
				t.Cleanup(func() { s.Close() })
				return s
			})
		})
	}
}

// slow are limits of three units that nobody gets back within a test.
func slow() map[string]law.Params {
	const hour, aeon = 3_600_000_000, 86_400_000_000_000 // a window of 1000 days ends in 2027, then in 2030
	return map[string]law.Params{
		"bucket":         {Kind: law.Bucket, Unit: 1000, Capacity: 3000, Step: hour, Drain: 1000},
		"fixed window":   {Kind: law.Bucket, Anchor: law.Epoch, Unit: 1000, Capacity: 3000, Step: aeon, Drain: law.Max},
		"sliding window": {Kind: law.Window, Unit: 1000, Capacity: 3000, Step: aeon}, // the next full hour may be near
		"log":            slidingLog(3, hour),
	}
}

// fillLimit gives a limit as many keys as it may have, each with one unit used, and
// waits until it shares.
func fillLimit(t *testing.T, s store.Store, limit string, p law.Params) {
	t.Helper()
	most := fullKeys
	if p.MaxKeys > 0 {
		most = int(p.MaxKeys)
	}
	for i := range most {
		if out := one(t, s, take(limit, fmt.Sprint("own ", i), p, 1, 0)); out.Granted != 1 || out.Shared {
			t.Fatalf("key %d of %d: %+v", i+1, most, out)
		}
	}
	check := take(limit, "waits until it shares", p, 1, 0)
	check.Verb = law.Check
	eventually(t, s, "the full limit to share", func() bool {
		// A store that counts exactly shares when a key comes, for which there is no room.
		if _, exact := counted(t, s, limit); exact {
			return true
		}
		return one(t, s, check).Shared
	})
}

// counted returns how full a store says a limit is, and whether it always counts.
func counted(t *testing.T, s store.Store, limit string) (room store.Room, exact bool) {
	t.Helper()
	c, ok := store.As[store.KeyCounter](s)
	if !ok {
		t.Fatal("the store does not tell how full its limits are")
	}
	rooms, err := c.Fullness(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rooms {
		if r.Limit == limit {
			return r, r.CountedAt == 0
		}
	}
	return store.Room{}, false
}

// eventually lets the store sweep until something holds.
func eventually(t *testing.T, s store.Store, what string, holds func() bool) {
	t.Helper()
	await.Until(t, what, func() bool {
		if _, err := s.Sweep(context.Background(), 1000); err != nil {
			t.Fatalf("sweep: %v", err)
		}
		return holds()
	})
}

func sharesOneCell(t *testing.T, s store.Store) {
	for limit, p := range slow() {
		fillLimit(t, s, limit, p)
		for i := range 6 {
			out := one(t, s, take(limit, fmt.Sprint("new ", i), p, 1, 0))
			if want := int64(1); i >= 3 {
				want = 0 // three of them have passed
				if out.RetryAt <= out.Clock {
					t.Errorf("%s: key %d is refused, and can pass at once: %+v", limit, i, out)
				}
				if out.Granted != want || !out.Shared {
					t.Errorf("%s: new key %d: %+v", limit, i, out)
				}
			} else if out.Granted != want || !out.Shared || out.Used != int64(i+1)*p.Unit {
				t.Errorf("%s: new key %d: %+v", limit, i, out)
			}
		}
		for i := range 6 { // whichever cell answers, the outcome says that they share
			if out := one(t, s, take(limit, fmt.Sprint("new ", i), p, 1, 0)); out.Granted != 0 || !out.Shared {
				t.Errorf("%s: new key %d, asked again: %+v", limit, i, out)
			}
		}
		for i := range fullKeys { // they have two units left
			for n := range 3 {
				out := one(t, s, take(limit, fmt.Sprint("own ", i), p, 1, 0))
				if want := int64(min(1, 2-n)); out.Granted != want || out.Shared {
					t.Errorf("%s: key %d, take %d: %+v", limit, i, n, out)
				}
			}
		}
		bounded(t, s, limit)
	}
	// Others are not concerned.
	if out := one(t, s, take("another limit", "new", slow()["bucket"], 1, 0)); out.Granted != 1 || out.Shared {
		t.Errorf("another limit: %+v", out)
	}
}

// bounded checks that a limit has no more cells than it may, and the shared one.
func bounded(t *testing.T, s store.Store, limit string) {
	t.Helper()
	i, ok := store.As[store.Inspector](s)
	if !ok {
		return
	}
	cells, _, err := i.Cells(context.Background(), store.Query{Limit: limit})
	if err != nil {
		t.Fatal(err)
	}
	shared := 0
	for _, c := range cells {
		if law.IsShared(c.Cell) {
			shared++
		}
	}
	if own := len(cells) - shared; own > fullKeys || shared != 1 {
		t.Errorf("%s: %d cells of keys, at most %d may be, and %d shared ones", limit, own, fullKeys, shared)
	}
}

// unaware asks, in every way that may make a cell, by stores that were opened before the
// limit shared, have not counted since, and have asked nothing else.
func unaware(t *testing.T, open func() store.Store) {
	first := open()
	for limit, p := range slow() {
		own, plain := take(limit, "own 0", p, 1, 0), take(limit, "new", p, 1, 0)
		blocking, late, more, check, block := plain, plain, plain, plain, plain
		blocking.Params.Block = 1000
		more.Verb, more.Cost = law.Return, -p.Unit
		more.Level, more.At = p.Unit, 1
		check.Verb = law.Check
		block.Verb, block.TTL = law.Block, 1000
		asked := map[string][]law.Op{
			"take": {plain}, "take, may block": {blocking}, "charge more": {more}, "check": {check}, "block": {block},
			"group": {own, plain}, "batch": {own, plain}, "two in a group": {plain, plain},
		}
		if p.Kind == law.Bucket && p.Anchor == law.Own {
			late.Deferred, late.Ceiling = true, p.Ceiling(10*p.Step)
			asked["reserve"] = []law.Op{late}
		}
		if p.Kind == law.Log {
			delete(asked, "charge more") // of an entry that is there
		}
		stores := map[string]store.Store{}
		for name := range asked {
			stores[name] = open()
			apply(t, stores[name], check) // so that it has set up all that it needs
		}
		fillLimit(t, first, limit, p)
		one(t, first, plain)
		for name, ops := range asked {
			if name == "batch" {
				ops = slices.Clone(ops)
				ops[1].Group++
			}
			outs := apply(t, stores[name], ops...)
			if out := outs[len(outs)-1]; !out.Shared && !errors.Is(out.Err, store.ErrFull) {
				t.Errorf("%s: %s: %+v; want an answer of the shared cell", limit, name, out)
			}
			if stores[name] != first {
				stores[name].Close()
			}
		}
		bounded(t, first, limit)
	}
}

// sharedCell returns the shared cell of a limit.
func sharedCell(t *testing.T, s store.Store, limit string) law.Cell {
	t.Helper()
	room, _ := counted(t, s, limit)
	if !room.Sharing || room.Generation < 1 {
		t.Fatalf("%s does not share: %+v", limit, room)
	}
	return law.SharedCell(limit, room.Generation)
}

func resetOfTheShared(t *testing.T, s store.Store) {
	for limit, p := range slow() {
		fillLimit(t, s, limit, p)
		one(t, s, take(limit, "new", p, 3, 0))
		reset := law.Op{Verb: law.Reset, Group: 1, Cell: sharedCell(t, s, limit), Params: p}
		if out := one(t, s, reset); out.Granted != 1 {
			t.Errorf("%s: reset: %+v", limit, out)
		}
		if out := one(t, s, take(limit, "newer", p, 2, 0)); out.Granted != 1 || !out.Shared || out.Used != 2*p.Unit {
			t.Errorf("%s: after a reset: %+v", limit, out)
		}
	}
}
