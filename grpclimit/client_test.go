package grpclimit_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/grpclimit"
	"github.com/headgate/headgate/headgatetest"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

// sender sends calls through a Client, and notes when they go out. It needs no network, so it works in a bubble.
type sender struct {
	*grpclimit.Client
	begin  time.Time
	answer func(n int) error // to the n-th call, from 1; nil: none fails
	mu     sync.Mutex
	sent   []time.Time
}

func newSender(t testing.TB, l httplimit.Limiter, limit headgate.Limit, cfg grpclimit.ClientConfig) *sender {
	t.Helper()
	if cfg.Key == nil {
		cfg.Key = grpclimit.ByConst("far")
	}
	c, err := grpclimit.NewClient(l, limit, &cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &sender{Client: c, begin: time.Now()}
}

func (s *sender) invoke(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, time.Now())
	if s.answer == nil {
		return nil
	}
	return s.answer(len(s.sent))
}

// times returns when calls were sent, since the beginning.
func (s *sender) times() (list []time.Duration) {
	for _, at := range s.sent {
		list = append(list, at.Sub(s.begin))
	}
	return list
}

// send sends a unary call.
func (s *sender) send(ctx context.Context) error {
	return s.Unary(ctx, unary, nil, nil, nil, s.invoke)
}

// asks returns a status with a RetryInfo.
func asks(code codes.Code, after time.Duration) error {
	st, err := status.New(code, "later").WithDetails(retryInfo(after))
	if err != nil {
		panic(err)
	}
	return st.Err()
}

func TestCallsWaitForTheirStart(t *testing.T) {
	for _, notation := range []string{
		"token-bucket 1/s burst 2", "gcra 1/s burst 2", "sliding-log 2/2s", "fixed-window 2/2s from-first",
	} {
		headgatetest.Run(t, func(t *testing.T, l *headgate.Limiter) {
			s := newSender(t, l, headgate.MustParse(notation), grpclimit.ClientConfig{})
			var all sync.WaitGroup
			for range 6 {
				all.Go(func() {
					if err := s.send(t.Context()); err != nil {
						t.Error(notation, err)
					}
				})
			}
			all.Wait()
			for i, at := range s.times() {
				earliest := time.Duration(i-1) * time.Second // of the bucket
				if strings.Contains(notation, "2/2s") {
					earliest = time.Duration(i/2) * 2 * time.Second
				}
				if at < earliest || at > earliest+2*time.Second {
					t.Errorf("%s: call %d is sent at %v, want %v: %v", notation, i, at, earliest, s.times())
				}
			}
			if len(s.sent) != 6 {
				t.Errorf("%s: sent at %v", notation, s.times())
			}
		})
	}
}

func TestACallThatCannotStartInTimeIsNotSent(t *testing.T) {
	for name, cfg := range map[string]grpclimit.ClientConfig{
		"the deadline": {}, "MaxWait": {MaxWait: 5 * time.Second}, "no waiting": {MaxWait: -1},
	} {
		for _, notation := range []string{"token-bucket 1/10s", "sliding-log 1/10s"} {
			headgatetest.Run(t, func(t *testing.T, l *headgate.Limiter) {
				s := newSender(t, l, headgate.MustParse(notation), cfg)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				if name == "the deadline" {
					ctx, cancel = context.WithTimeout(t.Context(), 5*time.Second)
					defer cancel()
				}
				if err := s.send(ctx); err != nil {
					t.Fatal(err)
				}
				err := s.send(ctx)
				_, streamed := s.Stream(ctx, &grpc.StreamDesc{}, nil, duplex,
					func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (
						grpc.ClientStream, error,
					) {
						t.Errorf("%s, %s: the stream is opened", name, notation)
						return nil, nil
					})
				if took := time.Since(s.begin); took != 0 || len(s.sent) != 1 {
					t.Errorf("%s, %s: %d sent, after %v", name, notation, len(s.sent), took)
				}
				for _, err := range []error{err, streamed} {
					quota, retry, _ := details(err)
					denied, ok := errors.AsType[*headgate.DeniedError](err)
					if status.Code(err) != codes.ResourceExhausted || !errors.Is(err, headgate.ErrDenied) ||
						quota == nil || !ok || retry.GetRetryDelay().AsDuration() != denied.Decision.RetryAfter {
						t.Errorf("%s, %s: %v, %v", name, notation, err, retry)
					}
				}
			})
		}
	}
}

