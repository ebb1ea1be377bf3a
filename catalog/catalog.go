// Package catalog reads and changes the limits that are kept in a store. Servers, the
// command, Go programs, and the functions in SQL share them.
//
//	s := front.New(pg, nil)
//	limits, err := catalog.Open(ctx, s, nil)
//	...
//	defer limits.Close()
//	limiter := headgate.New(s, &headgate.Config{Names: limits})
//	d, err := limiter.Allow(ctx, headgate.MustNamed("login"), user)
//
// A catalog is read at the start and then every second, so a change reaches every
// process within two seconds. A read returns one version: no decision sees half a change.
// While the store is away, the limits that were read last stay in force.
//
// Each change is a version with a number, a time, an author and a reason. A change by hand, in SQL, is a version too.
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

// DefaultEvery is the longest pause between two reads of the catalog.
const DefaultEvery = time.Second

// DefaultKeys is how many entries of single keys a Catalog caches.
const DefaultKeys = 100_000

// readTimeout bounds a read in the background, so that a store that does not answer does not hold up the next read.
const readTimeout = 10 * time.Second

// Config adjusts a Catalog. A nil Config, and every zero field, is fine.
type Config struct {
	// Every is the longest pause between two reads of the catalog, the shortest is 3/4 of it. Zero: DefaultEvery.
	Every time.Duration
	// Keys bounds the cache of what single keys have: an entry of about 400 bytes for the plan of a key, and one for
	// each override. That a key has none is an entry too. Zero: DefaultKeys.
	Keys int
	// Logger gets a line about each change of the catalog, about a limit that this program cannot read, and about a
	// catalog that cannot be read, or that the store has lost. Nil: slog.Default().
	Logger *slog.Logger
	// Quiet leaves out the line about a catalog that cannot be read while the store is away,
	// for a program that logs this itself.
	Quiet bool
	// Observer receives each read, and each attempt to apply a file. Nil: none.
	Observer Observer
}

// Catalog holds the catalog of a store as it was read last. It is safe for concurrent use.
type Catalog struct {
	store     store.Store
	every     time.Duration
	log       *slog.Logger
	quiet     bool
	observer  Observer
	current   atomic.Pointer[snapshot] // nil: nothing was read yet
	lastErr   atomic.Pointer[error]    // why the last read failed; nil: it succeeded
	readToken chan struct{}            // taken out during a read, so that no older version replaces a newer one
	keys      keyCache
	cancel    context.CancelFunc
	done      chan struct{}
}

// Definition is a limit of the catalog.
type Definition struct {
	// Limit has the name of its cells, by which keys are charged: of a limit that was renamed, the name that it had
	// first.
	headgate.Limit
	// RenamedTo is the name that the limit was given instead; empty: it has its own. In a File, or for Set, Limit may
	// have any former name.
	RenamedTo   string
	Description string
	Origin      string // "file" or, in SQL, "zone" or "bucket" if one defines it; empty: a call or a statement did
	Retired     bool   // the file that defined it no longer has it; it still decides
}

// Open reads the catalog of a store, and goes on to read it until Close. The error is
// headgate.ErrUnsupported if the store keeps no catalog.
func Open(ctx context.Context, s store.Store, cfg *Config) (*Catalog, error) {
	c := newCatalog(s, cfg)
	if err := c.Refresh(ctx); err != nil {
		return nil, err
	}
	c.watch()
	return c, nil
}

// Watch returns a catalog at once, and reads the store in the background: the store may not be reachable yet.
// Until the first read succeeds, look-ups fail with the error of Err.
func Watch(s store.Store, cfg *Config) *Catalog {
	c := newCatalog(s, cfg)
	c.watch()
	return c
}

// Read reads the catalog once. Close need not be called, unless the store is to be closed while others use the catalog.
func Read(ctx context.Context, s store.Store, cfg *Config) (*Catalog, error) {
	c := newCatalog(s, cfg)
	return c, c.Refresh(ctx)
}

