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
	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/internal/history"
	"github.com/headgate/headgate/internal/history/record"
	"github.com/headgate/headgate/internal/sim/check"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/storetest"
)

// hammer asks for a key from several goroutines until stop, and counts the answers.
type hammer struct {
	mu   sync.Mutex
	stop atomic.Bool
	wg   sync.WaitGroup
	l    *headgate.Limiter
	ask  *record.Asker
	record.Answers
	other []error
}

// asker asks for a key of a token bucket.
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

func startHammer(s *Store, ask *record.Asker) *hammer {
	h := &hammer{l: headgate.New(s, nil), ask: ask}
	for range 8 {
		h.wg.Go(func() {
			for ; !h.stop.Load(); time.Sleep(time.Millisecond) {
				ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
				d, err := ask.Allow(ctx, "test", h.l)
				cancel()
				h.mu.Lock()
				if other := h.Add(d, err); other != nil {
					h.other = append(h.other, other)
				}
				h.mu.Unlock()
			}
		})
	}
	return h
}

// lost records that a primary is lost, with what its replica has not heard of.
func (h *hammer) lost(lose func()) {
	since := h.ask.Recorder.Now() - time.Second
	h.ask.Recorder.Fault("redis", history.Fault{Kind: history.Kill})
	lose()
	h.ask.Recorder.Fault("redis", history.Fault{Kind: history.Forget, Since: max(0, int64(since))})
}

// end stops asking once there was a gap and answers flow again.
func (h *hammer) end(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		h.mu.Lock()
		n := h.Allowed + h.Refused
		h.mu.Unlock()
		time.Sleep(200 * time.Millisecond)
		h.mu.Lock()
		flows := h.Allowed+h.Refused > n+20 && h.Gap > time.Second
		h.mu.Unlock()
		if flows {
			break
		}
	}
	h.halt(t)
}

func (h *hammer) halt(t *testing.T) {
	t.Helper()
	h.stop.Store(true)
	h.wg.Wait()
	t.Logf("%+v", &h.Answers)
	if _, err := h.ask.Over(t.Context(), h.l); err != nil {
		t.Error(err)
	}
	for _, v := range check.Check(h.ask.Recorder.History()) {
		t.Error(v)
	}
	if len(h.other) > 0 {
		t.Errorf("%d errors of no class, first: %v", len(h.other), h.other[0])
	}
}

func TestAClusterGoesOnAfterAPrimaryIsLost(t *testing.T) {
	for _, tt := range []struct {
		name string
		lose func(c *dbtest.Cluster, i int)
	}{
		{"killed", (*dbtest.Cluster).Kill},
		{"paused", (*dbtest.Cluster).Pause},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tries(t, func() (late string) {
				here, elsewhere := losesAPrimary(t, tt.lose)
				if here > 6*time.Second || elsewhere > 2*time.Second {
					return fmt.Sprintf("no answer for %v, and for the other primaries' keys for %v", here, elsewhere)
				}
				return ""
			})
		})
	}
}

