package grpclimit_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/grpclimit"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

func TestTheStoreIsAway(t *testing.T) {
	t.Parallel()
	const nothingCharged, unknown = "Nothing was charged.", "It is not known whether anything was charged."
	for name, tt := range map[string]struct {
		err  error
		cfg  grpclimit.ServerConfig
		want codes.Code
		says string
	}{
		"closed":     {store.ErrUnavailable, grpclimit.ServerConfig{}, codes.Unavailable, nothingCharged},
		"full":       {store.ErrFull, grpclimit.ServerConfig{}, codes.Unavailable, nothingCharged},
		"in doubt":   {store.ErrUnknownOutcome, grpclimit.ServerConfig{}, codes.Unknown, unknown},
		"no class":   {errors.New("nobody has thought of this"), grpclimit.ServerConfig{}, codes.Unknown, unknown},
		"open":       {store.ErrUnavailable, grpclimit.ServerConfig{FailOpen: true}, codes.OK, ""},
		"open doubt": {store.ErrUnknownOutcome, grpclimit.ServerConfig{FailOpen: true}, codes.OK, ""},
		"shadow":     {store.ErrUnavailable, grpclimit.ServerConfig{Mode: httplimit.Shadow}, codes.OK, ""},
		"advise":     {store.ErrUnavailable, grpclimit.ServerConfig{Mode: httplimit.Advise}, codes.OK, ""},
	} {
		for _, message := range []bool{false, true} {
			var told atomic.Int64
			cfg := tt.cfg
			cfg.OnError = func(_ *grpclimit.Call, err error) {
				if told.Add(1); !errors.Is(err, tt.err) {
					t.Errorf("%s: %v", name, err)
				}
			}
			cfg.Charges = charges(grpclimit.Charge{
				Limit: headgate.MustParse("sliding-log 5/1m"), Key: grpclimit.ByPeer, PerMessage: message,
			})
			l := headgate.New(storetest.Failing{Store: memory.New(nil), Err: tt.err}, nil)
			f := (&far{}).start(t, limited(must(t, l, cfg)))
			_, _, streamed := f.talk(t.Context(), 1)
			header, trailer, called := f.call(t.Context())
			for _, err := range []error{streamed, called} {
				_, retry, _ := details(err)
				if status.Code(err) != tt.want || err != nil && !strings.Contains(err.Error(), tt.says) ||
					(retry != nil) != (tt.want == codes.Unavailable) {
					t.Errorf("%s: %v, %v", name, err, retry)
				}
				if err != nil && strings.Contains(err.Error(), tt.err.Error()) {
					t.Errorf("%s: what is wrong here is told: %v", name, err)
				}
			}
			if told.Load() != 2 || header["ratelimit"] != nil || trailer["ratelimit"] != nil {
				t.Errorf("%s: told %d times, %v, %v", name, told.Load(), header, trailer)
			}
			if served := f.served.Load() > 0; !message && served != (tt.want == codes.OK) {
				t.Errorf("%s: %d served", name, f.served.Load())
			}
		}
	}
}

// TestCancelledCallersAreNotServed, also while the store is away and calls are admitted without it.
func TestCancelledCallersAreNotServed(t *testing.T) {
	t.Parallel()
	l := headgate.New(storetest.Failing{Store: memory.New(nil), Err: store.ErrUnavailable}, nil)
	server := must(t, l, grpclimit.ServerConfig{
		FailOpen: true,
		Charges:  charges(grpclimit.Charge{Limit: headgate.MustParse("sliding-log 5/1m"), Key: grpclimit.ByMethod}),
	})
	gone, leave := context.WithCancel(t.Context())
	leave()
	late, end := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer end()
	for ctx, want := range map[context.Context]codes.Code{gone: codes.Canceled, late: codes.DeadlineExceeded} {
		info := &grpc.UnaryServerInfo{FullMethod: unary}
		_, err := server.Unary(ctx, nil, info, func(context.Context, any) (any, error) {
			t.Error("the handler is called")
			return nil, nil
		})
		expect(t, want.String(), err, want)
		if !strings.Contains(err.Error(), "not known whether") {
			t.Error(err)
		}
	}
}

