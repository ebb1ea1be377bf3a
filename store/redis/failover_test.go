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
	mu      sync.Mutex
	limiter *headgate.Limiter
	asker   *record.Asker
	record.Answers
	unclassified []error // errors that are of no class
}

// newAsker returns an Asker for a key of a token bucket.
func newAsker(t *testing.T, key string, rate, burst int) *record.Asker {
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

func newCallers(s *Store, asker *record.Asker) *callers {
	return &callers{limiter: headgate.New(s, nil), asker: asker}
}

// round makes eight concurrent requests, and reports whether all of them were answered, or none was.
func (c *callers) round() (all, none bool) {
	before := c.Allowed + c.Refused
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
			defer cancel()
			d, err := c.asker.Allow(ctx, "test", c.limiter)
			c.mu.Lock()
			defer c.mu.Unlock()
			if unclassified := c.Add(d, err); unclassified != nil {
				c.unclassified = append(c.unclassified, unclassified)
			}
		})
	}
	wg.Wait()
	n := c.Allowed + c.Refused - before
	return n == 8, n == 0
}

// loseAndRecover loses a primary under load, with the charges that its replica lacks. It calls onOutage after each
// round without an answer. After such a round and then 20 rounds in a row with all answers, it checks the answers.
func (c *callers) loseAndRecover(t *testing.T, losePrimary, onOutage func()) {
	t.Helper()
	for range 20 {
		c.round()
	}
	since := c.asker.Recorder.Now() - time.Second // the replica lacks no charges from before
	c.asker.Recorder.Fault("redis", history.Fault{Kind: history.Kill})
	var concurrentRound sync.WaitGroup
	concurrentRound.Go(func() { c.round() })
	losePrimary()
	concurrentRound.Wait()
	c.asker.Recorder.Fault("redis", history.Fault{Kind: history.Forget, Since: max(0, int64(since))})
	sawOutage, answeredRounds := false, 0
	await.Until(t, "answers after none", func() bool {
		all, none := c.round()
		if none {
			sawOutage = true
			onOutage()
		}
		if answeredRounds++; !all || !sawOutage {
			answeredRounds = 0
		}
		return answeredRounds == 20
	})
	c.checkAnswers(t)
}

// checkAnswers checks the history of all requests, and that all errors have a class.
func (c *callers) checkAnswers(t *testing.T) {
	t.Helper()
	t.Logf("%+v", &c.Answers)
	if _, err := c.asker.RecordFinalState(t.Context(), c.limiter); err != nil {
		t.Error(err)
	}
	for _, v := range check.Check(c.asker.Recorder.History()) {
		t.Error(v)
	}
	if len(c.unclassified) > 0 {
		t.Errorf("got %d errors of no class, want none; the first is %v", len(c.unclassified), c.unclassified[0])
	}
}

func TestAClusterFailsOverAfterAPrimaryIsKilled(t *testing.T) {
	tier.Engines(t)
	testLostPrimary(t, (*dbtest.Cluster).Kill)
}

func TestAClusterFailsOverAfterAPrimaryIsPaused(t *testing.T) {
	tier.Engines(t)
	testLostPrimary(t, (*dbtest.Cluster).Pause)
}

// retryIfLate runs a test up to three times, until it reports no delay: a pause of the machine may delay it.
func retryIfLate(t *testing.T, run func() (delay string)) {
	t.Helper()
	for try := 1; ; try++ {
		delay := run()
		switch {
		case delay == "":
			return
		case try == 3:
			t.Fatal(delay)
		}
		t.Logf("try %d: %s", try, delay)
	}
}

// testLostPrimary charges keys on two primaries of a cluster, and loses one of them. The other one has to answer
// meanwhile.
func testLostPrimary(t *testing.T, losePrimary func(c *dbtest.Cluster, i int)) {
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
	otherCallers, otherAnswered := newCallers(s, newAsker(t, other.Cell.Key, rate, burst)), false
	newCallers(s, newAsker(t, "k", rate, burst)).loseAndRecover(t, func() { losePrimary(c, node) }, func() {
		all, _ := otherCallers.round()
		otherAnswered = otherAnswered || all
	})
	otherCallers.checkAnswers(t)
	if !otherAnswered {
		t.Error("got no answer from the other primary while one primary was away")
	}
}

