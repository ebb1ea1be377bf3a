package service

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// probeLimit admits every probe. Its keys are empty again after a microsecond, so the sweeper soon removes them.
var probeLimit = headgate.MustParse("token-bucket 1000000000/s burst 1000")

// probeName begins the keys of probes.
const probeName = "healthz"

// IsProbe reports whether a server uses a limit and a key to probe its store.
func IsProbe(limit, key string) bool {
	return limit == probeLimit.Name() && strings.HasPrefix(key, probeName)
}

const (
	// probeLifetime is how long a successful probe answers later calls, so that calls cannot fill the store.
	probeLifetime = 100 * time.Millisecond
	// probeTimeout bounds a probe whose callers have all stopped waiting.
	probeTimeout = 10 * time.Second
)

// probe lets concurrent callers share one write to the store, and remembers the last success.
type probe struct {
	group     singleflight.Group
	succeeded atomic.Pointer[time.Time] // time of the last success; nil: none yet
}

// Reachable checks that the store answers a read, and writes nothing.
func (s *Service) Reachable(ctx context.Context) error {
	_, err := s.limiter.Check(WithProtocol(ctx, ProtocolInternal), headgate.Charge{Limit: probeLimit, Key: probeName})
	return err
}

// Healthy checks that the store can write a new key: a store that still reads, or updates keys, may have no room for
// more. Concurrent callers share a probe, and a success counts for 0.1 s. If ctx ends first, the error has its cause.
//
// It also reads the limits of the store if they were never read: until then a limit by name cannot be decided.
func (s *Service) Healthy(ctx context.Context) error {
	if err := s.probeOnce(ctx); err != nil {
		return err
	}
	c, err := s.catalog()
	if err == nil {
		if _, read := c.Version(); !read.IsZero() {
			return nil
		}
		err = c.Refresh(ctx)
	}
	if errors.Is(err, headgate.ErrUnsupported) { // the limits are those of the file
		return nil
	}
	return err
}

// probeOnce probes the store, unless a probe has just succeeded, and shares a probe that is running.
func (s *Service) probeOnce(ctx context.Context) error {
	if at := s.probe.succeeded.Load(); at != nil && time.Since(*at) < probeLifetime {
		return nil
	}
	result := s.probe.group.DoChan("", func() (any, error) { return nil, s.writeProbe(context.WithoutCancel(ctx)) })
	select {
	case got := <-result:
		return got.Err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", store.ErrUnavailable, context.Cause(ctx))
	}
}

// writeProbe charges a new key. A refusal would prove nothing, since it may come from a cache and not from the store.
func (s *Service) writeProbe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(WithProtocol(ctx, ProtocolInternal), probeTimeout)
	defer cancel()
	// The longest possible key: if the store has room for it, it has room for any other.
	key := probeName + " " + rand.Text()
	key += strings.Repeat("-", law.MaxKey-len(key))
	d, err := s.limiter.Take(ctx, headgate.Charge{Limit: probeLimit, Key: key})
	switch {
	case err == nil && (!d.Allowed || d.Via != headgate.ViaStore):
		return fmt.Errorf("%w: the store did not write what it was asked to", store.ErrUnavailable)
	case err == nil:
		s.probe.succeeded.Store(new(time.Now()))
	case !store.NothingDone(err) && !errors.Is(err, context.Canceled):
		// It does not matter whether the probe was charged.
		return fmt.Errorf("%w: %v", store.ErrUnavailable, err) //nolint:errorlint // its class is left out
	}
	return err
}

const (
	nearlyFull    = 0.8 // fill ratio of a limit from which NearlyFull returns it
	maxNearlyFull = 20  // most limits that NearlyFull returns
)

// NearlyFull returns limits with nearly as many keys as the store keeps of one, the fullest first; nil: none.
func (s *Service) NearlyFull(ctx context.Context) ([]api.Keys, error) {
	counts, err := s.limiter.KeyCounts(ctx)
	if errors.Is(err, headgate.ErrUnsupported) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []api.Keys
	for _, c := range counts {
		if c.Max > 0 && fillRatio(c.Keys, c.Max) >= nearlyFull && c.Limit != probeLimit.Name() {
			list = append(list, api.Keys{Limit: c.Limit, Keys: c.Keys, Max: c.Max})
		}
	}
	slices.SortStableFunc(list, func(a, b api.Keys) int {
		return cmp.Compare(fillRatio(b.Keys, b.Max), fillRatio(a.Keys, a.Max))
	})
	return list[:min(len(list), maxNearlyFull)], nil
}

func fillRatio(keys, maxKeys int64) float64 { return float64(keys) / float64(maxKeys) }
