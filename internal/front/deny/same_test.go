package deny_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/front/deny"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// storePair sends the same batches to a bare store, and to a store behind a deny.Store.
type storePair struct {
	t        *testing.T
	rng      *rand.Rand
	bare     *memory.Store
	deny     *deny.Store
	takeOne  bool // some ops go through TakeOne, from whose refusals nothing is cached
	repeated int  // refusals
}

// limits are the parameters of the ops.
var limits = []law.Params{
	perSecond,
	{Kind: law.Bucket, Unit: 1000, Capacity: 10_000, Step: 100_000, Drain: 1000},
	{Kind: law.Bucket, Unit: 1000, Capacity: 4000, Step: 300_000, Drain: 1500, Block: 2_000_000},
	{Kind: law.Bucket, Anchor: law.Epoch, Unit: 1000, Capacity: 5000, Step: 2_000_000, Drain: law.Max},
	{Kind: law.Window, Unit: 1000, Capacity: 5000, Step: 1_000_000},
	{Kind: law.Log, Unit: 1000, Capacity: 5000, Step: 1_500_000},
}

// op returns a random take.
func (p *storePair) op(group uint32) law.Op {
	n := p.rng.IntN(len(limits))
	op := take(string(rune('a'+p.rng.IntN(2))), limits[n], 1+p.rng.Int64N(4))
	op.Cell.Limit, op.Group = fmt.Sprint("l", n), group
	if op.Cell.Key == "b" && p.rng.IntN(20) == 0 {
		op.Params.Capacity += op.Params.Unit // the limit is changed
	}
	switch p.rng.IntN(12) {
	case 0:
		op.Ceiling = op.Params.Capacity - op.Params.Unit
	case 1:
		op.Ceiling = op.Params.Capacity / 2
	case 2:
		op.Count = 2
	}
	return op
}

// ops returns a random batch: mostly one take, or a few.
func (p *storePair) ops() (ops []law.Op) {
	switch p.rng.IntN(30) {
	case 0, 1:
		op := p.op(1)
		op.Verb = law.Check
		return []law.Op{op}
	case 2:
		op := p.op(1)
		op.Verb, op.TTL = law.Block, p.rng.Int64N(300_000)
		return []law.Op{op}
	case 3:
		op := p.op(1)
		op.Verb = law.Reset
		return []law.Op{op}
	case 4:
		op := p.op(1)
		op.Partial, op.Count = true, 3
		return []law.Op{op}
	case 5, 6, 7, 8, 9:
		for range 1 + p.rng.IntN(4) {
			ops = append(ops, p.op(1+uint32(len(ops)/2)))
		}
		for i := range ops { // a limit has one meaning in a request
			for k := range ops {
				if ops[i].Cell == ops[k].Cell {
					ops[k].Params = ops[i].Params
				}
			}
		}
		return ops
	}
	return []law.Op{p.op(1)}
}

// step sends a batch to both stores, and fails the test if they differ in what passes, or in when it could pass.
func (p *storePair) step() {
	ops := p.ops()
	wantOuts, outs := make([]law.Outcome, len(ops)), make([]law.Outcome, len(ops))
	ctx := context.Background()
	if op := &ops[0]; len(ops) == 1 && op.Plain() && p.takeOne && p.rng.IntN(3) == 0 {
		want, wantOK := p.bare.TakeOne(ctx, op.Cell, &op.Params, op.Cost)
		got, ok := p.deny.TakeOne(ctx, op.Cell, &op.Params, op.Cost)
		if wantOK && ok {
			if got.Via == law.ViaLocal {
				p.repeated++
				if got.RetryAt > want.RetryAt || want.Granted || got.Clock != want.Clock || got.At != want.At {
					p.t.Fatalf("%+v:\n got %+v\nwant %+v", ops, got, want)
				}
			} else if want != got {
				p.t.Fatalf("%+v:\n got %+v\nwant %+v", ops, got, want)
			}
			return
		} else if wantOK && !ok {
			p.t.Fatalf("TakeOne decided %v, TakeOne of the bare store %v", ok, wantOK)
		}
		if wantOK != ok { // a refusal was repeated that TakeOne of the bare store does not decide
			err := p.bare.Apply(ctx, ops, wantOuts)
			if err != nil || wantOuts[0].Granted != 0 || p.wrongRetry(op, got.RetryAt, wantOuts[0].RetryAt) {
				p.t.Fatalf("%+v:\n got %+v\nwant %+v (%v)", ops, got, wantOuts, err)
			}
			return
		}
	}
	if err := p.bare.Apply(ctx, ops, wantOuts); err != nil {
		p.t.Fatal(err)
	}
	if err := p.deny.Apply(ctx, ops, outs); err != nil {
		p.t.Fatal(err)
	}
	for i := 0; i < len(ops); {
		j := law.GroupEnd(ops, i)
		p.compare(ops[i:j], outs[i:j], wantOuts[i:j], len(ops) == 1)
		i = j
	}
}

