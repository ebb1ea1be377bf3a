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

// player decides requests with its own limiter, under the clock of the log.
type player struct {
	limit    headgate.Limit
	fill     bool // Config.Fill
	params   law.Params
	limiter  *headgate.Limiter
	now      *int64    // time of the limiter's clock, in microseconds
	recorder *recorder // nil: levels are not recorded, and the limiter takes its fast path
	pending  settlements

	// onSettle, if set, is called before a request is settled at a time, and the function that it returns afterwards.
	onSettle func(ctx context.Context, at int64) (after func() error, err error)
}

// playResult is the effect of a request.
type playResult struct {
	allowed  bool  // the whole cost was accepted
	accepted int64 // cost that was charged, in millionths

	// Only if levels are recorded.
	levelBefore, levelAfter int64 // level, in credits
	brim                    bool  // the level is at the capacity after the request
	blockedUntil            int64 // 0: the key is not blocked
}

func newPlayer(limit headgate.Limit, cfg *Config, recordLevels bool) *player {
	now := new(int64)
	clock := func() int64 { return *now }
	p := &player{limit: limit, fill: cfg.Fill, params: limit.Params(), now: now}
	var s store.Store = memory.New(&memory.Config{Clock: clock, MaxKeys: -1})
	if recordLevels {
		p.recorder = &recorder{Store: s}
		s = p.recorder
	}
	p.limiter = headgate.New(s, &headgate.Config{Clock: clock, Timeout: -1})
	return p
}

// recorder keeps a store's last raw outcome of a single op, which has the exact level in credits, and the op's cost.
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

// play settles the earlier requests that have ended, then decides this one.
func (p *player) play(ctx context.Context, r *request, key string) (s playResult, err error) {
	if err = p.settle(ctx, r.at); err != nil {
		return s, err
	}
	*p.now = r.at
	defer func() {
		if err != nil {
			err = fmt.Errorf("replay: %s at %s: %w", quote(key), timeOf(r.at).Format(time.RFC3339), err)
		}
	}()
	c := headgate.Charge{Limit: p.limit, Key: key}
	if r.cost == 0 { // nothing to charge
		s.allowed = true
		p.settleLater(r, c, nil)
		if p.recorder == nil {
			return s, nil
		}
		_, err = p.limiter.Check(ctx, c)
		s.levelBefore = p.recorder.out.Used - p.recorder.out.Granted*p.recorder.cost
		s.levelAfter, s.brim = s.levelBefore, s.levelBefore >= p.params.Capacity
		return s, err
	}
	if c.Cost, err = costOf(r.cost); err != nil {
		return s, err
	}
	switch {
	case p.fill:
		err = p.fillUp(ctx, c, &s)
	case r.end > 0:
		var reservation *headgate.Reservation
		if reservation, err = p.limiter.Reserve(ctx, 0, c); err == nil {
			if s.allowed = reservation.Decision.Allowed; s.allowed {
				p.settleLater(r, c, reservation)
			}
		}
	default:
		var d headgate.Decision
		d, err = p.limiter.Take(ctx, c)
		s.allowed = d.Allowed
	}
	if s.allowed {
		s.accepted = r.cost
	}
	if p.recorder == nil {
		return s, err
	}
	out := &p.recorder.out
	s.levelBefore, s.levelAfter = out.Used-out.Granted*p.recorder.cost, out.Used
	s.brim = s.levelAfter >= p.params.Capacity
	if out.State.BlockedUntil > r.at {
		s.blockedUntil = out.State.BlockedUntil
	}
	return s, err
}

// fillUp takes as much of a charge as fits. It sets s.allowed if that is all, or else s.accepted.
func (p *player) fillUp(ctx context.Context, c headgate.Charge, s *playResult) error {
	f, err := p.limiter.FillUp(ctx, c)
	if err != nil {
		return err
	}
	if s.allowed = f.Accepted == c.Cost; !s.allowed && f.Decision.Allowed {
		s.accepted, err = parseCost([]byte(f.Accepted.String()))
	}
	return err
}

// settlement is the future settlement of a request.
type settlement struct {
	end, used   int64 // time, and cost in millionths
	charge      headgate.Charge
	reservation *headgate.Reservation // nil: nothing was reserved
}

// settlements is a heap, the earliest end first.
type settlements []settlement

// Len, Less, Swap, Push and Pop implement [heap.Interface].
func (s settlements) Len() int { return len(s) }

func (s settlements) Less(i, j int) bool { return s[i].end < s[j].end }

func (s settlements) Swap(i, j int) { s[i], s[j] = s[j], s[i] }

func (s *settlements) Push(x any) { *s = append(*s, x.(settlement)) }

func (s *settlements) Pop() any {
	last := len(*s) - 1
	x := (*s)[last]
	*s = (*s)[:last]
	return x
}

// settleLater schedules the settlement of a request at its end, if it has one and anything to settle.
func (p *player) settleLater(r *request, c headgate.Charge, reservation *headgate.Reservation) {
	if r.end > 0 && (reservation != nil || r.used > 0) {
		heap.Push(&p.pending, settlement{r.end, r.used, c, reservation})
	}
}

// settle settles the requests that end by a time, in the order of their ends.
func (p *player) settle(ctx context.Context, until int64) error {
	for p.pending.Len() > 0 && p.pending[0].end <= until {
		next := heap.Pop(&p.pending).(settlement)
		afterSettle := func() error { return nil }
		used, err := costOf(next.used)
		if err == nil && p.onSettle != nil {
			afterSettle, err = p.onSettle(ctx, next.end)
		}
		*p.now = next.end
		switch {
		case err != nil:
		case next.reservation != nil:
			_, err = next.reservation.Settle(ctx, used)
		default:
			next.charge.Cost = used
			_, err = p.limiter.Debit(ctx, next.charge)
		}
		if err == nil {
			err = afterSettle()
		}
		if err != nil {
			at := timeOf(next.end).Format(time.RFC3339)
			return fmt.Errorf("replay: settle %s at %s: %w", quote(next.charge.Key), at, err)
		}
	}
	return nil
}
