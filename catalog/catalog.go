// Package catalog has the limits in a store, for all who use it: servers, the
// command, Go programs, and the functions in SQL.
//
//	s := front.New(pg, nil)
//	limits, err := catalog.Open(ctx, s, nil)
//	...
//	defer limits.Close()
//	limiter := headgate.New(s, &headgate.Config{Names: limits})
//	d, err := limiter.Allow(ctx, headgate.MustNamed("login"), user)
//
// A catalog is read at the start and then every second, so a change reaches every
// process within two seconds. What is read is one version: no decision sees half a change.
// While the store is away the limits are those that were read last.
//
// Each change is a version with a number, a time, an author and a reason. One that was made
// by hand, in SQL, is a version too.
package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/internal/wrap"
	"github.com/headgate/headgate/store"
)

// DefaultEvery is the pause between two looks at the store.
const DefaultEvery = time.Second

// DefaultKeys is how many keys a Catalog remembers.
const DefaultKeys = 100_000

// lookWithin bounds one look, so that a server that is silent does not hold up the next.
const lookWithin = 10 * time.Second

// Config adjusts a Catalog. A nil Config, and every zero field, is fine.
type Config struct {
	// Every is the pause between two looks at the store. Zero: DefaultEvery.
	Every time.Duration
	// Keys is for how many single keys the catalog is remembered: what overrides and plans
	// they have, or that they have none. It takes about 400 bytes a key. Zero: DefaultKeys.
	Keys int
	// Logger gets a line about each version that is read, about a limit that this program
	// cannot read, and about a catalog that cannot be read. Nil: slog.Default().
	Logger *slog.Logger
	// Quiet suits a program that logs by itself that the store is away: there is no line then
	// about a catalog that cannot be read.
	Quiet bool
	// Observer receives each look and each file. Nil: none.
	Observer Observer
}

// Catalog is the catalog of a store, as it was read last. It is safe for concurrent use.
type Catalog struct {
	store  store.Store
	every  time.Duration
	log    *slog.Logger
	quiet  bool
	tell   Observer
	now    atomic.Pointer[snapshot] // nil: nothing was read yet
	failed atomic.Pointer[error]    // why it could not be read, of the last look; nil: it could
	look   chan struct{}            // empty while somebody reads, so that no older version replaces a newer one
	keys   keys
	cancel context.CancelFunc
	done   chan struct{}
}

// Definition is a limit of the catalog.
type Definition struct {
	headgate.Limit
	Description string
	Origin      string // "file" if a file defined it; empty: somebody did
	Retired     bool   // the file that defined it has it no more; it still decides
}

// Open reads the catalog of a store, and goes on to read it until Close. The error is
// headgate.ErrUnsupported if the store keeps none.
func Open(ctx context.Context, s store.Store, cfg *Config) (*Catalog, error) {
	c := newCatalog(s, cfg)
	if err := c.Refresh(ctx); err != nil {
		return nil, err
	}
	c.watch()
	return c, nil
}

// Watch returns a catalog at once, and reads the store in the background: the store may not be reachable yet.
// Until the first read succeeds, look-ups fail with store.ErrUnavailable.
func Watch(s store.Store, cfg *Config) *Catalog {
	c := newCatalog(s, cfg)
	c.watch()
	return c
}

// Read reads the catalog once. Close need not be called, unless the store is to be closed while
// others use the catalog.
func Read(ctx context.Context, s store.Store, cfg *Config) (*Catalog, error) {
	c := newCatalog(s, cfg)
	return c, c.Refresh(ctx)
}

func newCatalog(s store.Store, cfg *Config) *Catalog {
	cfg = cmp.Or(cfg, &Config{})
	c := &Catalog{
		store: s, every: cfg.Every, log: cmp.Or(cfg.Logger, slog.Default()), quiet: cfg.Quiet,
		tell: cfg.Observer, cancel: func() {}, look: make(chan struct{}, 1),
	}
	if c.tell == nil {
		c.tell = unobserved{}
	}
	c.look <- struct{}{}
	c.keys.init(cfg.Keys, c.fly)
	if c.every <= 0 {
		c.every = DefaultEvery
	}
	return c
}

