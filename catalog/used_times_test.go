package catalog_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// TestWhatIsScaledIsForgottenByTheNewLimit moves the clock.
func TestWhatIsScaledIsForgottenByTheNewLimit(t *testing.T) {
	for _, test := range []struct {
		from, to string
		after    time.Duration
		want     string
	}{
		{"token-bucket 100/s burst 100", "token-bucket 1/s burst 10", 0, "5"},
		{"token-bucket 100/s burst 100", "token-bucket 1/s burst 10", 2 * time.Second, "3"},
		{"token-bucket 10/s burst 10", "token-bucket 10/s burst 100", 3 * time.Second, "20"},
		{"sliding-log 100/1m", "sliding-log 10/1m", 59 * time.Second, "5"}, // as if it had been charged now
		{"sliding-log 100/1m", "sliding-log 10/1m", 60 * time.Second, "0"},
		{"fixed-window 100/1m", "fixed-window 10/1m", 60 * time.Second, "0"},
		{"sliding-window 100/1m", "sliding-window 10/1m", 59 * time.Second, "5"},
		{"sliding-window 100/1m", "sliding-window 10/1m", 90 * time.Second, "2.5"},
	} {
		clock := new(hands)
		clock.at.Store(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC).UnixMicro())
		s := memory.New(&memory.Config{Clock: clock.now, Names: true})
		c := open(t, s)
		l := headgate.New(s, &headgate.Config{Names: c})
		set(t, c, limit(t, "api", test.from))
		used := named(t, "api", test.from).Params()
		takes(t, l, "api", "bob", used.Capacity/used.Unit/2)
		done(t)(c.Set(t.Context(), soon(catalog.ScaleUsed), limit(t, "api", test.to)))
		clock.at.Add(test.after.Microseconds())
		if got := inUse(t, l, "api", "bob"); got != test.want {
			t.Errorf("%s to %s, after %s: %s used, want %s", test.from, test.to, test.after, got, test.want)
		}
	}
}

// TestARefusalBetweenDoesNotKeepAKeyFromBeingScaled asks all the time, as a client that is refused does: that
// makes the cell one of the new limit.
func TestARefusalBetweenDoesNotKeepAKeyFromBeingScaled(t *testing.T) {
	clock := new(hands)
	clock.at.Store(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC).UnixMicro())
	for _, test := range [][2]string{
		{"token-bucket 1/1h burst 100", "token-bucket 1/2h burst 10"},
		{"fixed-window 100/30d", "fixed-window 10/30d block 1h"},
		{"sliding-window 100/30d", "sliding-log 10/30d"},
		{"fixed-window 100/30d", "token-bucket 1/2h burst 10"},
	} {
		s := memory.New(&memory.Config{Clock: clock.now, Names: true})
		c := open(t, s)
		l := headgate.New(s, &headgate.Config{Names: c})
		set(t, c, limit(t, "api", test[0]))
		takes(t, l, "api", "bob", 50)
		by := soon(catalog.ScaleUsed)
		by.Used.Progress = func(p catalog.UsedProgress) {
			if p.Phase != catalog.UsedWorking {
				return
			}
			if d, err := l.Allow(t.Context(), headgate.MustNamed("api"), "bob"); p.Done == 0 && (err != nil || d.Allowed) {
				t.Errorf("%v: %+v, %v", test, d, err)
			}
		}
		done(t)(c.Set(t.Context(), by, limit(t, "api", test[1])))
		if got := units(t, usedOf(t, l, "api", "bob")); got != 5 && got != 6 { // and what passes at the end
			t.Errorf("%v: %g used, want 5", test, got)
		}
	}
}

// TestOtherProcessesHaveTheChangeBeforeKeysAreWorkedOn has a process that reads the catalogue now and then.
func TestOtherProcessesHaveTheChangeBeforeKeysAreWorkedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(&memory.Config{Names: true})
		c := open(t, s)
		l := headgate.New(s, &headgate.Config{Names: c})
		set(t, c, limit(t, "api", "fixed-window 100/30d"))
		takes(t, l, "api", "bob", 50)
		by := soon(catalog.ResetUsed)
		by.Used.Felt = 30 * time.Second
		begin := time.Now()
		var written, worked time.Duration
		by.Used.Progress = func(p catalog.UsedProgress) {
			switch {
			case p.Phase == catalog.UsedWaiting:
				written = time.Since(begin)
			case p.Phase == catalog.UsedWorking && p.Done == 0:
				worked = time.Since(begin)
				if got := inUse(t, l, "api", "bob"); got != "50" {
					t.Errorf("%s used before the key was worked on", got)
				}
			}
		}
		done(t)(c.Set(t.Context(), by, limit(t, "api", "fixed-window 10/30d")))
		if worked-written != by.Used.Felt {
			t.Errorf("the version was written after %s, and keys worked on after %s", written, worked)
		}
	})
}

