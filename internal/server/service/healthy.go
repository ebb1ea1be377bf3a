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

// probeLimit admits every probe. Its keys are empty again after a
// microsecond, so the sweeper soon removes them.
var probeLimit = headgate.MustParse("token-bucket 1000000000/s burst 1000")

// probeName begins the keys of probes.
const probeName = "healthz"

// IsProbe reports whether servers probe their store with this limit and key.
func IsProbe(limit, key string) bool {
	return limit == probeLimit.Name() && strings.HasPrefix(key, probeName)
}

const (
	// probeFresh is for how long a probe that succeeded answers later questions, so that
	// these cannot fill the store.
	probeFresh = 100 * time.Millisecond
	// probeWithin bounds a probe that nobody waits for any more.
	probeWithin = 10 * time.Second
)

// probe lets concurrent callers share one write to the store, and remembers the last success.
type probe struct {
	underWay  singleflight.Group
	succeeded atomic.Pointer[time.Time] // when the last one succeeded; nil: none has
}

// Reachable reads something harmless from the store, and writes nothing.
func (s *Service) Reachable(ctx context.Context) error {
	_, err := s.limiter.Check(By(ctx, ProtocolNone), headgate.Charge{Limit: probeLimit, Key: probeName})
	return err
}

// Healthy lets the store write a new key: a store that still reads, or changes what
// it has, may have no room for more. Callers at the same time share one probe, and a
// success answers for a tenth of a second. If ctx ends first, the error has its cause.
//
// It also reads the limits of the store if that was never done: until then a limit by name cannot be decided.
func (s *Service) Healthy(ctx context.Context) error {
	if err := s.writable(ctx); err != nil {
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

// writable probes the store, unless that has just succeeded.
func (s *Service) writable(ctx context.Context) error {
	if at := s.probe.succeeded.Load(); at != nil && time.Since(*at) < probeFresh {
		return nil
	}
	result := s.probe.underWay.DoChan("", func() (any, error) { return nil, s.writeProbe(context.WithoutCancel(ctx)) })
	select {
	case got := <-result:
		return got.Err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", store.ErrUnavailable, context.Cause(ctx))
	}
}

// writeProbe lets the store write. A refusal would be no proof, since it may be repeated
// without the store.
func (s *Service) writeProbe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(By(ctx, ProtocolNone), probeWithin)
	defer cancel()
	// As long a key as there may be: where it finds room, others do.
	key := probeName + " " + rand.Text()
	key += strings.Repeat("-", law.MaxKey-len(key))
	d, err := s.limiter.Take(ctx, headgate.Charge{Limit: probeLimit, Key: key})
	switch {
	case err == nil && (!d.Allowed || d.Via != headgate.ViaStore):
		return fmt.Errorf("%w: the store did not write what it was asked to", store.ErrUnavailable)
	case err == nil:
		s.probe.succeeded.Store(new(time.Now()))
	case !store.NothingDone(err) && !errors.Is(err, context.Canceled):
		// Whether the probe was charged is no matter.
		return fmt.Errorf("%w: %v", store.ErrUnavailable, err) //nolint:errorlint // its class is left out
	}
	return err
}

// A limit is shown from nearlyFull on, the fullest shownFull of them.
const (
	nearlyFull = 0.8
	shownFull  = 20
)

// NearlyFull returns the limits that have nearly as many keys as the store keeps of a limit, the fullest first. There
// are none where the store bounds no keys.
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
		if c.Max > 0 && fill(c.Keys, c.Max) >= nearlyFull && c.Limit != probeLimit.Name() {
			list = append(list, api.Keys{Limit: c.Limit, Keys: c.Keys, Max: c.Max})
		}
	}
	slices.SortStableFunc(list, func(a, b api.Keys) int {
		return cmp.Compare(fill(b.Keys, b.Max), fill(a.Keys, a.Max))
	})
	return list[:min(len(list), shownFull)], nil
}

func fill(keys, most int64) float64 { return float64(keys) / float64(most) }
