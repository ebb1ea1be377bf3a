package headgate_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/store/memory"
)

// TestVerbsFindLimitsByName calls verbs with limits that are only names. They must succeed if the Limiter's catalog has
// the limits, and return ErrUnknownLimit if the catalog lacks them or the Limiter has no catalog.
func TestVerbsFindLimitsByName(t *testing.T) {
	s := memory.New(&memory.Config{Names: true})
	cat, err := catalog.Read(t.Context(), s, &catalog.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for name, notation := range map[string]string{"api": "token-bucket 1000/h", "jobs": "concurrency 1000 ttl 1h"} {
		l, err := headgate.ParseNamed(name, notation)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cat.Set(t.Context(), catalog.By{}, catalog.Definition{Limit: l}); err != nil {
			t.Fatal(err)
		}
	}
	limiter := headgate.New(s, &headgate.Config{Names: cat})
	api := headgate.Charge{Limit: headgate.MustNamed("api"), Key: "k"}
	jobs := headgate.Charge{Limit: headgate.MustNamed("jobs"), Key: "k"}
	lease, err := limiter.Acquire(t.Context(), jobs)
	if err != nil {
		t.Fatal(err)
	}
	tokens := lease.Detach()
	if len(tokens) != 1 {
		t.Fatalf("detached %v, want one token", tokens)
	}
	tokens[0].Limit = jobs.Limit
	type verb func(ctx context.Context, l *headgate.Limiter, api, jobs headgate.Charge) error
	for name, call := range map[string]verb{
		"Allow": func(ctx context.Context, l *headgate.Limiter, api, _ headgate.Charge) error {
			d, err := l.Allow(ctx, api.Limit, api.Key)
			if err == nil && d.LimitName != "api" {
				t.Errorf("the decision is about %q, want api", d.LimitName)
			}
			return err
		},
		"Take": func(ctx context.Context, l *headgate.Limiter, api, _ headgate.Charge) error {
			other := api
			other.Key = "other"
			_, err := l.Take(ctx, api, other)
			return err
		},
		"Check": func(ctx context.Context, l *headgate.Limiter, api, _ headgate.Charge) error {
			_, err := l.Check(ctx, api)
			return err
		},
		"FillUp": func(ctx context.Context, l *headgate.Limiter, api, _ headgate.Charge) error {
			_, err := l.FillUp(ctx, api)
			return err
		},
		"Batch": func(ctx context.Context, l *headgate.Limiter, api, _ headgate.Charge) error {
			answers, err := l.Batch(ctx, []headgate.Request{{Charges: []headgate.Charge{api}}})
			if err != nil {
				return err
			}
			return answers[0].Err
		},
		"Reserve": func(ctx context.Context, l *headgate.Limiter, api, _ headgate.Charge) error {
			r, err := l.Reserve(ctx, time.Minute, api)
			if err != nil {
				return err
			}
			_, err = r.Cancel(ctx)
			return err
		},
		"Wait": func(ctx context.Context, l *headgate.Limiter, api, _ headgate.Charge) error { return l.Wait(ctx, api) },
		"WaitAtMost": func(ctx context.Context, l *headgate.Limiter, api, _ headgate.Charge) error {
			return l.WaitAtMost(ctx, time.Minute, api)
		},
		"Once": func(ctx context.Context, l *headgate.Limiter, api, _ headgate.Charge) error {
			if _, err := l.Once("id", time.Hour).Take(ctx, api); err != nil {
				return err
			}
			_, err := l.Once("id", time.Hour).Settle(ctx, api)
			return err
		},
		"Acquire": func(ctx context.Context, l *headgate.Limiter, _, jobs headgate.Charge) error {
			lease, err := l.Acquire(ctx, jobs)
			if err != nil {
				return err
			}
			return lease.Release(ctx)
		},
		"Await": func(ctx context.Context, l *headgate.Limiter, _, jobs headgate.Charge) error {
			lease, err := l.Await(ctx, jobs)
			if err != nil {
				return err
			}
			return lease.Release(ctx)
		},
		"Renew": func(ctx context.Context, l *headgate.Limiter, _, _ headgate.Charge) error {
			return l.Renew(ctx, tokens...)
		},
		"Inspect": func(ctx context.Context, l *headgate.Limiter, api, _ headgate.Charge) error {
			st, err := l.Inspect(ctx, api.Limit, api.Key)
			if err == nil && st.Capacity.String() != "1000" {
				t.Errorf("the capacity is %s, want 1000", st.Capacity)
			}
			return err
		},
		"Usage": func(ctx context.Context, l *headgate.Limiter, api, _ headgate.Charge) error {
			list, err := l.Usage(ctx, api.Key, api.Limit)
			if err == nil && list[0].Capacity.String() != "1000" {
				t.Errorf("the capacity is %s, want 1000", list[0].Capacity)
			}
			return err
		},
		"Block": func(ctx context.Context, l *headgate.Limiter, api, _ headgate.Charge) error {
			_, err := l.Block(ctx, api.Limit, "other", time.Minute, "")
			return err
		},
		"Reset": func(ctx context.Context, l *headgate.Limiter, api, _ headgate.Charge) error {
			_, err := l.Reset(ctx, api.Limit, api.Key)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, err := limiter.Reset(ctx, api.Limit, api.Key); err != nil {
				t.Fatal(err)
			}
			if err := call(ctx, limiter, api, jobs); err != nil {
				t.Errorf("with a catalog: %v", err)
			}
			if err := call(ctx, headgate.New(s, nil), api, jobs); !errors.Is(err, headgate.ErrUnknownLimit) {
				t.Errorf("without a catalog: %v, want ErrUnknownLimit", err)
			}
			// Renew ignores the charges: its token names a limit that the catalog has.
			unknown := headgate.Charge{Limit: headgate.MustNamed("gone"), Key: "k"}
			if err := call(ctx, limiter, unknown, unknown); name != "Renew" && !errors.Is(err, headgate.ErrUnknownLimit) {
				t.Errorf("a name that the catalog does not have: %v, want ErrUnknownLimit", err)
			}
		})
	}
}

// TestANameMeansTheCurrentLimit checks that each Allow of a limit given by name is decided by the newest definition.
func TestANameMeansTheCurrentLimit(t *testing.T) {
	s := memory.New(nil)
	cat, err := catalog.Read(t.Context(), s, &catalog.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	l := headgate.New(s, &headgate.Config{Names: cat})
	for _, tt := range []struct {
		notation string
		want     int64 // remaining after the charges of this row and all before
	}{{"token-bucket 10/h", 9}, {"token-bucket 20/h", 18}, {"token-bucket 5/h", 2}} {
		limit, err := headgate.ParseNamed("api", tt.notation)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cat.Set(t.Context(), catalog.By{}, catalog.Definition{Limit: limit}); err != nil {
			t.Fatal(err)
		}
		if d, err := l.Allow(t.Context(), headgate.MustNamed("api"), "k"); err != nil || d.Remaining != tt.want {
			t.Errorf("%s: %+v, %v; want %d remaining", tt.notation, d, err, tt.want)
		}
	}
}