// wrongRetry reports whether a repeated refusal says wrongly when the cost could pass. With a log, a limit that blocks,
// or takes by TakeOne, the store may have moved that time since: then the repeated time may be too early.
func (p *storePair) wrongRetry(op *law.Op, got, want int64) bool {
	if p.takeOne || op.Params.Kind == law.Log || op.Params.Block > 0 {
		return got > want
	}
	return got != want
}

// compare compares the outcomes of a request. If it was refused locally, the charges that would pass have no figures,
// and what other requests of the batch were granted is not counted.
func (p *storePair) compare(ops []law.Op, got, want []law.Outcome, alone bool) {
	passes := func(outs []law.Outcome) bool {
		for i := range outs {
			if outs[i].Granted < ops[i].Count && (!ops[i].Partial || outs[i].Granted == 0) {
				return false
			}
		}
		return true
	}
	if passes(got) != passes(want) {
		p.t.Fatalf("%+v:\n got %+v\nwant %+v", ops, got, want)
	}
	for i := range ops {
		switch g, w := got[i], want[i]; {
		case g.Via == law.ViaStore && g != w:
			p.t.Fatalf("op %d of %+v, by the store:\n got %+v\nwant %+v", i, ops, g, w)
		case g.Via == law.ViaStore:
		case g.Granted == ops[i].Count && g.Clock != w.Clock:
			p.t.Fatalf("op %d of %+v, would pass: got %+v, want it at %d", i, ops, g, w.Clock)
		case g.Granted == ops[i].Count:
		case g.Clock != w.Clock || g.RetryAt > w.RetryAt || alone && p.wrongRetry(&ops[0], g.RetryAt, w.RetryAt):
			p.t.Fatalf("op %d of %+v, repeated:\n got %+v\nwant %+v", i, ops, g, w)
		default:
			p.repeated++
		}
	}
}

// TestDenyAdmitsWhatItsStoreAdmits checks that a deny.Store admits what its store admits, for random batches.
func TestDenyAdmitsWhatItsStoreAdmits(t *testing.T) {
	repeated := 0
	for seed := range tier.Pick[uint64](50, 150, 150) {
		synctest.Test(t, func(t *testing.T) {
			clock := func() int64 { return time.Now().UnixMicro() }
			p := &storePair{
				t: t, takeOne: seed%2 == 0, rng: rand.New(rand.NewPCG(seed, 0)),
				bare: memory.New(&memory.Config{Clock: clock}),
			}
			inner := memory.New(&memory.Config{Clock: clock})
			p.deny = deny.New(inner)
			defer p.bare.Close()
			defer p.deny.Close()
			for range 400 {
				p.step()
				switch p.rng.IntN(3) {
				case 0:
					time.Sleep(time.Duration(p.rng.Int64N(400)) * time.Millisecond)
				case 1:
					time.Sleep(time.Duration(p.rng.Int64N(2000)) * time.Microsecond)
				}
			}
			repeated += p.repeated
			time.Sleep(time.Second) // the goroutines of coarse clocks end
		})
	}
	if repeated < 1000 {
		t.Errorf("got %d repeated refusals, want 1000 at least", repeated)
	}
	t.Logf("%d refusals were repeated", repeated)
}

