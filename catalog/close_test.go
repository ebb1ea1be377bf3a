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

// TestCloseWaitsForALookUp closes a catalog during a look-up. Look-ups that wait behind it fail because
// the catalog is closed, and so do later ones.
func TestCloseWaitsForALookUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCountingStore(func() { time.Sleep(3 * time.Second) })
		c, err := catalog.Read(t.Context(), s, quiet)
		if err != nil {
			t.Fatal(err)
		}
		set(t, c, limit(t, "login", "token-bucket 10/s"))
		override := catalog.Override{Limit: named(t, "login", "unlimited"), Key: "bob"}
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
			t.Errorf("it took %s to close, want the second until the answer", took)
		}
		if first, second := <-errs, <-errs; first != nil && second != nil ||
			!errors.Is(errors.Join(first, second), store.ErrClosed) {
			t.Errorf("%v and %v, want an answer and that it is closed", first, second)
		}
		n := s.asked.Load()
		if _, err := c.Find(t.Context(), "login", "dora"); !errors.Is(err, store.ErrClosed) || s.asked.Load() != n {
			t.Errorf("after it was closed: %v, and the store was asked %d times", err, s.asked.Load()-n)
		}
		if l, err := c.Find(t.Context(), "login", "ann"); err != nil || l.Name() != "login" {
			t.Errorf("what is remembered: %v, %v", l, err)
		}
		c.Close()
	})
}

// TestManyKeysAreLookedUpInChunks looks up more keys at once than one call of the store reads.
func TestManyKeysAreLookedUpInChunks(t *testing.T) {
	s := newCountingStore(func() {})
	c := open(t, s)
	set(t, c, limit(t, "login", "fixed-window 1/1h"))
	mustSucceed(t)(c.Override(t.Context(), admin, catalog.Override{
		Limit: named(t, "login", "fixed-window 10/1h"), Key: "k999",
	}))
	charges := make([]headgate.Charge, 1000)
	for i := range charges {
		charges[i] = headgate.Charge{Limit: headgate.MustNamed("login"), Key: fmt.Sprint("k", i)}
	}
	s.asked.Store(0)
	if err := c.FindAll(t.Context(), charges); err != nil {
		t.Fatal(err)
	}
	if n := s.asked.Load(); n != 3 || charges[999].Limit.String() != "fixed-window 10/1h" ||
		charges[998].Limit.String() != "fixed-window 1/1h" {
		t.Errorf("%d questions, %s, %s", n, charges[999].Limit, charges[998].Limit)
	}
}
