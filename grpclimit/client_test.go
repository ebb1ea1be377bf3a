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

// caller sends calls through a Client, and records when they are sent. It needs no network, so it works in a bubble.
type caller struct {
	*grpclimit.Client
	begin  time.Time
	answer func(n int) error // the result of the n-th call, from 1; nil: no call fails
	mu     sync.Mutex
	sentAt []time.Time
}

func newCaller(t testing.TB, l httplimit.Limiter, limit headgate.Limit, cfg grpclimit.ClientConfig) *caller {
	t.Helper()
	if cfg.Key == nil {
		cfg.Key = grpclimit.ByConst("far")
	}
	c, err := grpclimit.NewClient(l, limit, &cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &caller{Client: c, begin: time.Now()}
}

func (c *caller) invoke(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sentAt = append(c.sentAt, time.Now())
	if c.answer == nil {
		return nil
	}
	return c.answer(len(c.sentAt))
}

// sentAfter returns for each call how long after the beginning it was sent.
func (c *caller) sentAfter() (times []time.Duration) {
	for _, at := range c.sentAt {
		times = append(times, at.Sub(c.begin))
	}
	return times
}

// send sends a unary call.
func (c *caller) send(ctx context.Context) error {
	return c.Unary(ctx, unary, nil, nil, nil, c.invoke)
}

// retryLater returns a status with a RetryInfo.
func retryLater(code codes.Code, after time.Duration) error {
	st, err := status.New(code, "later").WithDetails(retryInfo(after))
	if err != nil {
		panic(err)
	}
	return st.Err()
}

// TestCallsWaitForTheirStart makes six calls at once, at limits of two calls, and then one a second on average.
func TestCallsWaitForTheirStart(t *testing.T) {
	for _, notation := range []string{
		"token-bucket 1/s burst 2", "gcra 1/s burst 2", "sliding-log 2/2s", "fixed-window 2/2s from-first",
	} {
		headgatetest.Run(t, func(t *testing.T, l *headgate.Limiter) {
			s := newCaller(t, l, headgate.MustParse(notation), grpclimit.ClientConfig{})
			var wg sync.WaitGroup
			for range 6 {
				wg.Go(func() {
					if err := s.send(t.Context()); err != nil {
						t.Error(notation, err)
					}
				})
			}
			wg.Wait()
			for i, at := range s.sentAfter() {
				earliest := time.Duration(i-1) * time.Second // of a bucket: a burst of 2, then one a second
				if strings.Contains(notation, "2/2s") {
					earliest = time.Duration(i/2) * 2 * time.Second
				}
				if at < earliest || at > earliest+2*time.Second {
					t.Errorf("%s: call %d was sent at %v, want %v to 2 s later: %v", notation, i, at, earliest,
						s.sentAfter())
				}
			}
			if len(s.sentAt) != 6 {
				t.Errorf("%s: got calls at %v, want 6", notation, s.sentAfter())
			}
		})
	}
}

func TestCallsBeyondMaxWaitAreNotSent(t *testing.T) {
	for name, cfg := range map[string]grpclimit.ClientConfig{
		"the deadline": {}, "MaxWait": {MaxWait: 5 * time.Second}, "no waiting": {MaxWait: -1},
	} {
		for _, notation := range []string{"token-bucket 1/10s", "sliding-log 1/10s"} {
			headgatetest.Run(t, func(t *testing.T, l *headgate.Limiter) {
				s := newCaller(t, l, headgate.MustParse(notation), cfg)
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
				_, streamErr := s.Stream(ctx, &grpc.StreamDesc{}, nil, duplex,
					func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (
						grpc.ClientStream, error,
					) {
						t.Errorf("%s, %s: the stream was opened", name, notation)
						return nil, nil
					})
				if took := time.Since(s.begin); took != 0 || len(s.sentAt) != 1 {
					t.Errorf("%s, %s: got %d calls sent, after %v; want 1 at once", name, notation, len(s.sentAt), took)
				}
				for _, err := range []error{err, streamErr} {
					quota, retry, _ := details(err)
					denied, ok := errors.AsType[*headgate.DeniedError](err)
					if status.Code(err) != codes.ResourceExhausted || !errors.Is(err, headgate.ErrDenied) ||
						quota == nil || !ok || retry.GetRetryDelay().AsDuration() != denied.Decision.RetryAfter {
						t.Errorf("%s, %s: got %v, %v; want a refusal", name, notation, err, retry)
					}
				}
			})
		}
	}
}

func TestCancelledCallsAreNotSent(t *testing.T) {
	headgatetest.Run(t, func(t *testing.T, l *headgate.Limiter) {
		limit := headgate.MustParse("token-bucket 1/10s")
		s := newCaller(t, l, limit, grpclimit.ClientConfig{})
		if err := s.send(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		expectCode(t, "while it waits", s.send(ctx), codes.Canceled)
		if took := time.Since(s.begin); took != time.Second {
			t.Errorf("the call returned after %v, want 1 s", took)
		}
		expectCode(t, "before it waits", s.send(ctx), codes.Canceled)
		if len(s.sentAt) != 1 || usedUnits(t, l, limit, "far") != "0.9" { // a tenth of a unit drains in a second
			t.Errorf("got %d calls sent, %s units charged; want 1, 0.9", len(s.sentAt), usedUnits(t, l, limit, "far"))
		}
	})
}

// TestRetryInfoDelaysAllClients checks that a RetryInfo delays the calls of another client of the same store too.
func TestRetryInfoDelaysAllClients(t *testing.T) {
	for _, notation := range []string{"token-bucket 10/s burst 1", "sliding-log 1/100ms", "token-bucket 1000/s"} {
		for _, code := range []codes.Code{codes.ResourceExhausted, codes.Unavailable} {
			headgatetest.Run(t, func(t *testing.T, l *headgate.Limiter) {
				limit := headgate.MustParse(notation)
				var backoffs []grpclimit.Backoff
				refusedClient := newCaller(t, l, limit, grpclimit.ClientConfig{
					OnBackoff: func(b grpclimit.Backoff) { backoffs = append(backoffs, b) },
				})
				refusedClient.answer = func(int) error { return retryLater(code, 1500*time.Millisecond) }
				otherClient := newCaller(t, l, limit, grpclimit.ClientConfig{})
				expectCode(t, notation, refusedClient.send(t.Context()), code)
				if err := otherClient.send(t.Context()); err != nil {
					t.Error(err)
				}
				sent := otherClient.sentAfter()
				if len(sent) != 1 || sent[0] < 1500*time.Millisecond || sent[0] > 2*time.Second {
					t.Errorf("%s: the other client sent at %v, want 1.5s", notation, sent)
				}
				if len(backoffs) != 1 || backoffs[0] != (grpclimit.Backoff{
					Method: unary, Key: "far", Code: code, For: 1500 * time.Millisecond,
				}) {
					t.Errorf("%s: OnBackoff: got %+v", notation, backoffs)
				}
			})
		}
	}
}

// TestRetryInfoDelaysQueuedCalls checks that a RetryInfo of the third call delays the seven that wait for their start.
func TestRetryInfoDelaysQueuedCalls(t *testing.T) {
	headgatetest.Run(t, func(t *testing.T, l *headgate.Limiter) {
		s := newCaller(t, l, headgate.MustParse("token-bucket 10/s burst 1"), grpclimit.ClientConfig{})
		s.answer = func(n int) error {
			if n == 3 {
				return retryLater(codes.ResourceExhausted, 2*time.Second)
			}
			return nil
		}
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { _ = s.send(t.Context()) })
		}
		wg.Wait()
		if sent := s.sentAfter(); len(sent) != 10 || !slices.IsSorted(sent) || sent[2] > 300*time.Millisecond ||
			sent[3] < sent[2]+2*time.Second || sent[9]-sent[3] < 500*time.Millisecond {
			t.Errorf("got calls at %v, want a pause of 2 s after the third", sent)
		}
	})
}

