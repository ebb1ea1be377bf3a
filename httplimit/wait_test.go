package httplimit_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store/memory"
)

// TestRetryAfterHoldsQueuedRequests starts ten requests that a limit sends a tenth of a second apart. The third is
// answered with 429 and Retry-After 2. The next one must be sent two seconds later, and the others at the limit's rate.
func TestRetryAfterHoldsQueuedRequests(t *testing.T) {
	for _, notation := range []string{
		"token-bucket 10/s burst 1", "gcra 10/s burst 1", "leaky-bucket 10/s capacity 1",
		"sliding-log 1/100ms", "fixed-window 1/100ms",
	} {
		synctest.Test(t, func(t *testing.T) {
			limit := headgate.MustParse(notation)
			begin := time.Now()
			var mu sync.Mutex
			var sent []time.Duration
			var refusedAt time.Duration
			rt, err := httplimit.New(headgate.New(memory.New(nil), nil), limit, &httplimit.Config{
				MaxWait: time.Minute,
				Next: roundTripFunc(func(*http.Request) (*http.Response, error) {
					mu.Lock()
					defer mu.Unlock()
					sent = append(sent, time.Since(begin))
					resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody}
					if len(sent) == 3 {
						refusedAt = time.Since(begin)
						resp.StatusCode, resp.Header = http.StatusTooManyRequests, headerOf("Retry-After: 2")
					}
					return resp, nil
				}),
			})
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://example.com", nil)
					if _, err := rt.RoundTrip(req); err != nil { //nolint:bodyclose // it has no connection
						t.Error(notation, err)
					}
				})
			}
			wg.Wait()
			if !slices.IsSorted(sent) || len(sent) != 10 || sent[3] < refusedAt+2*time.Second ||
				sent[3] > refusedAt+2500*time.Millisecond {
				t.Fatalf("%s: 429 at %v, sent at %v; want the fourth 2 s later", notation, refusedAt, sent)
			}
			for i := 4; i < len(sent); i++ {
				const minGap = 99 * time.Millisecond // 100 ms, less rounding; shorter between two fixed windows
				if d := sent[i] - sent[i-1]; d < minGap && !strings.HasPrefix(notation, "fixed") ||
					d > time.Second {
					t.Errorf("%s: sent at %v, want gaps of 100 ms", notation, sent)
				}
			}
		})
	}
}

// TestMaxWaitOutlastsABlock checks that a request waits for the end of a block, unless its deadline comes first.
func TestMaxWaitOutlastsABlock(t *testing.T) {
	for _, notation := range []string{"token-bucket 1/s burst 2", "sliding-log 2/1h"} {
		synctest.Test(t, func(t *testing.T) {
			l, limit := headgate.New(memory.New(nil), nil), headgate.MustParse(notation)
			if _, err := l.Block(t.Context(), limit, "example.com", time.Minute, ""); err != nil {
				t.Fatal(err)
			}
			rt, err := httplimit.New(l, limit, &httplimit.Config{
				MaxWait: headgate.Never,
				Next: roundTripFunc(func(*http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
				}),
			})
			if err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			deadlineCtx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			for _, ctx := range []context.Context{deadlineCtx, t.Context()} {
				req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://example.com", nil)
				_, err := rt.RoundTrip(req) //nolint:bodyclose // it has no connection
				switch took := time.Since(begin); {
				case ctx == deadlineCtx && (!errors.Is(err, headgate.ErrDeadline) ||
					!errors.Is(err, headgate.ErrDenied) || took != 0):
					t.Errorf("%s: a block beyond the deadline: got %v after %v, want an error at once", notation, err, took)
				case ctx != deadlineCtx && (err != nil || took != time.Minute):
					t.Errorf("%s: got %v after %v, want a request sent after a minute", notation, err, took)
				}
			}
		})
	}
}

// TestRetriesStopBeforeTheDeadline answers each request with 429 and Retry-After 2. With a deadline
// of 3 s one retry fits. Its 429 must be returned when it comes, as a second retry would be too late.
func TestRetriesStopBeforeTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, err := httplimit.New(headgate.New(memory.New(nil), nil), fastLimit, &httplimit.Config{
			MaxWait: headgate.Never, Retries: 3,
			Next: roundTripFunc(func(*http.Request) (*http.Response, error) {
				return &http.Response{
					StatusCode: http.StatusTooManyRequests, Header: headerOf("Retry-After: 2"), Body: http.NoBody,
				}, nil
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		begin := time.Now()
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://example.com", nil)
		resp, err := rt.RoundTrip(req) //nolint:bodyclose // it has no connection
		if err != nil || resp.StatusCode != http.StatusTooManyRequests || time.Since(begin) != 2*time.Second {
			t.Errorf("got %v (%v) after %v, want the second 429 after 2s", resp, err, time.Since(begin))
		}
	})
}

// slowStore needs a tenth of a second for each Apply.
type slowStore struct{ *memory.Store }

func (s slowStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	time.Sleep(100 * time.Millisecond)
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.Store.Apply(ctx, ops, outs)
}

// TestMaxWaitExcludesTheTimeOfTheStore checks that MaxWait counts from the first answer of the store.
func TestMaxWaitExcludesTheTimeOfTheStore(t *testing.T) {
	for _, notation := range []string{"token-bucket 2/s burst 1", "fixed-window 1/500ms"} {
		synctest.Test(t, func(t *testing.T) {
			l, limit := headgate.New(slowStore{memory.New(nil)}, nil), headgate.MustParse(notation)
			send := func(maxWait time.Duration) error {
				next := roundTripFunc(func(*http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
				})
				rt, err := httplimit.New(l, limit, &httplimit.Config{MaxWait: maxWait, Next: next})
				if err != nil {
					t.Fatal(err)
				}
				req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://example.com", nil)
				_, err = rt.RoundTrip(req) //nolint:bodyclose // it has no connection
				return err
			}
			if err := send(50 * time.Millisecond); err != nil {
				t.Errorf("%s: MaxWait of 50 ms, without a wait: got %v", notation, err)
			}
			if err := send(50 * time.Millisecond); !errors.Is(err, headgate.ErrDeadline) {
				t.Errorf("%s: MaxWait of 50 ms, a wait of 500 ms: got %v, want %v", notation, err, headgate.ErrDeadline)
			}
			if err := send(time.Second); err != nil {
				t.Errorf("%s: MaxWait of 1 s, a wait of 500 ms: got %v", notation, err)
			}
		})
	}
}
