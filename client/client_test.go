package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/rest"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const limits = `
limits:
  api: token-bucket 100/s burst 100
  few: token-bucket 10/1h burst 10
`

// newHandler returns the HTTP handler of a server over memory.
func newHandler(tb testing.TB) http.Handler {
	tb.Helper()
	c, err := config.Parse("c.yaml", []byte(limits))
	if err != nil {
		tb.Fatal(err)
	}
	return rest.New(service.New(headgate.New(memory.New(nil), &headgate.Config{Names: c}), c, nil),
		slog.New(slog.DiscardHandler), nil)
}

// newClientOf returns a client of a server with a handler.
func newClientOf(tb testing.TB, h http.Handler, cfg *client.Config) *client.Client {
	tb.Helper()
	server := httptest.NewServer(h)
	tb.Cleanup(server.Close)
	c, err := client.New(server.URL, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Close)
	return c
}

func TestManyCallersShareFewCallsAndNoMorePassThanMay(t *testing.T) {
	t.Parallel()
	overEach(t, testManyCallersShareFewCalls)
}

func testManyCallersShareFewCalls(t *testing.T, over protocol) {
	var calls atomic.Int64 // a batch of the client is one batch of the store
	c := over.serve(t, serverOptions{before: func([]law.Op) { calls.Add(1) }}).client(t, nil)
	const callers, each, keys = 100, 20, 7
	var allowed [keys]atomic.Int64
	var all sync.WaitGroup
	for n := range callers {
		all.Go(func() {
			for i := range each {
				key := (n + i) % keys
				d, err := c.Allow(t.Context(), headgate.MustNamed("few"), fmt.Sprint(key))
				switch {
				case err != nil:
					t.Error(err)
				case d.Key != fmt.Sprint(key) || d.LimitName != "few":
					t.Errorf("asked about few %d, answered about %s %s", key, d.LimitName, d.Key)
				case d.Allowed:
					allowed[key].Add(1)
				}
			}
		})
	}
	all.Wait()
	for key := range allowed {
		if got := allowed[key].Load(); got != 10 {
			t.Errorf("key %d: %d were allowed, want 10", key, got)
		}
	}
	if got := calls.Load(); got > callers*each/2 {
		t.Errorf("%d calls for %d questions", got, callers*each)
	}
}

func TestDecisionsSayWhatTheServerSays(t *testing.T) {
	t.Parallel()
	overEach(t, testDecisionsSayWhatTheServerSays)
}

func testDecisionsSayWhatTheServerSays(t *testing.T, over protocol) {
	c := over.serve(t, serverOptions{}).client(t, nil)
	ctx, begin := t.Context(), time.Now()
	check := func(d headgate.Decision, err error, want headgate.Decision) {
		t.Helper()
		if err != nil || d.At.Before(begin.Add(-time.Minute)) || d.At.After(time.Now().Add(time.Minute)) {
			t.Fatalf("%+v, %v", d, err)
		}
		d.At, d.ResetAfter = time.Time{}, 0
		if !want.Allowed && want.RetryAfter == 0 && d.RetryAfter > 0 && d.RetryAfter < time.Hour &&
			d.RetryAfter%time.Millisecond == 0 {
			d.RetryAfter = 0 // some time
		}
		for i := range d.Each {
			if d.Each[i].ResetAfter = 0; d.Each[i].RetryAfter != headgate.Never {
				d.Each[i].RetryAfter = 0
			}
		}
		if want.Each == nil {
			d.Each = nil
		}
		if !reflect.DeepEqual(d, want) {
			t.Errorf("got  %+v\nwant %+v", d, want)
		}
	}
	two := headgate.MustCost("2.5")
	d, err := c.Take(ctx, headgate.Charge{Limit: headgate.MustNamed("few"), Key: "a", Cost: two})
	check(d, err, headgate.Decision{Allowed: true, LimitName: "few", Key: "a", Capacity: 10, Remaining: 7})
	d, err = c.Check(ctx, headgate.Charge{Limit: headgate.MustNamed("few"), Key: "a", Cost: headgate.Units(8)})
	check(d, err, headgate.Decision{LimitName: "few", Key: "a", Capacity: 10, Remaining: 7})
	d, err = c.Take(ctx, headgate.Charge{Limit: headgate.MustNamed("few"), Key: "a", Cost: headgate.Units(11)})
	check(d, err, headgate.Decision{LimitName: "few", Key: "a", Capacity: 10, Remaining: 7, RetryAfter: headgate.Never})
	d, err = c.Take(ctx, headgate.Charge{Limit: headgate.MustNamed("api"), Key: "b"},
		headgate.Charge{Limit: headgate.MustNamed("few"), Key: "a", Cost: two},
		headgate.Charge{Limit: headgate.MustNamed("few"), Key: "c"})
	check(d, err, headgate.Decision{
		Allowed: true, LimitName: "few", Key: "a", Capacity: 10, Remaining: 5,
		Each: []headgate.ChargeDecision{
			{Allowed: true, LimitName: "api", Key: "b", Capacity: 100, Remaining: 99},
			{Charge: 1, Allowed: true, LimitName: "few", Key: "a", Capacity: 10, Remaining: 5},
			{Charge: 2, Allowed: true, LimitName: "few", Key: "c", Capacity: 10, Remaining: 9},
		},
	})
	d, err = c.Check(ctx, headgate.Charge{Limit: headgate.MustNamed("few"), Key: "a"},
		headgate.Charge{Limit: headgate.MustNamed("api"), Key: "new", Cost: headgate.Units(200)})
	check(d, err, headgate.Decision{
		LimitName: "api", Key: "new", Capacity: 100, Remaining: 100, RetryAfter: headgate.Never,
		Each: []headgate.ChargeDecision{
			{Allowed: true, LimitName: "few", Key: "a", Capacity: 10, Remaining: 5},
			{Charge: 1, LimitName: "api", Key: "new", Capacity: 100, Remaining: 100, RetryAfter: headgate.Never},
		},
	})

	for _, key := range []string{"", "ключ 鍵", "a\"b\\c\n<&>\u2028", strings.Repeat("\x01", 512)} {
		d, err = c.Take(ctx, headgate.Charge{Limit: headgate.MustNamed("few"), Key: key},
			headgate.Charge{Limit: headgate.MustNamed("api"), Key: "b"})
		check(d, err, headgate.Decision{Allowed: true, LimitName: "few", Key: key, Capacity: 10, Remaining: 9})
		d, err = c.Allow(ctx, headgate.MustNamed("few"), key)
		check(d, err, headgate.Decision{Allowed: true, LimitName: "few", Key: key, Capacity: 10, Remaining: 8})
	}
}

func TestAnInvalidRequestFailsAlone(t *testing.T) {
	t.Parallel()
	overEach(t, testAnInvalidRequestFailsAlone)
}

func testAnInvalidRequestFailsAlone(t *testing.T, over protocol) {
	c := over.serve(t, serverOptions{}).client(t, &client.Config{Connections: 1})
	many := make([]headgate.Charge, 10_001)
	for i := range many {
		many[i] = headgate.Charge{Limit: headgate.MustNamed("api"), Key: fmt.Sprint(i)}
	}
	var all sync.WaitGroup
	for _, tt := range []struct {
		charges []headgate.Charge
		says    string // empty: the request is valid
	}{
		{[]headgate.Charge{{Limit: headgate.MustNamed("few"), Key: "a"}}, ""},
		{[]headgate.Charge{{Limit: headgate.MustNamed("nope"), Key: "a"}}, "few"},
		{[]headgate.Charge{{Key: "a"}}, "limit: is missing"},
		{[]headgate.Charge{{Limit: headgate.MustNamed("few"), Key: "a\x00"}}, "key"},
		{[]headgate.Charge{{Limit: headgate.MustNamed("few"), Key: "a\xff"}}, "UTF-8"},
		{[]headgate.Charge{{Limit: headgate.MustNamed("few"), Key: strings.Repeat("k", 513)}}, "513"},
		{[]headgate.Charge{{Limit: headgate.MustNamed("few"), Key: "a", Cost: headgate.Units(-1)}}, "above 0"},
		{[]headgate.Charge{{Limit: headgate.MustNamed("few"), Key: "a", Cost: headgate.MustCost("0.000000001")}}, ""},
		{nil, "none"},
		{many, "10000"},
		{many[:600], ""},
		{many[:255], ""},
	} {
		for range max(1, 20-len(tt.charges)) {
			all.Go(func() {
				_, err := c.Check(t.Context(), tt.charges...)
				if ok := err == nil; ok != (tt.says == "") ||
					!ok && (!errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), tt.says)) {
					t.Errorf("%d charges, %.40v: %.200v, want %q", len(tt.charges),
						tt.charges[:min(1, len(tt.charges))], err, tt.says)
				}
			})
		}
	}
	all.Wait()
}

// gate holds the batches of a store until the test closes pass.
type gate struct {
	arrived chan string // keys of a batch that has arrived
	pass    chan struct{}
}

func newGate() *gate { return &gate{make(chan string, 9), make(chan struct{})} }

func (g *gate) hold(ops []law.Op) {
	keys := make([]string, len(ops))
	for i := range ops {
		keys[i] = ops[i].Cell.Key
	}
	g.arrived <- strings.Join(keys, " ")
	<-g.pass
}

// waitNotifier is a context that closes waits when its caller begins to wait.
type waitNotifier struct {
	context.Context
	waits chan struct{}
}

func (b *waitNotifier) Done() <-chan struct{} {
	close(b.waits)
	return b.Context.Done()
}

func TestCancelBeforeAndAfterABatchIsSent(t *testing.T) {
	t.Parallel()
	overEach(t, testCancel)
}

func testCancel(t *testing.T, over protocol) {
	g := newGate()
	c := over.serve(t, serverOptions{before: g.hold}).client(t, client.WithMaxWaiting(1, 2))
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error)
	allow := func(ctx context.Context, key string) {
		b := &waitNotifier{ctx, make(chan struct{})}
		go func() {
			_, err := c.Allow(b, headgate.MustNamed("few"), key)
			errs <- err
		}()
		<-b.waits
	}
	allow(ctx, "late") // its batch is sent when it has arrived
	<-g.arrived
	allow(ctx, "early")
	allow(t.Context(), "stays")
	if _, err := c.Allow(t.Context(), headgate.MustNamed("few"), "third"); !errors.Is(err, store.ErrBusy) {
		t.Errorf("with two waiting: %v, want ErrBusy", err)
	}
	cancel()
	unknown := 0
	for range 2 {
		err := <-errs
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want context.Canceled", err)
		}
		if errors.Is(err, store.ErrUnknownOutcome) {
			unknown++
		}
	}
	if unknown != 1 {
		t.Errorf("%d outcomes are unknown, want that of the one who had departed", unknown)
	}
	close(g.pass)
	if err := <-errs; err != nil {
		t.Error(err)
	}
	if got := <-g.arrived; got != "stays" {
		t.Errorf("sent %s, want that of the one who stays", got)
	}
	for key, want := range map[string]int64{"late": 9, "early": 10, "stays": 9, "third": 10} {
		if d, err := c.Check(t.Context(), headgate.Charge{Limit: headgate.MustNamed("few"), Key: key}); err != nil ||
			d.Remaining != want {
			t.Errorf("%s: %d remain, %v; want %d", key, d.Remaining, err, want)
		}
	}
	if _, err := c.Allow(ctx, headgate.MustNamed("few"), "late"); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}

func TestCloseAnswersThoseWhoWait(t *testing.T) {
	t.Parallel()
	overEach(t, testCloseAnswersThoseWhoWait)
}

func testCloseAnswersThoseWhoWait(t *testing.T, over protocol) {
	g := newGate()
	c := over.serve(t, serverOptions{before: g.hold}).client(t, nil)
	b := &waitNotifier{t.Context(), make(chan struct{})}
	errs := make(chan error, 1)
	go func() {
		_, err := c.Allow(b, headgate.MustNamed("few"), "a")
		errs <- err
	}()
	<-b.waits
	<-g.arrived
	closed := make(chan struct{})
	go func() {
		c.Close()
		close(closed)
	}()
	close(g.pass)
	<-closed
	if err := <-errs; err != nil {
		t.Errorf("who waited: %v", err)
	}
	if _, err := c.Allow(t.Context(), headgate.MustNamed("few"), "a"); !errors.Is(err, store.ErrClosed) {
		t.Errorf("after Close: %v, want ErrClosed", err)
	}
	if err := c.Call(t.Context(), http.MethodGet, "/v1/limits", nil, new(any)); !errors.Is(err, store.ErrClosed) {
		t.Errorf("Call after Close: %v, want ErrClosed", err)
	}
}

// TestCloseLeavesACallThatGoesAlone: a call outside of the batches gets its answer.
func TestCloseLeavesACallThatGoesAlone(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, over protocol) {
		g := newGate()
		c := over.serve(t, serverOptions{before: g.hold}).client(t, nil)
		errs := make(chan error, 1)
		go func() {
			_, err := c.Once("one", 0).Take(t.Context(), headgate.Charge{Limit: headgate.MustNamed("few"), Key: "a"})
			errs <- err
		}()
		<-g.arrived
		closed := make(chan struct{})
		go func() { defer close(closed); c.Close() }()
		await.Until(t, "the client to be closed", func() bool {
			return errors.Is(c.Call(t.Context(), http.MethodGet, "/v1/limits", nil, new(any)), store.ErrClosed)
		})
		close(g.pass)
		if err := await.Receive(t, "the call to end", errs); err != nil {
			t.Errorf("it failed: %v", err)
		}
		<-closed
	})
}

// TestACallWhileTheTransportClosesFailsAtOnce: it does not wait for the calls under way.
func TestACallWhileTheTransportClosesFailsAtOnce(t *testing.T) {
	t.Parallel()
	g := newGate()
	c := protocol("grpc").serve(t, serverOptions{before: g.hold}).client(t, nil)
	held := make(chan error, 1)
	go func() {
		_, err := c.Once("one", 0).Take(t.Context(), headgate.Charge{Limit: headgate.MustNamed("few"), Key: "a"})
		held <- err
	}()
	<-g.arrived
	go c.CloseTransport()
	failed := make(chan error, 1)
	go func() {
		var err error
		for !errors.Is(err, store.ErrClosed) {
			err = c.Call(t.Context(), http.MethodGet, "/v1/limits", nil, new(any))
		}
		failed <- err
	}()
	_ = await.Receive(t, "a call to be refused while another goes on", failed)
	close(g.pass)
	if err := await.Receive(t, "the call under way to end", held); err != nil {
		t.Error(err)
	}
}
