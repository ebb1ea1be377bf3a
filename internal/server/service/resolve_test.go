package service_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/store/memory"
)

// TestMoreNotationsThanTheCacheHolds takes twice with each of 2500 notations, of which the cache holds 1000.
func TestMoreNotationsThanTheCacheHolds(t *testing.T) {
	t.Parallel()
	s := service.New(headgate.New(memory.New(nil), nil), &config.Config{}, nil)
	for round := range 2 {
		for i := range 2500 {
			r := &api.Request{Charge: api.Charge{Limit: fmt.Sprintf("token-bucket %d/1h burst 1", i+1), Key: "k"}}
			d, err := s.Take(t.Context(), r)
			if err != nil || d.Limit != r.Limit || round == 0 && !d.Allowed {
				t.Fatalf("%s: %+v, %v", r.Limit, d, err)
			}
		}
	}
}

// TestNotationsInUseAreBounded checks that a fourth notation is refused until one of three no longer counts.
func TestNotationsInUseAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &config.Config{NotationBounds: config.NotationBounds{Max: 3}}
		s := service.New(headgate.New(memory.New(nil), nil), c, nil)
		take := func(limit string) error {
			_, err := s.Take(t.Context(), &api.Request{Charge: api.Charge{Limit: limit, Key: "k"}})
			return err
		}
		expectRefusal := func(limit string) {
			t.Helper()
			err := take(limit)
			if !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), "max_notations") ||
				service.ProblemOf(err).Field != "limit" {
				t.Errorf("%s: got %v, want an error about max_notations", limit, err)
			}
		}
		for _, limit := range []string{
			"token-bucket 5/1h", "token-bucket 5/1h burst 5", "sliding-window 5/1h",
			"fixed-window 5/1m",
		} {
			if err := take(limit); err != nil { // the second notation means the same as the first
				t.Errorf("%s: %v", limit, err)
			}
		}
		expectRefusal("token-bucket 6/1h")
		time.Sleep(100 * time.Second) // longer than the window of a minute, but shorter than that and useMargin
		if err := take("token-bucket 5/1h"); err != nil {
			t.Error(err)
		}
		expectRefusal("token-bucket 6/1h")
		time.Sleep(30 * time.Second)
		if err := take("token-bucket 6/1h"); err != nil {
			t.Error(err)
		}
		expectRefusal("token-bucket 7/1h")
		time.Sleep(time.Hour) // a sliding window counts for two windows
		if err := take("token-bucket 6/1h"); err != nil {
			t.Error(err)
		}
		expectRefusal("token-bucket 7/1h")
		time.Sleep(2 * time.Minute)
		if err := take("token-bucket 7/1h"); err != nil {
			t.Error(err)
		}
		expectRefusal("token-bucket 8/1h")
	})
}

// TestDurationsBesideANotationAreBounded checks that a block, the life of an id and a wait may not be longer than the
// longest period of a notation, and that each keeps the notation in use.
func TestDurationsBesideANotationAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &config.Config{NotationBounds: config.NotationBounds{Max: 1, MaxPeriod: 32 * 24 * time.Hour}}
		const first, second = "token-bucket 1000/s burst 5", "token-bucket 1001/s burst 5"
		for name, request := range map[string]func(s *service.Service, limit, period string) error{
			"for": func(s *service.Service, limit, period string) error {
				_, err := s.Block(t.Context(), &api.Block{Subject: api.Subject{Limit: limit, Key: "k"}, For: period})
				return err
			},
			"life": func(s *service.Service, limit, period string) error {
				_, err := s.Take(t.Context(), &api.Request{
					Charge: api.Charge{Limit: limit, Key: "k"}, ID: "i",
					Life: period,
				})
				return err
			},
			"life of a batch": func(s *service.Service, limit, period string) error {
				got, err := s.Batch(t.Context(),
					&api.Batch{Requests: []api.Request{{
						Charge: api.Charge{Limit: limit, Key: "k"}, ID: "i",
						Life: period,
					}}}, func(error) {})
				if err == nil && got.Answers[0].Problem != nil {
					err = fmt.Errorf("%w: %w", headgate.ErrInvalid, got.Answers[0].Problem)
				}
				return err
			},
			"wait": func(s *service.Service, limit, period string) error {
				_, err := s.Reserve(t.Context(),
					&api.Reserve{Request: api.Request{Charge: api.Charge{Limit: limit, Key: "k"}}, Wait: period})
				return err
			},
		} {
			s := service.New(headgate.New(memory.New(nil), &headgate.Config{Names: c}), c, nil)
			if err := request(s, first, "3650d"); !errors.Is(err, headgate.ErrInvalid) ||
				!strings.Contains(err.Error(), "notation_max_period") {
				t.Errorf("%s of ten years: %v", name, err)
			}
			if err := request(s, first, "30d"); err != nil {
				t.Errorf("%s of thirty days: %v", name, err)
			}
			time.Sleep(29 * 24 * time.Hour)
			if err := request(s, second, "1s"); !errors.Is(err, headgate.ErrInvalid) ||
				!strings.Contains(err.Error(), "max_notations") {
				t.Errorf("%s: a second notation while the first counts: got %v, want ErrInvalid", name, err)
			}
			time.Sleep(2 * 24 * time.Hour)
			if err := request(s, second, "1s"); err != nil {
				t.Errorf("%s: a second notation after the first: %v, want no error", name, err)
			}
		}
	})
}

