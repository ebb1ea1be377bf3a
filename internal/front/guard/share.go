package guard

import (
	"cmp"
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

// totalUnits is the number of units into which limits are divided. It is a multiple of all numbers up to 16.
const totalUnits = 720720

// beatInterval is how often a process renews its leases, and adjusts its share.
const beatInterval = time.Second

const maxProcesses = 1000 // that can have a share

// instancesLimit is the name of the limit with two cells: the leases of one are the live processes, the leases of the
// other are their shares.
const instancesLimit = "headgate:instances"

// cell is a cell of instancesLimit.
type cell struct {
	key      string
	capacity int64 // the most credits that its leases can have together
}

var (
	aliveCell = cell{"alive", maxProcesses}
	shareCell = cell{"share", totalUnits}
)

// shares holds the part of limits by which this process decides while the store is away.
//
// The parts are leases of shareCell, whose capacity is totalUnits. So the parts of all processes are never more than
// totalUnits, whichever of them reach the store: a process does not use a part whose lease has ended, and before the
// end no other process can get it. Each process requests totalUnits divided by the number of live processes, which are
// the leases of aliveCell.
//
// A part counts for a limit only after this process has held it for as long as a full cell of the limit takes to
// become empty. By then the charges that another process has admitted by the same part do not count any more.
type shares struct {
	inner store.Store
	life  time.Duration
	log   *slog.Logger

	startOnce  sync.Once
	cancel     context.CancelFunc
	done       chan struct{}
	localStore *memory.Store

	aliveOp law.Op // renews the lease of this process in aliveCell. Only the goroutine uses it

	mu          sync.Mutex
	parts       []part    // oldest first
	leasesUntil time.Time // the leases of parts last at least until then
}

// part is a lease in shareCell.
type part struct {
	number int64 // number of the lease's entry
	units  int64
	since  time.Time
}

func (s *shares) init(inner store.Store, c *Config) {
	s.inner, s.log, s.life = inner, c.Logger, cmp.Or(max(c.ShareLife, 0), DefaultShareLife)
}

// start starts the goroutine that keeps a share, once.
func (s *shares) start() {
	s.startOnce.Do(func() {
		localStore := memory.New(nil)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		s.mu.Lock()
		s.localStore, s.cancel, s.done = localStore, cancel, done
		s.mu.Unlock()
		sched.Go(func() {
			defer close(done)
			s.maintain(ctx)
		})
	})
}

// close stops the goroutine and gives the leases of this process back.
func (s *shares) close() {
	s.startOnce.Do(func() {}) // start does nothing from now on
	if s.cancel == nil {
		return
	}
	s.cancel()
	sched.Receive(s.done)
	ctx, cancel := sched.WithTimeout(context.Background(), beatInterval)
	defer cancel()
	_ = s.giveBackAll(ctx) // after an error the leases end by themselves
	if s.aliveOp.EntryNumber > 0 {
		_, _ = s.applyOp(ctx, s.op(aliveCell, law.Return, law.Max, s.aliveOp.EntryNumber))
	}
	s.localStore.Close()
}

// maintain renews and adjusts the share until the context ends. It logs the first of several errors in a row.
func (s *shares) maintain(ctx context.Context) {
	reported := false
	for ctx.Err() == nil {
		beatCtx, cancel := sched.WithTimeout(ctx, s.life/10)
		err := s.beat(beatCtx)
		cancel()
		ignore := ctx.Err() != nil || away(ctx, err) && !errors.Is(err, store.ErrConflict) // the breaker reports it
		if err != nil && !reported && !ignore {
			s.log.Warn("this process could not say that it is alive, or get its share of limits", "error", err)
		}
		reported = err != nil && (reported || !ignore)
		sched.Wait(beatInterval, ctx.Done(), nil, nil)
	}
}

// op returns an op on one of the two cells.
func (s *shares) op(c cell, verb law.Verb, cost, entry int64) law.Op {
	return law.Op{
		Verb: verb, Cell: law.Cell{Limit: instancesLimit, Key: c.key}, Cost: cost, Count: 1, EntryNumber: entry,
		Params: law.Params{Kind: law.Log, Unit: 1, Capacity: c.capacity, Step: s.life.Microseconds(), Leased: true},
	}
}

// applyOp applies one op, and returns its outcome, or the error of the call or of the outcome.
func (s *shares) applyOp(ctx context.Context, op law.Op) (law.Outcome, error) {
	ops, outs := []law.Op{op}, make([]law.Outcome, 1)
	if err := s.inner.Apply(ctx, ops, outs); err != nil {
		return law.Outcome{}, err
	}
	return outs[0], outs[0].Err
}

// beat renews the leases of this process, counts the live processes, and adjusts the share to their number.
func (s *shares) beat(ctx context.Context) error {
	inspector, ok := store.As[store.Inspector](s.inner) // package pending may have another inspector each time
	if !ok {
		return fmt.Errorf("%w: the store lists no leases", store.ErrUnsupported)
	}
	begin := sched.Now()
	clock, err := s.stayAlive(ctx)
	if err != nil {
		return err
	}
	entries, err := inspector.Entries(ctx, s.aliveOp.Cell, maxProcesses)
	if err != nil {
		return err
	}
	processes := int64(0)
	for i := range entries {
		if entries[i].Granted && entries[i].ExpiresAt > clock {
			processes++
		}
	}
	units, err := s.renew(ctx, begin)
	if err != nil {
		return err
	}
	return s.adjust(ctx, units, totalUnits/max(1, processes))
}

// stayAlive renews the lease of this process in aliveCell, or takes a new one, and returns the store's time.
func (s *shares) stayAlive(ctx context.Context) (clock int64, err error) {
	if s.aliveOp.EntryNumber > 0 {
		out, err := s.applyOp(ctx, s.aliveOp)
		if err != nil || out.Granted > 0 {
			return out.Clock, err
		}
	}
	out, err := s.applyOp(ctx, s.op(aliveCell, law.Take, 1, 0))
	if err != nil {
		return 0, err
	}
	if out.Granted == 0 {
		return 0, fmt.Errorf("%w: %d processes have a share", store.ErrFull, maxProcesses)
	}
	s.aliveOp = s.op(aliveCell, law.Renew, 1, out.EntryNumber)
	return out.Clock, nil
}

// renew renews the leases of the share, forgets those that have ended, and returns the units of the others.
func (s *shares) renew(ctx context.Context, begin time.Time) (units int64, err error) {
	s.mu.Lock()
	parts := append([]part(nil), s.parts...)
	s.mu.Unlock()
	renewed := parts[:0]
	for _, p := range parts {
		out, err := s.applyOp(ctx, s.op(shareCell, law.Renew, 1, p.number))
		if err != nil {
			return 0, err
		}
		if out.Granted > 0 {
			renewed, units = append(renewed, p), units+p.units
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parts, s.leasesUntil = renewed, begin.Add(s.life)
	return units, nil
}

// maxParts is how many leases a share may consist of, before they are replaced by one.
const maxParts = 6

// adjust takes more units, or gives all back and takes fewer again, so that this process holds up to target units. If
// its share has maxParts leases, it replaces them by one of at most as many units.
func (s *shares) adjust(ctx context.Context, units, target int64) error {
	since := sched.Now()
	switch {
	case units == target:
		return nil
	case units > target || len(s.parts) >= maxParts:
		s.mu.Lock()
		for _, p := range s.parts { // units that are taken again were held since the newest part, or longer
			since = p.since
		}
		s.mu.Unlock()
		if err := s.giveBackAll(ctx); err != nil {
			return err
		}
		target = min(target, units)
		units = 0
	}
	op := s.op(shareCell, law.Take, 1, 0)
	op.Count, op.Partial = target-units, true
	out, err := s.applyOp(ctx, op)
	if err != nil || out.Granted == 0 {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parts = append(s.parts, part{out.EntryNumber, out.Granted, since})
	return nil
}

// giveBackAll gives back all units. They are not used any more from the start of the call on, even if it fails.
func (s *shares) giveBackAll(ctx context.Context) error {
	s.mu.Lock()
	parts := s.parts
	s.parts = nil
	s.mu.Unlock()
	var lastErr error
	for _, p := range parts {
		if _, err := s.applyOp(ctx, s.op(shareCell, law.Return, law.Max, p.number)); err != nil {
			lastErr = err
		}
	}
	return lastErr
}

// units returns how many units count for the limit of an op.
func (s *shares) units(op *law.Op) (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sched.Until(s.leasesUntil) <= 0 {
		return 0
	}
	minHold := drainTime(op)
	for _, part := range s.parts {
		if sched.Since(part.since) >= minHold {
			n += part.units
		}
	}
	return n
}

// drainTime returns how long a full cell of the limit of a valid op takes to become empty.
func drainTime(op *law.Op) time.Duration {
	micros := op.Params.DrainTime()
	if op.Params.Kind == law.Bucket && op.Params.Anchor == law.Calendar {
		b := op.Window
		micros = max(b[1]-b[0], b[2]-b[1], b[3]-b[2])
	}
	return time.Duration(micros) * time.Microsecond
}

// decide decides about a group by the share, or returns an error if the share cannot decide.
func (s *shares) decide(ops []law.Op, outs []law.Outcome) error {
	s.mu.Lock()
	localStore := s.localStore
	s.mu.Unlock()
	scaled, outside := make([]law.Op, len(ops)), make([]int64, len(ops)) // outside: credits of other parts
	for i := range ops {
		units := s.units(&ops[i])
		if units == 0 {
			return errNoShare
		}
		p, ok := scale(&ops[i].Params, units)
		scaled[i], outside[i] = ops[i], ops[i].Params.Capacity-p.Capacity
		scaled[i].Params = p
		if c := ops[i].Ceiling; c > 0 { // the headroom is scaled too
			scaled[i].Ceiling = mulDiv(c, units, totalUnits)
		}
		if !ok || ops[i].Cost > p.Capacity || ops[i].Ceiling > 0 && ops[i].Cost > scaled[i].Ceiling {
			return fmt.Errorf("%w that the cost fits into", errNoShare)
		}
	}
	clear(outs)
	if err := localStore.Apply(context.Background(), scaled, outs); err != nil {
		return err
	}
	for i := range outs {
		outs[i].Via = law.ViaFallback
		outs[i].Used += outside[i] // so that what remains is what remains of the part
	}
	return firstErr(outs)
}

// mulDiv returns a*b/c, rounded down; law.Max+1, which is not valid anywhere, if that is no int64.
func mulDiv(a, b, c int64) int64 {
	n := new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
	n.Div(n, big.NewInt(c)) // towards minus infinity, as c is above 0
	if !n.IsInt64() {
		return law.Max + 1
	}
	return n.Int64()
}
