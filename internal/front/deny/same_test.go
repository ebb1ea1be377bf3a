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

// pair is two stores that are asked the same, one of them behind a store of this package.
type pair struct {
	t     *testing.T
	rng   *rand.Rand
	bare  *memory.Store
	deny  *deny.Store
	one   bool // some are asked by TakeOne, from which nothing is learnt
	local int  // refusals that were repeated
}

var limits = []law.Params{
	perSecond,
	{Kind: law.Bucket, Unit: 1000, Capacity: 10_000, Step: 100_000, Drain: 1000},
	{Kind: law.Bucket, Unit: 1000, Capacity: 4000, Step: 300_000, Drain: 1500, Block: 2_000_000},
	{Kind: law.Bucket, Anchor: law.Epoch, Unit: 1000, Capacity: 5000, Step: 2_000_000, Drain: law.Max},
	{Kind: law.Window, Unit: 1000, Capacity: 5000, Step: 1_000_000},
	{Kind: law.Log, Unit: 1000, Capacity: 5000, Step: 1_500_000},
}

func (p *pair) op(group uint32) law.Op {
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

// ops makes a batch: mostly a take, or a few.
func (p *pair) ops() (ops []law.Op) {
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

// step asks both stores, and fails the test if they differ in what passes, or in when it could.
func (p *pair) step() {
	ops := p.ops()
	want, got := make([]law.Outcome, len(ops)), make([]law.Outcome, len(ops))
	ctx := context.Background()
	if op := &ops[0]; len(ops) == 1 && op.Plain() && p.one && p.rng.IntN(3) == 0 {
		b, ok := p.bare.TakeOne(ctx, op.Cell, &op.Params, op.Cost)
		d, ok2 := p.deny.TakeOne(ctx, op.Cell, &op.Params, op.Cost)
		if ok && ok2 {
			if d.Via == law.ViaLocal {
				p.local++
				if d.RetryAt > b.RetryAt || b.Granted || d.Clock != b.Clock || d.At != b.At {
					p.t.Fatalf("%+v:\n got %+v\nwant %+v", ops, d, b)
				}
			} else if b != d {
				p.t.Fatalf("%+v:\n got %+v\nwant %+v", ops, d, b)
			}
			return
		} else if ok != ok2 && !ok2 {
			p.t.Fatalf("TakeOne decided %v, of the bare store %v", ok2, ok)
		}
		if ok != ok2 { // a refusal was repeated that the bare store has to be asked about
			err := p.bare.Apply(ctx, ops, want)
			if err != nil || want[0].Granted != 0 || p.wrongRetry(op, d.RetryAt, want[0].RetryAt) {
				p.t.Fatalf("%+v:\n got %+v\nwant %+v (%v)", ops, d, want, err)
			}
			return
		}
	}
	if err := p.bare.Apply(ctx, ops, want); err != nil {
		p.t.Fatal(err)
	}
	if err := p.deny.Apply(ctx, ops, got); err != nil {
		p.t.Fatal(err)
	}
	for i := 0; i < len(ops); {
		j := law.GroupEnd(ops, i)
		p.same(ops[i:j], got[i:j], want[i:j], len(ops) == 1)
		i = j
	}
}

// wrongRetry reports whether a refusal that is repeated says wrongly when the cost could pass. Of a log, and of a limit
// that blocks, only the store can tell what a charge since then has changed: until it is asked, the time is too early.
func (p *pair) wrongRetry(op *law.Op, got, want int64) bool {
	if p.one || op.Params.Kind == law.Log || op.Params.Block > 0 {
		return got > want
	}
	return got != want
}

// same compares the outcomes of a request. Of one that was refused here, the charges that nothing is known against
// have no figures. What others of the batch are granted is not known here.
func (p *pair) same(ops []law.Op, got, want []law.Outcome, alone bool) {
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
			p.t.Fatalf("op %d of %+v, nothing is known against it: %+v, want it at %d", i, ops, g, w.Clock)
		case g.Granted == ops[i].Count:
		case g.Clock != w.Clock || g.RetryAt > w.RetryAt || alone && p.wrongRetry(&ops[0], g.RetryAt, w.RetryAt):
			p.t.Fatalf("op %d of %+v, repeated:\n got %+v\nwant %+v", i, ops, g, w)
		default:
			p.local++
		}
	}
}

