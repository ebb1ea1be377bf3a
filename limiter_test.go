package headgate_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// clock is a clock that only tests advance.
type clock struct{ now int64 } // microseconds

// newClock returns a clock that shows the time at, which is in RFC 3339.
func newClock(at string) *clock {
	t, err := time.Parse(time.RFC3339, at)
	if err != nil {
		panic(err)
	}
	return &clock{t.UnixMicro()}
}

func (c *clock) read() int64             { return c.now }
func (c *clock) advance(d time.Duration) { c.now += d.Microseconds() }

// newLimiter returns a limiter over a store in memory that has this clock. The limiter itself has the machine's.
func newLimiter(c *clock) *headgate.Limiter {
	return headgate.New(memory.New(&memory.Config{Clock: c.read, Names: true}), nil)
}

func TestTokenBucketAdmitsItsBurstThenItsRate(t *testing.T) {
	t.Parallel()
	c := newClock("2026-03-01T12:00:00Z")
	l := newLimiter(c)
	limit := headgate.MustParse("token-bucket 1/s burst 3")
	for i := range 3 {
		d := allow(t, l, limit, "k")
		if !d.Allowed || d.Remaining != int64(2-i) {
			t.Fatalf("request %d: %+v", i, d)
		}
	}
	d := allow(t, l, limit, "k")
	if d.Allowed || d.RetryAfter != time.Second || d.ResetAfter != 3*time.Second || d.Remaining != 0 {
		t.Fatalf("after the burst: %+v", d)
	}
	c.advance(time.Second - time.Microsecond)
	if allow(t, l, limit, "k").Allowed {
		t.Fatal("admitted a microsecond early")
	}
	c.advance(time.Microsecond)
	if !allow(t, l, limit, "k").Allowed {
		t.Fatal("refused when RetryAfter was over")
	}
}

func TestSeveralChargesAreAdmittedAllOrNone(t *testing.T) {
	t.Parallel()
	l := newLimiter(newClock("2026-03-01T12:00:00Z"))
	user, org := headgate.MustParse("token-bucket 10/s"), headgate.MustParse("token-bucket 5/1m")
	chargesOf := func(n int64) []headgate.Charge {
		return []headgate.Charge{
			{Limit: user, Key: "alice", Cost: headgate.Units(n)},
			{Limit: org, Key: "acme", Cost: headgate.Units(n)},
		}
	}
	d, err := l.Take(t.Context(), chargesOf(4)...)
	if err != nil || !d.Allowed || d.LimitName != org.Name() || d.Remaining != 1 {
		t.Fatalf("got %+v, %v; want an admission about acme, which has the smaller part left", d, err)
	}
	d, err = l.Take(t.Context(), chargesOf(2)...)
	if err != nil || d.Allowed || d.LimitName != org.Name() || d.RetryAfter != 12*time.Second {
		t.Fatalf("got %+v, %v; want a refusal by acme", d, err)
	}
	d, err = l.Take(t.Context(), headgate.Charge{Limit: user, Key: "alice", Cost: headgate.Units(6)})
	if err != nil || !d.Allowed {
		t.Fatalf("the refused request charged alice: %+v, %v", d, err)
	}
}

func TestACostAboveTheCapacityNeverPasses(t *testing.T) {
	t.Parallel()
	l := newLimiter(newClock("2026-03-01T12:00:00Z"))
	d, err := l.Take(t.Context(), headgate.Charge{
		Limit: headgate.MustParse("token-bucket 10/s burst 5 block 1h"),
		Key:   "k", Cost: headgate.Units(6),
	})
	if err != nil || d.Allowed || d.RetryAfter != headgate.Never || d.Remaining != 5 {
		t.Fatalf("got %+v, %v; want a refusal with RetryAfter Never and 5 remaining", d, err)
	}
}

