package redis

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/history"
	"github.com/headgate/headgate/internal/testing/history/record"
	"github.com/headgate/headgate/internal/testing/sim/check"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/storetest"
)

// callers make requests for a key, and record the answers.
type callers struct {
	mu  sync.Mutex
	l   *headgate.Limiter
	ask *record.Asker
	record.Answers
	other []error
}

// asker returns an Asker for a key of a token bucket.
func asker(t *testing.T, key string, rate, burst int) *record.Asker {
	t.Helper()
	limit, err := headgate.ParseNamed("l", fmt.Sprintf("token-bucket %d/s burst %d", rate, burst))
	if err != nil {
		t.Fatal(err)
	}
	return record.NewAsker(limit, key, history.Limit{
		Algorithm: history.TokenBucket, Amount: strconv.Itoa(rate), Burst: strconv.Itoa(burst),
		Period: time.Second.Microseconds(),
	})
}

func newCallers(s *Store, ask *record.Asker) *callers {
	return &callers{l: headgate.New(s, nil), ask: ask}
}

// round makes eight concurrent requests, and reports whether all of them were answered, or none was.
func (c *callers) round() (all, none bool) {
	before := c.Allowed + c.Refused
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
			defer cancel()
			d, err := c.ask.Allow(ctx, "test", c.l)
			c.mu.Lock()
			defer c.mu.Unlock()
			if other := c.Add(d, err); other != nil {
				c.other = append(c.other, other)
			}
		})
	}
	wg.Wait()
	n := c.Allowed + c.Refused - before
	return n == 8, n == 0
}

// loseAndRecover loses a primary under load, with the charges that its replica lacks. It returns after a round without
// an answer and several rounds with all answers. It calls meanwhile after the round without an answer.
func (c *callers) loseAndRecover(t *testing.T, lose, meanwhile func()) {
	t.Helper()
	for range 20 {
		c.round()
	}
	since := c.ask.Recorder.Now() - time.Second
	c.ask.Recorder.Fault("redis", history.Fault{Kind: history.Kill})
	var asking sync.WaitGroup
	asking.Go(func() { c.round() })
	lose()
	asking.Wait()
	c.ask.Recorder.Fault("redis", history.Fault{Kind: history.Forget, Since: max(0, int64(since))})
	lost, answered := false, 0
	await.Until(t, "answers after none", func() bool {
		all, none := c.round()
		if none {
			lost = true
			meanwhile()
		}
		if answered++; !all || !lost {
			answered = 0
		}
		return answered == 20
	})
	c.check(t)
}

// check checks the answers of all requests.
func (c *callers) check(t *testing.T) {
	t.Helper()
	t.Logf("%+v", &c.Answers)
	if _, err := c.ask.RecordFinalState(t.Context(), c.l); err != nil {
		t.Error(err)
	}
	for _, v := range check.Check(c.ask.Recorder.History()) {
		t.Error(v)
	}
	if len(c.other) > 0 {
		t.Errorf("%d errors of no class, first: %v", len(c.other), c.other[0])
	}
}

func TestAClusterGoesOnAfterAPrimaryIsKilled(t *testing.T) {
	tier.Engines(t)
	losesAPrimary(t, (*dbtest.Cluster).Kill)
}

func TestAClusterGoesOnAfterAPrimaryIsPaused(t *testing.T) {
	tier.Engines(t)
	losesAPrimary(t, (*dbtest.Cluster).Pause)
}

// retryIfLate runs a test up to three times, until it is in time: a pause of the machine may delay it.
func retryIfLate(t *testing.T, run func() (late string)) {
	t.Helper()
	for try := 1; ; try++ {
		late := run()
		switch {
		case late == "":
			return
		case try == 3:
			t.Fatal(late)
		}
		t.Logf("try %d: %s", try, late)
	}
}