// TestPassesWhatTheStorePasses sends two stores the same requests at the same times.
func TestPassesWhatTheStorePasses(t *testing.T) {
	local := 0
	for seed := range tier.Pick[uint64](50, 150, 150) {
		synctest.Test(t, func(t *testing.T) {
			clock := func() int64 { return time.Now().UnixMicro() }
			p := &pair{
				t: t, one: seed%2 == 0, rng: rand.New(rand.NewPCG(seed, 0)),
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
			local += p.local
			time.Sleep(time.Second) // the goroutines of coarse clocks end
		})
	}
	if local < 1000 {
		t.Errorf("nothing was tested: %d refusals were repeated", local)
	}
	t.Logf("%d refusals were repeated", local)
}

func TestForHowLongARefusalIsRepeated(t *testing.T) {
	inBubble(t, func(t *testing.T, s *deny.Store, inner *counted) {
		hourly := law.Params{Kind: law.Bucket, Unit: 1, Capacity: 1, Step: 3_600_000_000, Drain: 1}
		ask(t, s, take("k", hourly, 1), take("k", hourly, 1)) // one request: nothing is learnt from it
		ask(t, s, take("k", hourly, 1))
		ask(t, s, take("k", hourly, 1))
		before := inner.asked.Load()
		if b, ok := s.TakeOne(t.Context(), law.Cell{Limit: "l", Key: "other"}, &hourly, 1); ok {
			t.Errorf("TakeOne of a store that cannot: %+v", b)
		}
		time.Sleep(time.Second - time.Microsecond)
		ask(t, s, take("k", hourly, 1))
		if got := inner.asked.Load() - before; got != 0 {
			t.Errorf("the store was asked %d times within a second", got)
		}
		time.Sleep(time.Microsecond)
		ask(t, s, take("k", hourly, 1))
		if got := inner.asked.Load() - before; got != 1 {
			t.Errorf("the store was asked %d times after a second, want 1", got)
		}
		time.Sleep(time.Second) // the goroutines of coarse clocks end
	})
}

func TestRefusalsOfManyKeysAreRemembered(t *testing.T) {
	const keys = 1000
	inBubble(t, func(t *testing.T, s *deny.Store, inner *counted) {
		for i := range keys {
			ask(t, s, take(fmt.Sprint(i), perSecond, 3))
		}
		synctest.Wait()
		before := inner.asked.Load()
		for i := range keys {
			ask(t, s, take(fmt.Sprint(i), perSecond, 3))
		}
		if got := inner.asked.Load() - before; got != 0 {
			t.Errorf("the store was asked about %d of %d keys again", got, keys)
		}
		time.Sleep(time.Second) // the goroutines of coarse clocks end
	})
}

// TestRefusalsOfLargeRequestsAreNotRemembered asks for charges that cannot pass, and for one of them again.
func TestRefusalsOfLargeRequestsAreNotRemembered(t *testing.T) {
	for charges, known := range map[int]bool{1: true, 16: true, 17: false} {
		inBubble(t, func(t *testing.T, s *deny.Store, inner *counted) {
			var ops []law.Op
			for i := range charges {
				ask(t, s, take(fmt.Sprint(i), perSecond, 1)) // another one would fit
				ops = append(ops, take(fmt.Sprint(i), perSecond, 3))
			}
			ask(t, s, ops...)
			before := inner.asked.Load()
			out := ask(t, s, take("0", perSecond, 3))[0]
			if got := inner.asked.Load() == before; got != known || out.Granted != 0 {
				t.Errorf("%d charges: refused without the store %v, want %v: %+v", charges, got, known, out)
			}
			time.Sleep(time.Second)
		})
	}
}

// TestNothingIsAskedAfterClose of a store that would still answer.
func TestNothingIsAskedAfterClose(t *testing.T) {
	inner := &open{counted{Store: memory.New(nil)}}
	defer inner.Store.Close()
	s := deny.New(inner)
	s.Close()
	err := s.Apply(t.Context(), []law.Op{take("k", perSecond, 1)}, make([]law.Outcome, 1))
	if !errors.Is(err, store.ErrClosed) || inner.asked.Load() != 0 {
		t.Errorf("%v, and the store was asked %d times", err, inner.asked.Load())
	}
}

// open is a store that stays open.
type open struct{ counted }

func (*open) Close() error { return nil }
