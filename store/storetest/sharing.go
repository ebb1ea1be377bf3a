package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// sharingEnds makes room in a full limit while its shared cell counts, or is empty and
// blocked: new keys share until that is over.
func sharingEnds(t *testing.T, s store.Store) {
	for name, p := range map[string]law.Params{
		"bucket":         {Kind: law.Bucket, Unit: 1000, Capacity: 3000, Step: 150_000, Drain: 3000},
		"sliding window": {Kind: law.Window, Unit: 1000, Capacity: 3000, Step: 100_000},
		"log":            slidingLog(3, 150_000),
		// empty in a millisecond
		"block": {Kind: law.Bucket, Unit: 1000, Capacity: 3000, Step: 1000, Drain: 3000},
	} {
		t.Run(name, func(t *testing.T) {
			block := int64(0)
			if name == "block" {
				block = 150_000
			}
			for slower := int64(1); ; slower *= 5 { // a busy machine may ask too late
				p := p
				p.Step *= slower
				if sharingEnded(t, s, fmt.Sprint(name, " ", slower), p, block*slower) || t.Failed() {
					return
				}
			}
		})
	}
}

// sharingEnded makes room in a full limit, and reports whether it has asked before sharing could end. The shared cell
// is blocked for so long, if that is not 0.
func sharingEnded(t *testing.T, s store.Store, limit string, p law.Params, block int64) (asked bool) {
	t.Helper()
	// Own keys live until the limit shares, however long that takes to be noticed.
	long := p
	long.Step = 3_600_000_000
	fillLimit(t, s, limit, long)
	out := one(t, s, take(limit, "new", p, 3, 0))
	if !out.Shared {
		t.Fatalf("the limit is full, and does not share: %+v", out)
	}
	generation := sharedCell(t, s, limit)
	if block > 0 {
		op := take(limit, generation.Key, p, 1, 0)
		op.Verb, op.TTL = law.Block, block
		out = one(t, s, op)
	}
	end := max(out.State.EmptyAt, out.State.BlockedUntil)
	var resets []law.Op
	for i := range fullKeys {
		op := take(limit, fmt.Sprint("own ", i), long, 1, 0)
		op.Verb, op.Group = law.Reset, uint32(i)
		resets = append(resets, op)
	}
	apply(t, s, resets...)
	asked = endsInTime(t, s, take(limit, "new", p, 1, 0), end)
	if out := one(t, s, take(limit, "new", p, 3, 0)); out.Granted != 1 || out.Shared {
		t.Errorf("a cell of its own: %+v", out)
	}
	// A late charge of the cell of a period that is over takes nothing.
	if out := apply(t, s, take(limit, generation.Key, p, 1, 0))[0]; out.Err == nil || out.Granted != 0 {
		t.Errorf("a shared cell that is over: %+v", out)
	}
	return asked
}

// endsInTime asks for a key without a cell until it does not share any more, which must
// not be before a time. It reports whether it has asked before that.
func endsInTime(t *testing.T, s store.Store, op law.Op, end int64) (asked bool) {
	t.Helper()
	op.Verb = law.Check
	early := 0
	eventually(t, s, "an end of sharing a cell in which nothing counts", func() bool {
		out := one(t, s, op)
		if out.Clock < end {
			if early++; !out.Shared {
				t.Fatalf("sharing ended %d us before its cell was empty: %+v", end-out.Clock, out)
			}
		}
		return !out.Shared
	})
	return early > 0
}

// idsOutlive lets all that was charged under an id drain before the limit is full.
func idsOutlive(t *testing.T, s store.Store) {
	const hour = 3_600_000_000
	p := law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 3000, Step: 1000, Drain: 3000} // empty in a millisecond
	known := take("ids", "known", p, 1, 0)
	known.ID, known.TTL = "an id", hour
	first := one(t, s, known)
	check := take("ids", "another", p, 1, 0)
	check.Verb = law.Check
	eventually(t, s, "the clock to pass the end of the charge", func() bool { return one(t, s, check).Clock > first.State.EmptyAt })
	long := p
	long.Step = hour
	for i := range fullKeys {
		one(t, s, take("ids", fmt.Sprint("own ", i), long, 1, 0))
	}
	eventually(t, s, "the full limit to share", func() bool {
		return one(t, s, take("ids", "new", long, 1, 0)).Shared
	})
	if out := one(t, s, known); !out.Replayed || out.Granted != 1 {
		t.Errorf("asked again: %+v", out)
	}
}

// limitsOwnMaximum gives a limit a maximum of its own, below and above the store's.
func limitsOwnMaximum(t *testing.T, s store.Store) {
	for _, most := range []int64{fullKeys / 2, fullKeys * 2} {
		limit, p := fmt.Sprint("at most ", most), slow()["bucket"]
		p.MaxKeys = most
		fillLimit(t, s, limit, p)
		if out := one(t, s, take(limit, "new", p, 1, 0)); !out.Shared || out.Granted != 1 {
			t.Errorf("%s: %+v", limit, out)
		}
		if room, _ := counted(t, s, limit); room.Max != most || room.Keys != most {
			t.Errorf("%s: %+v", limit, room)
		}
	}
}

