package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/front/pending"
	"github.com/headgate/headgate/internal/lograte"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/decisionlog"
	"github.com/headgate/headgate/internal/server/edge"
	"github.com/headgate/headgate/internal/server/forwardauth"
	"github.com/headgate/headgate/internal/server/load"
	"github.com/headgate/headgate/internal/server/metrics"
	"github.com/headgate/headgate/internal/server/rest"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/internal/server/traffic"
	"github.com/headgate/headgate/internal/server/whatif"
	"github.com/headgate/headgate/internal/tlsconf"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
)

// stopWithin is how long requests under way may take when the server stops.
const stopWithin = 15 * time.Second

// closeWithin is how long the store may take after that to be closed: to give leases back,
// and to end connections, which those to a server that is silent do not do soon.
var closeWithin = 3 * time.Second

func newServeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:        "serve",
		Short:      "Serve limits over HTTP, gRPC and the protocol of Redis",
		SuggestFor: []string{"server", "start", "listen"},
		Long: "Serve limits over HTTP, over gRPC with --grpc, and to clients of redis-cell with --resp.\n" +
			"Requests name limits of the store's catalogue (headgate limits).\n" +
			"Without a config file they may also say a limit in one line; with one, only if it says\n" +
			"allow_notations: true. The limits of the file are applied to the catalogue at the start, when\n" +
			"the file is changed, and on SIGHUP, unless a newer file was applied by another server.\n\n" +
			"A database server may come later than this one: until it does, and while it is away,\n" +
			"requests are answered as their limits say, with status 503 unless they say otherwise, and\n" +
			"GET /readyz with 503. GET /livez answers 200 as long as this process does. What waiting cannot cure (a wrong URL, a schema that is newer\n" +
			"than this binary, a file that cannot be opened) ends it at once with exit code 2.",
		Example: "  headgate serve\n  headgate serve --grpc :8081 --envoy /data/ratelimit/config\n" +
			"  headgate serve --config headgate.yaml --store postgres://headgate@db/app " +
			"--http :8080",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := servingOf(cmd)
			if err != nil {
				return err
			}
			return serve(cmd.Context(), cmd.ErrOrStderr(), o)
		},
	}
	for _, s := range config.Settings {
		if s != config.Server && s != config.Token { // settings of commands that ask a server
			addSettings(cmd, s)
		}
	}
	return cmd
}

// serving is what is served, and where.
type serving struct {
	config  *config.Config
	store   string // URL
	said    bool   // somebody named the store
	addr    string
	grpc    string        // address for gRPC; empty: there is none
	resp    string        // address for the protocol of Redis; empty: there is none
	admin   string        // address for admin actions; empty: addr has them
	metrics string        // address of what tells how the server is; empty: there is none apart
	wait    time.Duration // for the store, at the start; pending.NoLimit

	deadline time.Duration // of decisions; 0: the store's
	logging  config.Logging

	options storeOptions
	edge    edge.Config
	rest    rest.Config
	applied *applied // the config file
	envoy   *forEnvoy
	measure *metrics.Metrics
	traces  tracer // nil: there are none

	everyone bool            // everybody may do everything on all addresses
	tokens   *auth.File      // nil: there are none
	tls      *tlsconf.Server // nil: connections are plain
	clientCA bool            // certificates of clients are verified

	credentials credentials // the files of tokens and tls
}

// servingOf reads the settings of a server.
func servingOf(cmd *cobra.Command) (o serving, err error) {
	given := flags(cmd)
	c, err := config.Load(given)
	if err = cmp.Or(config.WithoutRemoved(), err); err != nil {
		return o, err
	}
	for _, file := range c.Files { // which are read again when they are changed
		if _, err := config.ReadFile(file); err != nil {
			return o, err
		}
	}
	if o, err = settingsOf(c, given); err != nil {
		return o, err
	}
	if err := o.accessOf(given); err != nil {
		return o, err
	}
	o.envoy, err = envoyOf(c, given)
	return o, err
}

// settingsOf reads the settings of a server that name no other files.
func settingsOf(c *config.Config, given config.Flags) (o serving, err error) {
	r := c.Reader(given)
	url := r.Said(config.Store)
	o = serving{
		config: c, store: url.Value, said: url.By != "", addr: r.Text(config.HTTP),
		wait: r.Duration(config.WaitStore, pending.NoLimit), deadline: r.Duration(config.Deadline, 0),
		logging: r.Logging(),
	}
	o.edge.MaxConnections = r.Count(config.MaxConnections)
	o.rest.Load = load.New(r.Count(config.MaxRequests), r.Size(config.MaxBuffered))
	o.edge.Hosts = r.Names(config.Host)
	c.Notations = r.Notations()
	o.edge.Proxied = rest.Proxied()
	o.rest.Auth.Proxies = r.Proxies()
	fields, err := forwardauth.ParseFields(r.Names(config.AuthHeaders))
	o.rest.Auth.Fields = fields
	r.Bool(config.Open) // for validate
	_, wrong := kindOf(o.store)
	return o, cmp.Or(r.Err, err, wrong)
}