// losesAPrimary charges keys on two primaries of a cluster, and loses one of them. The other one answers meanwhile.
func losesAPrimary(t *testing.T, lose func(c *dbtest.Cluster, i int)) {
	t.Helper()
	c, err := dbtest.StartRedisCluster(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	s := openTest(t, c.URL(), nil)
	const rate, burst = 1000, 50
	p := law.Params{Kind: law.Bucket, Unit: 1_000_000, Capacity: burst * 1_000_000, Step: 1, Drain: rate}
	op := takeOne("l", "k", p, 0)
	apply(t, s, op)
	node, err := c.Primary(s.cellKey(op.Cell))
	if err != nil {
		t.Fatal(err)
	}
	other := takeOne("l", "k", p, 0)
	for i := 0; ; i++ {
		other.Cell.Key = fmt.Sprint(i)
		if n, err := c.Primary(s.cellKey(other.Cell)); err == nil && n != node {
			break
		}
	}
	others, answered := newCallers(s, asker(t, other.Cell.Key, rate, burst)), false
	newCallers(s, asker(t, "k", rate, burst)).loseAndRecover(t, func() { lose(c, node) }, func() {
		all, _ := others.round()
		answered = answered || all
	})
	others.check(t)
	if !answered {
		t.Error("while one primary was away, the others did not answer")
	}
}

// openWithProxy opens a server directly, and through a proxy that loses answers after lose(true).
func openWithProxy(t *testing.T) (direct, through *Store, lose func(bool)) {
	t.Helper()
	url := dbtest.Redis(t)
	host, rest, _ := strings.Cut(strings.TrimPrefix(url, "redis://"), "/")
	p := dbtest.Swallow(t, host)
	direct, through = openTest(t, url, nil), openTest(t, "redis://"+p.Addr+"/"+rest, nil)
	return direct, through, func(lose bool) {
		// The client has several connections, and uses any of them. All are made now, so that an
		// answer gets lost, and not a handshake.
		for n := 0; lose && n < 64; n++ {
			check := takeOne("warm", "k", perSecond, 0)
			check.Verb = law.Check
			apply(t, through, check)
		}
		p.Lose(lose)
	}
}

func TestAnswersThatGetLostAreAskedForAgainByTheirID(t *testing.T) {
	direct, through, lose := openWithProxy(t)
	// The scripts are loaded: the lost answer is not NOSCRIPT.
	ops := withID("warm", takeOne("b", "k", perSecond, testTime), takeOne("l", "k", logged, testTime))
	apply(t, direct, ops...)
	apply(t, direct, settleOp(ops[0], 0), settleOp(ops[1], 0))
	storetest.CutOff(t, direct, through, lose)
}

func TestAChargeWhoseAnswerGotLostIsNotSentAgain(t *testing.T) {
	s, through, lose := openWithProxy(t)
	op := takeOne("l", "k", hourly, 0)
	for range 3 {
		apply(t, through, op)
	}
	lose(true)
	outs := make([]law.Outcome, 1)
	err := through.Apply(context.Background(), []law.Op{op}, outs)
	if !errors.Is(err, store.ErrUnknownOutcome) {
		t.Errorf("%v, want ErrUnknownOutcome", err)
	}
	lose(false)
	if out := apply(t, s, op)[0]; out.Used != 5000 {
		t.Errorf("used %d after five charges of 1000 of which one answer got lost", out.Used)
	}
	if out := apply(t, through, op)[0]; out.Used != 6000 {
		t.Errorf("used %d, want 6000: the connection is made again", out.Used)
	}
}

// TestAClientMayRetryCommands: rueidis retries commands that are marked as retryable, and commands
// that charge are not. One answer gets lost, after its charge.
func TestAClientMayRetryCommands(t *testing.T) { repeatsNoCharge(t, dbtest.Redis(t)) }

func TestAClientOfAClusterMayRetryCommands(t *testing.T) {
	tier.Engines(t)
	repeatsNoCharge(t, dbtest.RedisCluster(t))
}

func repeatsNoCharge(t *testing.T, url string) {
	t.Helper()
	direct := openTest(t, url, nil)
	options, prefix, err := parseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	options.DisableRetry = false
	var lose atomic.Bool
	options.DialCtxFn = func(ctx context.Context, address string, dialer *net.Dialer, _ *tls.Config) (
		net.Conn, error,
	) {
		conn, err := dialer.DialContext(ctx, "tcp", address)
		return &answerLosingConn{conn, &lose}, err
	}
	client, err := rueidis.NewClient(*options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	s := New(client, &Config{Prefix: prefix})
	for n, p := range []law.Params{hourly, logged} {
		op := takeOne("l", fmt.Sprint(n), p, 0)
		ops := []law.Op{op, op} // one op alone, and a batch of two, use different scripts
		ops[1].Group, ops[1].ID, ops[1].TTL = 2, "id", 60_000_000
		apply(t, s, op)
		apply(t, s, ops...)
		check := op
		check.Verb = law.Check
		for _, ops := range [][]law.Op{{op}, {op, ops[1]}} {
			for range 64 { // this makes all connections
				apply(t, s, check)
			}
			lose.Store(true)
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			if err := s.Apply(ctx, ops, make([]law.Outcome, len(ops))); !errors.Is(err, store.ErrUnknownOutcome) {
				t.Errorf("%v, want ErrUnknownOutcome", err)
			}
			cancel()
		}
		if out := apply(t, direct, op)[0]; out.Used != 6*p.Unit {
			t.Errorf("used %d after six charges of %d of which two answers got lost", out.Used, p.Unit)
		}
	}
}

// answerLosingConn is a connection that breaks once instead of returning an answer.
type answerLosingConn struct {
	net.Conn
	lose *atomic.Bool
}

func (c *answerLosingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if bytes.HasPrefix(b[:n], []byte("+PONG")) { // the client asks once a second whether the server is there
		return n, err
	}
	if c.lose.CompareAndSwap(true, false) {
		c.Close()
		return 0, io.EOF
	}
	return n, err
}

func TestADeadlineInFlightIsAnUnknownOutcome(t *testing.T) {
	server := startServer(t)
	s, other := openTest(t, server.DSN, nil), openTest(t, server.DSN, nil)
	apply(t, s, takeOne("l", "k", hourly, 0))
	admin(t, other, "CLIENT", "PAUSE", "60000", "WRITE")
	defer admin(t, other, "CLIENT", "UNPAUSE")
	within := 100 * time.Millisecond
	retryIfLate(t, func() (late string) { // a machine that pauses sends nothing in time
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		within *= 10
		err := s.Apply(ctx, []law.Op{takeOne("l", "k", hourly, 0)}, make([]law.Outcome, 1))
		if !errors.Is(err, store.ErrUnknownOutcome) || !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Sprintf("%v, want ErrUnknownOutcome and DeadlineExceeded", err)
		}
		return ""
	})
}

func TestAServerThatIsAwayIsUnavailable(t *testing.T) {
	server := startServer(t)
	s := openTest(t, server.DSN, nil)
	apply(t, s, takeOne("l", "k", hourly, 0))
	server.Stop()
	var err error
	for range 20 { // the first request on each connection may find the connection still open
		err = s.Apply(context.Background(), []law.Op{takeOne("l", "k", hourly, 0)}, make([]law.Outcome, 1))
		if errors.Is(err, store.ErrUnavailable) {
			break
		}
	}
	if !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("%v, want ErrUnavailable", err)
	}
}

