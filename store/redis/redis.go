// Package redis keeps cells in Redis 6.2 or later, or Valkey: a single server, Sentinel, or a Cluster. Any number of
// processes share them.
//
// The laws run in the server, in Lua: mostly one round trip for a batch. A server that keeps nothing on disk loses
// its state when it restarts. A replica that takes over lacks the charges that had not reached it; docs/stores.md
// states how many that may be.
package redis

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/internal/keycount"
)

var (
	_ store.Store     = (*Store)(nil)
	_ store.Inspector = (*Store)(nil)
	_ store.Informer  = (*Store)(nil)
	_ store.Catalog   = (*Store)(nil)
)

type message = rueidis.RedisMessage

// Config adjusts a Store. A nil Config, and every zero field, is fine.
type Config struct {
	// Prefix begins all keys. Empty: "headgate:". A brace in it is refused, since it would put all keys into one slot.
	Prefix string
	// RetryFor bounds the time in which a batch is retried that a server cannot decide for the moment, if the context
	// has no deadline, and the time in which a refused request is given back. Zero: 5 s.
	RetryFor time.Duration
	// Slot returns the hash tag of a key: keys with the same tag lie in one slot of a Cluster, and so does the key that
	// equals the tag. One script decides a request of several charges in one slot. A request over several slots takes
	// a second round trip if one of them refuses it, and a reservation over several slots that may start later is
	// [store.ErrUnsupported]. So a user's key may have the organisation's key as its tag:
	//
	//	Slot: func(key string) string { org, _, _ := strings.Cut(key, "/"); return org }
	//
	// All keys of a tag are on one primary. The result must depend on the key alone, and be the same in all processes
	// that share the store: a key with another tag is another cell, which begins empty. Slot is called several times
	// for each charge, by many goroutines, with keys of any text. On a single server the tag changes only the names of
	// keys in Redis. Nil: each key is its own tag.
	Slot func(key string) string
	// Observer receives the batches that were retried. May be nil.
	Observer store.Observer
	// Logger gets warnings and errors. Nil: slog.Default().
	Logger *slog.Logger
}

// maxHistory is how many attempts the log of a key may have before the oldest of those that no longer count are removed
// early, refused ones first.
const maxHistory = 10_000

// Store keeps cells in Redis. It is safe for concurrent use.
type Store struct {
	client     rueidis.Client
	ownsClient bool // Close closes the client
	cluster    bool
	cfg        Config
	log        *slog.Logger
	closed     atomic.Bool
	isReady    atomic.Bool // the server has passed the checks of ready
	configErr  error       // why New's arguments are invalid, or nil
	maxEntries int64       // see maxHistory
	checkMu    sync.Mutex
	retries    atomic.Int64
	watch      evictionWatch
	keyCounts  keycount.Cache
	lane       lane
	slack      time.Duration   // see the constant slack
	lifetime   context.Context // ends with Close
	cancel     context.CancelFunc
}

// Open connects to a redis:// or rediss:// URL and checks that the server answers; see docs/stores.md for its options.
// Close closes the connections.
func Open(ctx context.Context, url string, cfg *Config) (*Store, error) {
	options, prefix, err := parseURL(url)
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	c := *cmp.Or(cfg, &Config{})
	c.Prefix = cmp.Or(prefix, c.Prefix)
	if err := validPrefix(c.Prefix); err != nil {
		return nil, err
	}
	client, err := rueidis.NewClient(*options)
	if err != nil {
		return nil, explainConnectError(ctx, options, err)
	}
	s := New(client, &c)
	s.ownsClient = true
	if client.Mode() == rueidis.ClientModeStandalone {
		s.lane.client, s.lane.lifetime = client, s.lifetime
	}
	if err := s.ready(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// New returns a store over the caller's client, which Close leaves open. The client may have any options, also without
// DisableRetry: rueidis retries only commands that are marked as retryable, and commands that charge are not. Without a
// client, or with an invalid Config, each call returns ErrInvalid.
func New(client rueidis.Client, cfg *Config) *Store {
	s := &Store{client: client, slack: slack, maxEntries: maxHistory, cfg: *cmp.Or(cfg, &Config{})}
	s.cfg.Prefix, s.log = cmp.Or(s.cfg.Prefix, "headgate:"), cmp.Or(s.cfg.Logger, slog.Default())
	if s.configErr = validPrefix(s.cfg.Prefix); client == nil {
		s.configErr = fmt.Errorf("redis: %w", law.Invalid("client", "is missing"))
	}
	if s.cfg.RetryFor <= 0 {
		s.cfg.RetryFor = 5 * time.Second
	}
	s.lifetime, s.cancel = context.WithCancel(context.Background())
	return s
}

func validPrefix(prefix string) error {
	if strings.ContainsAny(prefix, "{}") {
		return fmt.Errorf("redis: %w", law.Invalid("prefix", "%q has a brace: it would put all keys into one slot",
			prefix))
	}
	return nil
}

// Info implements store.Informer. A server decides one batch at a time. Two large batches, of which one is on its way,
// cost less than four: 128 callers of 100,000 keys on 2 cores made 178,000 decisions/s with four batches, 201,000 with
// two, and 156,000 with one. The nodes of a Cluster get four.
func (s *Store) Info() store.Info {
	i := store.Info{Batches: 2, Retries: s.retries.Load()}
	if s.client != nil && s.client.Mode() == rueidis.ClientModeCluster {
		i.Batches = 4
	}
	return i
}

// Close implements store.Store.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.cancel()
	s.lane.close()
	if s.ownsClient {
		s.client.Close()
	}
	return nil
}

// ready returns why the store cannot be used, or nil. It checks the server until that has passed once.
func (s *Store) ready(ctx context.Context) error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.isReady.Load() {
		return nil
	}
	if s.configErr != nil {
		return s.configErr
	}
	s.checkMu.Lock()
	defer s.checkMu.Unlock()
	if s.isReady.Load() {
		return nil
	}
	info, err := readInfo(ctx, s.client, "server")
	switch {
	case err != nil && noPermission(err):
		s.log.Debug("cannot see the version of the server", "error", err)
	case err != nil:
		return classifyRead("ask the server about itself", err)
	}
	if err := checkVersion(info["redis_version"]); err != nil {
		return err
	}
	s.cluster = s.client.Mode() == rueidis.ClientModeCluster || info["redis_mode"] == "cluster"
	if err := s.checkEviction(ctx); err != nil {
		return err
	}
	s.isReady.Store(true)
	return nil
}

// readInfo reads sections of a server's INFO.
func readInfo(ctx context.Context, node rueidis.Client, sections ...string) (map[string]string, error) {
	var commands []rueidis.Completed
	for _, section := range sections { // Redis 6.2 takes one section at a time
		commands = append(commands, node.B().Info().Section(section).Build())
	}
	fields := map[string]string{}
	for _, res := range node.DoMulti(ctx, commands...) {
		text, err := res.ToString()
		if err != nil {
			return nil, err
		}
		for line := range strings.SplitSeq(text, "\r\n") {
			if name, value, ok := strings.Cut(line, ":"); ok {
				fields[name] = value
			}
		}
	}
	return fields, nil
}

// checkVersion refuses a server that is older than 6.2.
func checkVersion(version string) error {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return nil // the server hides its version; an old server fails at the first script
	}
	major, _ := strconv.Atoi(parts[0])
	minor, _ := strconv.Atoi(parts[1])
	if major*100+minor < 602 { // 6.2
		return fmt.Errorf("redis: %w: the server has version %s; 6.2 or later is needed", store.ErrSetup, version)
	}
	return nil
}