func TestCalendarWindowsStartWhereTheZoneSays(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, limit, now, nextWindow string }{
		{"a month in Berlin", "fixed-window 1/month Europe/Berlin", "2026-03-15T00:00:00Z", "2026-03-31T22:00:00Z"},
		{
			"a day that loses an hour", "fixed-window 1/day Europe/Berlin", "2026-03-28T23:30:00Z",
			"2026-03-29T22:00:00Z",
		},
		{
			"a day whose midnight is skipped", "fixed-window 1/day America/Sao_Paulo", "2018-11-03T12:00:00Z",
			"2018-11-04T03:00:00Z",
		},
		{
			"a day whose midnight comes twice", "fixed-window 1/day America/Havana", "2026-10-31T12:00:00Z",
			"2026-11-01T04:00:00Z",
		},
		{
			"a day that does not exist", "fixed-window 1/day Pacific/Apia", "2011-12-29T12:00:00Z",
			"2011-12-30T10:00:00Z",
		},
		{"a week from Monday", "fixed-window 1/week", "2026-03-01T12:00:00Z", "2026-03-02T00:00:00Z"},
		{"an hour off by half", "fixed-window 1/hour Asia/Kolkata", "2026-03-01T12:00:00Z", "2026-03-01T12:30:00Z"},
		{
			"an hour where the offset changes by half", "fixed-window 1/hour Australia/Lord_Howe", "2026-10-03T15:10:00Z",
			"2026-10-03T16:00:00Z",
		},
		{"a window since the epoch", "fixed-window 1/1h", "2026-03-01T12:59:59Z", "2026-03-01T13:00:00Z"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newClock(tt.now)
			l, limit := newLimiter(c), headgate.MustParse(tt.limit)
			if !allow(t, l, limit, "k").Allowed {
				t.Fatal("the first request was refused")
			}
			d := allow(t, l, limit, "k")
			if got := d.At.Add(d.RetryAfter).Format(time.RFC3339); d.Allowed || got != tt.nextWindow {
				t.Fatalf("the next window starts at %s, want %s", got, tt.nextWindow)
			}
			c.advance(d.RetryAfter - time.Microsecond)
			if allow(t, l, limit, "k").Allowed {
				t.Fatal("admitted before the next window")
			}
			c.advance(time.Microsecond)
			if !allow(t, l, limit, "k").Allowed {
				t.Fatal("refused in the next window")
			}
		})
	}
}

func TestFillUpStopsAtTheBrim(t *testing.T) {
	t.Parallel()
	l := newLimiter(newClock("2026-03-01T12:00:00Z"))
	c := headgate.Charge{
		Limit: headgate.MustParse("leaky-bucket 1/s capacity 10"), Key: "k",
		Cost: headgate.MustCost("7.5"),
	}
	for _, want := range []headgate.FillUpResult{
		{Accepted: headgate.MustCost("7.5")},
		{Accepted: headgate.MustCost("2.5"), Brim: true},
		{Brim: true},
	} {
		got, err := l.FillUp(t.Context(), c)
		if err != nil || got.Accepted.Float64() != want.Accepted.Float64() || got.Brim != want.Brim {
			t.Fatalf("got %+v, %v; want %+v", got, err, want)
		}
	}
}

func TestFillUpOfClosedAndUnlimited(t *testing.T) {
	t.Parallel()
	l := newLimiter(newClock("2026-03-01T12:00:00Z"))
	f, err := l.FillUp(t.Context(), headgate.Charge{Limit: headgate.MustParse("0"), Key: "k"})
	if err != nil || f.Decision.Allowed || f.Accepted.Float64() != 0 || f.Level.Float64() != 0 ||
		f.Decision.RetryAfter != headgate.Never {
		t.Errorf("closed: got %+v, %v; want nothing accepted, and RetryAfter Never", f, err)
	}
	f, err = l.FillUp(t.Context(), headgate.Charge{
		Limit: headgate.MustParse("unlimited"), Key: "k", Cost: headgate.Units(1_000_000),
	})
	if err != nil || !f.Decision.Allowed || f.Accepted != headgate.Units(1_000_000) || f.Brim {
		t.Errorf("unlimited: got %+v, %v; want all accepted", f, err)
	}
}

