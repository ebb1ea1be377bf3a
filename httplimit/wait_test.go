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

// TestQueuedCallersHoldBackToo has ten requests wait for a start, one each
// tenth of a second, when the third is answered with 429: nothing is sent for as
// long as it says, and after it no faster than the limit lets them.
func TestQueuedCallersHoldBackToo(t *testing.T) {
	for _, notation := range []string{
		"token-bucket 10/s burst 1", "gcra 10/s burst 1", "leaky-bucket 10/s capacity 1",
		"sliding-log 1/100ms", "fixed-window 1/100ms",
	} {
		synctest.Test(t, func(t *testing.T) {
			limit := headgate.MustParse(notation)
			begin := time.Now()
			var mu sync.Mutex
			var sent []time.Duration
			var held time.Duration
			rt, err := httplimit.New(headgate.New(memory.New(nil), nil), limit, &httplimit.Config{
				MaxWait: time.Minute,
				Next: sender(func(*http.Request) (*http.Response, error) {
					mu.Lock()
					defer mu.Unlock()
					sent = append(sent, time.Since(begin))
					resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody}
					if len(sent) == 3 {
						held = time.Since(begin)
						resp.StatusCode, resp.Header = http.StatusTooManyRequests, fields("Retry-After: 2")
					}
					return resp, nil
				}),
			})
			if err != nil {
				t.Fatal(err)
			}
			var all sync.WaitGroup
			for range 10 {
				all.Go(func() {
					req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://example.com", nil)
					if _, err := rt.RoundTrip(req); err != nil { //nolint:bodyclose // it has no connection
						t.Error(notation, err)
					}
				})
			}
			all.Wait()
			if !slices.IsSorted(sent) || len(sent) != 10 || sent[3] < held+2*time.Second ||
				sent[3] > held+2500*time.Millisecond {
				t.Fatalf("%s: 429 at %v, sent at %v", notation, held, sent)
			}
			for i := 4; i < len(sent); i++ {
				if d := sent[i] - sent[i-1]; d < 99*time.Millisecond && !strings.HasPrefix(notation, "fixed") ||
					d > time.Second {
					t.Errorf("%s: sent at %v", notation, sent)
				}
			}
		})
	}
}

func TestRequestsOutlastABlock(t *testing.T) {
	for _, notation := range []string{"token-bucket 1/s burst 2", "sliding-log 2/1h"} {
		synctest.Test(t, func(t *testing.T) {
			l, limit := headgate.New(memory.New(nil), nil), headgate.MustParse(notation)
			if _, err := l.Block(t.Context(), limit, "example.com", time.Minute, ""); err != nil {
				t.Fatal(err)
			}
			rt, err := httplimit.New(l, limit, &httplimit.Config{
				MaxWait: headgate.Never,
				Next: sender(func(*http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
				}),
			})
			if err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			within, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			for _, ctx := range []context.Context{within, t.Context()} {
				req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://example.com", nil)
				_, err := rt.RoundTrip(req) //nolint:bodyclose // it has no connection
				switch took := time.Since(begin); {
				case ctx == within && (!errors.Is(err, headgate.ErrDeadline) || !errors.Is(err, headgate.ErrDenied) ||
					took != 0):
					t.Errorf("%s: a block beyond the deadline: %v after %v", notation, err, took)
				case ctx != within && (err != nil || took != time.Minute):
					t.Errorf("%s: it took %v (%v), the block lasts a minute", notation, took, err)
				}
			}
		})
	}
}

// TestADeadlineBeforeTheTimeToComeBackReturnsTheAnswer at once.
func TestADeadlineBeforeTheTimeToComeBackReturnsTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, err := httplimit.New(headgate.New(memory.New(nil), nil), plenty, &httplimit.Config{
			MaxWait: headgate.Never, Retries: 3,
			Next: sender(func(*http.Request) (*http.Response, error) {
				return &http.Response{
					StatusCode: http.StatusTooManyRequests, Header: fields("Retry-After: 2"),
					Body: http.NoBody,
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

// late is a store that takes its time to answer.
type late struct{ *memory.Store }

func (s late) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	time.Sleep(100 * time.Millisecond)
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.Store.Apply(ctx, ops, outs)
}

// TestHowLongAStoreTakesIsNoWait: MaxWait counts from its first answer.
func TestHowLongAStoreTakesIsNoWait(t *testing.T) {
	for _, notation := range []string{"token-bucket 2/s burst 1", "fixed-window 1/500ms"} {
		synctest.Test(t, func(t *testing.T) {
			l, limit := headgate.New(late{memory.New(nil)}, nil), headgate.MustParse(notation)
			send := func(maxWait time.Duration) error {
				rt, err := httplimit.New(l, limit,
					&httplimit.Config{MaxWait: maxWait, Next: sender(func(*http.Request) (*http.Response, error) {
						return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
					})})
				if err != nil {
					t.Fatal(err)
				}
				req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://example.com", nil)
				_, err = rt.RoundTrip(req) //nolint:bodyclose // it has no connection
				return err
			}
			if err := send(50 * time.Millisecond); err != nil {
				t.Errorf("%s: it had to wait for nothing but the store: %v", notation, err)
			}
			if err := send(50 * time.Millisecond); !errors.Is(err, headgate.ErrDeadline) {
				t.Errorf("%s: %v", notation, err)
			}
			if err := send(time.Second); err != nil {
				t.Errorf("%s: %v", notation, err)
			}
		})
	}
}
