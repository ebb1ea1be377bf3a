package front_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/front/pending"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

// late opens a store once it is there.
type late struct {
	there atomic.Bool
	store store.Store
}

func (l *late) open(context.Context) (store.Store, error) {
	if !l.there.Load() {
		return nil, fmt.Errorf("dial: %w", store.ErrUnavailable)
	}
	return l.store, nil
}

// later returns a stack over a store that comes later.
func later(l *late, cfg front.Config) *front.Store {
	return front.Later(pending.Config{Open: l.open, Within: pending.NoLimit}, &cfg)
}

// TestLimitsAnswerAsTheySayBeforeTheStoreIsThere, and by the store soon after it came.
func TestLimitsAnswerAsTheySayBeforeTheStoreIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		l := &late{store: newRemote()}
		s := later(l, front.Config{SweepEvery: -1, Logger: log.logger()})
		defer s.Close()
		limiter := headgate.New(s, nil)
		allowed := map[string]bool{"away deny": false, "away share": false, "away allow": true}
		for range 100 { // before and after the breaker has opened
			for policy, want := range allowed {
				d, err := limiter.Allow(t.Context(), headgate.MustParse("token-bucket 5/1h "+policy), "k")
				if d.Allowed != want || want != (err == nil) || want != (d.Via == headgate.ViaFallback) ||
					!want && !errors.Is(err, store.ErrUnavailable) {
					t.Fatalf("%s before the store is there: %+v, %v", policy, d, err)
				}
			}
			time.Sleep(100 * time.Millisecond)
		}
		if st := s.Stats(); st.Guard.Degraded != 100 || !st.Guard.Away || st.Callers != 0 {
			t.Errorf("before: %+v", st)
		}
		l.there.Store(true)
		p, _ := store.As[*pending.Store](s)
		<-p.Done()
		for _, policy := range []string{"away deny", "away share", "away allow"} { // by the store, as soon as it is open
			d, err := limiter.Allow(t.Context(), headgate.MustParse("token-bucket 5/1h "+policy), "k")
			if err != nil || d.Via != headgate.ViaStore {
				t.Fatalf("%s after the store came: %+v, %v", policy, d, err)
			}
		}
		if st := s.Stats(); st.Guard.Away || st.Callers < 3 || st.Retries != 7 {
			t.Errorf("after: %+v", st)
		}
		if said := log.take(); said != "" {
			t.Errorf("the breaker tells of a store that was not open yet: %s", said)
		}
	})
}

// TestAShareIsGotWhenTheStoreComes: what was requested before does not end the search.
func TestAShareIsGotWhenTheStoreComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		l := &late{store: newRemote()}
		s := later(l, front.Config{SweepEvery: -1, Logger: log.logger()})
		defer s.Close()
		limiter, limit := headgate.New(s, nil), headgate.MustParse("token-bucket 5/1s away share")
		_, _ = limiter.Allow(t.Context(), limit, "k")
		time.Sleep(time.Minute)
		if said := log.take(); said != "" {
			t.Errorf("the breaker tells of a store that is away: %s", said)
		}
		l.there.Store(true)
		time.Sleep(5 * time.Second)
		if share := s.Stats().Guard.Share; share != 1 {
			t.Errorf("the share is %v", share)
		}
	})
}

// TestAStackOfLaterSweeps with the settings that it was given.
func TestAStackOfLaterSweeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRemote()
		l := &late{store: r}
		s := later(l, front.Config{SweepEvery: time.Second, Logger: slog.New(slog.DiscardHandler)})
		time.Sleep(time.Minute)
		if st := s.Stats(); st.Sweeps != 0 || st.SweepErrors != 0 {
			t.Errorf("before the store is there: %+v", st)
		}
		l.there.Store(true)
		time.Sleep(time.Minute)
		if st := s.Stats(); st.Sweeps < 40 || st.Sweeps > 80 || st.Sweeps != r.swept.Load() {
			t.Errorf("%+v, and %d sweeps of the store", st, r.swept.Load())
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := r.Store.Sweep(t.Context(), 1); !errors.Is(err, store.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// TestConformanceOfLater: an open store behind Later is as behind New.
func TestConformanceOfLater(t *testing.T) {
	tier.Engines(t)
	for name, open := range map[string]func() store.Store{
		"memory":   func() store.Store { return memory.New(&memory.Config{Names: true}) },
		"a remote": func() store.Store { return &remote{Store: memory.New(&memory.Config{Names: true})} },
	} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(tb testing.TB) store.Store {
				l := &late{store: open()}
				l.there.Store(true)
				s := later(l, front.Config{SweepEvery: -1, Guard: noSweeper.Guard})
				p, ok := store.As[*pending.Store](s)
				if !ok {
					tb.Fatal("the pending.Store is not found")
				}
				if <-p.Done(); p.Err() != nil {
					tb.Fatal(p.Err())
				}
				return s
			}, &storetest.Options{Histories: 500})
		})
	}
}
