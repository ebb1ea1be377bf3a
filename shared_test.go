package headgate_test

import (
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

func TestNobodyAsksForTheKeyOfASharedCell(t *testing.T) {
	t.Parallel()
	const key = "headgate:shared:1"
	l, limit := newLimiter(newClock("2026-03-01T12:00:00Z")), headgate.MustParse("token-bucket 1/s burst 3")
	c := headgate.Charge{Limit: limit, Key: key}
	held := headgate.LeaseToken{Limit: headgate.MustParse("concurrency 3 ttl 1m"), Key: key, Number: 1}
	for name, ask := range map[string]func() error{
		"Allow":   func() error { _, err := l.Allow(t.Context(), limit, key); return err },
		"Take":    func() error { _, err := l.Take(t.Context(), headgate.Charge{Limit: limit}, c); return err },
		"Check":   func() error { _, err := l.Check(t.Context(), c); return err },
		"FillUp":  func() error { _, err := l.FillUp(t.Context(), c); return err },
		"Key":     func() error { _, err := l.Key(limit, key).Allow(t.Context()); return err },
		"Reserve": func() error { _, err := l.Reserve(t.Context(), time.Second, c); return err },
		"Wait":    func() error { return l.Wait(t.Context(), c) },
		"Once":    func() error { _, err := l.Once("id", time.Hour).Take(t.Context(), c); return err },
		"Acquire": func() error {
			_, err := l.Acquire(t.Context(), headgate.Charge{Limit: held.Limit, Key: key})
			return err
		},
		"Renew": func() error { return l.Renew(t.Context(), held) },
		"Batch": func() error {
			got, err := l.Batch(t.Context(), []headgate.Request{{Charges: []headgate.Charge{c}}})
			return errors.Join(err, got[0].Err)
		},
	} {
		if err := ask(); !errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	list, err := l.List(t.Context(), store.Query{})
	if err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestDecisionsTellOfAFullLimit asks for new keys of a limit that has two.
func TestDecisionsTellOfAFullLimit(t *testing.T) {
	t.Parallel()
	c := newClock("2026-03-01T12:00:00Z")
	l := headgate.New(memory.New(&memory.Config{Clock: c.read, Names: true, MaxKeys: 2}), nil)
	limit, other := headgate.MustParse("token-bucket 1/1m burst 2"), headgate.MustParse("token-bucket 9/1m burst 9")
	for i, want := range []headgate.Decision{
		{Key: "a", Allowed: true, Remaining: 1},
		{Key: "b", Allowed: true, Remaining: 1},
		{Key: "c", Allowed: true, Remaining: 1, Shared: true},
		{Key: "d", Allowed: true, Shared: true},
		{Key: "e", Shared: true},
		{Key: "a", Allowed: true},
	} {
		d := allow(t, l, limit, want.Key)
		if d.Allowed != want.Allowed || d.Shared != want.Shared || d.Remaining != want.Remaining || d.Key != want.Key {
			t.Errorf("%d: %+v", i, d)
		}
	}
	d, err := l.Check(t.Context(), headgate.Charge{Limit: other, Key: "e"}, headgate.Charge{Limit: limit, Key: "e"})
	if err != nil || d.Allowed || !d.Shared || d.RetryAfter != time.Minute {
		t.Errorf("of several charges: %+v, %v", d, err)
	}
	if h := l.Key(limit, "f"); true {
		if d, err := h.Allow(t.Context()); err != nil || d.Allowed || !d.Shared {
			t.Errorf("by a handle: %+v, %v", d, err)
		}
	}
	if _, err := l.Once("id", 0).Take(t.Context(), headgate.Charge{Limit: limit, Key: "e"}); !errors.Is(
		err, store.ErrFull) {
		t.Errorf("with an id: %v", err)
	}

	s, err := l.Inspect(t.Context(), limit, "e")
	if err != nil || s.Exists || !s.Shared || s.Used != headgate.Units(2) || s.Remaining != 0 {
		t.Errorf("inspected: %+v, %v", s, err)
	}
	if s, err = l.Inspect(t.Context(), limit, "a"); err != nil || !s.Exists || s.Shared {
		t.Errorf("inspected: %+v, %v", s, err)
	}
	list, err := l.List(t.Context(), store.Query{}, limit)
	if err != nil || len(list) != 3 || !list[2].Shared || !list[2].Exists || list[2].Used != headgate.Units(2) ||
		list[0].Shared {
		t.Fatalf("listed: %+v, %v", list, err)
	}
	if s, err = l.Inspect(t.Context(), limit, list[2].Key); err != nil || !s.Exists || !s.Shared ||
		s.Used != headgate.Units(2) {
		t.Errorf("inspected by the key of the list: %+v, %v", s, err)
	}
	rooms, err := l.Fullness(t.Context())
	if err != nil || len(rooms) != 2 || rooms[1].Limit != limit.Name() || !rooms[1].Full() {
		t.Errorf("%+v, %v", rooms, err)
	}
	if existed, err := l.Reset(t.Context(), limit, list[2].Key); !existed || err != nil {
		t.Errorf("reset: %v, %v", existed, err)
	}
	if d := allow(t, l, limit, "e"); !d.Allowed || !d.Shared {
		t.Errorf("after the reset: %+v", d)
	}
	c.advance(3 * time.Minute)
	if d := allow(t, l, limit, "e"); !d.Allowed || d.Shared {
		t.Errorf("after all is over: %+v", d)
	}
	if _, err := l.Inspect(t.Context(), limit, list[2].Key); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("a cell that is not shared any more: %v", err)
	}
}

func TestALimitMayHaveItsOwnMaximumOfKeys(t *testing.T) {
	t.Parallel()
	limit := headgate.MustParse("token-bucket 1/1m")
	one, err := limit.WithMaxKeys(1)
	if err != nil || one.Params().MaxKeys != 1 || limit.Params().MaxKeys != 0 || one.Name() != limit.Name() {
		t.Fatalf("%+v, %v", one, err)
	}
	if _, err := limit.WithMaxKeys(-1); !errors.Is(err, headgate.ErrInvalid) {
		t.Error(err)
	}
	if _, err := (headgate.Limit{}).WithMaxKeys(1); !errors.Is(err, headgate.ErrInvalid) {
		t.Error(err)
	}
	l := newLimiter(newClock("2026-03-01T12:00:00Z"))
	for i, key := range []string{"a", "b"} {
		if d := allow(t, l, one, key); !d.Allowed || d.Shared != (i == 1) {
			t.Errorf("%s: %+v", key, d)
		}
	}
}

// uncounted is a store that does not say how full it is.
type uncounted struct{ store.Store }

func TestFullnessOfAStoreThatCountsNoKeys(t *testing.T) {
	t.Parallel()
	if _, err := headgate.New(uncounted{memory.New(nil)}, nil).Fullness(t.Context()); !errors.Is(
		err, headgate.ErrUnsupported) {
		t.Error(err)
	}
}