// openWithProxy opens a server directly, and through a proxy that loses answers after loseAnswers(true).
func openWithProxy(t *testing.T) (direct, proxied *Store, loseAnswers func(bool)) {
	t.Helper()
	url := dbtest.Redis(t)
	host, path, _ := strings.Cut(strings.TrimPrefix(url, "redis://"), "/")
	p := dbtest.StartProxy(t, host)
	direct, proxied = openTest(t, url, nil), openTest(t, "redis://"+p.Addr+"/"+path, nil)
	return direct, proxied, func(enabled bool) {
		// The client has several connections, and uses any of them. All are made now, so that the proxy loses an
		// answer and not a handshake.
		for n := 0; enabled && n < 64; n++ {
			check := takeOne("warm", "k", perSecond, 0)
			check.Verb = law.Check
			apply(t, proxied, check)
		}
		p.Lose(enabled)
	}
}

func TestRetriesByIDAfterLostAnswersChargeOnce(t *testing.T) {
	direct, proxied, loseAnswers := openWithProxy(t)
	// The scripts are loaded: the lost answer is not NOSCRIPT.
	ops := withID("warm", takeOne("b", "k", perSecond, testTime), takeOne("l", "k", logLimit, testTime))
	apply(t, direct, ops...)
	apply(t, direct, settleOp(ops[0], 0), settleOp(ops[1], 0))
	storetest.CutOff(t, direct, proxied, loseAnswers)
}

func TestAChargeWithALostAnswerIsNotRetried(t *testing.T) {
	direct, proxied, loseAnswers := openWithProxy(t)
	op := takeOne("l", "k", hourly, 0)
	for range 3 {
		apply(t, proxied, op)
	}
	loseAnswers(true)
	outs := make([]law.Outcome, 1)
	err := proxied.Apply(context.Background(), []law.Op{op}, outs)
	if !errors.Is(err, store.ErrUnknownOutcome) {
		t.Errorf("got %v, want ErrUnknownOutcome", err)
	}
	loseAnswers(false)
	if out := apply(t, direct, op)[0]; out.Used != 5000 {
		t.Errorf("used %d, want 5000: five charges of 1000, of which one answer got lost", out.Used)
	}
	if out := apply(t, proxied, op)[0]; out.Used != 6000 {
		t.Errorf("used %d, want 6000 over the proxy's next connection", out.Used)
	}
}

// TestAClientWithRetriesRepeatsNoCharge checks that rueidis, without DisableRetry, does not retry a charge of which the
// answer got lost: it retries only commands that are marked as retryable.
func TestAClientWithRetriesRepeatsNoCharge(t *testing.T) { testClientWithRetries(t, dbtest.Redis(t)) }

func TestAClusterClientWithRetriesRepeatsNoCharge(t *testing.T) {
	tier.Engines(t)
	testClientWithRetries(t, dbtest.RedisCluster(t))
}

