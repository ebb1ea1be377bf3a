package replay

import (
	"container/heap"
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// player lets a limiter of its own decide requests, under the clock of the log.
type player struct {
	limit   headgate.Limit
	fill    bool
	p       law.Params
	lim     *headgate.Limiter
	now     *int64
	rec     *recorder // nil: levels are not asked for, and the limiter takes a shorter way
	pending pending

	// settling, if set, is called when a request is settled at a time; what it returns is called after that.
	settling func(ctx context.Context, at int64) (after func() error, err error)
}

// step is the result of a request.
type step struct {
	allowed  bool  // all of it
	accepted int64 // in millionths

	// Where levels are requested: that before and that after it, in credits.
	before, after int64
	brim          bool  // the level stands at the capacity then
	blocked       int64 // until when; 0: not blocked
}

func newPlayer(limit headgate.Limit, cfg *Config, levels bool) *player {
	now := new(int64)
	clock := func() int64 { return *now }
	p := &player{limit: limit, fill: cfg.Fill, p: limit.Params(), now: now}
	var s store.Store = memory.New(&memory.Config{Clock: clock, MaxKeys: -1})
	if levels {
		p.rec = &recorder{Store: s}
		s = p.rec
	}
	p.lim = headgate.New(s, &headgate.Config{Clock: clock, Timeout: -1})
	return p
}

// recorder keeps a store's raw outcome: the level is in it, to the credit.
type recorder struct {
	store.Store
	cost int64
	out  law.Outcome
}

func (r *recorder) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	err := r.Store.Apply(ctx, ops, outs)
	if err == nil && len(ops) == 1 {
		r.cost, r.out = ops[0].Cost, outs[0]
	}
	return err
}

// play decides a request, after whatever was to be settled until then.
func (p *player) play(ctx context.Context, r *request, key string) (s step, err error) {
	if err = p.settle(ctx, r.at); err != nil {
		return s, err
	}
	*p.now = r.at
	defer func() {
		if err != nil {
			err = fmt.Errorf("replay: %s at %s: %w", quote(key), at(r.at).Format(time.RFC3339), err)
		}
	}()
	c := headgate.Charge{Limit: p.limit, Key: key}
	if r.cost == 0 { // it takes nothing
		s.allowed = true
		p.pend(r, c, nil)
		if p.rec == nil {
			return s, nil
		}
		_, err = p.lim.Check(ctx, c)
		s.before = p.rec.out.Used - p.rec.out.Granted*p.rec.cost
		s.after, s.brim = s.before, s.before >= p.p.Capacity
		return s, err
	}
	if c.Cost, err = costOf(r.cost); err != nil {
		return s, err
	}
	switch {
	case p.fill:
		err = p.fillUp(ctx, c, &s)
	case r.end > 0:
		var made *headgate.Reservation
		if made, err = p.lim.Reserve(ctx, 0, c); err == nil {
			if s.allowed = made.Decision.Allowed; s.allowed {
				p.pend(r, c, made)
			}
		}
	default:
		var d headgate.Decision
		d, err = p.lim.Take(ctx, c)
		s.allowed = d.Allowed
	}
	if s.allowed {
		s.accepted = r.cost
	}
	if p.rec == nil {
		return s, err
	}
	out := &p.rec.out
	s.before, s.after = out.Used-out.Granted*p.rec.cost, out.Used
	s.brim = s.after >= p.p.Capacity
	if out.State.BlockedUntil > r.at {
		s.blocked = out.State.BlockedUntil
	}
	return s, err
}

// fillUp takes as much as fits.
func (p *player) fillUp(ctx context.Context, c headgate.Charge, s *step) error {
	f, err := p.lim.FillUp(ctx, c)
	if err != nil {
		return err
	}
	if s.allowed = f.Accepted == c.Cost; !s.allowed && f.Decision.Allowed {
		s.accepted, err = parseCost([]byte(f.Accepted.String()))
	}
	return err
}

// reserved is a request that is to be settled.
type reserved struct {
	end, used int64
	charge    headgate.Charge
	made      *headgate.Reservation // nil: nothing was reserved
}

// pending is a heap of what is to be settled, the earliest first.
type pending []reserved

// Len implements [heap.Interface].
func (p pending) Len() int { return len(p) }

// Less implements [heap.Interface].
func (p pending) Less(i, j int) bool { return p[i].end < p[j].end }

// Swap implements [heap.Interface].
func (p pending) Swap(i, j int) { p[i], p[j] = p[j], p[i] }

// Push implements [heap.Interface].
func (p *pending) Push(x any) { *p = append(*p, x.(reserved)) }

// Pop implements [heap.Interface].
func (p *pending) Pop() any {
	last := len(*p) - 1
	x := (*p)[last]
	*p = (*p)[:last]
	return x
}

// pend notes that a request is settled later.
func (p *player) pend(r *request, c headgate.Charge, made *headgate.Reservation) {
	if r.end > 0 && (made != nil || r.used > 0) {
		heap.Push(&p.pending, reserved{r.end, r.used, c, made})
	}
}

// settle settles what ends until a time, in order.
func (p *player) settle(ctx context.Context, until int64) error {
	for p.pending.Len() > 0 && p.pending[0].end <= until {
		r := heap.Pop(&p.pending).(reserved)
		after := func() error { return nil }
		used, err := costOf(r.used)
		if err == nil && p.settling != nil {
			after, err = p.settling(ctx, r.end)
		}
		*p.now = r.end
		switch {
		case err != nil:
		case r.made != nil:
			_, err = r.made.Settle(ctx, used)
		default:
			r.charge.Cost = used
			_, err = p.lim.Debit(ctx, r.charge)
		}
		if err == nil {
			err = after()
		}
		if err != nil {
			return fmt.Errorf("replay: settle %s at %s: %w", quote(r.charge.Key), at(r.end).Format(time.RFC3339), err)
		}
	}
	return nil
}
