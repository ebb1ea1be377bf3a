// Package run is the server. It reads the settings, puts the store, the service and the protocols together, and reloads
// the limits of the config file, tokens, certificates and the limits for Envoy.
package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/front/pending"
	"github.com/headgate/headgate/internal/lograte"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/decisionlog"
	"github.com/headgate/headgate/internal/server/metrics"
	"github.com/headgate/headgate/internal/server/rest"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/internal/server/traffic"
	"github.com/headgate/headgate/internal/server/whatif"
	"github.com/headgate/headgate/internal/stores"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
)

// Config configures a server. File and Flags have its settings.
type Config struct {
	// File is what the config files say, which are read again when they are changed. Without one it is empty.
	File *config.Config
	// Flags looks up what goes before the file.
	Flags config.Flags
	// ReadFile reads a config file again.
	ReadFile func(path string) ([]byte, error)
	// Log gets the log, and what people read who have started the server.
	Log io.Writer
	// Version is shown to clients and in metrics.
	Version string
	// Author is who changes the catalog by a file, for its history.
	Author string
	// Hangup lets the server read all its files again. Nil: nobody asks for that.
	Hangup <-chan os.Signal
	// Sockets are listened on in place of addresses, by the names of their settings. The server closes them.
	Sockets map[string][]net.Listener
	// Pauses are how long the server waits. The zero Pauses are the usual ones.
	Pauses Pauses
}

// Pauses are how long a server waits. Where one is 0 the usual length counts.
type Pauses struct {
	// Reload is between two looks at the files. Usually 1 s.
	Reload time.Duration
	// Catalog is between two looks at the catalog. Usually catalog.DefaultEvery.
	Catalog time.Duration
	// Probe is the mean between two questions whether the store is well. Usually 10 s.
	Probe time.Duration
	// Welcome is how long the server waits for the store before it prints where it is, so that who has read that is
	// not answered 503 by a server whose store is there. Requests are answered meanwhile. Usually 3 s.
	Welcome time.Duration
	// Close is how long the store may take to be closed: to give leases back, and to end connections, which those to
	// a server that is silent do not do soon. Usually 3 s.
	Close time.Duration
}

// stopWithin is how long requests under way may take when the server stops.
const stopWithin = 15 * time.Second

// Serve serves until ctx is done, then finishes what is under way. An error says why it did not, or why it has ended
// before: those of settings are headgate.ErrInvalid.
func Serve(ctx context.Context, c Config) error {
	p := &c.Pauses
	p.Reload, p.Catalog = cmp.Or(p.Reload, time.Second), cmp.Or(p.Catalog, catalog.DefaultEvery)
	p.Probe = cmp.Or(p.Probe, 10*time.Second)
	p.Welcome, p.Close = cmp.Or(p.Welcome, 3*time.Second), cmp.Or(p.Close, 3*time.Second)
	defer func() { // those of which an error has kept it
		for _, listeners := range c.Sockets {
			for _, l := range listeners {
				l.Close()
			}
		}
	}()
	srv := &server{Config: c}
	if err := srv.read(); err != nil {
		return err
	}
	return srv.serve(ctx)
}

func (srv *server) serve(ctx context.Context) error {
	lines := lograte.New(srv.logging.Handler(srv.Log))
	defer lines.Close()
	log := slog.New(lines)
	srv.measure = metrics.New(&metrics.Config{
		Version: srv.Version, Store: srv.place.Kind(), Load: srv.rest.Load, Log: log,
	})
	srv.options = stores.Options{Logger: log, Observer: srv.measure}
	var err error
	if srv.traces, err = openTracing(ctx, srv.Version, log); err != nil {
		return err
	}
	if srv.traces != nil {
		defer srv.traces.Close()
	}
	srv.applied = newApplied(&srv.Config, srv.measure, log)
	srv.rest.Problem = func() string {
		return cmp.Or(srv.applied.Problem(), srv.followed.Problem(), srv.envoy.Problem())
	}
	state := newCondition(log, store.RedactURL(srv.place.URL))
	state.heard = func(ill string) { // one line for people
		notify(log, "STATUS="+strings.ReplaceAll(cmp.Or(ill, "the state is in "+srv.place.String()), "\n", " "))
	}
	srv.rest.Away = state.away
	state.heard("")
	s, opened, err := srv.start(ctx, state)
	if err != nil {
		return err
	}
	state.countBy(func() int64 { return s.Stats().Guard.Degraded })
	limits := catalog.Watch(s, &catalog.Config{
		Logger: log, Quiet: true, Observer: srv.measure, Every: srv.Pauses.Catalog,
	})
	srv.measure.Watch(s, limits)
	srv.applied.watch(limits)
	end := func() { limits.Close(); s.Close() }
	defer func() { soon(end, srv.Pauses.Close, log) }()
	all, err := srv.listen(ctx)
	if err != nil {
		return err
	}
	names := &earlyNames{limits, srv.File, opened, srv.applied.lost}
	service, limiter := srv.service(s, names, log)
	logs := whatif.New(&whatif.Config{Names: names, Limiter: limiter})
	defer logs.Close()
	service.UseRules(&srv.applied.rules)
	files, err := srv.envoy.open(service, log)
	if err != nil {
		all.Close()
		return err
	}
	srv.followed = append(srv.followed, files...)
	srv.rest.More = append(srv.envoy.routes(), logs.Routes()...)
	if srv.addr[config.Metrics.Name] == "" {
		srv.rest.More = append(srv.rest.More, rest.Route{
			Pattern: "GET " + metrics.Path, Role: auth.RoleRead, All: true, Handler: srv.measure.Handler().ServeHTTP,
		})
	}
	srv.attach(all, service, log)
	select {
	case <-opened:
		if err := srv.givenUp(s); err != nil {
			all.Close()
			return err
		}
		srv.applied.refresh(ctx)
	case <-ctx.Done():
	case <-time.After(srv.Pauses.Welcome):
	}
	srv.welcome(log, all)

	watching, stopWatching := context.WithCancel(ctx)
	var watched sync.WaitGroup
	watched.Go(func() { watch(watching, s, opened, service.Healthy, state, srv.Pauses.Probe) })
	watched.Go(func() { srv.applied.follow(watching, s, opened, srv.followed) })
	watched.Go(func() { srv.followed.watch(watching, srv.Pauses.Reload, log) })
	watched.Go(func() { srv.envoy.follow(watching) })
	watched.Go(func() { watchdog(watching, log) })
	end = func() { stopWatching(); watched.Wait(); limits.Close(); s.Close() }
	return srv.until(ctx, all, s, opened, log)
}