func TestACallWhoseContextEndsIsNotSent(t *testing.T) {
	headgatetest.Run(t, func(t *testing.T, l *headgate.Limiter) {
		limit := headgate.MustParse("token-bucket 1/10s")
		s := newSender(t, l, limit, grpclimit.ClientConfig{})
		if err := s.send(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		expect(t, "while it waits", s.send(ctx), codes.Canceled)
		if took := time.Since(s.begin); took != time.Second {
			t.Errorf("it waits for %v", took)
		}
		expect(t, "before it waits", s.send(ctx), codes.Canceled)
		if len(s.sent) != 1 || used(t, l, limit, "far") != "0.9" {
			t.Errorf("%d sent, %s units are charged", len(s.sent), used(t, l, limit, "far"))
		}
	})
}

// TestAllHoldBackForAsLongAsTheServerAsks: also those of another client over the same store, and those that wait for
// a start of their own.
func TestAllHoldBackForAsLongAsTheServerAsks(t *testing.T) {
	for _, notation := range []string{"token-bucket 10/s burst 1", "sliding-log 1/100ms", "token-bucket 1000/s"} {
		for _, code := range []codes.Code{codes.ResourceExhausted, codes.Unavailable} {
			headgatetest.Run(t, func(t *testing.T, l *headgate.Limiter) {
				limit := headgate.MustParse(notation)
				var told []grpclimit.Backoff
				one := newSender(t, l, limit, grpclimit.ClientConfig{
					OnBackoff: func(b grpclimit.Backoff) { told = append(told, b) },
				})
				one.answer = func(int) error { return asks(code, 1500*time.Millisecond) }
				another := newSender(t, l, limit, grpclimit.ClientConfig{})
				expect(t, notation, one.send(t.Context()), code)
				if err := another.send(t.Context()); err != nil {
					t.Error(err)
				}
				sent := another.times()
				if len(sent) != 1 || sent[0] < 1500*time.Millisecond || sent[0] > 2*time.Second {
					t.Errorf("%s: sent at %v, want 1.5s", notation, sent)
				}
				if len(told) != 1 || told[0] != (grpclimit.Backoff{
					Method: unary, Key: "far", Code: code, For: 1500 * time.Millisecond,
				}) {
					t.Errorf("%s: OnBackoff was told of %+v", notation, told)
				}
			})
		}
	}
}

func TestWaitersHoldBackToo(t *testing.T) {
	headgatetest.Run(t, func(t *testing.T, l *headgate.Limiter) {
		s := newSender(t, l, headgate.MustParse("token-bucket 10/s burst 1"), grpclimit.ClientConfig{})
		s.answer = func(n int) error {
			if n == 3 {
				return asks(codes.ResourceExhausted, 2*time.Second)
			}
			return nil
		}
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() { _ = s.send(t.Context()) })
		}
		all.Wait()
		if sent := s.times(); len(sent) != 10 || !slices.IsSorted(sent) || sent[2] > 300*time.Millisecond ||
			sent[3] < sent[2]+2*time.Second || sent[9]-sent[3] < 500*time.Millisecond {
			t.Errorf("sent at %v", sent)
		}
	})
}

func TestOtherAnswersHoldNobodyBack(t *testing.T) {
	inner := func(l *headgate.Limiter) error { // the error of a client below this one
		c, err := grpclimit.NewClient(l, headgate.MustParse("token-bucket 1/1h"), &grpclimit.ClientConfig{
			MaxWait: -1, Key: grpclimit.ByConst("inner"),
		})
		if err != nil {
			panic(err)
		}
		for range 2 {
			err = c.Unary(context.Background(), unary, nil, nil, nil, (&sender{}).invoke)
		}
		return err
	}
	for name, answer := range map[string]func(*headgate.Limiter) error{
		"no error":     func(*headgate.Limiter) error { return nil },
		"no RetryInfo": func(*headgate.Limiter) error { return status.Error(codes.ResourceExhausted, "too large") },
		"another code": func(*headgate.Limiter) error { return asks(codes.Aborted, time.Hour) },
		"no delay":     func(*headgate.Limiter) error { return asks(codes.ResourceExhausted, 0) },
		"below 0":      func(*headgate.Limiter) error { return asks(codes.ResourceExhausted, -time.Hour) },
		"no status":    func(*headgate.Limiter) error { return errors.New("broken") },
		"inner client": inner,
	} {
		headgatetest.Run(t, func(t *testing.T, l *headgate.Limiter) {
			limit := headgate.MustParse("token-bucket 1000/s")
			s := newSender(t, l, limit, grpclimit.ClientConfig{
				OnBackoff: func(b grpclimit.Backoff) { t.Errorf("%s: OnBackoff was told of %+v", name, b) },
			})
			want := answer(l)
			s.answer = func(int) error { return want }
			if err := s.send(t.Context()); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", name, err, want)
			}
			if st, err := l.Inspect(t.Context(), limit, "far"); err != nil || !st.BlockedUntil.IsZero() {
				t.Errorf("%s: blocked until %v (%v)", name, st.BlockedUntil, err)
			}
		})
	}
}

func TestALongDelayIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, limit := memoryLimiter(), headgate.MustParse("token-bucket 1000/s")
		s := newSender(t, l, limit, grpclimit.ClientConfig{})
		s.answer = func(int) error { return asks(codes.ResourceExhausted, 10000*time.Hour) }
		_ = s.send(t.Context())
		st, err := l.Inspect(t.Context(), limit, "far")
		if got := st.BlockedUntil.Sub(st.At); err != nil || got != time.Hour ||
			st.Reason != "the server answered ResourceExhausted: RetryInfo" {
			t.Errorf("blocked for %v (%v) because %q, want an hour", got, err, st.Reason)
		}
	})
}

func TestNothingIsSentWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	limit := headgate.MustParse("token-bucket 1000/s")
	for err, want := range map[error]codes.Code{
		store.ErrUnavailable: codes.Unavailable, store.ErrUnknownOutcome: codes.Unknown,
	} {
		l := headgate.New(storetest.Failing{Store: memory.New(nil), Err: err}, nil)
		s := newSender(t, l, limit, grpclimit.ClientConfig{})
		got := s.send(t.Context())
		expect(t, err.Error(), got, want)
		says := "Nothing was charged."
		if want == codes.Unknown {
			says = "It is not known whether anything was charged."
		}
		if !errors.Is(got, err) || !strings.Contains(got.Error(), says) ||
			!strings.Contains(got.Error(), err.Error()) ||
			strings.Contains(status.Convert(got).Message(), err.Error()) || len(s.sent) != 0 {
			t.Errorf("%v, %d sent", got, len(s.sent))
		}
	}
}

func TestCallsThatAreNotCharged(t *testing.T) {
	t.Parallel()
	l, limit := memoryLimiter(), headgate.MustParse("fixed-window 2/1h from-first")
	costs := map[string]headgate.Cost{unary: headgate.Units(2)}
	s := newSender(t, l, limit, grpclimit.ClientConfig{
		Methods: []string{service}, MaxWait: -1,
		Cost: func(c *grpclimit.Call) (headgate.Cost, error) {
			if cost, ok := costs[c.Method]; ok {
				return cost, nil
			}
			return headgate.Units(0), nil
		},
	})
	for range 3 {
		for _, method := range []string{"/grpc.health.v1.Health/Check", "/other.Service/Get", duplex} {
			expect(t, method, s.Unary(t.Context(), method, nil, nil, nil, s.invoke), codes.OK)
		}
	}
	expect(t, "a cost of 2", s.send(t.Context()), codes.OK)
	expect(t, "a cost of 2", s.send(t.Context()), codes.ResourceExhausted)
	if n := used(t, l, limit, "far"); n != "2" || len(s.sent) != 10 {
		t.Errorf("%s units are charged, %d sent", n, len(s.sent))
	}
	wrong := newSender(t, l, limit, grpclimit.ClientConfig{Key: grpclimit.ByMetadata("api-key")})
	expect(t, "no key", wrong.send(t.Context()), codes.InvalidArgument)
	faulty := newSender(t, l, limit, grpclimit.ClientConfig{Key: grpclimit.ByTarget})
	err := faulty.send(t.Context())
	if expect(t, "no target", err, codes.Internal); !strings.Contains(err.Error(), "no target") {
		t.Error(err)
	}
	if len(wrong.sent)+len(faulty.sent) != 0 {
		t.Error("a call that cannot be charged is sent")
	}
}
