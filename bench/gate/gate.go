// Package gate is Headgate's side of all comparisons: how its stores are
// opened here, and which limits they are asked for.
package gate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/load"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/mysql"
	"github.com/headgate/headgate/store/postgres"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/store/sqlite"
)

// Name is what Headgate's cells are called.
const Name = "Headgate"

// Open opens the store of a URL, brings its schema up to date, and puts the
// wrappers around it, the first one closest to the store.
func Open(ctx context.Context, url string, wrap ...Wrap) (store.Store, error) {
	s, err := open(ctx, url)
	if err != nil {
		return nil, err
	}
	if m, ok := s.(store.Migrator); ok {
		if _, err := m.Migrate(ctx); err != nil {
			s.Close()
			return nil, err
		}
	}
	for _, w := range wrap {
		s = w(s)
	}
	return s, nil
}

// OpenArticles makes Headgate's schema with the functions that have the articles' names.
func OpenArticles(ctx context.Context, url string) (s store.Store, err error) {
	if strings.HasPrefix(url, "postgres") {
		s, err = postgres.Open(ctx, url, &postgres.Config{Articles: "public"})
	} else {
		s, err = mysql.Open(ctx, url, nil)
	}
	if err != nil {
		return nil, err
	}
	if _, err := s.(store.Migrator).Migrate(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func open(ctx context.Context, url string) (store.Store, error) {
	switch scheme, rest, _ := strings.Cut(url, ":"); scheme {
	case "memory": // as headgate serve opens it; a number is that of --max-keys
		most, err := strconv.Atoi("0" + rest)
		return memory.New(&memory.Config{Names: true, MaxKeys: most}), err
	case "sqlite":
		return sqlite.Open(ctx, url, nil)
	case "postgres":
		return postgres.Open(ctx, url, nil)
	case "mysql":
		return mysql.Open(ctx, url, &mysql.Config{SkipArticles: true})
	case "redis":
		return redis.Open(ctx, url, nil)
	default:
		return nil, fmt.Errorf("gate: no store is known for %s", scheme)
	}
}

// Ask returns a question about one of some keys at random.
func Ask(s store.Store, limit headgate.Limit, keys []string) load.Ask {
	limiter := headgate.New(s, &headgate.Config{Timeout: headgate.DefaultTimeout})
	return func(ctx context.Context, _ int, rng *rand.Rand) (bool, error) {
		d, err := limiter.Allow(ctx, limit, keys[rng.IntN(len(keys))])
		return d.Allowed, err
	}
}

// Pick returns the number of a key, at random.
type Pick func(rng *rand.Rand) int

// AskPicked returns a question about one of some keys, as they are picked.
func AskPicked(s store.Store, limit headgate.Limit, keys []string, pick Pick) load.Ask {
	limiter := headgate.New(s, &headgate.Config{Timeout: headgate.DefaultTimeout})
	return func(ctx context.Context, _ int, rng *rand.Rand) (bool, error) {
		d, err := limiter.Allow(ctx, limit, keys[pick(rng)])
		return d.Allowed, err
	}
}

// AskMany returns a question about many keys at random, one request for each.
// It is allowed if all of them are.
func AskMany(s store.Store, limit headgate.Limit, keys []string, requests int) load.Ask {
	limiter := headgate.New(s, &headgate.Config{Timeout: headgate.DefaultTimeout})
	return func(ctx context.Context, _ int, rng *rand.Rand) (bool, error) {
		list := make([]headgate.Request, requests)
		for i := range list {
			list[i].Charges = []headgate.Charge{{Limit: limit, Key: keys[rng.IntN(len(keys))]}}
		}
		answers, err := limiter.Batch(ctx, list)
		allowed := err == nil
		for _, a := range answers {
			allowed = allowed && a.Decision.Allowed
			err = errors.Join(err, a.Err)
		}
		return allowed, err
	}
}

// Fill charges every key once, many in a batch.
func Fill(ctx context.Context, s store.Store, limit headgate.Limit, keys []string) error {
	limiter := headgate.New(s, &headgate.Config{Timeout: headgate.DefaultTimeout})
	requests := make([]headgate.Request, 0, 500)
	for len(keys) > 0 {
		n := min(len(keys), cap(requests))
		requests = requests[:0]
		for _, key := range keys[:n] {
			requests = append(requests, headgate.Request{Charges: []headgate.Charge{{Limit: limit, Key: key}}})
		}
		answers, err := limiter.Batch(ctx, requests)
		if err != nil {
			return err
		}
		for _, a := range answers {
			if a.Err != nil {
				return a.Err
			}
		}
		keys = keys[n:]
	}
	return nil
}
