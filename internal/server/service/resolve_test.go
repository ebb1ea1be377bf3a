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

// TestNotationsAreNotKeptForEver asks with more limits than are remembered.
func TestNotationsAreNotKeptForEver(t *testing.T) {
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

// TestSoManyNotationsAreInUseAtATime asks with one more than may be, until those before
// it count no more.
func TestSoManyNotationsAreInUseAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := service.New(headgate.New(memory.New(nil), nil), &config.Config{Notations: config.Notations{Max: 3}}, nil)
		take := func(limit string) error {
			_, err := s.Take(t.Context(), &api.Request{Charge: api.Charge{Limit: limit, Key: "k"}})
			return err
		}
		full := func(limit string) {
			t.Helper()
			err := take(limit)
			if !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), "max_notations") ||
				service.Problem(err).Field != "limit" {
				t.Errorf("%s: %v", limit, err)
			}
		}
		for _, limit := range []string{
			"token-bucket 5/1h", "token-bucket 5/1h burst 5", "sliding-window 5/1h",
			"fixed-window 5/1m",
		} {
			if err := take(limit); err != nil { // the second is the first, written out
				t.Errorf("%s: %v", limit, err)
			}
		}
		full("token-bucket 6/1h")
		time.Sleep(100 * time.Second) // and the minute is over, but not the least time of use
		if err := take("token-bucket 5/1h"); err != nil {
			t.Error(err)
		}
		full("token-bucket 6/1h")
		time.Sleep(30 * time.Second)
		if err := take("token-bucket 6/1h"); err != nil {
			t.Error(err)
		}
		full("token-bucket 7/1h")
		time.Sleep(time.Hour) // a sliding window counts for two
		if err := take("token-bucket 6/1h"); err != nil {
			t.Error(err)
		}
		full("token-bucket 7/1h")
		time.Sleep(2 * time.Minute)
		if err := take("token-bucket 7/1h"); err != nil {
			t.Error(err)
		}
		full("token-bucket 8/1h")
	})
}

// TestWhatIsSaidBesideANotationIsBoundedAsIt is: blocks, ids and waits for ten years would
// outlast the longest period of a notation, and the notation's being in use.
func TestDurationsBesideANotationAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &config.Config{Notations: config.Notations{Max: 1, MaxPeriod: 32 * 24 * time.Hour}}
		const first, second = "token-bucket 1000/s burst 5", "token-bucket 1001/s burst 5"
		for name, say := range map[string]func(s *service.Service, limit, period string) error{
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
			if err := say(s, first, "3650d"); !errors.Is(err, headgate.ErrInvalid) ||
				!strings.Contains(err.Error(), "notation_max_period") {
				t.Errorf("%s of ten years: %v", name, err)
			}
			if err := say(s, first, "30d"); err != nil {
				t.Errorf("%s of thirty days: %v", name, err)
			}
			time.Sleep(29 * 24 * time.Hour)
			if err := say(s, second, "1s"); !errors.Is(err, headgate.ErrInvalid) ||
				!strings.Contains(err.Error(), "max_notations") {
				t.Errorf("%s: a second notation while the first counts: %v", name, err)
			}
			time.Sleep(2 * 24 * time.Hour)
			if err := say(s, second, "1s"); err != nil {
				t.Errorf("%s: a second notation after that: %v", name, err)
			}
		}
	})
}

// TestTheFullestLimitsAreTold fills limits of which each may have ten keys.
func TestTheFullestLimitsAreTold(t *testing.T) {
	t.Parallel()
	still := func() int64 { return 1795600000_000000 } // so no window ends
	s := service.New(headgate.New(memory.New(&memory.Config{MaxKeys: 10, MaxTotal: 10_000, Clock: still}), nil),
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
		t.Errorf("%d, %+v, %v", len(got), got, err)
	}
}

// TestForbiddenCallersUseNoNotation: else they could use up the number that may be in use.
func TestForbiddenCallersUseNoNotation(t *testing.T) {
	t.Parallel()
	s := service.New(headgate.New(memory.New(nil), nil), &config.Config{Notations: config.Notations{Max: 3}}, nil)
	take := func(limit string, limits ...string) error {
		ctx := auth.With(t.Context(), &auth.Caller{Name: "app", Role: auth.RoleTake, Limits: limits})
		_, err := s.Take(ctx, &api.Request{Charge: api.Charge{Limit: limit, Key: "k"}})
		return err
	}
	for i := range 10 {
		if err := take(fmt.Sprintf("token-bucket %d/1h", i+1), "api*"); !errors.Is(err, auth.ErrForbidden) {
			t.Errorf("%d: %v", i, err)
		}
	}
	for _, limit := range []string{"token-bucket 5/1m", "5/1m", "token-bucket 6/1m", "token-bucket 7/1m"} {
		if err := take(limit, "token-bucket *"); err != nil {
			t.Errorf("%s: %v", limit, err)
		}
	}
	if err := take("5/1m", "api*"); !errors.Is(err, auth.ErrForbidden) {
		t.Errorf("one that is in use: %v", err)
	}
	if err := take("token-bucket 8/1m", "token-bucket *"); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("a fourth: %v", err)
	}
}
