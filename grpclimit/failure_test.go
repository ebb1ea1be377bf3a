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

func TestFailOpenAndModesWhenTheStoreIsAway(t *testing.T) {
	t.Parallel()
	const nothingCharged, unknown = "Nothing was charged.", "It is not known whether anything was charged."
	for name, tt := range map[string]struct {
		err  error
		cfg  grpclimit.ServerConfig
		want codes.Code
		msg  string
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
		for _, perMessage := range []bool{false, true} {
			var errCount atomic.Int64
			cfg := tt.cfg
			cfg.OnError = func(_ *grpclimit.Call, err error) {
				if errCount.Add(1); !errors.Is(err, tt.err) {
					t.Errorf("%s: %v", name, err)
				}
			}
			cfg.Charges = charges(grpclimit.Charge{
				Limit: headgate.MustParse("sliding-log 5/1m"), Key: grpclimit.ByPeer, PerMessage: perMessage,
			})
			l := headgate.New(storetest.Failing{Store: memory.New(nil), Err: tt.err}, nil)
			srv := startServer(t, l, cfg)
			_, _, streamErr := srv.stream(t.Context(), 1)
			header, trailer, callErr := srv.call(t.Context())
			for _, err := range []error{streamErr, callErr} {
				_, retry, _ := details(err)
				if status.Code(err) != tt.want || err != nil && !strings.Contains(err.Error(), tt.msg) ||
					(retry != nil) != (tt.want == codes.Unavailable) {
					t.Errorf("%s: got %v, %v; want %s", name, err, retry, tt.want)
				}
				if err != nil && strings.Contains(err.Error(), tt.err.Error()) {
					t.Errorf("%s: the status has the internal error: %v", name, err)
				}
			}
			if errCount.Load() != 2 || header["ratelimit"] != nil || trailer["ratelimit"] != nil {
				t.Errorf("%s: got %d errors, %v, %v; want 2, no fields", name, errCount.Load(), header, trailer)
			}
			// With PerMessage the handler of a stream runs before the first charge.
			if served := srv.served.Load() > 0; !perMessage && served != (tt.want == codes.OK) {
				t.Errorf("%s: got %d calls served", name, srv.served.Load())
			}
		}
	}
}

// TestCancelledCallersAreNotServed checks that FailOpen serves no call whose context has ended.
func TestCancelledCallersAreNotServed(t *testing.T) {
	t.Parallel()
	l := headgate.New(storetest.Failing{Store: memory.New(nil), Err: store.ErrUnavailable}, nil)
	server := mustServer(t, l, grpclimit.ServerConfig{
		FailOpen: true,
		Charges:  charges(grpclimit.Charge{Limit: headgate.MustParse("sliding-log 5/1m"), Key: grpclimit.ByMethod}),
	})
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	expired, cancelExpired := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancelExpired()
	for ctx, want := range map[context.Context]codes.Code{cancelled: codes.Canceled, expired: codes.DeadlineExceeded} {
		info := &grpc.UnaryServerInfo{FullMethod: unary}
		_, err := server.Unary(ctx, nil, info, func(context.Context, any) (any, error) {
			t.Error("the handler is called")
			return nil, nil
		})
		expectCode(t, want.String(), err, want)
		if !strings.Contains(err.Error(), "not known whether") {
			t.Errorf("got %v, want an unknown outcome", err)
		}
	}
}

// TestStatusOfChargesWithErrors checks that a client gets the text of its own errors, but not of errors of the program,
// and that neither charges anything. In shadow mode the call is served.
func TestStatusOfChargesWithErrors(t *testing.T) {
	t.Parallel()
	limit := headgate.MustParse("fixed-window 5/1h from-first")
	failWith := func(err error) grpclimit.CostFunc {
		return func(*grpclimit.Call) (headgate.Cost, error) { return headgate.Cost{}, err }
	}
	for name, tt := range map[string]struct {
		charge grpclimit.Charge
		want   codes.Code
		field  string // of BadRequest
		msg    string
		errors int64 // calls of OnError in mode Enforce; in shadow mode errors of the client count too, so always 1
	}{
		"no key": {
			grpclimit.Charge{Limit: limit, Key: grpclimit.ByMetadata("Api-Key")},
			codes.InvalidArgument, "metadata api-key", "metadata api-key: is missing. Nothing was charged.", 0,
		},
		"a wrong cost": {
			grpclimit.Charge{
				Limit: limit, Key: grpclimit.ByPeer, Cost: failWith(headgate.Invalid("rows", "are too many")),
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
			grpclimit.Charge{Limit: limit, Key: grpclimit.ByPeer, Cost: failWith(errors.New("secret"))},
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
			var errCount atomic.Int64
			srv := startServer(t, l, grpclimit.ServerConfig{
				Mode:    mode,
				Charges: charges(grpclimit.Charge{Limit: limit, Key: grpclimit.ByConst("first")}, tt.charge),
				OnError: func(*grpclimit.Call, error) { errCount.Add(1) },
			})
			_, _, err := srv.call(t.Context())
			if n := usedUnits(t, l, limit, "first"); n != "0" {
				t.Errorf("%s: got %s units charged, want 0", name, n)
			}
			if mode == httplimit.Shadow {
				if err != nil || errCount.Load() != 1 {
					t.Errorf("%s, shadow: got %v, %d errors; want 1 error", name, err, errCount.Load())
				}
				continue
			}
			_, _, badRequest := details(err)
			if status.Code(err) != tt.want || !strings.Contains(err.Error(), tt.msg) || errCount.Load() != tt.errors ||
				strings.Contains(err.Error(), "secret") || srv.served.Load() != 0 {
				t.Errorf("%s: got %v, %d errors, %d served", name, err, errCount.Load(), srv.served.Load())
			}
			if (badRequest != nil) != (tt.field != "") || badRequest != nil &&
				badRequest.FieldViolations[0].Field != tt.field {
				t.Errorf("%s: got BadRequest %v, want field %q", name, badRequest, tt.field)
			}
		}
	}
}

// TestLogLinesLeaveKeysOut checks that the log lines of refusals in shadow mode and of errors leave the key out. Of the
// two errors only the first is logged at once: Logger gets at most one line a second of each kind.
func TestLogLinesLeaveKeysOut(t *testing.T) {
	t.Parallel()
	limit := headgate.MustParse("fixed-window 1/1h from-first")
	for text, l := range map[string]*headgate.Limiter{
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
			if _, err := server.Unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: unary}, noHandler); err != nil {
				t.Error(err)
			}
		}
		if s := log.String(); strings.Count(s, "\n") != 1 || !strings.Contains(s, text) || strings.Contains(s, "hidden") ||
			!strings.Contains(s, unary) {
			t.Errorf("got log %s, want one line with %q, without the key", s, text)
		}
	}
}