// failing is a store of which batches with a verb fail.
type failing struct {
	store.Store
	verb law.Verb
}

func (f *failing) Unwrap() store.Store { return f.Store }

func (f *failing) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	for i := range ops {
		if ops[i].Verb == f.verb {
			return store.ErrUnavailable
		}
	}
	return f.Store.Apply(ctx, ops, outs)
}

// TestAStoreThatFailsLeavesTheVersionAndSaysSo fails in the second batch, too.
func TestAStoreThatFailsLeavesTheVersionAndSaysSo(t *testing.T) {
	for _, test := range []struct {
		mode catalog.UsedMode
		verb law.Verb
	}{{catalog.ResetUsed, law.Reset}, {catalog.ScaleUsed, law.Check}, {catalog.ScaleUsed, law.Return}} {
		s := &failing{Store: memory.New(&memory.Config{Names: true})}
		c := open(t, s)
		l := headgate.New(s, &headgate.Config{Names: c})
		set(t, c, limit(t, "api", "fixed-window 100/30d"))
		takes(t, l, "api", "bob", 50)
		s.verb = test.verb
		version, err := c.Set(t.Context(), soon(test.mode), limit(t, "api", "fixed-window 10/30d"))
		if left, ok := errors.AsType[*catalog.UnfinishedError](err); !ok || version != 2 || left.Version != 2 ||
			left.Done != 0 || left.Keys != 1 || !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s: version %d, %v", test.mode, version, err)
		}
		s.verb = 0
		if got := inUse(t, l, "api", "bob"); got != "50" {
			t.Errorf("%s: %s used", test.mode, got)
		}
	}
}

// TestWhatWasReservedBeforeIsNotGivenBack cancels and settles what was charged before the limit was changed. In
// a sliding window all of it is given back that is left, which docs/limits.md warns of.
func TestWhatWasReservedBeforeIsNotGivenBack(t *testing.T) {
	clock := new(hands)
	clock.at.Store(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC).UnixMicro())
	for _, test := range []struct{ from, to, cancelled string }{
		{"token-bucket 1/1h burst 100", "token-bucket 1/1h burst 10", "8"},
		{"fixed-window 100/30d", "fixed-window 10/30d", "8"},
		{"sliding-log 100/30d", "sliding-log 10/30d", "8"},
		{"sliding-window 100/30d", "sliding-window 10/30d", "0"}, // whose cost is still in the window
	} {
		s := memory.New(&memory.Config{Clock: clock.now, Names: true})
		c := open(t, s)
		l := headgate.New(s, &headgate.Config{Names: c})
		set(t, c, limit(t, "api", test.from))
		charge := headgate.Charge{Limit: headgate.MustNamed("api"), Key: "bob", Cost: headgate.Units(40)}
		first, err := l.Reserve(t.Context(), 0, charge)
		if err != nil || !first.Decision.Allowed {
			t.Fatal(first, err)
		}
		known, err := l.Once("order 7", time.Hour).Reserve(t.Context(), 0, charge)
		if err != nil || !known.Decision.Allowed {
			t.Fatal(known, err)
		}
		done(t)(c.Set(t.Context(), soon(catalog.ScaleUsed), limit(t, "api", test.to)))
		if _, err := known.Settle(t.Context(), headgate.Units(1)); err != nil {
			t.Error(err)
		}
		if got := inUse(t, l, "api", "bob"); got != test.cancelled {
			t.Errorf("%s: settled with an id: %s used, want %s", test.from, got, test.cancelled)
		}
		if _, err := first.Cancel(t.Context()); err != nil {
			t.Error(err)
		}
		if got := inUse(t, l, "api", "bob"); got != test.cancelled {
			t.Errorf("%s: cancelled: %s used, want %s", test.from, got, test.cancelled)
		}
	}
}