// open opens the store and asks it something.
func (o *serving) open(ctx context.Context) (store.Store, error) {
	s, err := openStore(ctx, o.store, o.options)
	if err != nil {
		return nil, err
	}
	if kind, _ := kindOf(o.store); kind.server && o.traces != nil {
		s = o.traces.Store(s, o.kind())
	}
	if err := newService(s, o.config, nil).Reachable(ctx); err != nil {
		s.Close()
		return nil, err
	}
	// A limit that the store cannot use is a mistake of the file, which a start does not pass
	// over. What else is in the way need not be for long, and the catalogue has limits.
	if err := o.applied.apply(ctx, s); errors.Is(err, store.ErrInvalid) {
		s.Close()
		return nil, fmt.Errorf("%s: %w", o.config.File, err)
	}
	return s, nil
}

// start returns the store with what stands in front of it, and what is closed when it is
// open or was given up. A server is waited for in the background; what lives in this process
// or in a file is there or is not.
func (o *serving) start(ctx context.Context, state *condition) (s *front.Store, opened <-chan struct{}, err error) {
	kind, err := kindOf(o.store)
	if err != nil {
		return nil, nil, err
	}
	stack := &front.Config{
		Observer: o.measure,
		Logger:   slog.New(slog.DiscardHandler), // watch tells of the sweeper
		Guard:    &front.GuardConfig{Deadline: o.deadline, Logger: o.options.log, Turned: state.turn},
	}
	if o.traces != nil {
		stack.Coalesce = &front.CoalesceConfig{Context: o.traces.Batch}
	}
	if !kind.server {
		if err := o.place().prepare(); err != nil {
			return nil, nil, err
		}
		done := make(chan struct{})
		close(done)
		inner, err := o.open(ctx)
		if err != nil {
			return nil, nil, err
		}
		return front.New(inner, stack), done, nil
	}
	open := func(ctx context.Context) (store.Store, error) {
		s, err := o.open(ctx)
		state.is(err)
		return s, err
	}
	s = front.Later(pending.Config{Open: open, Within: o.wait}, stack)
	p, _ := store.As[*pending.Store](s)
	return s, p.Done(), nil
}

// givenUp says why the store was given up, or nil.
func (o *serving) givenUp(s store.Store) error {
	p, ok := store.As[*pending.Store](s)
	if !ok {
		return nil
	}
	err := p.Err()
	if err == nil || pending.Final(err) {
		return err
	}
	return fmt.Errorf("the store was not available within %s: %w", o.wait, err)
}

// firstTry is how long the welcome waits for the store at most, so that who has read it
// is not answered 503 by a server whose store is there. Requests are answered meanwhile.
var firstTry = 3 * time.Second

// lookEvery is how often a server looks whether the catalogue of limits was changed.
var lookEvery = catalog.DefaultEvery