func TestARefusalIsRepeatedForASecond(t *testing.T) {
	withStore(t, func(t *testing.T, s *deny.Store, inner *countingStore) {
		hourly := law.Params{Kind: law.Bucket, Unit: 1, Capacity: 1, Step: 3_600_000_000, Drain: 1}
		mustApply(t, s, take("k", hourly, 1), take("k", hourly, 1)) // one request of two charges: its refusal is not cached
		mustApply(t, s, take("k", hourly, 1))
		mustApply(t, s, take("k", hourly, 1))
		oldCalls := inner.calls.Load()
		if b, ok := s.TakeOne(t.Context(), law.Cell{Limit: "l", Key: "other"}, &hourly, 1); ok {
			t.Errorf("an inner store without TakeOne: got %+v, want it undecided", b)
		}
		time.Sleep(time.Second - time.Microsecond)
		mustApply(t, s, take("k", hourly, 1))
		if got := inner.calls.Load() - oldCalls; got != 0 {
			t.Errorf("got %d calls within a second, want 0", got)
		}
		time.Sleep(time.Microsecond)
		mustApply(t, s, take("k", hourly, 1))
		if got := inner.calls.Load() - oldCalls; got != 1 {
			t.Errorf("got %d calls after a second, want 1", got)
		}
		time.Sleep(time.Second) // the goroutines of coarse clocks end
	})
}

func TestRefusalsOfManyKeysAreCached(t *testing.T) {
	const keys = 1000
	withStore(t, func(t *testing.T, s *deny.Store, inner *countingStore) {
		for i := range keys {
			mustApply(t, s, take(fmt.Sprint(i), perSecond, 3))
		}
		synctest.Wait()
		oldCalls := inner.calls.Load()
		for i := range keys {
			mustApply(t, s, take(fmt.Sprint(i), perSecond, 3))
		}
		if got := inner.calls.Load() - oldCalls; got != 0 {
			t.Errorf("got %d calls for %d keys, want 0", got, keys)
		}
		time.Sleep(time.Second) // the goroutines of coarse clocks end
	})
}

// TestRefusalsOfLargeRequestsAreNotCached checks that refusals of a request are cached up to 16 charges.
func TestRefusalsOfLargeRequestsAreNotCached(t *testing.T) {
	for charges, cached := range map[int]bool{1: true, 16: true, 17: false} {
		withStore(t, func(t *testing.T, s *deny.Store, inner *countingStore) {
			var ops []law.Op
			for i := range charges {
				mustApply(t, s, take(fmt.Sprint(i), perSecond, 1)) // another one would fit
				ops = append(ops, take(fmt.Sprint(i), perSecond, 3))
			}
			mustApply(t, s, ops...)
			oldCalls := inner.calls.Load()
			out := mustApply(t, s, take("0", perSecond, 3))[0]
			if got := inner.calls.Load() == oldCalls; got != cached || out.Granted != 0 {
				t.Errorf("%d charges: refused without the store %v, want %v: %+v", charges, got, cached, out)
			}
			time.Sleep(time.Second)
		})
	}
}

// TestApplyAfterCloseCallsNoStore checks that Apply after Close fails, though the store is open.
func TestApplyAfterCloseCallsNoStore(t *testing.T) {
	inner := &unclosableStore{countingStore{Store: memory.New(nil)}}
	defer inner.Store.Close()
	s := deny.New(inner)
	s.Close()
	err := s.Apply(t.Context(), []law.Op{take("k", perSecond, 1)}, make([]law.Outcome, 1))
	if !errors.Is(err, store.ErrClosed) || inner.calls.Load() != 0 {
		t.Errorf("got %v, %d calls; want %v, none", err, inner.calls.Load(), store.ErrClosed)
	}
}

// unclosableStore is a store that stays open after Close.
type unclosableStore struct{ countingStore }

func (*unclosableStore) Close() error { return nil }