// Close ends the reading, and waits for a look-up that is under way: ten seconds at most. What is
// remembered stays in force; what is not, of a single key, is store.ErrClosed then. The store stays
// open.
func (c *Catalog) Close() {
	c.cancel()
	if c.done != nil {
		sched.Receive(c.done)
	}
	c.keys.close()
}

func (c *Catalog) watch() {
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel, c.done = cancel, make(chan struct{})
	sched.Go(func() {
		defer close(c.done)
		failing := ""
		for {
			within, end := sched.WithTimeout(ctx, lookWithin)
			err := c.Refresh(within)
			end()
			if ctx.Err() != nil || errors.Is(err, store.ErrClosed) {
				return
			}
			// One line for each kind of failure.
			class := ""
			if err != nil {
				class = fmt.Sprint(store.Class(err))
			}
			away := errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrUnknownOutcome)
			if class != "" && class != failing && (!c.quiet || !away) {
				c.log.Warn("the catalog of limits cannot be read; what was read last is in force", "error", err)
			}
			failing = class
			if sched.Wait(c.every*3/4+sched.N(c.every/4), ctx.Done(), nil, nil) != sched.TimeOut {
				return
			}
		}
	})
}

// keeper returns the store's catalog, which may be another one each time: see package pending.
func (c *Catalog) keeper() store.Catalog {
	if k, ok := store.As[store.Catalog](c.store); ok {
		return k
	}
	return wrap.Failing{Err: errNoCatalog}
}

var errNoCatalog = fmt.Errorf("%w: the store keeps no catalog of limits", headgate.ErrUnsupported)

// Refresh reads the catalog now.
func (c *Catalog) Refresh(ctx context.Context) (err error) {
	if !sched.Either(c.look, ctx.Done()) {
		return fmt.Errorf("%w: another look at the catalog is under way: %w", store.ErrUnavailable, ctx.Err())
	}
	defer func() { c.look <- struct{}{} }()
	begin := sched.Now()
	if err = c.refresh(ctx); err != nil {
		c.failed.Store(&err)
	} else {
		c.failed.Store(nil)
	}
	version, _ := c.Version()
	c.tell.Looked(Look{Version: version, Took: sched.Since(begin), Err: err})
	return err
}

// errUnread applies until the first look has ended: the catalog is not known to be empty.
var errUnread = fmt.Errorf("%w: the catalog of limits was not read yet", store.ErrUnavailable)

// Err implements Names.
func (c *Catalog) Err() error {
	if err := c.failed.Load(); err != nil {
		return *err
	}
	if c.now.Load() == nil {
		return errUnread
	}
	return nil
}

// refresh allows one caller at a time.
func (c *Catalog) refresh(ctx context.Context) error {
	k, old, begin, asked, since := c.keeper(), c.now.Load(), sched.Wall(), sched.Now(), int64(0)
	if old != nil {
		since = old.version
	}
	read, err := k.ReadCatalog(ctx, since)
	if err != nil {
		return err
	}
	lost := old != nil && old.lostIn(&read)
	if lost {
		since = 0
		if read, err = k.ReadCatalog(ctx, since); err != nil {
			return err
		}
	}
	base := old
	if since == 0 { // what was read is all there is, also after version 0, which may have limits
		base = nil
	}
	s := nextSnapshot(base, &read, begin, asked)
	switch {
	case since > 0:
	case old != nil && !lost && old.version == read.Version: // 0, again and again
		s.overrides, s.assignments = old.overrides, old.assignments
	default:
		if err := s.lookForKeys(ctx, k); err != nil {
			return err
		}
	}
	if lost {
		c.log.Error("the store has lost its catalog of limits, or was put back to an earlier state",
			"was", old.version, "is", s.version, "missing", slices.Concat(old.missingIn(s), c.keys.missingIn(ctx, k)))
	}
	if old == nil || lost || s.version != old.version {
		for name, err := range s.broken {
			c.log.Error("a limit of the catalog cannot be read by this program", "limit", name, "error", err)
		}
		if old != nil && !lost {
			c.log.Info("the catalog of limits was changed", "version", s.version)
		}
	}
	c.keys.turn(read.Items, since == 0, func() { c.now.Store(s) })
	return nil
}

