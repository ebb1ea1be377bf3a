package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// DefaultShareLife is how long a process may use its share after the store has last answered it.
const DefaultShareLife = 10 * time.Minute

// whole is the number of units into which limits are divided. It is a multiple of all numbers up to 16.
const whole = 720720

// beatEvery is how often a process says that it is alive, and looks for its share.
const beatEvery = time.Second

// maxProcesses is the number of processes that can have a share.
const maxProcesses = 1000

// instances is the name of the limit whose two cells say which processes are alive, and which part of limits each
// of them has.
const instances = "headgate:instances"

// cell is one of the two cells: its key, and how many credits its leases have at most.
type cell struct {
	key      string
	capacity int64
}

var (
	aliveCell = cell{"alive", maxProcesses}
	shareCell = cell{"share", whole}
)

// shares holds the part of limits by which this process decides while the store is away.
//
// The parts are leases of one cell in the store, whose capacity is the whole. So the parts of
// all processes are never more than the whole, whichever of them reach the store: a process whose lease
// is over uses it no more, and before that nobody else can have it. Each process asks for the whole divided by
// the processes that are alive, which are the leases of a second cell.
//
// What a process has got counts for a limit only when it has held it for as long as a full cell of the limit takes to
// become empty. By then nothing counts that another process has admitted by the same part.
type shares struct {
	inner store.Store
	life  time.Duration
	log   *slog.Logger

	once  sync.Once
	end   context.CancelFunc
	done  chan struct{}
	local *memory.Store

	alive law.Op // of this process: the lease that says so. Only the goroutine uses it

	mu    sync.Mutex
	parts []part
	until time.Time // the leases last at least until then
}

// part is a lease.
type part struct {
	number int64 // of the entry
	units  int64
	since  time.Time
}

func (s *shares) init(inner store.Store, c *Config) {
	s.inner, s.log, s.life = inner, c.Logger, c.ShareLife
	if s.life <= 0 {
		s.life = DefaultShareLife
	}
}

// start begins to look for a share, once.
func (s *shares) start() {
	s.once.Do(func() {
		local := memory.New(nil)
		ctx, end := context.WithCancel(context.Background())
		done := make(chan struct{})
		s.mu.Lock()
		s.local, s.end, s.done = local, end, done
		s.mu.Unlock()
		sched.Go(func() {
			defer close(done)
			s.keep(ctx)
		})
	})
}

// close gives back what this process has.
func (s *shares) close() {
	s.once.Do(func() {}) // from now on nothing starts
	if s.end == nil {
		return
	}
	s.end()
	sched.Receive(s.done)
	ctx, cancel := sched.WithTimeout(context.Background(), beatEvery)
	defer cancel()
	_ = s.drop(ctx) // else the leases end by themselves
	if s.alive.EntryNumber > 0 {
		_, _ = s.ask(ctx, s.op(aliveCell, law.Return, law.Max, s.alive.EntryNumber))
	}
	s.local.Close()
}

// keep looks for a share until the context ends.
func (s *shares) keep(ctx context.Context) {
	told := false
	for ctx.Err() == nil {
		within, cancel := sched.WithTimeout(ctx, s.life/10)
		err := s.beat(within)
		cancel()
		quiet := ctx.Err() != nil || away(ctx, err) && !errors.Is(err, store.ErrConflict) // the breaker reports that
		if err != nil && !told && !quiet {
			s.log.Warn("this process could not say that it is alive, or get its share of limits", "error", err)
		}
		told = err != nil && (told || !quiet)
		sched.Wait(beatEvery, ctx.Done(), nil, nil)
	}
}

// op returns an op on one of the two cells.
func (s *shares) op(c cell, verb law.Verb, cost, entry int64) law.Op {
	return law.Op{
		Verb: verb, Cell: law.Cell{Limit: instances, Key: c.key}, Cost: cost, Count: 1, EntryNumber: entry,
		Params: law.Params{Kind: law.Log, Unit: 1, Capacity: c.capacity, Step: s.life.Microseconds(), Leased: true},
	}
}

// ask applies one op.
func (s *shares) ask(ctx context.Context, op law.Op) (law.Outcome, error) {
	ops, outs := []law.Op{op}, make([]law.Outcome, 1)
	if err := s.inner.Apply(ctx, ops, outs); err != nil {
		return law.Outcome{}, err
	}
	return outs[0], outs[0].Err
}

// beat says that this process is alive, renews its leases, and moves towards the part that it should have.
func (s *shares) beat(ctx context.Context) error {
	inspector, ok := store.As[store.Inspector](s.inner) // package pending may have another one each time
	if !ok {
		return fmt.Errorf("%w: the store lists no leases", store.ErrUnsupported)
	}
	asked := sched.Now()
	clock, err := s.stayAlive(ctx)
	if err != nil {
		return err
	}
	entries, err := inspector.Entries(ctx, s.alive.Cell, maxProcesses)
	if err != nil {
		return err
	}
	processes := int64(0)
	for i := range entries {
		if entries[i].Granted && entries[i].ExpiresAt > clock {
			processes++
		}
	}
	have, err := s.renew(ctx, asked)
	if err != nil {
		return err
	}
	return s.move(ctx, have, whole/max(1, processes))
}