func TestARequestIsGivenBackWhenAnotherSlotDoesNotAnswer(t *testing.T) {
	tier.Engines(t)
	within := 200 * time.Millisecond
	retryIfLate(t, func() (late string) {
		late = givesBack(t, within)
		within *= 3 // no replica takes over before
		return late
	})
}

// givesBack makes a request of two slots of which one does not answer in time, and returns what went wrong. A machine
// that pauses may not send the request in time, and a replica may answer in place of its primary.
func givesBack(t *testing.T, within time.Duration) (wrong string) {
	t.Helper()
	c, err := dbtest.StartRedisCluster(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	s := openTest(t, c.URL(), nil)
	here := takeOne("l", "k", perSecond, testTime)
	apply(t, s, here)
	node, err := c.Primary(s.cellKey(here.Cell))
	if err != nil {
		t.Fatal(err)
	}
	there := here
	for i, n := 0, node; n == node; i++ {
		there.Cell.Key = fmt.Sprint(i)
		if n, err = c.Primary(s.cellKey(there.Cell)); err != nil {
			t.Fatal(err)
		}
	}
	apply(t, s, here, there) // loads the scripts
	if node, err = c.Primary(s.cellKey(there.Cell)); err != nil {
		t.Fatal(err)
	}
	c.Pause(node)
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	outs := make([]law.Outcome, 2)
	if err := s.Apply(ctx, []law.Op{here, there}, outs); !errors.Is(err, store.ErrUnknownOutcome) {
		return fmt.Sprintf("%+v, %v; want ErrUnknownOutcome", outs, err)
	}
	if out := apply(t, s, here)[0]; out.Used != 3*perSecond.Unit {
		t.Errorf("used %d, want three units: what was taken for nothing is given back", out.Used)
	}
	return ""
}
