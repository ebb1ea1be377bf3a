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

// watch remembers what the primaries said when they were last asked whether they
// evict keys.
type watch struct {
	sync.Mutex
	seen map[string]eviction // by address
	told bool                // that a server does not say it
}

// eviction has a server's policy when memory is full, and its evictions.
type eviction struct {
	policy string // by which it may evict a cell; empty: it evicts none
	memory string // maxmemory, in bytes
	keys   int64  // that it has evicted since it was started
}

// Sweep implements store.Store. Cells, logs and admissions expire by themselves,
// so it removes nothing. It asks each primary whether it may evict keys and whether
// it has, and logs what has changed since it was last asked. Now and then it counts the
// keys of all limits.
func (s *Store) Sweep(ctx context.Context, _ int) (removed int, err error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	if err := s.look(ctx); err != nil {
		return 0, err
	}
	s.keys.Count(ctx, s.countKeys)
	return 0, nil
}

// KeyCounts implements store.Inspector: what this process has counted at a sweep.
func (s *Store) KeyCounts(ctx context.Context) ([]store.KeyCount, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	return s.keys.Counts()
}

// countKeys reads the names of all cells, 1,000 at a time.
func (s *Store) countKeys(ctx context.Context) ([]store.KeyCount, error) {
	keys := map[string]int64{}
	err := s.pages(ctx, func(page []string) error {
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

// look reads the evictions of the primaries. One that cannot be reached is passed over as
// long as another answers: the requests that need it fail with errors of their own.
func (s *Store) look(ctx context.Context) error {
	var failed error
	answered := false
	for address, node := range s.client.Nodes() {
		now, primary, err := evictionOf(ctx, node)
		switch {
		case err == nil:
			answered = true
			if primary {
				s.compare(address, now)
			}
		case noPermission(err), errors.Is(err, errNotReported):
			answered = true
			s.untold(address, err)
		default:
			failed = err
		}
	}
	if answered {
		return nil
	}
	return failed
}

var errNotReported = errors.New("its answer does not say it")

// evictionOf reads from a server its evictions, and whether it is a primary.
func evictionOf(ctx context.Context, node rueidis.Client) (e eviction, primary bool, err error) {
	fields, err := infoOf(ctx, node, "replication", "memory", "stats")
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

// compare logs what has changed at a server.
func (s *Store) compare(address string, now eviction) {
	s.watch.Lock()
	defer s.watch.Unlock()
	was, known := s.watch.seen[address]
	if !known {
		was.keys = now.keys
	}
	if s.watch.seen == nil {
		s.watch.seen = map[string]eviction{}
	}
	s.watch.seen[address] = now
	switch now.policy {
	case was.policy:
	case "":
		s.log.Info("this Redis no longer evicts cells", "server", address)
	default:
		s.log.Warn("this Redis may evict cells when its memory is full, and then admits as if they had never been "+
			"used; set maxmemory-policy noeviction",
			"server", address, "maxmemory", now.memory, "maxmemory-policy", now.policy)
	}
	if now.keys < was.keys {
		was.keys = 0 // it was restarted
	}
	if n := now.keys - was.keys; n > 0 {
		s.log.Error("Redis has evicted keys: cells among them are lost, and their limits may admit too much", "server",
			address, "evicted", n)
	}
}

// untold logs once that a server does not say whether it evicts keys.
func (s *Store) untold(address string, err error) {
	s.watch.Lock()
	defer s.watch.Unlock()
	if !s.watch.told {
		s.log.Debug("cannot see whether the server evicts keys", "server", address, "error", err)
	}
	s.watch.told = true
}