// item returns the row of a definition.
func (d *Definition) item() store.Item {
	return store.Item{
		Kind: store.KindLimit, Name: d.Name(), Text: d.String(), Note: d.Description, Origin: d.Origin,
		Retired: d.Retired,
	}
}

// Limit returns the limit of a name as it is now: the catalog's, or the fallback under that name
// while the catalog has none, was never read, or has one that this program cannot read. Ask for
// each decision, since what is returned does not follow later changes. It knows of no plans and
// overrides of single keys, as a limit by name does ([headgate.Named]). A fallback that is zero
// gives a zero Limit, which a Limiter refuses.
func (c *Catalog) Limit(name string, fallback headgate.Limit) headgate.Limit {
	if d, ok := c.Lookup(name); ok {
		return d.Limit
	}
	l, err := fallback.WithName(name)
	if err != nil {
		return headgate.Limit{}
	}
	return l
}

// Names finds limits by their names, and lists them: a Catalog, or a fixed list. It is safe for
// concurrent use.
type Names interface {
	headgate.Names
	// List returns the limits, ordered by name. It belongs to the caller.
	List() []Definition
	// Err says why they could not be read by the last look, or nil. Those that were read before
	// are in force.
	Err() error
}

var _ Names = (*Catalog)(nil)

// Unreadable returns why this program cannot read some limits, by their names: a newer one has
// written them, say.
func (c *Catalog) Unreadable() map[string]error {
	if s := c.now.Load(); s != nil {
		return maps.Clone(s.broken)
	}
	return nil
}

// List implements Names: by the version that was read last.
func (c *Catalog) List() []Definition { return c.now.Load().List() }

// Get returns the limit of a name as it is for keys that have neither a plan nor an override: by
// the version that was read last. Errors are those of Find.
func (c *Catalog) Get(name string) (headgate.Limit, error) {
	s := c.now.Load()
	if failed := c.Err(); failed != nil && s == nil {
		return headgate.Limit{}, failed
	}
	return s.find(name)
}

// Lookup returns the definition of a limit, and whether the catalog has it.
func (c *Catalog) Lookup(name string) (d Definition, ok bool) {
	if s := c.now.Load(); s != nil {
		d, ok = s.limits[name]
	}
	return d, ok
}

// Difference returns what it would change to define a limit, and whether it would change anything.
func (c *Catalog) Difference(d *Definition) (change store.Change, some bool) {
	var have []store.Item
	if was, ok := c.Lookup(d.Name()); ok {
		have = append(have, was.item())
	}
	list := (&store.Edit{Items: []store.Item{d.item()}}).Changes(have)
	if len(list) == 0 {
		return store.Change{}, false
	}
	return list[0], true
}

// Now returns the store's time, as far as it is known from when the catalog was read last.
func (c *Catalog) Now() time.Time {
	if s := c.now.Load(); s != nil {
		return time.UnixMicro(s.clock()).UTC()
	}
	return sched.Wall().UTC()
}

// Version returns the number of the version that was read last, and when it was known to be
// the newest; 0 and a zero time if none was.
func (c *Catalog) Version() (number int64, at time.Time) {
	if s := c.now.Load(); s != nil {
		return s.version, s.at
	}
	return 0, time.Time{}
}