// TestNearlyFull checks that limits with at least 8 of 10 keys are listed, at most 20 of them, the fullest first.
func TestNearlyFull(t *testing.T) {
	t.Parallel()
	fixedClock := func() int64 { return 1795600000_000000 } // so that no window ends
	s := service.New(headgate.New(memory.New(&memory.Config{MaxKeys: 10, MaxTotal: 10_000, Clock: fixedClock}), nil),
		&config.Config{}, nil)
	fill := func(limit string, keys int) {
		for k := range keys {
			r := &api.Request{Charge: api.Charge{Limit: limit, Key: fmt.Sprint(k)}}
			if _, err := s.Take(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill("fixed-window 5/1h", 7)
	fill("fixed-window 5/2h", 9)
	fill("fixed-window 5/3h", 8)
	fill("fixed-window 5/4h", 10)
	got, err := s.NearlyFull(t.Context())
	want := []api.Keys{
		{Limit: "fixed-window 5/4h", Keys: 10, Max: 10},
		{Limit: "fixed-window 5/2h", Keys: 9, Max: 10},
		{Limit: "fixed-window 5/3h", Keys: 8, Max: 10},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("%+v, %v; want %+v", got, err, want)
	}
	for i := range 30 {
		fill(fmt.Sprintf("fixed-window 5/%dm", i+1), 10)
	}
	if got, err := s.NearlyFull(t.Context()); err != nil || len(got) != 20 || got[0].Keys != 10 {
		t.Errorf("got %d limits: %+v, %v, want 20", len(got), got, err)
	}
}

// TestForbiddenCallersUseNoNotation checks that the notations of forbidden requests do not count as being in use.
func TestForbiddenCallersUseNoNotation(t *testing.T) {
	t.Parallel()
	c := &config.Config{NotationBounds: config.NotationBounds{Max: 3}}
	s := service.New(headgate.New(memory.New(nil), nil), c, nil)
	take := func(limit string, limits ...string) error {
		ctx := auth.WithCaller(t.Context(), &auth.Caller{Name: "app", Role: auth.RoleTake, Limits: limits})
		_, err := s.Take(ctx, &api.Request{Charge: api.Charge{Limit: limit, Key: "k"}})
		return err
	}
	for i := range 10 {
		if err := take(fmt.Sprintf("token-bucket %d/1h", i+1), "api*"); !errors.Is(err, auth.ErrForbidden) {
			t.Errorf("notation %d: got %v, want ErrForbidden", i, err)
		}
	}
	for _, limit := range []string{"token-bucket 5/1m", "5/1m", "token-bucket 6/1m", "token-bucket 7/1m"} {
		if err := take(limit, "token-bucket *"); err != nil {
			t.Errorf("%s: %v", limit, err)
		}
	}
	if err := take("5/1m", "api*"); !errors.Is(err, auth.ErrForbidden) {
		t.Errorf("a notation that is in use: got %v, want ErrForbidden", err)
	}
	if err := take("token-bucket 8/1m", "token-bucket *"); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("a fourth notation: got %v, want ErrInvalid", err)
	}
}