// open opens the store and tries whether it answers.
func (srv *server) open(ctx context.Context) (store.Store, error) {
	s, err := stores.Open(ctx, srv.place.URL, srv.options)
	if err != nil {
		return nil, err
	}
	if kind, _ := stores.Find(srv.place.URL); kind.Server && srv.traces != nil {
		s = srv.traces.Store(s, srv.place.Kind())
	}
	if err := service.New(headgate.New(s, nil), srv.File, nil).Reachable(ctx); err != nil {
		s.Close()
		return nil, err
	}
	// A limit that the store cannot use is a mistake of the file, which a start does not pass
	// over. What else is in the way need not be for long, and the catalog has limits.
	if err := srv.applied.apply(ctx, s); errors.Is(err, store.ErrInvalid) {
		s.Close()
		return nil, fmt.Errorf("%s: %w", srv.File.File, err)
	}
	return s, nil
}

// start returns the store with what stands in front of it, and what is closed when it is
// open or was given up. A server is waited for in the background; what lives in this process
// or in a file is there or is not.
func (srv *server) start(ctx context.Context, state *condition) (
	s *front.Store, opened <-chan struct{}, err error,
) {
	kind, err := stores.Find(srv.place.URL)
	if err != nil {
		return nil, nil, err
	}
	stack := &front.Config{
		Observer: srv.measure,
		Logger:   slog.New(slog.DiscardHandler), // watch reports the sweeper
		Guard:    &front.GuardConfig{Deadline: srv.deadline, Logger: srv.options.Logger, Turned: state.turn},
	}
	if srv.traces != nil {
		stack.Coalesce = &front.CoalesceConfig{Context: srv.traces.Batch}
	}
	if !kind.Server {
		if err := srv.place.Prepare(); err != nil {
			return nil, nil, err
		}
		done := make(chan struct{})
		close(done)
		inner, err := srv.open(ctx)
		if err != nil {
			return nil, nil, err
		}
		return front.New(inner, stack), done, nil
	}
	open := func(ctx context.Context) (store.Store, error) {
		s, err := srv.open(ctx)
		state.note(err)
		return s, err
	}
	s = front.Later(pending.Config{Open: open, Within: srv.wait}, stack)
	p, _ := store.As[*pending.Store](s)
	return s, p.Done(), nil
}

// givenUp returns why the store was given up, or nil.
func (srv *server) givenUp(s store.Store) error {
	p, ok := store.As[*pending.Store](s)
	if !ok {
		return nil
	}
	err := p.Err()
	if err == nil || pending.Final(err) {
		return err
	}
	return fmt.Errorf("the store was not available within %s: %w", srv.wait, err)
}

// service returns the service behind all protocols and its Limiter, whose observers count, log and trace decisions.
func (srv *server) service(s *front.Store, names *earlyNames, log *slog.Logger) (*service.Service, *headgate.Limiter) {
	defined := func(name string) bool { _, ok := names.Lookup(name); return ok }
	lately := traffic.New(&traffic.Config{Defined: defined})
	observers := service.Observers{srv.measure, lately}
	lines := decisionlog.New(decisionlog.Config{
		Log: log, Refused: srv.logging.Refused, Admitted: srv.logging.Admitted,
	})
	if lines != nil {
		observers = append(observers, lines)
	}
	if srv.traces != nil {
		observers = append(observers, srv.traces)
	}
	limiter := headgate.New(s, &headgate.Config{Names: names, Observer: observers})
	answers := service.New(limiter, srv.File, names)
	answers.UseTraffic(lately)
	return answers, limiter
}

// soon ends a server within a bound.
func soon(end func(), within time.Duration, log *slog.Logger) {
	ended := make(chan struct{})
	go func() { defer close(ended); end() }()
	select {
	case <-ended:
	case <-time.After(within):
		log.Warn("the store does not answer, its connections are cut off")
	}
}

// until waits for the end of a server, and ends it.
func (srv *server) until(
	ctx context.Context, all endpoints, s store.Store, opened <-chan struct{}, log *slog.Logger,
) error {
	served := all.serve()
	notify(log, daemon.SdNotifyReady)
	for {
		select {
		case err := <-served:
			all.Close()
			_ = all.wait(served, 1)
			return err
		case <-opened:
			if err := srv.givenUp(s); err != nil {
				all.Close()
				_ = all.wait(served, 0)
				return err
			}
			opened = nil
		case <-ctx.Done():
			log.Info("stopping")
			notify(log, daemon.SdNotifyStopping)
			within, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
			defer cancel()
			return cmp.Or(all.Shutdown(within), all.wait(served, 0))
		}
	}
}