// stayAlive renews the lease that says that this process is alive, or gets one, and returns the store's time.
func (s *shares) stayAlive(ctx context.Context) (clock int64, err error) {
	if s.alive.EntryNumber > 0 {
		out, err := s.ask(ctx, s.alive)
		if err != nil || out.Granted > 0 {
			return out.Clock, err
		}
	}
	out, err := s.ask(ctx, s.op(aliveCell, law.Take, 1, 0))
	if err != nil {
		return 0, err
	}
	if out.Granted == 0 {
		return 0, fmt.Errorf("%w: %d processes have a share", store.ErrFull, maxProcesses)
	}
	s.alive = s.op(aliveCell, law.Renew, 1, out.EntryNumber)
	return out.Clock, nil
}

// renew renews the leases of the share, forgets those that are over, and returns how many units are left.
func (s *shares) renew(ctx context.Context, asked time.Time) (have int64, err error) {
	s.mu.Lock()
	parts := append([]part(nil), s.parts...)
	s.mu.Unlock()
	left := parts[:0]
	for _, p := range parts {
		out, err := s.ask(ctx, s.op(shareCell, law.Renew, 1, p.number))
		if err != nil {
			return 0, err
		}
		if out.Granted > 0 {
			left, have = append(left, p), have+p.units
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parts, s.until = left, asked.Add(s.life)
	return have, nil
}

// maxParts is how many leases a share may consist of, before they are put together.
const maxParts = 6

// move gets more units, or gives some back, so that this process has as many as it should.
func (s *shares) move(ctx context.Context, have, target int64) error {
	since := sched.Now()
	switch {
	case have == target:
		return nil
	case have > target || len(s.parts) >= maxParts:
		s.mu.Lock()
		for _, p := range s.parts { // what is got again was held all the time, at least as long as the newest
			since = p.since
		}
		s.mu.Unlock()
		if err := s.drop(ctx); err != nil {
			return err
		}
		target = min(target, have)
		have = 0
	}
	op := s.op(shareCell, law.Take, 1, 0)
	op.Count, op.Partial = target-have, true
	out, err := s.ask(ctx, op)
	if err != nil || out.Granted == 0 {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parts = append(s.parts, part{out.EntryNumber, out.Granted, since})
	return nil
}

// drop gives back all units. They are not used any more from its beginning on, whatever comes of it.
func (s *shares) drop(ctx context.Context) error {
	s.mu.Lock()
	parts := s.parts
	s.parts = nil
	s.mu.Unlock()
	var failed error
	for _, p := range parts {
		if _, err := s.ask(ctx, s.op(shareCell, law.Return, law.Max, p.number)); err != nil {
			failed = err
		}
	}
	return failed
}

// units returns how many units count for the limit of an op.
func (s *shares) units(op *law.Op) (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sched.Until(s.until) <= 0 {
		return 0
	}
	memory := emptied(op)
	for _, part := range s.parts {
		if sched.Since(part.since) >= memory {
			n += part.units
		}
	}
	return n
}

// now returns the share, whatever the limit.
func (s *shares) now() float64 {
	return float64(s.units(&law.Op{Params: law.Params{Kind: law.Log}})) / whole
}

// emptied returns how long a full cell of the limit of a valid op counts.
func emptied(op *law.Op) time.Duration {
	counts := op.Params.DrainTime()
	if op.Params.Kind == law.Bucket && op.Params.Anchor == law.Calendar {
		b := op.Window
		counts = max(b[1]-b[0], b[2]-b[1], b[3]-b[2])
	}
	return time.Duration(counts) * time.Microsecond
}

// apply decides about a group by the share.
func (s *shares) apply(ops []law.Op, outs []law.Outcome) error {
	s.mu.Lock()
	local := s.local
	s.mu.Unlock()
	part, lost := make([]law.Op, len(ops)), make([]int64, len(ops))
	for i := range ops {
		units := s.units(&ops[i])
		if units == 0 {
			return errNoShare
		}
		p, ok := scaled(&ops[i].Params, units)
		part[i], lost[i] = ops[i], ops[i].Params.Capacity-p.Capacity
		part[i].Params = p
		if c := ops[i].Ceiling; c > 0 { // as much in proportion is left free
			part[i].Ceiling = mulDiv(c, units, whole)
		}
		if !ok || ops[i].Cost > p.Capacity || ops[i].Ceiling > 0 && ops[i].Cost > part[i].Ceiling {
			return fmt.Errorf("%w that the cost fits into", errNoShare)
		}
	}
	clear(outs)
	if err := local.Apply(context.Background(), part, outs); err != nil {
		return err
	}
	for i := range outs {
		outs[i].Via = law.ViaFallback
		outs[i].Used += lost[i] // so that what remains is that of the part
	}
	return firstErr(outs)
}

// mulDiv returns a*b/c, rounded down. The result must fit.
func mulDiv(a, b, c int64) int64 {
	n := new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
	n.Div(n, big.NewInt(c)) // towards minus infinity, as c is above 0
	if !n.IsInt64() {
		return law.Max + 1
	}
	return n.Int64()
}
