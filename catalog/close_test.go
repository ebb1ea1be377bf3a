package catalog_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/store"
)

// TestCloseWaitsForALookUp closes a catalog in the middle of a look-up of three seconds. That look-up succeeds. The
// next one waits in the queue and fails with ErrClosed, as do later ones. Cached keys are still found.
func TestCloseWaitsForALookUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCountingStore(func() { time.Sleep(3 * time.Second) })
		c, err := catalog.Read(t.Context(), s, silentConfig)
		if err != nil {
			t.Fatal(err)
		}
		mustSet(t, c, define(t, "login", "token-bucket 10/s"))
		override := catalog.Override{Limit: limit(t, "login", "unlimited"), Key: "bob"}
		mustSucceed(t)(c.Override(t.Context(), admin, override))
		errs := make(chan error, 2)
		for _, key := range []string{"ann", "carl"} {
			go func() {
				_, err := c.Find(t.Context(), "login", key)
				errs <- err
			}()
			time.Sleep(time.Second)
		}
		begin := time.Now()
		c.Close()
		if took := time.Since(begin); took != time.Second {
			t.Errorf("Close took %s, want the second until the answer", took)
		}
		if first, second := <-errs, <-errs; first != nil && second != nil ||
			!errors.Is(errors.Join(first, second), store.ErrClosed) {
			t.Errorf("got %v and %v, want nil and %v", first, second, store.ErrClosed)
		}
		s.lookups.Store(0)
		if _, err := c.Find(t.Context(), "login", "dora"); !errors.Is(err, store.ErrClosed) || s.lookups.Load() != 0 {
			t.Errorf("after Close: got %v and %d look-ups, want %v and none", err, s.lookups.Load(), store.ErrClosed)
		}
		if l, err := c.Find(t.Context(), "login", "ann"); err != nil || l.Name() != "login" {
			t.Errorf("a cached key after Close: got %v, %v", l, err)
		}
		c.Close()
	})
}

// TestManyKeysAreLookedUpInChunks looks up 1000 keys, which takes three calls of the store: 400, 400 and 200 keys.
func TestManyKeysAreLookedUpInChunks(t *testing.T) {
	s := newCountingStore(func() {})
	c := open(t, s)
	mustSet(t, c, define(t, "login", "fixed-window 1/1h"))
	mustSucceed(t)(c.Override(t.Context(), admin, catalog.Override{
		Limit: limit(t, "login", "fixed-window 10/1h"), Key: "k999",
	}))
	charges := make([]headgate.Charge, 1000)
	for i := range charges {
		charges[i] = headgate.Charge{Limit: headgate.MustNamed("login"), Key: fmt.Sprint("k", i)}
	}
	s.lookups.Store(0)
	if err := c.FindAll(t.Context(), charges); err != nil {
		t.Fatal(err)
	}
	if n := s.lookups.Load(); n != 3 || charges[999].Limit.String() != "fixed-window 10/1h" ||
		charges[998].Limit.String() != "fixed-window 1/1h" {
		t.Errorf("got %d calls, %s, %s; want 3 calls, 10 and 1 an hour", n, charges[999].Limit, charges[998].Limit)
	}
}
