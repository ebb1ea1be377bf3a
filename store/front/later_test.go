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

// opener opens a store once it is reachable.
type opener struct {
	reachable atomic.Bool
	store     store.Store
}

func (o *opener) open(context.Context) (store.Store, error) {
	if !o.reachable.Load() {
		return nil, fmt.Errorf("dial: %w", store.ErrUnavailable)
	}
	return o.store, nil
}

// newLater returns a front.Later with an opener.
func newLater(o *opener, cfg front.Config) *front.Store {
	return front.Later(pending.Config{Open: o.open, Within: pending.NoLimit}, &cfg)
}

// TestLaterDecidesByAwayBeforeTheStoreIsOpen checks the away policies, and that the store decides once it is open.
func TestLaterDecidesByAwayBeforeTheStoreIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		o := &opener{store: newRemote()}
		s := newLater(o, front.Config{SweepEvery: -1, Logger: log.logger()})
		defer s.Close()
		limiter := headgate.New(s, nil)
		allowed := map[string]bool{"away deny": false, "away share": false, "away allow": true}
		for range 100 { // before and after the breaker has opened
			for policy, want := range allowed {
				d, err := limiter.Allow(t.Context(), headgate.MustParse("token-bucket 5/1h "+policy), "k")
				if d.Allowed != want || want != (err == nil) || want != (d.Via == headgate.ViaFallback) ||
					!want && !errors.Is(err, store.ErrUnavailable) {
					t.Fatalf("%s before the store is open: got %+v, %v; want allowed %v", policy, d, err, want)
				}
			}
			time.Sleep(100 * time.Millisecond)
		}
		if st := s.Stats(); st.Guard.Degraded != 100 || !st.Guard.Away || st.Callers != 0 {
			t.Errorf("before the store is open: got %+v, want 100 degraded decisions", st)
		}
		o.reachable.Store(true)
		p, _ := store.As[*pending.Store](s)
		<-p.Done()
		for _, policy := range []string{"away deny", "away share", "away allow"} {
			d, err := limiter.Allow(t.Context(), headgate.MustParse("token-bucket 5/1h "+policy), "k")
			if err != nil || d.Via != headgate.ViaStore {
				t.Fatalf("%s after the store is open: got %+v, %v; want it by the store", policy, d, err)
			}
		}
		if st := s.Stats(); st.Guard.Away || st.Callers < 3 || st.Retries != 7 {
			t.Errorf("after the store is open: got %+v", st)
		}
		if text := log.take(); text != "" {
			t.Errorf("got log %s, want no line of the breaker", text)
		}
	})
}

// TestLaterFindsOutTheShare checks that a process still finds out its share after calls before the store was open.
func TestLaterFindsOutTheShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		o := &opener{store: newRemote()}
		s := newLater(o, front.Config{SweepEvery: -1, Logger: log.logger()})
		defer s.Close()
		limiter, limit := headgate.New(s, nil), headgate.MustParse("token-bucket 5/1s away share")
		_, _ = limiter.Allow(t.Context(), limit, "k")
		time.Sleep(time.Minute)
		if text := log.take(); text != "" {
			t.Errorf("got log %s, want no line of the breaker", text)
		}
		o.reachable.Store(true)
		time.Sleep(5 * time.Second)
		if share := s.Stats().Guard.Share; share != 1 {
			t.Errorf("got share %v, want 1", share)
		}
	})
}

// TestLaterSweepsAnOpenStore checks that Later sweeps an open store every SweepEvery, and that Close closes the store.
func TestLaterSweepsAnOpenStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRemote()
		o := &opener{store: r}
		s := newLater(o, front.Config{SweepEvery: time.Second, Logger: slog.New(slog.DiscardHandler)})
		time.Sleep(time.Minute)
		if st := s.Stats(); st.Sweeps != 0 || st.SweepErrors != 0 {
			t.Errorf("before the store is open: got %+v, want no sweeps", st)
		}
		o.reachable.Store(true)
		time.Sleep(time.Minute)
		if st := s.Stats(); st.Sweeps < 40 || st.Sweeps > 80 || st.Sweeps != r.sweepCalls.Load() {
			t.Errorf("got %+v, %d sweeps of the store; want about 60", st, r.sweepCalls.Load())
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := r.Store.Sweep(t.Context(), 1); !errors.Is(err, store.ErrClosed) {
			t.Errorf("after Close: got %v, want %v", err, store.ErrClosed)
		}
	})
}

// TestConformanceOfLater runs the conformance suite with Later around open stores.
func TestConformanceOfLater(t *testing.T) {
	tier.Engines(t)
	for name, open := range map[string]func() store.Store{
		"memory":   func() store.Store { return memory.New(&memory.Config{Names: true}) },
		"a remote": func() store.Store { return &remoteStore{Store: memory.New(&memory.Config{Names: true})} },
	} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(tb testing.TB) store.Store {
				o := &opener{store: open()}
				o.reachable.Store(true)
				s := newLater(o, front.Config{SweepEvery: -1, Guard: noSweeper.Guard})
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