// serve serves until ctx is done, then finishes what is under way.
func serve(ctx context.Context, stderr io.Writer, o serving) error {
	lines := lograte.New(o.logging.Handler(stderr))
	defer lines.Close()
	log := slog.New(lines)
	o.options.log = log
	o.measured(log)
	var err error
	if o.traces, err = openTracing(ctx, version(), log); err != nil {
		return err
	}
	if o.traces != nil {
		defer o.traces.Close()
	}
	o.applied = newApplied(o.config, log)
	o.applied.observer = o.measure
	defer o.applied.stop()
	o.applied.onHangup = func() { o.credentials.look(log, true) }
	o.rest.Problem = func() string { return cmp.Or(o.applied.Problem(), o.credentials.Problem(), o.envoy.Problem()) }
	state := newCondition(log, store.RedactURL(o.store))
	state.heard = func(ill string) { tellStatus(log, cmp.Or(ill, "the state is in "+o.place().shown())) }
	o.rest.Away = state.away
	state.say("")
	s, opened, err := o.start(ctx, state)
	if err != nil {
		return err
	}
	state.count(func() int64 { return s.Stats().Guard.Degraded })
	limits := catalog.Watch(s, &catalog.Config{Logger: log, Quiet: true, Observer: o.measure, Every: lookEvery})
	o.measure.Watch(func() (*front.Store, bool) { return s, true }, limits)
	o.applied.watch(limits)
	end := func() { limits.Close(); s.Close() }
	defer func() { soon(end, log) }()
	all, err := o.listen(ctx)
	if err != nil {
		return err
	}
	names := &earlyNames{limits, o.config, opened, o.applied.lost}
	service, limiter := o.service(s, names, log)
	logs := whatif.New(&whatif.Config{Names: names, Limiter: limiter, Log: log})
	defer logs.Close()
	o.applied.useRules(o.config) // at once: the store may be away, and a proxy must not go without them
	service.UseRules(&o.applied.rules)
	if err := o.envoy.open(service, log); err != nil {
		all.Close()
		return err
	}
	o.rest.More = append(o.envoy.routes(), logs.Routes()...)
	if o.metrics == "" {
		o.rest.More = append(o.rest.More, rest.Route{
			Pattern: "GET " + metrics.Path, Role: auth.RoleRead, All: true, Handler: o.measure.Handler().ServeHTTP,
		})
	}
	o.hang(all, service, log)
	select {
	case <-opened:
		if err := o.givenUp(s); err != nil {
			all.Close()
			return err
		}
		o.applied.refresh(ctx)
	case <-ctx.Done():
	case <-time.After(firstTry):
	}
	welcome(stderr, log, all, o)

	watching, stopWatching := context.WithCancel(ctx)
	var watched sync.WaitGroup
	watched.Go(func() { watch(watching, s, opened, service.Healthy, state) })
	watched.Go(func() { o.applied.follow(watching, s, opened) })
	watched.Go(func() { o.credentials.follow(watching, log) })
	watched.Go(func() { o.envoy.follow(watching, log) })
	watched.Go(func() { watchdog(watching, log) })
	end = func() { stopWatching(); watched.Wait(); limits.Close(); s.Close() }
	return o.until(ctx, all, s, opened, log)
}

// service returns the service behind all protocols and its Limiter, whose observers count, log and trace decisions.
func (o *serving) service(s *front.Store, names *earlyNames, log *slog.Logger) (*service.Service, *headgate.Limiter) {
	defined := func(name string) bool { _, ok := names.Lookup(name); return ok }
	lately := traffic.New(&traffic.Config{Defined: defined})
	observers := service.Observers{o.measure, lately}
	lines := decisionlog.New(decisionlog.Config{
		Log: log, Refused: o.logging.Refused, Admitted: o.logging.Admitted,
	})
	if lines != nil {
		observers = append(observers, lines)
	}
	if o.traces != nil {
		observers = append(observers, o.traces)
	}
	limiter := headgate.New(s, &headgate.Config{Names: names, Observer: observers})
	answers := service.New(limiter, o.config, names)
	answers.UseTraffic(lately)
	return answers, limiter
}

// measured makes the metrics, and lets the drivers tell them of what they repeat.
func (o *serving) measured(log *slog.Logger) {
	o.measure = metrics.New(&metrics.Config{Version: version(), Store: o.kind(), Load: o.rest.Load, Log: log})
	o.options.observer = o.measure
}

// place is where the state is.
func (o *serving) place() place { return place{o.store, o.said} }

// kind is that of the store.
func (o *serving) kind() string {
	kind, _, _ := strings.Cut(o.store, ":")
	return kind
}

// soon does what ends a server, and waits for that as long as it may take.
func soon(end func(), log *slog.Logger) {
	ended := make(chan struct{})
	go func() { defer close(ended); end() }()
	select {
	case <-ended:
	case <-time.After(closeWithin):
		log.Warn("the store does not answer, its connections are cut off")
	}
}

// until waits for the end of a server, and ends it.
func (o *serving) until(ctx context.Context, all doors, s store.Store, opened <-chan struct{}, log *slog.Logger) error {
	served := all.serve()
	tell(log, daemon.SdNotifyReady)
	for {
		select {
		case err := <-served:
			all.Close()
			_ = all.wait(served, 1)
			return err
		case <-opened:
			if err := o.givenUp(s); err != nil {
				all.Close()
				_ = all.wait(served, 0)
				return err
			}
			opened = nil
		case <-ctx.Done():
			log.Info("stopping")
			tell(log, daemon.SdNotifyStopping)
			within, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
			defer cancel()
			return cmp.Or(all.Shutdown(within), all.wait(served, 0))
		}
	}
}
