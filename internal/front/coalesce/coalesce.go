// Package coalesce lets callers who wait for a store share its round trips.
//
// While a batch is under way, callers queue; when it has come back, all of them go in the next one. A lone caller never
// waits. When enough callers wait to be worth a round trip of their own, another batch is sent beside the first. A cell
// is in one batch at a time: its callers are decided in the order in which they arrived, and no two batches of one
// process wait for each other's rows. Callers with the same op on one cell become one op with a count, so that one
// update of a row decides for all of them. Grants are handed out in the order of arrival.
package coalesce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/flight"
	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

var (
	_ store.Store     = (*Store)(nil)
	_ store.Unwrapper = (*Store)(nil)
)

// Config adjusts a Store. It may be nil, and every field may be zero.
type Config struct {
	// Flights is how many batches may be under way at once, each with cells of its own. Zero: Info.Batches, or else 4.
	Flights int
	// Timeout bounds a batch, which goes on when its first caller leaves: contexts of callers do not end it. Exception:
	// a caller that calls the store itself bounds its batch by a second more than its deadline. Zero: 10 s.
	Timeout time.Duration
	// Observer receives every batch. Nil: none.
	Observer store.Observer
	// Context returns the context of a batch, made of the contexts of its callers, for values such as a trace. It must
	// not end with them. Nil: context.Background.
	Context func(callers []context.Context) context.Context

	maxWaiting int // for tests; zero: the constant maxWaiting
}

const (
	// minBesideOps is how many ops must wait for a batch to be sent beside another one.
	minBesideOps = 32
	// maxOps is how many ops a batch has at most; the ops of its last caller may exceed it. A caller with half as
	// many or more goes alone.
	maxOps = 512
	// maxWaiting is how many callers may wait for a batch. Further callers get store.ErrBusy at once.
	maxWaiting = 100_000
)

func (c *Config) orDefault(inner store.Store) Config {
	d := *cmp.Or(c, &Config{})
	d.Flights = cmp.Or(max(d.Flights, 0), store.InfoOf(inner).Batches, 4)
	d.Timeout = cmp.Or(max(d.Timeout, 0), 10*time.Second)
	d.maxWaiting = cmp.Or(d.maxWaiting, maxWaiting)
	return d
}

// Store is a store in front of another. It is safe for concurrent use. Its goroutines run only while callers wait, or
// while it gives back what was granted to callers that had left.
//
// A caller whose context ends before its batch has left is not charged, and gets store.ErrUnavailable. A caller that
// leaves later gets store.ErrUnknownOutcome, unless it only checks: it is charged, and its grant is given back by the
// return rule, unless it has an ID, under which it can repeat the request.
//
// A caller who finds no batch under way, and whose context cannot end or has a second or more until its deadline, calls
// the store itself. It returns when the answer comes, a second after its deadline at the latest.
type Store struct {
	store.Store // the store below
	cfg         Config
	queue       *queue
	buffers     sync.Pool // *batch

	batches, ops, callers atomic.Int64 // counts of what was sent
}

// Stats are counts since New.
type Stats struct {
	Batches int64 // batches that were sent to the store below
	Ops     int64 // ops in these batches
	Callers int64 // callers who shared these batches
	Waiting int   // callers who wait for a batch that has not left
}

// Stats returns the counts. It reads one after another, so a batch that leaves meanwhile may be in some only.
func (s *Store) Stats() Stats {
	return Stats{Batches: s.batches.Load(), Ops: s.ops.Load(), Callers: s.callers.Load(), Waiting: s.queue.Waiting()}
}

func (s *Store) countBatch(ops, callers int) {
	s.batches.Add(1)
	s.ops.Add(int64(ops))
	s.callers.Add(int64(callers))
}

// New returns a store in front of inner, which Close closes too.
func New(inner store.Store, cfg *Config) *Store {
	s := &Store{Store: inner, cfg: cfg.orDefault(inner)}
	s.queue = flight.New(flight.Config[law.Cell, *payload]{
		MaxFlights: s.cfg.Flights, MinSize: minBesideOps, MaxSize: maxOps, MaxWaiting: s.cfg.maxWaiting,
		New: func() *payload { return &payload{} }, Fly: s.fly, Land: s.land, CallerFlies: callerFlies,
		Held: func(p *flight.Passenger[law.Cell, *payload]) bool { return p.Load.allHeld() },
	})
	return s
}

// Unwrap implements store.Unwrapper.
func (s *Store) Unwrap() store.Store { return s.Store }

// Apply implements store.Store.
func (s *Store) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(ops) == 0 {
		return nil
	}
	if 2*len(ops) >= maxOps {
		s.countBatch(len(ops), 1)
		if err := s.Store.Apply(ctx, ops, outs); err != nil {
			store.Void(outs)
			return err
		}
		return nil
	}
	p, rank, start, err := s.join(ctx, ops)
	if err != nil {
		return err
	}
	sent := false
	landed := p.Wait(ctx, start, func(departed bool) {
		if sent = departed; departed {
			p.Load.leftAfter = append(p.Load.leftAfter, rank)
		} else {
			p.Load.leftBefore = append(p.Load.leftBefore, rank)
		}
	})
	if !landed {
		return leftEarlyError(ctx, ops, sent)
	}
	if err = p.Err(); err != nil && p.Load.allFailed() {
		err = nil // the errors of the ops say more
	}
	if err == nil {
		p.Load.copyAnswer(rank, outs)
	}
	p.Leave()
	return err
}