func TestBlockRefusesUntilItEndsOrIsLifted(t *testing.T) {
	t.Parallel()
	c := newClock("2026-03-01T12:00:00Z")
	l, limit := newLimiter(c), headgate.MustParse("token-bucket 10/s")
	s, err := l.Block(t.Context(), limit, "k", 15*time.Minute, "abuse")
	if err != nil || s.Reason != "abuse" || s.BlockedUntil.Sub(s.At) != 15*time.Minute {
		t.Fatalf("block: got %+v, %v; want 15 minutes with the reason abuse", s, err)
	}
	if d := allow(t, l, limit, "k"); d.Allowed || d.RetryAfter != 15*time.Minute || d.Remaining != 0 {
		t.Fatalf("got %+v, want a refusal for 15 minutes", d)
	}
	list, err := l.List(t.Context(), store.Query{Blocked: true})
	if err != nil || len(list) != 1 || list[0].Reason != "abuse" {
		t.Fatalf("list: got %+v, %v; want the blocked key", list, err)
	}
	if _, err := l.Block(t.Context(), limit, "k", 0, ""); err != nil {
		t.Fatal(err)
	}
	if !allow(t, l, limit, "k").Allowed {
		t.Fatal("still blocked")
	}
}

func TestInspectAttemptsAndReset(t *testing.T) {
	t.Parallel()
	c := newClock("2026-03-01T12:00:00Z")
	l := newLimiter(c)
	bucket := headgate.MustParse("token-bucket 1/s burst 4")
	allow(t, l, bucket, "k")
	allow(t, l, bucket, "k")
	c.advance(500 * time.Millisecond)
	s, err := l.Inspect(t.Context(), bucket, "k")
	if err != nil || s.Used != headgate.MustCost("1.5") || s.Remaining != 2 || !s.Exists {
		t.Fatalf("bucket: got %+v, %v; want 1.5 used and 2 remaining", s, err)
	}
	log := headgate.MustParse("sliding-log 1/1m history 1d block 5m")
	allow(t, l, log, "k")
	allow(t, l, log, "k")
	s, err = l.Inspect(t.Context(), log, "k")
	if err != nil || len(s.History) != 2 || s.History[0].Allowed || !s.History[1].Allowed || s.BlockedUntil.IsZero() {
		t.Fatalf("log: got %+v, %v; want a refused and an allowed attempt, and a block", s, err)
	}
	if list, err := l.Attempts(t.Context(), log, "k", 1); err != nil || !slices.Equal(list, s.History[:1]) {
		t.Fatalf("the newest attempt: got %+v, %v; want %+v", list, err, s.History[:1])
	}
	if list, err := l.Attempts(t.Context(), bucket, "k", 1); err != nil || list != nil {
		t.Fatalf("attempts of a bucket: got %+v, %v; want none", list, err)
	}
	if _, err := l.Attempts(t.Context(), log, "k", 0); !errors.Is(err, headgate.ErrInvalid) {
		t.Fatalf("0 attempts: %v, want ErrInvalid", err)
	}
	if existed, err := l.Reset(t.Context(), log, "k"); err != nil || !existed {
		t.Fatalf("reset: %v, %v; want that the key existed", existed, err)
	}
	if !allow(t, l, log, "k").Allowed {
		t.Fatal("refused after a reset")
	}
}

func TestBadRequestsNameTheFieldAndChargeNothing(t *testing.T) {
	t.Parallel()
	l := newLimiter(newClock("2026-03-01T12:00:00Z"))
	limit := headgate.MustParse("token-bucket 10/s")
	for _, tt := range []struct {
		charge headgate.Charge
		field  string
	}{
		{headgate.Charge{Key: "k"}, "limit"},
		{headgate.Charge{Limit: limit, Key: strings.Repeat("x", 513)}, "key"},
		{headgate.Charge{Limit: limit, Key: "a\x00b"}, "key"},
		{headgate.Charge{Limit: limit, Key: "\xff"}, "key"},
		{headgate.Charge{Limit: limit, Key: "k", Cost: headgate.Units(0)}, "cost"},
		{headgate.Charge{Limit: limit, Key: "k", Cost: headgate.Units(-1)}, "cost"},
		{headgate.Charge{Limit: limit, Key: "k", Cost: headgate.Units(1 << 52)}, "cost"},
		{headgate.Charge{Limit: headgate.MustParse("concurrency 1 ttl 1s"), Key: "k"}, "limit"},
	} {
		_, err := l.Take(t.Context(), headgate.Charge{Limit: limit, Key: "good"}, tt.charge)
		if !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), tt.field+":") {
			t.Errorf("%+v: got %v, want an ErrInvalid about %s", tt.charge, err, tt.field)
		}
	}
	if list, err := l.List(t.Context(), store.Query{}); err != nil || len(list) != 0 {
		t.Errorf("something was charged: %+v, %v", list, err)
	}
	if _, err := l.Take(t.Context()); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("no charges: %v, want ErrInvalid", err)
	}
}

