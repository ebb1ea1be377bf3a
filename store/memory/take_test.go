package memory_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

const t0 = int64(1_790_000_000_000_000) // the first time of a test's clock, in us

// testParams are parameters of plain cells, and of cells that are not plain.
var testParams = []law.Params{
	{Kind: law.Bucket, Unit: 1000, Capacity: 5000, Step: 1, Drain: 1},
	{Kind: law.Bucket, Unit: 1000, Capacity: 5000, Step: 700, Drain: 300},
	{Kind: law.Bucket, Unit: 7000, Capacity: 35000, Step: 1000, Drain: 3, Block: 5000},
	{Kind: law.Bucket, Anchor: law.Epoch, Unit: 1000, Capacity: 5000, Step: 20000, Drain: law.Max},
	{Kind: law.Bucket, Anchor: law.Epoch, Unit: 1000, Capacity: 9000, Step: 3000, Drain: 2000},
	{Kind: law.Window, Unit: 1000, Capacity: 5000, Step: 10000},
	{Kind: law.Log, Unit: 1000, Capacity: 5000, Step: 10000, History: 20000},
}

func apply(tb testing.TB, s store.Store, op law.Op) law.Outcome {
	tb.Helper()
	outs := make([]law.Outcome, 1)
	if err := s.Apply(context.Background(), []law.Op{op}, outs); err != nil {
		tb.Fatal(err)
	}
	return outs[0]
}

// briefOf returns what TakeOne answers for an outcome of Apply; at is op.DecidedAt.
func briefOf(out *law.Outcome, at int64) store.Brief {
	return store.Brief{
		Granted: out.Granted == 1, Used: out.Used, Clock: out.Clock, At: at, RetryAt: out.RetryAt,
		EmptyAt: max(out.State.EmptyAt, out.State.BlockedUntil),
	}
}

// TestTakeOneMatchesApply runs random histories on two stores. It charges the one only by Apply, and the other by
// TakeOne if that decides. Now and then it resets or blocks a cell, changes its limit, sweeps, or fills the store.
func TestTakeOneMatchesApply(t *testing.T) {
	t.Parallel()
	seed := tier.Seed()
	rng := rand.New(rand.NewPCG(seed, 0))
	for round := range tier.Pick(60, 200, 2000) {
		now := t0
		// The two full stores may evict different dead cells. Outcomes then differ only in times that are past, as
		// long as no limit changes and the clock does not step back.
		maxTotal, backFactor := 1000, int64(1) // 0: the clock does not step back
		if round%2 == 0 {
			maxTotal, backFactor = 8, 0
		}
		clock := func() int64 { return now }
		var stores [2]*memory.Store
		for i := range stores {
			stores[i] = memory.New(&memory.Config{Clock: clock, MaxTotal: maxTotal, Names: rng.IntN(2) == 0})
		}
		for step := range 300 {
			switch now += rng.Int64N(2000); rng.IntN(100) {
			case 0:
				now -= 3_000_000 * backFactor
			case 1, 2, 3:
				now -= rng.Int64N(9000) * backFactor
			case 4, 5:
				now += 50_000
			}
			n := rng.IntN(len(testParams))
			cell := law.Cell{Limit: string(rune('a' + n)), Key: string(rune('0' + rng.IntN(3)))}
			if rng.IntN(4) == 0 && backFactor > 0 {
				cell.Limit = "changing"
			}
			p := testParams[n]
			op := law.Op{Verb: law.Take, Cell: cell, Params: p, Cost: 1 + rng.Int64N(p.Capacity+p.Capacity/9), Count: 1}
			switch rng.IntN(20) {
			case 0:
				op.Verb = law.Reset
			case 1:
				op.Verb, op.TTL, op.Reason = law.Block, rng.Int64N(4000), "because"
			case 2:
				op.Verb = law.Check
			}
			want := apply(t, stores[0], op)
			decidedAt := op.DecidedAt(&want)
			if op.Verb != law.Take || want.Err != nil {
				apply(t, stores[1], op)
				continue
			}
			got, ok := stores[1].TakeOne(context.Background(), cell, &p, op.Cost)
			if backFactor == 0 {
				got.EmptyAt, want.State = 0, law.State{}
			}
			if !ok {
				out := apply(t, stores[1], op)
				out.EntryNumber, want.EntryNumber = 0, 0
				if backFactor == 0 {
					out.State = law.State{}
				}
				if out != want {
					t.Fatalf("seed %d, step %d: %+v left to Apply:\n got %+v\nwant %+v", seed, step, op, out, want)
				}
			} else if brief := briefOf(&want, decidedAt); got != brief {
				t.Fatalf("seed %d, step %d: %+v:\n got %+v\nwant %+v", seed, step, op, got, brief)
			}
			if rng.IntN(40) == 0 {
				for _, s := range stores {
					s.Sweep(context.Background(), 100)
				}
			}
		}
	}
}