func TestOtherAnswersBlockNothing(t *testing.T) {
	inner := func(l *headgate.Limiter) error { // the error of another Client, under this one
		c, err := grpclimit.NewClient(l, headgate.MustParse("token-bucket 1/1h"), &grpclimit.ClientConfig{
			MaxWait: -1, Key: grpclimit.ByConst("inner"),
		})
		if err != nil {
			panic(err)
		}
		for range 2 {
			err = c.Unary(context.Background(), unary, nil, nil, nil, (&caller{}).invoke)
		}
		return err
	}
	for name, answer := range map[string]func(*headgate.Limiter) error{
		"no error":     func(*headgate.Limiter) error { return nil },
		"no RetryInfo": func(*headgate.Limiter) error { return status.Error(codes.ResourceExhausted, "too large") },
		"another code": func(*headgate.Limiter) error { return retryLater(codes.Aborted, time.Hour) },
		"no delay":     func(*headgate.Limiter) error { return retryLater(codes.ResourceExhausted, 0) },
		"below 0":      func(*headgate.Limiter) error { return retryLater(codes.ResourceExhausted, -time.Hour) },
		"no status":    func(*headgate.Limiter) error { return errors.New("broken") },
		"inner client": inner,
	} {
		headgatetest.Run(t, func(t *testing.T, l *headgate.Limiter) {
			limit := headgate.MustParse("token-bucket 1000/s")
			s := newCaller(t, l, limit, grpclimit.ClientConfig{
				OnBackoff: func(b grpclimit.Backoff) { t.Errorf("%s: OnBackoff: got %+v, want no call", name, b) },
			})
			want := answer(l)
			s.answer = func(int) error { return want }
			if err := s.send(t.Context()); !errors.Is(err, want) {
				t.Errorf("%s: got %v, want %v", name, err, want)
			}
			if st, err := l.Inspect(t.Context(), limit, "far"); err != nil || !st.BlockedUntil.IsZero() {
				t.Errorf("%s: got a block until %v (%v), want none", name, st.BlockedUntil, err)
			}
		})
	}
}

func TestALongRetryInfoBlocksForAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, limit := memoryLimiter(), headgate.MustParse("token-bucket 1000/s")
		s := newCaller(t, l, limit, grpclimit.ClientConfig{})
		s.answer = func(int) error { return retryLater(codes.ResourceExhausted, 10000*time.Hour) }
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
		s := newCaller(t, l, limit, grpclimit.ClientConfig{})
		got := s.send(t.Context())
		expectCode(t, err.Error(), got, want)
		wantMsg := "Nothing was charged."
		if want == codes.Unknown {
			wantMsg = "It is not known whether anything was charged."
		}
		if !errors.Is(got, err) || !strings.Contains(got.Error(), wantMsg) ||
			!strings.Contains(got.Error(), err.Error()) ||
			strings.Contains(status.Convert(got).Message(), err.Error()) || len(s.sentAt) != 0 {
			t.Errorf("got %v, %d calls sent; want %v, none", got, len(s.sentAt), err)
		}
	}
}

func TestCallsThatAreNotCharged(t *testing.T) {
	t.Parallel()
	l, limit := memoryLimiter(), headgate.MustParse("fixed-window 2/1h from-first")
	costs := map[string]headgate.Cost{unary: headgate.Units(2)}
	s := newCaller(t, l, limit, grpclimit.ClientConfig{
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
			expectCode(t, method, s.Unary(t.Context(), method, nil, nil, nil, s.invoke), codes.OK)
		}
	}
	expectCode(t, "a cost of 2", s.send(t.Context()), codes.OK)
	expectCode(t, "a cost of 2", s.send(t.Context()), codes.ResourceExhausted)
	if n := usedUnits(t, l, limit, "far"); n != "2" || len(s.sentAt) != 10 {
		t.Errorf("got %s units charged, %d calls sent; want 2, 10", n, len(s.sentAt)) // 3 x 3 without a cost, and one
	}
	withoutKey := newCaller(t, l, limit, grpclimit.ClientConfig{Key: grpclimit.ByMetadata("api-key")})
	expectCode(t, "no key", withoutKey.send(t.Context()), codes.InvalidArgument)
	withoutTarget := newCaller(t, l, limit, grpclimit.ClientConfig{Key: grpclimit.ByTarget})
	err := withoutTarget.send(t.Context())
	if expectCode(t, "no target", err, codes.Internal); !strings.Contains(err.Error(), "no target") {
		t.Errorf("got %v, want no target", err)
	}
	if len(withoutKey.sentAt)+len(withoutTarget.sentAt) != 0 {
		t.Error("a call that cannot be charged was sent")
	}
}