// TestChargesThatCannotBeMade: the client sees its own mistakes, and not the program's.
func TestChargesThatCannotBeMade(t *testing.T) {
	t.Parallel()
	limit := headgate.MustParse("fixed-window 5/1h from-first")
	fails := func(err error) grpclimit.CostFunc {
		return func(*grpclimit.Call) (headgate.Cost, error) { return headgate.Cost{}, err }
	}
	for name, tt := range map[string]struct {
		charge grpclimit.Charge
		want   codes.Code
		field  string // of BadRequest
		says   string
		told   int64
	}{
		"no key": {
			grpclimit.Charge{Limit: limit, Key: grpclimit.ByMetadata("Api-Key")},
			codes.InvalidArgument, "metadata api-key", "metadata api-key: is missing. Nothing was charged.", 0,
		},
		"a wrong cost": {
			grpclimit.Charge{
				Limit: limit, Key: grpclimit.ByPeer, Cost: fails(headgate.Invalid("rows", "are too many")),
			},
			codes.InvalidArgument, "rows", "rows: are too many. Nothing was charged.", 0,
		},
		"a negative cost": {
			grpclimit.Charge{Limit: limit, Key: grpclimit.ByPeer, Cost: func(*grpclimit.Call) (headgate.Cost, error) {
				return headgate.Units(-1), nil
			}},
			codes.InvalidArgument, "cost", "Nothing was charged.", 0,
		},
		"a fault of the program": {
			grpclimit.Charge{Limit: limit, Key: grpclimit.ByPeer, Cost: fails(errors.New("secret"))},
			codes.Internal, "", "Nothing was charged.", 1,
		},
		"an unknown limit": {
			grpclimit.Charge{Limit: headgate.MustNamed("nobody"), Key: grpclimit.ByPeer},
			codes.Internal, "", "Nothing was charged.", 1,
		},
		"no tier": {
			grpclimit.Charge{Key: grpclimit.ByPeer, LimitFor: func(*grpclimit.Call) (headgate.Limit, error) {
				return headgate.Limit{}, headgate.Invalid("tier", "is missing")
			}},
			codes.InvalidArgument, "tier", "tier: is missing", 0,
		},
	} {
		for _, mode := range []httplimit.Mode{httplimit.Enforce, httplimit.Shadow} {
			l := memoryLimiter()
			var told atomic.Int64
			f := (&far{}).start(t, limited(must(t, l, grpclimit.ServerConfig{
				Mode:    mode,
				Charges: charges(grpclimit.Charge{Limit: limit, Key: grpclimit.ByConst("first")}, tt.charge),
				OnError: func(*grpclimit.Call, error) { told.Add(1) },
			})))
			_, _, err := f.call(t.Context())
			if n := used(t, l, limit, "first"); n != "0" {
				t.Errorf("%s: %s units are charged", name, n)
			}
			if mode == httplimit.Shadow {
				if err != nil || told.Load() != 1 {
					t.Errorf("%s, shadow: %v, told %d times", name, err, told.Load())
				}
				continue
			}
			_, _, bad := details(err)
			if status.Code(err) != tt.want || !strings.Contains(err.Error(), tt.says) || told.Load() != tt.told ||
				strings.Contains(err.Error(), "secret") || f.served.Load() != 0 {
				t.Errorf("%s: %v, told %d times, %d served", name, err, told.Load(), f.served.Load())
			}
			if (bad != nil) != (tt.field != "") || bad != nil && bad.FieldViolations[0].Field != tt.field {
				t.Errorf("%s: BadRequest: %v", name, bad)
			}
		}
	}
}

// TestTheLogNamesNoKey: of what a limit would refuse, and of errors.
func TestTheLogNamesNoKey(t *testing.T) {
	t.Parallel()
	limit := headgate.MustParse("fixed-window 1/1h from-first")
	for says, l := range map[string]*headgate.Limiter{
		"would refuse": memoryLimiter(),
		"no decision":  headgate.New(storetest.Failing{Store: memory.New(nil), Err: store.ErrUnavailable}, nil),
	} {
		var log bytes.Buffer
		server, err := grpclimit.NewServer(l, grpclimit.ServerConfig{
			Mode: httplimit.Shadow, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Charges: charges(grpclimit.Charge{Limit: limit, Key: grpclimit.ByMetadata("api-key")}),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("api-key", "hidden"))
		for range 2 {
			if _, err := server.Unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: unary}, nothing); err != nil {
				t.Error(err)
			}
		}
		if s := log.String(); strings.Count(s, "\n") != 1 || !strings.Contains(s, says) || strings.Contains(s, "hidden") ||
			!strings.Contains(s, unary) {
			t.Errorf("log: %s", s)
		}
	}
}