func TestTakeOneDecidesOnlyPlainCharges(t *testing.T) {
	t.Parallel()
	s := memory.New(nil)
	p := testParams[0]
	badParams, isClosed := p, false
	badParams.Step = 0
	cancelledCtx, cancel := context.WithCancel(context.Background())
	cancel()
	for name, takeOne := range map[string]func() (store.Brief, bool){
		"NUL in the key": func() (store.Brief, bool) {
			return s.TakeOne(t.Context(), law.Cell{Limit: "l", Key: "a\x00"}, &p, 1)
		},
		"bad UTF-8": func() (store.Brief, bool) {
			return s.TakeOne(t.Context(), law.Cell{Limit: "l", Key: "\xff"}, &p, 1)
		},
		"long key": func() (store.Brief, bool) {
			return s.TakeOne(t.Context(), law.Cell{Limit: "l", Key: strings.Repeat("k", 513)}, &p, 1)
		},
		"no limit": func() (store.Brief, bool) { return s.TakeOne(t.Context(), law.Cell{Key: "k"}, &p, 1) },
		"no cost":  func() (store.Brief, bool) { return s.TakeOne(t.Context(), law.Cell{Limit: "l", Key: "k"}, &p, 0) },
		"a huge cost": func() (store.Brief, bool) {
			return s.TakeOne(t.Context(), law.Cell{Limit: "l", Key: "k"}, &p, law.Max+1)
		},
		"bad parameters": func() (store.Brief, bool) {
			return s.TakeOne(t.Context(), law.Cell{Limit: "l", Key: "k"}, &badParams, 1)
		},
		"a window": func() (store.Brief, bool) {
			return s.TakeOne(t.Context(), law.Cell{Limit: "l", Key: "k"}, &testParams[5], 1)
		},
		"a cancelled ctx": func() (store.Brief, bool) {
			return s.TakeOne(cancelledCtx, law.Cell{Limit: "l", Key: "k"}, &p, 1)
		},
	} {
		if b, ok := takeOne(); ok {
			t.Errorf("%s: TakeOne decided %+v, want it left to Apply", name, b)
		}
	}
	for range 2 {
		if _, ok := s.TakeOne(t.Context(), law.Cell{Limit: "l", Key: "k"}, &p, 1); ok == isClosed {
			t.Errorf("closed %v: got decided %v, want %v", isClosed, ok, !isClosed)
		}
		s.Close()
		isClosed = true
	}
}

// takeMethod takes one unit of a cell.
type takeMethod func() store.Brief

// takeMethods returns two ways to take a unit of a cell: by Apply, and by TakeOne or else by Apply.
func takeMethods(t *testing.T, s *memory.Store, cell law.Cell, p *law.Params) []takeMethod {
	byApply := func() store.Brief {
		op := law.Op{Verb: law.Take, Cell: cell, Params: *p, Cost: p.Unit, Count: 1}
		out := apply(t, s, op)
		return briefOf(&out, op.DecidedAt(&out))
	}
	orByApply := func(b store.Brief, ok bool) store.Brief {
		if !ok {
			return byApply()
		}
		return b
	}
	return []takeMethod{
		byApply,
		func() store.Brief { return orByApply(s.TakeOne(context.Background(), cell, p, p.Unit)) },
	}
}