func TestBatchDecidesEachRequestByItself(t *testing.T) {
	t.Parallel()
	l := newLimiter(newClock("2026-03-01T12:00:00Z"))
	limit := headgate.MustParse("token-bucket 1/s")
	month := headgate.MustParse("fixed-window 1/month")
	request := func(key string, limit headgate.Limit) headgate.Request {
		return headgate.Request{Charges: []headgate.Charge{{Limit: limit, Key: key}}}
	}
	answers, err := l.Batch(t.Context(), []headgate.Request{
		request("a", limit), request("a", limit), request("\xff", limit), request("b", month), request("b", month),
		{Charges: []headgate.Charge{{Limit: limit, Key: "c"}}, Check: true},
		request("c", limit),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"yes", "no", "error", "yes", "no", "yes", "yes"}
	for i, a := range answers {
		got := map[bool]string{true: "yes", false: "no"}[a.Decision.Allowed]
		if a.Err != nil {
			got = "error"
		}
		if got != want[i] {
			t.Errorf("request %d: %s (%v), want %s", i, got, a.Err, want[i])
		}
	}
}

// allow takes one unit, and returns the decision.
func allow(t *testing.T, l *headgate.Limiter, limit headgate.Limit, key string) headgate.Decision {
	t.Helper()
	d, err := l.Allow(context.Background(), limit, key)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestZeroLimiterReturnsErrInvalid calls a Limiter that New has not made, also with limits that need a clock.
func TestZeroLimiterReturnsErrInvalid(t *testing.T) {
	t.Parallel()
	var l headgate.Limiter
	daily := headgate.MustParseNamed("a", "fixed-window 5/day UTC")
	timed, err := daily.Until(time.Now().Add(time.Hour), headgate.MustParseNamed("a", "fixed-window 6/day UTC"))
	if err != nil {
		t.Fatal(err)
	}
	hourly, named := headgate.MustParse("fixed-window 5/1h"), headgate.MustNamed("a")
	for _, limit := range []headgate.Limit{daily, timed, hourly, named} {
		c := headgate.Charge{Limit: limit, Key: "k"}
		_, takeErr := l.Take(t.Context(), c)
		_, batchErr := l.Batch(t.Context(), []headgate.Request{{Charges: []headgate.Charge{c}}})
		_, inspectErr := l.Inspect(t.Context(), limit, "k")
		_, onceErr := l.Once("id", 0).Take(t.Context(), c)
		for verb, err := range map[string]error{"Take": takeErr, "Batch": batchErr, "Inspect": inspectErr, "Once": onceErr} {
			if !errors.Is(err, headgate.ErrInvalid) {
				t.Errorf("%s of %s: got %v, want ErrInvalid", verb, limit, err)
			}
		}
	}
}

// jumpingStore is a store whose time leaves the calendar of the limit jumps at each attempt.
type jumpingStore struct{ store.Store }

func (s jumpingStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	err := s.Store.Apply(ctx, ops, outs)
	for i := range ops {
		if ops[i].Cell.Limit == "jumps" {
			outs[i] = law.Outcome{Stale: true, Clock: ops[i].Window[2] + 86_400_000_000} // a day past the window
		}
	}
	return err
}

// TestBatchDecidesOthersWhereTheTimeJumps checks that a request whose calendar cannot be refreshed fails alone: the
// other requests of its batch were charged.
func TestBatchDecidesOthersWhereTheTimeJumps(t *testing.T) {
	t.Parallel()
	l := headgate.New(jumpingStore{memory.New(nil)}, nil)
	results, err := l.Batch(t.Context(), []headgate.Request{
		{Charges: []headgate.Charge{{Limit: headgate.MustParseNamed("jumps", "fixed-window 5/day UTC"), Key: "k"}}},
		{Charges: []headgate.Charge{{Limit: headgate.MustParseNamed("stays", "fixed-window 5/day UTC"), Key: "k"}}},
	})
	if err != nil || !errors.Is(results[0].Err, store.ErrSetup) || results[1].Err != nil ||
		results[1].Decision.Remaining != 4 {
		t.Errorf("got %+v, %v; want ErrSetup for the first request, and 4 remaining of the second", results, err)
	}
}