func testClientWithRetries(t *testing.T, url string) {
	t.Helper()
	direct := openTest(t, url, nil)
	options, prefix, err := parseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	options.DisableRetry = false
	var loseAnswer atomic.Bool
	options.DialCtxFn = func(ctx context.Context, address string, dialer *net.Dialer, _ *tls.Config) (
		net.Conn, error,
	) {
		conn, err := dialer.DialContext(ctx, "tcp", address)
		return &answerLosingConn{conn, &loseAnswer}, err
	}
	client, err := rueidis.NewClient(*options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	retryStore := New(client, &Config{Prefix: prefix})
	for n, p := range []law.Params{hourly, logLimit} {
		op := takeOne("l", fmt.Sprint(n), p, 0)
		ops := []law.Op{op, op} // one op alone, and a batch of two, use different scripts
		ops[1].Group, ops[1].ID, ops[1].TTL = 2, "id", 60_000_000
		apply(t, retryStore, op)
		apply(t, retryStore, ops...)
		check := op
		check.Verb = law.Check
		for _, ops := range [][]law.Op{{op}, {op, ops[1]}} {
			for range 64 { // this makes all connections
				apply(t, retryStore, check)
			}
			loseAnswer.Store(true)
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			err := retryStore.Apply(ctx, ops, make([]law.Outcome, len(ops)))
			if !errors.Is(err, store.ErrUnknownOutcome) {
				t.Errorf("got %v, want ErrUnknownOutcome", err)
			}
			cancel()
		}
		if out := apply(t, direct, op)[0]; out.Used != 6*p.Unit {
			t.Errorf("used %d, want %d: six charges, of which two answers got lost", out.Used, 6*p.Unit)
		}
	}
}

// answerLosingConn is a connection that breaks instead of returning the next answer once loseAnswer is set.
type answerLosingConn struct {
	net.Conn
	loseAnswer *atomic.Bool
}

func (c *answerLosingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if bytes.HasPrefix(b[:n], []byte("+PONG")) { // the client asks once a second whether the server is there
		return n, err
	}
	if c.loseAnswer.CompareAndSwap(true, false) {
		c.Close()
		return 0, io.EOF
	}
	return n, err
}

func TestADeadlineOfASentBatchIsErrUnknownOutcome(t *testing.T) {
	server := startServer(t)
	s, other := openTest(t, server.DSN, nil), openTest(t, server.DSN, nil)
	apply(t, s, takeOne("l", "k", hourly, 0))
	admin(t, other, "CLIENT", "PAUSE", "60000", "WRITE")
	defer admin(t, other, "CLIENT", "UNPAUSE")
	timeout := 100 * time.Millisecond
	retryIfLate(t, func() (delay string) { // a machine that pauses sends nothing in time
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		timeout *= 10
		err := s.Apply(ctx, []law.Op{takeOne("l", "k", hourly, 0)}, make([]law.Outcome, 1))
		if !errors.Is(err, store.ErrUnknownOutcome) || !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Sprintf("got %v, want ErrUnknownOutcome and DeadlineExceeded", err)
		}
		return ""
	})
}

func TestAStoppedServerIsErrUnavailable(t *testing.T) {
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
		t.Errorf("got %v, want ErrUnavailable", err)
	}
}

func TestARequestIsGivenBackWhenAnotherSlotDoesNotAnswer(t *testing.T) {
	tier.Engines(t)
	timeout := 200 * time.Millisecond
	retryIfLate(t, func() (delay string) {
		delay = testPausedSlot(t, timeout)
		timeout *= 3 // 1.8 s at most: no replica takes over before
		return delay
	})
}

// testPausedSlot makes a request of two slots, of which one does not answer before the timeout, and checks that the
// other gives its charge back. It returns why the request did not end with ErrUnknownOutcome, or "": the machine
// paused, or a replica answered for its primary.
func testPausedSlot(t *testing.T, timeout time.Duration) (delay string) {
	t.Helper()
	c, err := dbtest.StartRedisCluster(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	s := openTest(t, c.URL(), nil)
	live := takeOne("l", "k", perSecond, testTime)
	apply(t, s, live)
	node, err := c.Primary(s.cellKey(live.Cell))
	if err != nil {
		t.Fatal(err)
	}
	paused := live
	for i, n := 0, node; n == node; i++ {
		paused.Cell.Key = fmt.Sprint(i)
		if n, err = c.Primary(s.cellKey(paused.Cell)); err != nil {
			t.Fatal(err)
		}
	}
	apply(t, s, live, paused) // loads the scripts
	if node, err = c.Primary(s.cellKey(paused.Cell)); err != nil {
		t.Fatal(err)
	}
	c.Pause(node)
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	outs := make([]law.Outcome, 2)
	if err := s.Apply(ctx, []law.Op{live, paused}, outs); !errors.Is(err, store.ErrUnknownOutcome) {
		return fmt.Sprintf("got %+v, %v; want ErrUnknownOutcome", outs, err)
	}
	if out := apply(t, s, live)[0]; out.Used != 3*perSecond.Unit {
		t.Errorf("used %d, want three units: the charge of the failed request is given back", out.Used)
	}
	return ""
}