func TestAKeyAdmitsExactlyItsCapacity(t *testing.T) {
	t.Parallel()
	const callers, callsEach, capacity = 8, 400, 1000
	p := law.Params{Kind: law.Bucket, Unit: 1000, Capacity: capacity * 1000, Step: 3_600_000_000, Drain: 1000}
	for key := range 10 {
		s := memory.New(&memory.Config{Clock: func() int64 { return t0 }})
		methods := takeMethods(t, s, law.Cell{Limit: "l", Key: string(rune('0' + key))}, &p)
		var wg sync.WaitGroup
		var mu sync.Mutex
		admitted := 0
		for c := range callers {
			wg.Go(func() {
				n := 0
				for i := range callsEach { // if key is even, each caller has one method, else it alternates
					if methods[(c+i*key)%len(methods)]().Granted {
						n++
					}
					if i%16 == c { // a new cell may move other cells of its table
						apply(t, s, law.Op{
							Verb: law.Take, Cell: law.Cell{Limit: "l", Key: string(rune(1000 + i))},
							Params: testParams[c%len(testParams)], Cost: 1, Count: 1,
						})
					}
				}
				mu.Lock()
				defer mu.Unlock()
				admitted += n
			})
		}
		wg.Wait()
		if admitted != capacity {
			t.Errorf("got %d admitted, want %d", admitted, capacity)
		}
	}
}

// TestConcurrentTakesMatchPackageLaw charges a key from four goroutines by the system's clock. Package law has to admit
// as many when it decides the same charges at the same times.
func TestConcurrentTakesMatchPackageLaw(t *testing.T) {
	for _, p := range []law.Params{
		{Kind: law.Bucket, Unit: 1_000_000, Capacity: 20_000_000, Step: 1, Drain: 20_000},
		{Kind: law.Bucket, Unit: 1_000_000, Capacity: 20_000_000, Step: 1, Drain: 30},
		{Kind: law.Bucket, Unit: 1000, Capacity: 20_000, Step: 900, Drain: 7000},
		{Kind: law.Bucket, Anchor: law.Epoch, Unit: 1000, Capacity: 20_000, Step: 1000, Drain: law.Max},
	} {
		s := memory.New(nil)
		methods := takeMethods(t, s, law.Cell{Limit: "l", Key: "k"}, &p)
		var clocks [4][]int64
		var admitted [4]int
		var wg sync.WaitGroup
		for c := range clocks {
			wg.Go(func() {
				for range 20_000 {
					b := methods[c%len(methods)]()
					clocks[c] = append(clocks[c], b.Clock)
					if b.Granted {
						admitted[c]++
					}
				}
			})
		}
		wg.Wait()
		times := slices.Concat(clocks[:]...)
		slices.Sort(times)
		var state law.State
		op := law.Op{Verb: law.Take, Params: p, Cost: p.Unit, Count: 1}
		want, got := 0, admitted[0]+admitted[1]+admitted[2]+admitted[3]
		for _, clock := range times {
			if d := law.Decide(state, &op, clock, 0, nil); d.Outcome.Granted > 0 {
				state = d.Outcome.State
				want++
			}
		}
		if got != want {
			t.Errorf("%+v: got %v admitted, want %d together", p, admitted, want)
		}
	}
}

func TestTakeOneAndApplyDoNotAllocate(t *testing.T) {
	p := testParams[0]
	p.Block = 0
	s := memory.New(&memory.Config{Clock: func() int64 { return t0 }})
	cell := law.Cell{Limit: "l", Key: "k"}
	ops := []law.Op{{Verb: law.Take, Cell: law.Cell{Limit: "l", Key: "applied"}, Params: p, Cost: 1, Count: 1}}
	outs := make([]law.Outcome, 1)
	for name, decide := range map[string]func(){
		"TakeOne": func() { s.TakeOne(context.Background(), cell, &p, 1) },
		"Apply":   func() { s.Apply(context.Background(), ops, outs) },
	} {
		if n := testing.AllocsPerRun(10_000, decide); n != 0 { // the first calls are admitted, the others refused
			t.Errorf("%s: got %v allocations, want none", name, n)
		}
	}
}
