// Package run is the server. It reads the settings, puts the store, the service and the protocols together, and reloads
// the limits, rules and prices of the config files, tokens, certificates and the limits for Envoy.
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
	"github.com/headgate/headgate/internal/server/webhook"
	"github.com/headgate/headgate/internal/server/whatif"
	"github.com/headgate/headgate/internal/stores"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
)

// Config configures a server. Flags and File have its settings.
type Config struct {
	// File has the contents of the config files, which are read again when they change. Without files it is empty.
	File *config.Config
	// Flags looks up flags, which take precedence over the file.
	Flags config.Flags
	// ReadFile reads a config file again.
	ReadFile func(path string) ([]byte, error)
	// Log gets the log, and the messages for the person who starts the server.
	Log io.Writer
	// Version is shown to clients and in metrics.
	Version string
	// Author is the author of the versions of the catalog that a file makes.
	Author string
	// Hangup makes the server read all its files again. It may be nil.
	Hangup <-chan os.Signal
	// Sockets has listeners that replace addresses, by the names of the settings. The server closes them.
	Sockets map[string][]net.Listener
	// Pauses has the server's pauses and timeouts. Zero: the defaults.
	Pauses Pauses
}

// Pauses has the pauses and timeouts of a server. 0 is the default.
type Pauses struct {
	// Reload is the pause between two checks of the files; default 1 s.
	Reload time.Duration
	// Catalog is the pause between two reads of the catalog; default catalog.DefaultEvery.
	Catalog time.Duration
	// Probe is the mean pause between two probes of the store; default 10 s.
	Probe time.Duration
	// Welcome is how long the server waits for the store before it prints its address, so that first requests are not
	// answered 503 while the store is only slow to open. The server already answers requests; default 3 s.
	Welcome time.Duration
	// Close is how long the store may take to close: to release leases, and to end connections, which takes long if
	// the other side is silent; default 3 s.
	Close time.Duration
}

// stopTimeout is how long running requests may take when the server stops.
const stopTimeout = 15 * time.Second

