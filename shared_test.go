package headgate_test

import (
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

func TestNobodyAsksForTheKeyOfASharedCell(t *testing.T) {
	t.Parallel()
	const key = "headgate:shared:1"
	l, limit := newLimiter(newClock("2026-03-01T12:00:00Z")), headgate.MustParse("token-bucket 1/s burst 3")
	c := headgate.Charge{Limit: limit, Key: key}
	held := headgate.Held{Limit: headgate.MustParse("concurrency 3 ttl 1m"), Key: key, Number: 1}
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