// tries runs what a pause of the machine may delay until it is in time, three times at most.
func tries(t *testing.T, run func() (late string)) {
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

// losesAPrimary asks a cluster for keys of two primaries, and loses one of them. It returns for how long
// there was no answer for either key.
func losesAPrimary(t *testing.T, lose func(c *dbtest.Cluster, i int)) (here, elsewhere time.Duration) {
	t.Helper()
	c, err := dbtest.StartRedisCluster(context.Background())
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
	begin := time.Now()
	h := startHammer(s, asker(t, "k", rate, burst))
	others := startHammer(s, asker(t, other.Cell.Key, rate, burst))
	time.Sleep(500 * time.Millisecond)
	h.lost(func() { lose(c, node) })
	h.end(t)
	others.halt(t)
	// A replica may not have got the last charges: one burst more.
	if most := int(2*burst + time.Since(begin).Seconds()*rate); h.Allowed > most {
		t.Errorf("admitted %d, at most %d", h.Allowed, most)
	}
	return h.Gap, others.Gap
}

// swallowed opens a server, and again through a proxy that loses answers while it is
// told to.
func swallowed(t *testing.T) (direct, through *Store, lose func(bool)) {
	t.Helper()
	url := dbtest.Redis(t)
	host, rest, _ := strings.Cut(strings.TrimPrefix(url, "redis://"), "/")
	p := dbtest.Swallow(t, host)
	direct, through = openTest(t, url, nil), openTest(t, "redis://"+p.Addr+"/"+rest, nil)
	return direct, through, func(lose bool) {
		// The client has several connections, and takes any: all of them are made, so
		// that what gets lost is an answer, and not a greeting.
		for n := 0; lose && n < 64; n++ {
			check := takeOne("warm", "k", perSecond, 0)
			check.Verb = law.Check
			apply(t, through, check)
		}
		p.Lose(lose)
	}
}

func TestAnswersThatGetLostAreAskedForAgainByTheirID(t *testing.T) {
	direct, through, lose := swallowed(t)
	// The scripts are there: what gets lost is not that one is not known.
	ops := once60("warm", takeOne("b", "k", perSecond, testTime), takeOne("l", "k", logged, testTime))
	apply(t, direct, ops...)
	apply(t, direct, settling(ops[0], 0), settling(ops[1], 0))
	storetest.CutOff(t, direct, through, lose)
}

func TestAChargeWhoseAnswerGotLostIsNotSentAgain(t *testing.T) {
	s, through, lose := swallowed(t)
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

// TestAClientMayHaveItsRetries: rueidis repeats what is marked as repeatable, and nothing
// that charges is. An answer gets lost, after it was charged; the next one would not.
func TestAClientMayHaveItsRetries(t *testing.T) {
	for name, url := range map[string]string{"single": dbtest.Redis(t), "cluster": dbtest.RedisCluster(t)} {
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
			return &losing{conn, &lose}, err
		}
		client, err := rueidis.NewClient(*options)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		s := New(client, &Config{Prefix: prefix})
		for n, p := range []law.Params{hourly, logged} {
			op := takeOne("l", fmt.Sprint(n), p, 0)
			ops := []law.Op{op, op} // each a call of its own kind
			ops[1].Group, ops[1].ID, ops[1].TTL = 2, "id", 60_000_000
			apply(t, s, op)
			apply(t, s, ops...)
			check := op
			check.Verb = law.Check
			for _, ops := range [][]law.Op{{op}, {op, ops[1]}} {
				for range 64 { // so that all connections are made
					apply(t, s, check)
				}
				lose.Store(true)
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				if err := s.Apply(ctx, ops, make([]law.Outcome, len(ops))); !errors.Is(err, store.ErrUnknownOutcome) {
					t.Errorf("%s: %v, want ErrUnknownOutcome", name, err)
				}
				cancel()
			}
			if out := apply(t, direct, op)[0]; out.Used != 6*p.Unit {
				t.Errorf("%s: used %d after six charges of %d of which two answers got lost", name, out.Used, p.Unit)
			}
		}
	}
}

// losing is a connection that breaks instead of handing over an answer, once.
type losing struct {
	net.Conn
	lose *atomic.Bool
}

func (c *losing) Read(b []byte) (int, error) {
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
	server := own(t)
	s, other := openTest(t, server.DSN, nil), openTest(t, server.DSN, nil)
	apply(t, s, takeOne("l", "k", hourly, 0))
	admin(t, other, "CLIENT", "PAUSE", "60000", "WRITE")
	defer admin(t, other, "CLIENT", "UNPAUSE")
	within := 100 * time.Millisecond
	tries(t, func() (late string) { // a machine that pauses sends nothing in time
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
	server := own(t)
	s := openTest(t, server.DSN, nil)
	apply(t, s, takeOne("l", "k", hourly, 0))
	server.Stop()
	var err error
	for range 20 { // the first on each connection may find it open still
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
	tries(t, func() (late string) { return givesBack(t) })
}

// givesBack returns what is wrong about a request of two slots of which one does not answer in time. A machine
// that pauses may not send it in time, and a replica may answer in place of its primary.
func givesBack(t *testing.T) (wrong string) {
	t.Helper()
	c, err := dbtest.StartRedisCluster(context.Background())
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
	apply(t, s, here, there) // the scripts are there
	if node, err = c.Primary(s.cellKey(there.Cell)); err != nil {
		t.Fatal(err)
	}
	c.Pause(node)
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
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