// newCatalog returns a Catalog that has read nothing yet.
func newCatalog(s store.Store, cfg *Config) *Catalog {
	cfg = cmp.Or(cfg, &Config{})
	c := &Catalog{
		store: s, every: cfg.Every, log: cmp.Or(cfg.Logger, slog.Default()), quiet: cfg.Quiet,
		observer: cmp.Or[Observer](cfg.Observer, noObserver{}), cancel: func() {}, readToken: make(chan struct{}, 1),
	}
	c.readToken <- struct{}{}
	c.keys.init(cfg.Keys, c.serveLookups)
	if c.every <= 0 {
		c.every = DefaultEvery
	}
	return c
}

// Close ends the reading, and waits for a look-up that is under way: ten seconds at most. The
// version that was read last stays in force, and cached keys are still found. For a key that is not
// cached the error is store.ErrClosed then. The store stays open.
func (c *Catalog) Close() {
	c.cancel()
	if c.done != nil {
		sched.Receive(c.done)
	}
	c.keys.closed.Store(true)
	c.keys.queue.Close()
}

// watch reads the catalog in the background, until Close or until the store is closed.
func (c *Catalog) watch() {
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel, c.done = cancel, make(chan struct{})
	sched.Go(func() {
		defer close(c.done)
		failing := ""
		for {
			readCtx, cancelRead := sched.WithTimeout(ctx, readTimeout)
			err := c.Refresh(readCtx)
			cancelRead()
			if ctx.Err() != nil || errors.Is(err, store.ErrClosed) {
				return
			}
			// One line is logged while reads fail in the same way.
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

// backend returns the store's catalog, which may be another one each time: see package pending.
func (c *Catalog) backend() store.Catalog {
	if k, ok := store.As[store.Catalog](c.store); ok {
		return k
	}
	return wrap.Failing{Err: errNoCatalog}
}

var errNoCatalog = fmt.Errorf("%w: the store keeps no catalog of limits", headgate.ErrUnsupported)

// Refresh reads the catalog now, or as soon as a read that is under way has ended.
func (c *Catalog) Refresh(ctx context.Context) (err error) {
	if !sched.Either(c.readToken, ctx.Done()) {
		return fmt.Errorf("%w: another look at the catalog is under way: %w", store.ErrUnavailable, ctx.Err())
	}
	defer func() { c.readToken <- struct{}{} }()
	begin := sched.Now()
	if err = c.refresh(ctx); err != nil {
		c.lastErr.Store(&err)
	} else {
		c.lastErr.Store(nil)
	}
	version, _ := c.Version()
	c.observer.Refreshed(Refresh{Version: version, Took: sched.Since(begin), Err: err})
	return err
}

// errUnread says that no read has succeeded yet: whether the catalog is empty is not known.
var errUnread = fmt.Errorf("%w: the catalog of limits was not read yet", store.ErrUnavailable)

// Err implements Names.
func (c *Catalog) Err() error {
	if err := c.lastErr.Load(); err != nil {
		return *err
	}
	if c.current.Load() == nil {
		return errUnread
	}
	return nil
}

// refresh reads what has changed and makes it the current snapshot. One goroutine at a time may call it.
func (c *Catalog) refresh(ctx context.Context) error {
	backend, old, wallStart, start, since := c.backend(), c.current.Load(), sched.Wall(), sched.Now(), int64(0)
	if old != nil {
		since = old.version
	}
	read, err := backend.ReadCatalog(ctx, since)
	if err != nil {
		return err
	}
	lost := old != nil && old.isLost(&read)
	if lost {
		since = 0
		if read, err = backend.ReadCatalog(ctx, since); err != nil {
			return err
		}
	}
	base := old
	if since == 0 { // the whole catalog was read, also after version 0, which may have limits
		base = nil
	}
	s := nextSnapshot(base, &read, wallStart, start)
	switch {
	case since > 0:
	case old != nil && !lost && old.version == read.Version: // 0 as before: nobody has written single keys' items
		s.hasKeyOverrides, s.hasKeyPlans = old.hasKeyOverrides, old.hasKeyPlans
	default:
		if err := s.detectKeyItems(ctx, backend); err != nil {
			return err
		}
	}
	if lost {
		c.log.Error("the store has lost its catalog of limits, or was put back to an earlier state",
			"was", old.version, "is", s.version,
			"missing", slices.Concat(old.missingIn(s), c.keys.missingIn(ctx, backend)))
	}
	if old == nil || lost || s.version != old.version {
		for name, err := range s.parseErrors {
			c.log.Error("a limit of the catalog cannot be read by this program", "limit", name, "error", err)
		}
		if old != nil && !lost {
			c.log.Info("the catalog of limits was changed", "version", s.version)
		}
	}
	c.keys.publish(read.Items, since == 0, func() { c.current.Store(s) })
	return nil
}

// item returns the definition as the store keeps it.
func (d *Definition) item() store.Item {
	return store.Item{
		Kind: store.KindLimit, Name: d.Name(), Text: d.String(), Note: d.Description, Origin: d.Origin,
		Retired: d.Retired,
	}
}

// Limit returns the catalog's limit of a name. It returns the fallback under that name while the catalog has no such
// limit, was never read, or has a limit that this program cannot read. Call it for each decision: the returned limit
// does not follow later changes. It leaves out plans and overrides of keys; [headgate.Named] includes them. A zero
// fallback gives a zero Limit, which a Limiter refuses. Of a limit that was renamed both have the name of its cells.
func (c *Catalog) Limit(name string, fallback headgate.Limit) headgate.Limit {
	if d, ok := c.Lookup(name); ok {
		return d.Limit
	}
	l, err := fallback.WithName(c.CellsOf(name))
	if err != nil {
		return headgate.Limit{}
	}
	return l
}

// Names finds limits by their names, and lists them: a Catalog, or a fixed list. It is safe for concurrent use.
type Names interface {
	headgate.Names
	// List returns the limits, ordered by name. The slice belongs to the caller.
	List() []Definition
	// Err returns why the last read failed, or nil. The limits that were read before stay in force.
	Err() error
}

var _ Names = (*Catalog)(nil)

// Unreadable returns the errors of limits that this program cannot read, by name: a newer program
// has written them, say.
func (c *Catalog) Unreadable() map[string]error {
	if s := c.current.Load(); s != nil {
		return maps.Clone(s.parseErrors)
	}
	return nil
}

// List implements Names, by the version that was read last.
func (c *Catalog) List() []Definition { return c.current.Load().definitions() }

// Get returns the limit of a name for keys that have neither a plan nor an override, by the
// version that was read last. It returns the same errors as Find.
func (c *Catalog) Get(name string) (headgate.Limit, error) {
	s := c.current.Load()
	if failed := c.Err(); failed != nil && s == nil {
		return headgate.Limit{}, failed
	}
	return s.find(name)
}

// Lookup returns the definition of a limit, and whether the catalog has one that this program can read.
func (c *Catalog) Lookup(name string) (d Definition, ok bool) {
	if s := c.current.Load(); s != nil {
		d, ok = s.limits[name]
	}
	return d, ok
}

// Difference returns the changes that Set would make by a definition, and the errors of Set.
func (c *Catalog) Difference(d Definition) ([]store.Change, error) {
	s := c.current.Load()
	if s == nil {
		return nil, errUnread
	}
	return s.difference([]Definition{d})
}

// Now estimates the store's time from the last read of the catalog. If there was none, it is this machine's time.
func (c *Catalog) Now() time.Time {
	if s := c.current.Load(); s != nil {
		return time.UnixMicro(s.clock()).UTC()
	}
	return sched.Wall().UTC()
}

// Version returns the number of the version that was read last, and a time at which it was the
// newest. Both are zero if none was read.
func (c *Catalog) Version() (number int64, at time.Time) {
	if s := c.current.Load(); s != nil {
		return s.version, s.newestAt
	}
	return 0, time.Time{}
}
