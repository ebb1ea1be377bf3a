package redis

import (
	"context"
	"errors"
	"strconv"
	"sync"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/internal/keycount"
)

// evictionWatch remembers the last eviction report of each primary.
type evictionWatch struct {
	sync.Mutex
	reports          map[string]eviction // by address
	loggedUnreported bool                // a log line said that a server reports nothing
}

// eviction is a server's report of its eviction policy and its evictions.
type eviction struct {
	policy string // the policy by which it may evict a cell; empty: it evicts none
	memory string // maxmemory, in bytes
	keys   int64  // how many keys it has evicted since it was started
}

// Sweep implements store.Store. Cells, logs and receipts expire by themselves, so it removes nothing. It reads from
// each primary whether the primary may evict keys and has evicted any, and logs what has changed. Now and then it
// counts the keys of all limits.
func (s *Store) Sweep(ctx context.Context, _ int) (removed int, err error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	if err := s.checkEviction(ctx); err != nil {
		return 0, err
	}
	s.keyCounts.CountIfDue(ctx, s.countKeys)
	return 0, nil
}

// KeyCounts implements store.Inspector. It returns the last count that a Sweep of this process has made.
func (s *Store) KeyCounts(ctx context.Context) ([]store.KeyCount, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	return s.keyCounts.Counts()
}

// countKeys counts the keys of each limit. It reads the names of all cells, about 1,000 at a time.
func (s *Store) countKeys(ctx context.Context) ([]store.KeyCount, error) {
	keys := map[string]int64{}
	err := s.eachPage(ctx, func(page []string) error {
		for _, key := range page {
			if c, ok := s.cellOf(key); ok {
				keys[c.Limit]++
			}
		}
		return nil
	})
	if err != nil {
		return nil, classifyRead("count keys", err)
	}
	now, counts := sched.Wall().UnixMicro(), make([]store.KeyCount, 0, len(keys))
	for limit, n := range keys {
		counts = append(counts, store.KeyCount{Limit: limit, Keys: n, At: now})
	}
	return keycount.Largest(counts), nil
}

// checkEviction reads the eviction reports of the primaries, and logs changes. It ignores a server that cannot be
// reached as long as another one answers: requests that need that server fail with their own errors.
func (s *Store) checkEviction(ctx context.Context) error {
	var lastErr error
	hasAnswer := false
	for address, node := range s.client.Nodes() {
		report, isPrimary, err := readEviction(ctx, node)
		switch {
		case err == nil:
			hasAnswer = true
			if isPrimary {
				s.logEvictionChange(address, report)
			}
		case noPermission(err), errors.Is(err, errNotReported):
			hasAnswer = true
			s.logUnreported(address, err)
		default:
			lastErr = err
		}
	}
	if hasAnswer {
		return nil
	}
	return lastErr
}

var errNotReported = errors.New("its answer does not say it")

// readEviction reads a server's eviction report, and whether the server is a primary.
func readEviction(ctx context.Context, node rueidis.Client) (e eviction, isPrimary bool, err error) {
	fields, err := readInfo(ctx, node, "replication", "memory", "stats")
	if err != nil {
		return e, false, classifyRead("ask the server whether it evicts keys", err)
	}
	if fields["role"] != "master" {
		return e, false, nil
	}
	e.policy, e.memory = fields["maxmemory_policy"], fields["maxmemory"]
	if e.keys, err = strconv.ParseInt(fields["evicted_keys"], 10, 64); err != nil || e.policy == "" || e.memory == "" {
		return e, true, errNotReported
	}
	if e.memory == "0" || e.policy == "noeviction" {
		e.policy = ""
	}
	return e, true, nil
}

// logEvictionChange logs what has changed at a server since its last report.
func (s *Store) logEvictionChange(address string, current eviction) {
	s.watch.Lock()
	defer s.watch.Unlock()
	last, hasLast := s.watch.reports[address]
	if !hasLast {
		last.keys = current.keys
	}
	if s.watch.reports == nil {
		s.watch.reports = map[string]eviction{}
	}
	s.watch.reports[address] = current
	switch current.policy {
	case last.policy:
	case "":
		s.log.Info("this Redis no longer evicts cells", "server", address)
	default:
		s.log.Warn("this Redis may evict cells when its memory is full, and then admits as if they had never been "+
			"used; set maxmemory-policy noeviction",
			"server", address, "maxmemory", current.memory, "maxmemory-policy", current.policy)
	}
	if current.keys < last.keys {
		last.keys = 0 // it was restarted
	}
	if n := current.keys - last.keys; n > 0 {
		s.log.Error("Redis has evicted keys: cells among them are lost, and their limits may admit too much", "server",
			address, "evicted", n)
	}
}

// logUnreported logs once that a server does not report whether it evicts keys.
func (s *Store) logUnreported(address string, err error) {
	s.watch.Lock()
	defer s.watch.Unlock()
	if !s.watch.loggedUnreported {
		s.log.Debug("cannot see whether the server evicts keys", "server", address, "error", err)
	}
	s.watch.loggedUnreported = true
}
