// Package coalesce lets callers who wait for a store share its round trips.
//
// While a batch is under way, callers queue; when it has come back, all of them go in the
// next one. A lone caller never waits. When enough callers wait to be worth a round trip of
// their own, another batch is sent beside the first. A cell is in one batch at a time: its
// callers are decided in the order in which they arrived, and no two batches of one process
// wait for each other's rows. Callers with the same question about one cell become one op
// with a count, so that one update of a row decides for all of them. Grants are handed out
// in the order of arrival.
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

// Config adjusts a Store. A nil Config, and every zero field, is fine.
type Config struct {
	// Flights is how many batches may be under way at once, each with cells of
	// its own. Zero: what the store below asks for (store.Info), else 4.
	Flights int
	// Timeout bounds a batch, which no caller's context does: it goes on when
	// the caller who came first leaves. Zero: 10 s.
	Timeout time.Duration
	// Observer receives every batch. Nil: none.
	Observer store.Observer
	// Context returns the context of a batch by those of its callers, of which it has the values that it wants, such
	// as a trace; it must not end with them. Nil: context.Background.
	Context func(callers []context.Context) context.Context

	maxWaiting int
}

const (
	// least is how many ops must wait for a batch to be sent while another one is under way.
	least = 32
	// maxOps is how many ops a batch has at most, but for those of the last caller to join. A caller who brings half as
	// many or more goes alone.
	maxOps = 512
	// maxWaiting is how many callers may wait for a flight. One more gets store.ErrBusy at once.
	maxWaiting = 100_000
)

func (c *Config) orDefault(inner store.Store) Config {
	d := *cmp.Or(c, &Config{})
	if d.Flights <= 0 {
		d.Flights = cmp.Or(store.InfoOf(inner).Batches, 4)
	}
	d.maxWaiting = cmp.Or(d.maxWaiting, maxWaiting)
	if d.Timeout <= 0 {
		d.Timeout = 10 * time.Second
	}
	return d
}

// Store is a store in front of another. It is safe for concurrent use. Its
// goroutines run only while callers wait, or while it gives back what was
// granted to callers that had left.
//
// A caller whose context ends before its batch has left was not there, and gets
// store.ErrUnavailable. One that leaves later gets store.ErrUnknownOutcome: it is
// charged, and what it was granted is given back by the return rule; but not if it has
// an ID, under which the answer can be had again.
//
// A caller who finds no batch under way, and has a second or more until its deadline, calls the store itself. It leaves
// when the answer comes, a second after its deadline at the latest.
type Store struct {
	store.Store // below
	cfg         Config
	queue       *queue
	buffers     sync.Pool // *batch

	batches, ops, callers atomic.Int64 // that were sent
}

// Stats are counts since New.
type Stats struct {
	Batches int64 // batches that were sent to the store below
	Ops     int64 // ops in these batches
	Callers int64 // callers who shared these batches
	Waiting int   // callers who wait for a batch that has not left
}

// Stats returns the counts of now. It is safe for concurrent use. The counts are
// read one after another, so a batch that leaves meanwhile may be in some only.
func (s *Store) Stats() Stats {
	return Stats{Batches: s.batches.Load(), Ops: s.ops.Load(), Callers: s.callers.Load(), Waiting: s.queue.Waiting()}
}

func (s *Store) sent(ops, callers int) {
	s.batches.Add(1)
	s.ops.Add(int64(ops))
	s.callers.Add(int64(callers))
}

// New returns a store in front of inner, which Close closes too.
func New(inner store.Store, cfg *Config) *Store {
	s := &Store{Store: inner, cfg: cfg.orDefault(inner)}
	s.queue = flight.New(flight.Config[law.Cell, *payload]{
		Flights: s.cfg.Flights, Least: least, Most: maxOps, Waiting: s.cfg.maxWaiting,
		New: func() *payload { return &payload{} }, Fly: s.fly, Land: s.land, Flies: flies,
		Held: func(p *flight.Passenger[law.Cell, *payload]) bool { return p.Load.held() },
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
		s.sent(len(ops), 1)
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
			p.Load.late = append(p.Load.late, rank)
		} else {
			p.Load.left = append(p.Load.left, rank)
		}
	})
	if !landed {
		return leftEarly(ctx, ops, sent)
	}
	if err = p.Err(); err != nil && p.Load.failed() {
		err = nil // its own errors say more
	}
	if err == nil {
		p.Load.answer(rank, outs)
	}
	p.Leave()
	return err
}

