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

// limits is the config of most servers of these tests.
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

// newClientOf starts a server with a handler, and returns a client of it. Both end with the test.
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

func TestAllowSharesBatchesAndAdmitsExactly(t *testing.T) {
	t.Parallel()
	overEachProtocol(t, testAllowSharesBatches)
}

func testAllowSharesBatches(t *testing.T, proto protocol) {
	var batches atomic.Int64 // a batch of the client is a batch of the store
	c := proto.serve(t, serverOptions{beforeBatch: func([]law.Op) { batches.Add(1) }}).client(t, nil)
	const callers, callsEach, keys = 100, 20, 7
	var allowed [keys]atomic.Int64
	var group sync.WaitGroup
	for n := range callers {
		group.Go(func() {
			for i := range callsEach {
				key := (n + i) % keys
				d, err := c.Allow(t.Context(), headgate.MustNamed("few"), fmt.Sprint(key))
				switch {
				case err != nil:
					t.Errorf("Allow: got %v, want no error", err)
				case d.Key != fmt.Sprint(key) || d.LimitName != "few":
					t.Errorf("a call for few %d: got a decision for %s %s", key, d.LimitName, d.Key)
				case d.Allowed:
					allowed[key].Add(1)
				}
			}
		})
	}
	group.Wait()
	for key := range allowed {
		if got := allowed[key].Load(); got != 10 {
			t.Errorf("key %d: got %d allowed, want 10", key, got)
		}
	}
	if got := batches.Load(); got > callers*callsEach/2 {
		t.Errorf("got %d batches for %d calls, want half as many at most", got, callers*callsEach)
	}
}

func TestDecisionFields(t *testing.T) {
	t.Parallel()
	overEachProtocol(t, testDecisionFields)
}

func testDecisionFields(t *testing.T, proto protocol) {
	c := proto.serve(t, serverOptions{}).client(t, nil)
	ctx, begin := t.Context(), time.Now()
	check := func(d headgate.Decision, err error, want headgate.Decision) {
		t.Helper()
		if err != nil || d.At.Before(begin.Add(-time.Minute)) || d.At.After(time.Now().Add(time.Minute)) {
			t.Fatalf("got %+v, %v, want a decision of this minute", d, err)
		}
		d.At, d.ResetAfter = time.Time{}, 0
		if !want.Allowed && want.RetryAfter == 0 && d.RetryAfter > 0 && d.RetryAfter < time.Hour &&
			d.RetryAfter%time.Millisecond == 0 {
			d.RetryAfter = 0 // it depends on the time
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
	cost := headgate.MustCost("2.5")
	d, err := c.Take(ctx, headgate.Charge{Limit: headgate.MustNamed("few"), Key: "a", Cost: cost})
	check(d, err, headgate.Decision{Allowed: true, LimitName: "few", Key: "a", Capacity: 10, Remaining: 7})
	d, err = c.Check(ctx, headgate.Charge{Limit: headgate.MustNamed("few"), Key: "a", Cost: headgate.Units(8)})
	check(d, err, headgate.Decision{LimitName: "few", Key: "a", Capacity: 10, Remaining: 7})
	d, err = c.Take(ctx, headgate.Charge{Limit: headgate.MustNamed("few"), Key: "a", Cost: headgate.Units(11)})
	check(d, err, headgate.Decision{LimitName: "few", Key: "a", Capacity: 10, Remaining: 7, RetryAfter: headgate.Never})
	d, err = c.Take(ctx, headgate.Charge{Limit: headgate.MustNamed("api"), Key: "b"},
		headgate.Charge{Limit: headgate.MustNamed("few"), Key: "a", Cost: cost},
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

func TestInvalidRequestFailsAlone(t *testing.T) {
	t.Parallel()
	overEachProtocol(t, testInvalidRequestFailsAlone)
}

func testInvalidRequestFailsAlone(t *testing.T, proto protocol) {
	c := proto.serve(t, serverOptions{}).client(t, &client.Config{Connections: 1})
	charges := make([]headgate.Charge, 10_001)
	for i := range charges {
		charges[i] = headgate.Charge{Limit: headgate.MustNamed("api"), Key: fmt.Sprint(i)}
	}
	var group sync.WaitGroup
	for _, tt := range []struct {
		charges  []headgate.Charge
		wantText string // empty: the request is valid
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
		{charges, "10000"},
		{charges[:600], ""},
		{charges[:255], ""},
	} {
		for range max(1, 20-len(tt.charges)) {
			group.Go(func() {
				_, err := c.Check(t.Context(), tt.charges...)
				if ok := err == nil; ok != (tt.wantText == "") ||
					!ok && (!errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), tt.wantText)) {
					t.Errorf("%d charges, %.40v: got %.200v, want %q", len(tt.charges),
						tt.charges[:min(1, len(tt.charges))], err, tt.wantText)
				}
			})
		}
	}
	group.Wait()
}

// gate holds the batches of a store until the test closes opened.
type gate struct {
	arrived chan string // keys of each batch that arrives
	opened  chan struct{}
}

func newGate() *gate { return &gate{make(chan string, 9), make(chan struct{})} }

// hold reports the keys of a batch, and waits until the gate is opened.
func (g *gate) hold(ops []law.Op) {
	keys := make([]string, len(ops))
	for i := range ops {
		keys[i] = ops[i].Cell.Key
	}
	g.arrived <- strings.Join(keys, " ")
	<-g.opened
}

// waitNotifier is a context whose Done closes waits: its caller begins to wait. Done may be called once.
type waitNotifier struct {
	context.Context
	waits chan struct{}
}

func (n *waitNotifier) Done() <-chan struct{} {
	close(n.waits)
	return n.Context.Done()
}

func TestCancelBeforeAndAfterABatchIsSent(t *testing.T) {
	t.Parallel()
	overEachProtocol(t, testCancel)
}

func testCancel(t *testing.T, proto protocol) {
	g := newGate()
	c := proto.serve(t, serverOptions{beforeBatch: g.hold}).client(t, client.WithMaxWaiting(1, 2))
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error)
	allow := func(ctx context.Context, key string) {
		notifier := &waitNotifier{ctx, make(chan struct{})}
		go func() {
			_, err := c.Allow(notifier, headgate.MustNamed("few"), key)
			errs <- err
		}()
		<-notifier.waits
	}
	allow(ctx, "sent")
	<-g.arrived // its batch has been sent
	allow(ctx, "queued")
	allow(t.Context(), "kept")
	if _, err := c.Allow(t.Context(), headgate.MustNamed("few"), "refused"); !errors.Is(err, store.ErrBusy) {
		t.Errorf("with two waiting: got %v, want ErrBusy", err)
	}
	cancel()
	unknown := 0
	for range 2 {
		err := <-errs
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}
		if errors.Is(err, store.ErrUnknownOutcome) {
			unknown++
		}
	}
	if unknown != 1 {
		t.Errorf("got %d unknown outcomes, want 1: the call whose batch was sent", unknown)
	}
	close(g.opened)
	if err := <-errs; err != nil {
		t.Errorf("the call that was not cancelled: got %v, want no error", err)
	}
	if got := <-g.arrived; got != "kept" {
		t.Errorf("the second batch has %s, want kept", got)
	}
	for key, want := range map[string]int64{"sent": 9, "queued": 10, "kept": 9, "refused": 10} {
		if d, err := c.Check(t.Context(), headgate.Charge{Limit: headgate.MustNamed("few"), Key: key}); err != nil ||
			d.Remaining != want {
			t.Errorf("%s: got %d remaining, %v; want %d", key, d.Remaining, err, want)
		}
	}
	if _, err := c.Allow(ctx, headgate.MustNamed("few"), "sent"); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: got %v, want context.Canceled", err)
	}
}