// leftEarlyError returns the error of a caller whose context ended before the answer came.
func leftEarlyError(ctx context.Context, ops []law.Op, sent bool) error {
	charges := slices.ContainsFunc(ops, func(op law.Op) bool { return op.Verb != law.Check })
	if sent && charges {
		return fmt.Errorf("coalesce: %w: %w", store.ErrUnknownOutcome, ctx.Err())
	}
	return fmt.Errorf("coalesce: %w: %w", store.ErrUnavailable, ctx.Err())
}

// join adds a caller, with its rank, to a waiting passenger with the same op, or adds a new passenger.
func (s *Store) join(ctx context.Context, ops []law.Op) (
	p *flight.Passenger[law.Cell, *payload], rank int, start flight.Start, err error,
) {
	switch err := s.queue.Lock(); {
	case errors.Is(err, flight.ErrClosed):
		return nil, 0, 0, store.ErrClosed
	case err != nil:
		return nil, 0, 0, fmt.Errorf("coalesce: %w: as many as may, %d", store.ErrBusy, s.cfg.maxWaiting)
	}
	if shareable(ops) {
		if p := s.queue.Last(ops[0].Cell); p != nil {
			if rank, ok := p.Load.addCaller(&ops[0]); ok {
				s.keepContext(ctx, p.Load)
				s.queue.Join(p)
				return p, rank, 0, nil
			}
		}
	}
	p = s.queue.Passenger()
	p.Load.ops = append(p.Load.ops, ops...)
	p.Load.shared, p.Load.ranks = shareable(ops), 1
	s.keepContext(ctx, p.Load)
	return p, 0, s.queue.Add(p), nil
}

// keepContext keeps the context of a caller for Config.Context, if that is set. The queue is locked.
func (s *Store) keepContext(ctx context.Context, p *payload) {
	if s.cfg.Context != nil {
		p.contexts = append(p.contexts, ctx)
	}
}

// context returns the context of a batch, without a deadline.
func (s *Store) context(passengers []*flight.Passenger[law.Cell, *payload]) context.Context {
	if s.cfg.Context == nil {
		return context.Background()
	}
	var callers []context.Context
	for _, p := range passengers {
		callers = append(callers, p.Load.contexts...)
	}
	return s.cfg.Context(callers)
}

// A caller that calls the store itself cannot leave before the answer comes, so a short deadline would be missed.
// Such a call needs at least minRemaining until its deadline, and ends grace after it: an answer within grace lets
// the charge be given back, where a call that is cut off leaves the charge and costs a connection.
const (
	minRemaining = time.Second
	grace        = time.Second
)

// callerFlies reports whether a caller has enough time to call the store itself.
func callerFlies(ctx context.Context) bool {
	end, ok := ctx.Deadline()
	return ok && sched.Until(end) >= minRemaining
}

// fly sends the ops of passengers as one batch. caller is the context of the caller that runs it, or has no deadline.
func (s *Store) fly(caller context.Context, passengers []*flight.Passenger[law.Cell, *payload]) error {
	timeout := s.cfg.Timeout
	if end, ok := caller.Deadline(); ok {
		timeout = min(timeout, sched.Until(end)+grace)
	}
	ctx, cancel := sched.WithTimeout(s.context(passengers), timeout)
	defer cancel()
	callers := 0
	for _, p := range passengers {
		p.Load.mergeCallers()
		callers += p.Load.ranks - len(p.Load.leftBefore)
	}
	if len(passengers) == 1 { // no copies are needed
		p := passengers[0].Load
		p.outs = append(p.outs[:0], make([]law.Outcome, len(p.ops))...)
		return s.applyBatch(ctx, p.ops, p.outs, callers)
	}
	b, _ := s.buffers.Get().(*batch)
	if b == nil {
		b = &batch{}
	}
	b.gather(passengers)
	err := s.applyBatch(ctx, b.ops, b.outs, callers)
	b.scatter(passengers)
	s.buffers.Put(b)
	return err
}

func (s *Store) applyBatch(ctx context.Context, ops []law.Op, outs []law.Outcome, callers int) error {
	s.countBatch(len(ops), callers)
	ctx = store.PassHeld(ctx, true)
	if s.cfg.Observer == nil {
		return s.Store.Apply(ctx, ops, outs)
	}
	begin := sched.Now()
	err := s.Store.Apply(ctx, ops, outs)
	s.cfg.Observer.Batched(store.Batch{Callers: callers, Ops: len(ops), Took: sched.Since(begin), Err: err})
	return err
}

// land gives back the grants of callers who left after departure. If the store failed, none are known.
func (s *Store) land(passengers []*flight.Passenger[law.Cell, *payload], err error) {
	if err != nil {
		return
	}
	var back []law.Op
	for _, p := range passengers {
		for _, rank := range p.Load.leftAfter {
			back = p.Load.appendReturns(rank, back)
		}
	}
	if len(back) == 0 {
		return
	}
	ctx, cancel := sched.WithTimeout(context.Background(), s.cfg.Timeout)
	defer cancel()
	// If this fails the charges remain, which ErrUnknownOutcome allows.
	_ = s.Store.Apply(ctx, back, make([]law.Outcome, len(back)))
}

// Close implements store.Store. Waiting callers still get their answers.
func (s *Store) Close() error {
	s.queue.Close()
	return s.Store.Close()
}