func fullness(t *testing.T, s store.Store) {
	p := slow()["bucket"]
	one(t, s, take("nearly empty", "k", p, 1, 0))
	fillLimit(t, s, "full", p)
	for i := range 5 {
		one(t, s, take("full", fmt.Sprint("new ", i), p, 1, 0))
	}
	room, _ := counted(t, s, "full")
	if !room.Full() || room.Fill() != 1 || room.Keys != fullKeys || room.Max != fullKeys || !room.Sharing ||
		room.Since < 1 || room.Shared < 5 {
		t.Errorf("a full limit: %+v", room)
	}
	if room, _ := counted(t, s, "nearly empty"); room.Full() || room.Sharing || room.Keys > 1 {
		t.Errorf("one that is nearly empty: %+v", room)
	}
	if i, ok := store.As[store.Inspector](s); ok {
		cells, _, err := i.Cells(context.Background(), store.Query{Limit: "full"})
		if err != nil || !slices.ContainsFunc(cells, func(c store.Cell) bool {
			return law.IsShared(c.Cell) &&
				c.State.Level == p.Capacity
		}) {
			t.Errorf("the shared cell is not listed: %v, %v", cells, err)
		}
	}
}

// payment is what a key was charged at some time, less what was given back at once.
type payment struct{ at, credits int64 }

// crowded lets callers of two stores over the same cells charge many more keys than a
// limit may have, in waves, so that sharing begins and ends between them. Meanwhile
// both stores sweep, and keys that nobody counts are reset, so that there is room all
// the time. Whatever cell a key was charged in, what it passed must have fitted into one
// of its own.
func crowded(t *testing.T, open func() store.Store) {
	stores := []store.Store{open(), open()}
	limits := map[string]law.Params{
		// 200 ms when full
		"bucket":       {Kind: law.Bucket, Unit: 1_000_000, Capacity: 3_000_000, Step: 1, Drain: 15},
		"quick bucket": {Kind: law.Bucket, Unit: 1_000_000, Capacity: 3_000_000, Step: 1, Drain: 75}, // 40 ms
		"log":          slidingLog(3, 150_000),
		"quick log":    slidingLog(3, 30_000),
	}
	var mu sync.Mutex
	passed := map[law.Cell][]payment{}
	shared, own := 0, 0
	const callers, charges, waves = 8, 16, 8
	left := make([]int, callers)
	for wave := 0; wave < 1000 && (wave < waves || shared == 0 || own <= fullKeys*2); wave++ {
		crowd(callers, func(caller int) bool {
			s := stores[caller%2]
			if left[caller]++; left[caller]%charges == 0 {
				if _, err := s.Sweep(context.Background(), 1000); err != nil {
					t.Errorf("sweep: %v", err)
				}
			}
			ops, outs := charge(t, s, limits)
			mu.Lock()
			defer mu.Unlock()
			for i := range ops {
				if outs[i].Shared {
					shared++
				} else {
					own++
				}
				passed[ops[i].Cell] = append(passed[ops[i].Cell],
					payment{ops[i].DecidedAt(&outs[i]), ops[i].Cost*ops[i].Count - ops[i].Returned})
			}
			return left[caller]%charges != 0
		})
		if wave%4 != 3 {
			clockPasses(t, stores[0], rand.Int64N(40_000))
			continue
		}
		eventually(t, stores[0], "an end of sharing", func() bool {
			for limit := range limits {
				if room, _ := counted(t, stores[0], limit); room.Sharing {
					return false
				}
			}
			return true
		})
	}
	for cell, list := range passed {
		fits(t, cell, limits[cell.Limit], list)
	}
	if shared == 0 || own <= fullKeys*2 {
		t.Errorf("%d charges passed in shared cells, %d in others: the test shows little", shared, own)
	}
	t.Logf("%d charges passed in shared cells, %d in others", shared, own)
}

// charge makes a request of one or two charges, and returns those that passed. Their
// Returned says how much was given back.
func charge(t *testing.T, s store.Store, limits map[string]law.Params) (ops []law.Op, outs []law.Outcome) {
	for limit, p := range limits {
		key := rand.IntN(3) // some are asked for again and again
		if rand.IntN(2) == 0 {
			key = rand.IntN(4 * fullKeys)
		}
		ops = append(ops, take(limit, fmt.Sprint(key), p, 1+rand.Int64N(2), 0))
	}
	ops = ops[:1+rand.IntN(2)]
	outs = make([]law.Outcome, len(ops))
	if rand.IntN(4) == 0 {
		for i := range ops {
			ops[i].Cell.Key = fmt.Sprint("uncounted ", rand.IntN(fullKeys))
			if rand.IntN(2) == 0 {
				ops[i].Verb = law.Reset
			}
			ops[i].Verb = ops[0].Verb
		}
		if err := s.Apply(context.Background(), ops, outs); err != nil {
			t.Errorf("apply: %v", err)
		}
		return nil, nil
	}
	if err := s.Apply(context.Background(), ops, outs); err != nil {
		t.Errorf("apply: %v", err)
		return nil, nil
	}
	for i := range outs {
		if outs[i].Err != nil && !errors.Is(outs[i].Err, store.ErrConflict) {
			t.Errorf("apply: %v", outs[i].Err)
		}
		if outs[i].Granted == 0 || outs[i].Err != nil {
			return nil, nil
		}
	}
	if rand.IntN(4) == 0 {
		back := []law.Op{law.Back(&ops[0], &outs[0], ops[0].Cost)}
		got := make([]law.Outcome, 1)
		if err := s.Apply(context.Background(), back, got); err == nil && got[0].Err == nil {
			ops[0].Returned = got[0].Granted
		}
	}
	return ops, outs
}