func TestCloseWaitsForAllow(t *testing.T) {
	t.Parallel()
	overEachProtocol(t, testCloseWaitsForAllow)
}

func testCloseWaitsForAllow(t *testing.T, proto protocol) {
	g := newGate()
	c := proto.serve(t, serverOptions{beforeBatch: g.hold}).client(t, nil)
	notifier := &waitNotifier{t.Context(), make(chan struct{})}
	errs := make(chan error, 1)
	go func() {
		_, err := c.Allow(notifier, headgate.MustNamed("few"), "a")
		errs <- err
	}()
	<-notifier.waits
	<-g.arrived
	closeDone := make(chan struct{})
	go func() {
		c.Close()
		close(closeDone)
	}()
	close(g.opened)
	<-closeDone
	if err := <-errs; err != nil {
		t.Errorf("the waiting call: got %v, want no error", err)
	}
	if _, err := c.Allow(t.Context(), headgate.MustNamed("few"), "a"); !errors.Is(err, store.ErrClosed) {
		t.Errorf("after Close: got %v, want ErrClosed", err)
	}
	if err := c.Call(t.Context(), http.MethodGet, "/v1/limits", nil, new(any)); !errors.Is(err, store.ErrClosed) {
		t.Errorf("Call after Close: got %v, want ErrClosed", err)
	}
}

// TestCloseWaitsForOnceTake checks that a call outside of the batches gets its answer while Close waits.
func TestCloseWaitsForOnceTake(t *testing.T) {
	t.Parallel()
	overEachProtocol(t, func(t *testing.T, proto protocol) {
		g := newGate()
		c := proto.serve(t, serverOptions{beforeBatch: g.hold}).client(t, nil)
		errs := make(chan error, 1)
		go func() {
			_, err := c.Once("one", 0).Take(t.Context(), headgate.Charge{Limit: headgate.MustNamed("few"), Key: "a"})
			errs <- err
		}()
		<-g.arrived
		closeDone := make(chan struct{})
		go func() { defer close(closeDone); c.Close() }()
		await.Until(t, "the client to be closed", func() bool {
			return errors.Is(c.Call(t.Context(), http.MethodGet, "/v1/limits", nil, new(any)), store.ErrClosed)
		})
		close(g.opened)
		if err := await.Receive(t, "the call to end", errs); err != nil {
			t.Errorf("got %v, want no error", err)
		}
		<-closeDone
	})
}

// TestCallFailsAtOnceWhileTheTransportCloses checks over gRPC that a new call does not wait for the calls under way.
func TestCallFailsAtOnceWhileTheTransportCloses(t *testing.T) {
	t.Parallel()
	g := newGate()
	c := protocol("grpc").serve(t, serverOptions{beforeBatch: g.hold}).client(t, nil)
	takeErr := make(chan error, 1)
	go func() {
		_, err := c.Once("one", 0).Take(t.Context(), headgate.Charge{Limit: headgate.MustNamed("few"), Key: "a"})
		takeErr <- err
	}()
	<-g.arrived
	go c.CloseTransport()
	callErr := make(chan error, 1)
	go func() {
		var err error
		for !errors.Is(err, store.ErrClosed) {
			err = c.Call(t.Context(), http.MethodGet, "/v1/limits", nil, new(any))
		}
		callErr <- err
	}()
	_ = await.Receive(t, "a call to be refused while another goes on", callErr)
	close(g.opened)
	if err := await.Receive(t, "the call under way to end", takeErr); err != nil {
		t.Errorf("the call under way: got %v, want no error", err)
	}
}