// Serve serves until ctx is done, then finishes running requests. It returns an error if it cannot serve, or if it ends
// earlier. Errors of settings are headgate.ErrInvalid.
func Serve(ctx context.Context, c Config) error {
	p := &c.Pauses
	p.Reload, p.Catalog = cmp.Or(p.Reload, time.Second), cmp.Or(p.Catalog, catalog.DefaultEvery)
	p.Probe = cmp.Or(p.Probe, 10*time.Second)
	p.Welcome, p.Close = cmp.Or(p.Welcome, 3*time.Second), cmp.Or(p.Close, 3*time.Second)
	defer func() { // also the listeners that no server has taken over
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

// serve opens the store, builds all parts of the server, and serves until ctx is done.
func (srv *server) serve(ctx context.Context) error {
	lines := lograte.New(srv.logging.Handler(srv.Log))
	defer lines.Close()
	log := slog.New(lines)
	srv.metrics = metrics.New(&metrics.Config{
		Version: srv.Version, Store: srv.place.Kind(), Load: srv.rest.Load, Log: log,
	})
	srv.options = stores.Options{Logger: log, Observer: srv.metrics}
	var err error
	if srv.traces, err = openTracing(ctx, srv.Version, log); err != nil {
		return err
	}
	if srv.traces != nil {
		defer srv.traces.Close()
	}
	srv.configFiles = newConfigFiles(&srv.Config, srv.metrics, log)
	srv.rest.Problem = func() string {
		return cmp.Or(srv.configFiles.Problem(), srv.sources.Problem(), srv.envoy.Problem())
	}
	state := newCondition(log, store.RedactURL(srv.place.URL))
	state.onChange = func(message string) { // one line for people
		notify(log, "STATUS="+strings.ReplaceAll(cmp.Or(message, "the state is in "+srv.place.String()), "\n", " "))
	}
	srv.rest.Away = state.away
	state.onChange("")
	s, opened, err := srv.start(ctx, state)
	if err != nil {
		return err
	}
	state.setCounter(func() int64 { return s.Stats().Guard.Degraded })
	limits := catalog.Watch(s, &catalog.Config{
		Logger: log, Quiet: true, Observer: srv.metrics, Every: srv.Pauses.Catalog,
	})
	srv.metrics.Watch(s, limits)
	srv.configFiles.setCatalog(limits)
	end, stopNotifying := func() { limits.Close(); s.Close() }, func() {}
	defer func() { srv.close(end, stopNotifying, log) }()
	endpoints, err := srv.listen(ctx)
	if err != nil {
		return err
	}
	names := &earlyNames{limits, srv.File, opened, srv.configFiles.hasLostLimits}
	service, limiter, stop := srv.service(s, names, log)
	stopNotifying = stop
	logs := whatif.New(&whatif.Config{Names: names, Limiter: limiter})
	defer logs.Close()
	service.UseFiles(&srv.configFiles.rules, &srv.configFiles.prices)
	files, err := srv.envoy.open(service, log)
	if err != nil {
		endpoints.Close()
		return err
	}
	srv.sources = append(srv.sources, files...)
	srv.rest.OtherRoutes = append(srv.envoy.routes(), logs.Routes()...)
	if srv.addr[config.Metrics.Name] == "" {
		srv.rest.OtherRoutes = append(srv.rest.OtherRoutes, rest.Route{
			Pattern: "GET " + metrics.Path, Role: auth.RoleRead, AllLimits: true,
			Handler: srv.metrics.Handler().ServeHTTP,
		})
	}
	srv.attach(endpoints, service, log)
	select {
	case <-opened:
		if err := srv.openError(s); err != nil {
			endpoints.Close()
			return err
		}
		srv.configFiles.refresh(ctx)
	case <-ctx.Done():
	case <-time.After(srv.Pauses.Welcome):
	}
	srv.welcome(log, endpoints)

	watchCtx, stopWatching := context.WithCancel(ctx)
	var watchers sync.WaitGroup
	watchers.Go(func() { watch(watchCtx, s, opened, service.Healthy, state, srv.Pauses.Probe) })
	watchers.Go(func() { srv.configFiles.follow(watchCtx, s, opened, srv.sources) })
	watchers.Go(func() { srv.sources.watch(watchCtx, srv.Pauses.Reload, log) })
	watchers.Go(func() { srv.envoy.follow(watchCtx) })
	watchers.Go(func() { watchdog(watchCtx, log) })
	end = func() { stopWatching(); watchers.Wait(); limits.Close(); s.Close() }
	return srv.serveUntil(ctx, endpoints, s, opened, log)
}

// open opens the store, checks that it answers, and applies the config file.
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
	// The start fails only for a limit that the store cannot use: other errors may pass, and the catalog has limits.
	if err := srv.configFiles.apply(ctx, s); errors.Is(err, store.ErrInvalid) {
		s.Close()
		return nil, fmt.Errorf("%s: %w", srv.File.File, err)
	}
	return s, nil
}

// start returns the store with its wrappers, and a channel that is closed when the store is open, or when opening it
// was given up. A database server is opened in the background; a store in memory or in a file is opened at once.
func (srv *server) start(ctx context.Context, state *condition) (
	s *front.Store, opened <-chan struct{}, err error,
) {
	kind, err := stores.Find(srv.place.URL)
	if err != nil {
		return nil, nil, err
	}
	stack := &front.Config{
		Observer: srv.metrics,
		Logger:   slog.New(slog.DiscardHandler), // watch reports errors of the sweeper
		Guard:    &front.GuardConfig{Deadline: srv.deadline, Logger: srv.options.Logger, Turned: state.recordRequest},
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
		state.recordProbe(err)
		return s, err
	}
	s = front.Later(pending.Config{Open: open, Within: srv.wait}, stack)
	p, _ := store.As[*pending.Store](s)
	return s, p.Done(), nil
}

// openError returns why opening the store was given up, or nil.
func (srv *server) openError(s store.Store) error {
	p, ok := store.As[*pending.Store](s)
	if !ok {
		return nil
	}
	err := p.Err()
	if err == nil || pending.IsPermanent(err) {
		return err
	}
	return fmt.Errorf("the store was not available within %s: %w", srv.wait, err)
}

// service returns the service of all protocols and its Limiter, whose observers count, log and trace decisions and send
// events until stop is called.
func (srv *server) service(s *front.Store, names *earlyNames, log *slog.Logger) (
	svc *service.Service, limiter *headgate.Limiter, stop func(),
) {
	defined := func(name string) bool { _, ok := names.Lookup(name); return ok }
	recent := traffic.New(&traffic.Config{Defined: defined})
	observers := service.Observers{srv.metrics, recent, decisionlog.New(decisionlog.Config{
		Log: log, Refused: srv.logging.Refused, Admitted: srv.logging.Admitted,
	})}
	if srv.traces != nil {
		observers = append(observers, srv.traces)
	}
	stop = func() {}
	if hook := srv.webhook; hook.URL != "" {
		hook.Log, hook.Dropped = log, srv.metrics.NotDelivered
		sender := webhook.New(hook)
		observers, stop = append(observers, sender), sender.Close
	}
	limiter = headgate.New(s, &headgate.Config{Names: names, Observer: observers})
	svc = service.New(limiter, srv.File, names)
	svc.UseTraffic(recent)
	return svc, limiter, stop
}

// close closes the store by end and the sender of events, both at once: a receiver that hangs does not keep the store
// open.
func (srv *server) close(end, stopNotifying func(), log *slog.Logger) {
	var notifying sync.WaitGroup
	notifying.Go(stopNotifying)
	runWithTimeout(end, srv.Pauses.Close, log)
	notifying.Wait()
}

// runWithTimeout runs end, and returns after a timeout if end does not return.
func runWithTimeout(end func(), timeout time.Duration, log *slog.Logger) {
	done := make(chan struct{})
	go func() { defer close(done); end() }()
	select {
	case <-done:
	case <-time.After(timeout):
		log.Warn("the store does not answer, its connections are cut off")
	}
}

// serveUntil starts the endpoints and serves until ctx is done, an endpoint fails, or the store cannot be opened.
func (srv *server) serveUntil(
	ctx context.Context, endpoints endpoints, s store.Store, opened <-chan struct{}, log *slog.Logger,
) error {
	served := endpoints.serve()
	notify(log, daemon.SdNotifyReady)
	for {
		select {
		case err := <-served:
			endpoints.Close()
			_ = endpoints.wait(served, 1)
			return err
		case <-opened:
			if err := srv.openError(s); err != nil {
				endpoints.Close()
				_ = endpoints.wait(served, 0)
				return err
			}
			opened = nil
		case <-ctx.Done():
			log.Info("stopping")
			notify(log, daemon.SdNotifyStopping)
			stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
			defer cancel()
			return cmp.Or(endpoints.Shutdown(stopCtx), endpoints.wait(served, 0))
		}
	}
}