// leftEarly returns the error of a caller whose context ended before the answer came.
func leftEarly(ctx context.Context, ops []law.Op, sent bool) error {
	charges := slices.ContainsFunc(ops, func(op law.Op) bool { return op.Verb != law.Check })
	if sent && charges {
		return fmt.Errorf("coalesce: %w: %w", store.ErrUnknownOutcome, ctx.Err())
	}
	return fmt.Errorf("coalesce: %w: %w", store.ErrUnavailable, ctx.Err())
}

// join adds a caller to a waiting passenger with the same question, or adds a new passenger.
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
			if rank, ok := p.Load.share(&ops[0]); ok {
				s.note(ctx, p.Load)
				s.queue.Join(p)
				return p, rank, 0, nil
			}
		}
	}
	p = s.queue.Passenger()
	p.Load.load(ops)
	s.note(ctx, p.Load)
	return p, 0, s.queue.Add(p), nil
}

// note keeps the context of a caller, if somebody wants to know. The queue is locked.
func (s *Store) note(ctx context.Context, p *payload) {
	if s.cfg.Context != nil {
		p.contexts = append(p.contexts, ctx)
	}
}

// context returns the context of a batch, without a deadline.
func (s *Store) context(passengers []*flight.Passenger[law.Cell, *payload]) context.Context {
	if s.cfg.Context == nil {
		return context.Background()
	}
	var all []context.Context
	for _, p := range passengers {
		all = append(all, p.Load.contexts...)
	}
	return s.cfg.Context(all)
}

// A caller that calls the store itself cannot leave before the answer comes, so a short deadline would be missed.
// Such a call needs at least minRemaining until its deadline, and ends grace after it: an answer within grace lets
// the charge be given back, where a call that is cut off leaves the charge and costs a connection.
const (
	minRemaining = time.Second
	grace        = time.Second
)

func flies(ctx context.Context) bool {
	end, ok := ctx.Deadline()
	return ok && sched.Until(end) >= minRemaining
}

// fly calls the store.
func (s *Store) fly(by context.Context, passengers []*flight.Passenger[law.Cell, *payload]) error {
	timeout := s.cfg.Timeout
	if end, ok := by.Deadline(); ok {
		timeout = min(timeout, sched.Until(end)+grace)
	}
	ctx, cancel := sched.WithTimeout(s.context(passengers), timeout)
	defer cancel()
	callers := 0
	for _, p := range passengers {
		p.Load.depart()
		callers += p.Load.ranks - len(p.Load.left)
	}
	if len(passengers) == 1 { // nothing is to be put together
		p := passengers[0].Load
		p.outs = append(p.outs[:0], make([]law.Outcome, len(p.ops))...)
		return s.ask(ctx, p.ops, p.outs, callers)
	}
	b, _ := s.buffers.Get().(*batch)
	if b == nil {
		b = &batch{}
	}
	b.gather(passengers)
	err := s.ask(ctx, b.ops, b.outs, callers)
	b.scatter(passengers)
	s.buffers.Put(b)
	return err
}

func (s *Store) ask(ctx context.Context, ops []law.Op, outs []law.Outcome, callers int) error {
	s.sent(len(ops), callers)
	ctx = store.PassHeld(ctx, true)
	if s.cfg.Observer == nil {
		return s.Store.Apply(ctx, ops, outs)
	}
	begin := sched.Now()
	err := s.Store.Apply(ctx, ops, outs)
	s.cfg.Observer.Batched(store.Batch{Callers: callers, Ops: len(ops), Took: sched.Since(begin), Err: err})
	return err
}

// land gives back what those were granted who left after departure. Where the
// store failed nobody knows of a grant.
func (s *Store) land(passengers []*flight.Passenger[law.Cell, *payload], err error) {
	if err != nil {
		return
	}
	var back []law.Op
	for _, p := range passengers {
		for _, rank := range p.Load.late {
			back = p.Load.giveBack(rank, back)
		}
	}
	if len(back) == 0 {
		return
	}
	ctx, cancel := sched.WithTimeout(context.Background(), s.cfg.Timeout)
	defer cancel()
	// If this fails they stay charged, as a caller who breaks off must expect.
	_ = s.Store.Apply(ctx, back, make([]law.Outcome, len(back)))
}

// Close implements store.Store: callers that wait are still answered.
func (s *Store) Close() error {
	s.queue.Close()
	return s.Store.Close()
}
