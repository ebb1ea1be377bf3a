package storetest

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// stepped plays random histories on stores of which each limit may have three keys, and
// steps the clock itself. Keys are asked for by Apply, TakeOne and handles, alone and in
// groups, and given back, renewed, reset and swept, by one caller or several at once.
func stepped(t *testing.T, o *Options) {
	const keys, callers, steps = 3, 4, 120
	shared := 0
	for round := range max(10, o.Histories/100) {
		seed := tier.Seed()
		var now atomic.Int64
		now.Store(T0)
		s := o.FullAt(t, keys, now.Load)(t)
		h := &played{s: s, now: &now, passed: map[law.Cell][]payment{}}
		h.direct, _ = s.(store.OneTaker)
		h.binder, _ = s.(store.Pinner)
		n := 1 + round%2*(callers-1)
		var wg sync.WaitGroup
		for caller := range n {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(caller)))
				for range steps {
					h.step(t, r)
				}
			})
		}
		wg.Wait()
		h.check(t, keys)
		s.Close()
		if t.Failed() {
			t.Fatalf("seed %d, %d callers", seed, n)
		}
		shared += h.shared
	}
	if shared < 100 {
		t.Errorf("%d charges passed in shared cells: this shows little", shared)
	}
}

// played is what was done to a store, as far as it matters.
type played struct {
	s      store.Store
	direct store.OneTaker // s, if it is one
	binder store.Pinner
	now    *atomic.Int64

	mu     sync.Mutex
	passed map[law.Cell][]payment // guarded by mu
	shared int                    // charges that shared cells have answered; guarded by mu
}

// steppedLimits have three units that come back within 2,000 us.
var steppedLimits = []law.Params{
	{Kind: law.Bucket, Unit: 1000, Capacity: 3000, Step: 1, Drain: 2},
	{Kind: law.Bucket, Anchor: law.Epoch, Unit: 1000, Capacity: 3000, Step: 2000, Drain: law.Max},
	{Kind: law.Window, Unit: 1000, Capacity: 3000, Step: 1000},
	slidingLog(3, 2000),
}

// step does one thing.
func (h *played) step(t *testing.T, r *rand.Rand) {
	n := r.IntN(len(steppedLimits))
	p := steppedLimits[n]
	op := take(string(rune('a'+n)), fmt.Sprint(r.IntN(8)), p, 1+r.Int64N(2), 0)
	switch r.IntN(20) {
	case 0, 1, 2, 3:
		h.now.Add(r.Int64N(600))
	case 4:
		h.now.Add(r.Int64N(5000))
	case 5:
		if _, err := h.s.Sweep(context.Background(), 1+r.IntN(5)); err != nil {
			t.Error(err)
		}
	case 6: // makes room that nobody has waited for
		op.Cell.Key = "uncounted"
		apply(t, h.s, op)
		op.Verb = law.Reset
		apply(t, h.s, op)
	case 7:
		op.Verb = law.Check
		apply(t, h.s, op)
	case 8:
		op.Verb, op.TTL = law.Block, r.Int64N(500)
		apply(t, h.s, op)
	case 9, 10, 11:
		m := r.IntN(len(steppedLimits))
		h.ask(t, r, op, take(string(rune('a'+m)), fmt.Sprint(r.IntN(8)), steppedLimits[m], 1, 0))
	case 12, 13:
		h.quick(t, r, op)
	case 14:
		op.Count, op.Cost, op.Partial = 1+r.Int64N(4), p.Unit, true
		h.ask(t, r, op)
	default:
		h.ask(t, r, op)
	}
}

// quick asks without a batch if it can.
func (h *played) quick(t *testing.T, r *rand.Rand, op law.Op) {
	var b store.Brief
	decided := false
	switch {
	case h.binder != nil && r.IntN(2) == 0 && op.Params.Plain():
		b, decided = h.binder.Pin(op.Cell, &op.Params).TakeOne(op.Cost)
	case h.direct != nil:
		b, decided = h.direct.TakeOne(context.Background(), op.Cell, &op.Params, op.Cost)
	}
	switch {
	case !decided:
		h.ask(t, r, op)
	case b.Granted:
		h.mu.Lock()
		defer h.mu.Unlock()
		h.passed[op.Cell] = append(h.passed[op.Cell], payment{b.At, op.Cost})
	}
}

// ask asks for one request, and gives some of it back at times.
func (h *played) ask(t *testing.T, r *rand.Rand, ops ...law.Op) {
	outs := apply(t, h.s, ops...)
	for i := range outs {
		if outs[i].Err != nil {
			t.Error(outs[i].Err)
		}
		if outs[i].Granted == 0 {
			return
		}
	}
	credits := ops[0].Cost * outs[0].Granted
	if r.IntN(4) == 0 {
		back := law.Back(&ops[0], &outs[0], credits)
		credits -= apply(t, h.s, back)[0].Granted
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range ops {
		if outs[i].Shared {
			h.shared++
		}
		if i > 0 {
			credits = ops[i].Cost * outs[i].Granted
		}
		h.passed[ops[i].Cell] = append(h.passed[ops[i].Cell], payment{ops[i].DecidedAt(&outs[i]), credits})
	}
}

// check checks what has passed, and that in the end new keys have cells of their own.
func (h *played) check(t *testing.T, keys int64) {
	t.Helper()
	for cell, list := range h.passed {
		fits(t, cell, steppedLimits[cell.Limit[0]-'a'], list)
	}
	for n, p := range steppedLimits {
		limit := string(rune('a' + n))
		if room, _ := counted(t, h.s, limit); room.Keys > keys || room.Keys < 0 {
			t.Errorf("%s: %d keys are held", limit, room.Keys)
		}
		h.now.Add(10_000)
		for range 10 {
			if _, err := h.s.Sweep(context.Background(), 100); err != nil {
				t.Fatal(err)
			}
		}
		if room, _ := counted(t, h.s, limit); room.Keys != 0 || room.Sharing {
			t.Errorf("%s: nothing counts any more, and yet: %+v", limit, room)
		}
		for i := range keys + 1 {
			if out := one(t, h.s, take(limit, fmt.Sprint("new ", i), p, 3, 0)); out.Granted != 1 ||
				out.Shared != (i == keys) {
				t.Errorf("%s: new key %d: %+v", limit, i, out)
			}
		}
	}
}

// fits checks that what a key passed is no more than its limit lets pass.
func fits(t *testing.T, cell law.Cell, p law.Params, list []payment) {
	t.Helper()
	slices.SortFunc(list, func(a, b payment) int { return cmp.Compare(a.at, b.at) })
	var level, at int64
	for i, c := range list {
		switch {
		case p.Kind == law.Bucket && p.Anchor == law.Own:
			level = max(0, level-(c.at-at)*p.Drain) + c.credits // Step is 1: it has no phase
			at = c.at
		default: // a log, or windows that end at multiples of their length
			begin := c.at - p.Step + 1
			if p.Kind != law.Log {
				begin = c.at - c.at%p.Step
			}
			level = 0
			for _, before := range list[:i+1] {
				if before.at >= begin {
					level += before.credits
				}
			}
		}
		if level > p.Capacity {
			t.Errorf("%v: %d credits passed at once, at most %d may; charge %d of %v", cell, level, p.Capacity, i, list)
			return
		}
	}
}
