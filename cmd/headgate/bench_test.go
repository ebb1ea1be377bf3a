package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/big"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/accesslog"
	"github.com/headgate/headgate/internal/load"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

func runBench(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, errOut bytes.Buffer
	code = runMain(ctx, append([]string{"bench"}, args...), strings.NewReader(""), &out, &errOut)
	return code, out.String(), errOut.String()
}

// TestBenchAuditsEachLimit makes more calls than any of the limits admits, while the clock advances by a millisecond a
// call. No limit admits more than its bound, and each admits a cost of at least 30 for its 3 keys together.
func TestBenchAuditsEachLimit(t *testing.T) {
	t.Parallel()
	for _, limit := range []string{
		"token-bucket 100/s burst 20", "fixed-window 10/1s", "fixed-window 10/1s from-first", "fixed-window 10/minute",
		"interval 10/100ms burst 20", "sliding-window 10/1s", "sliding-log 10/1s",
	} {
		clock := int64(1_800_000_000_000_000)
		s := memory.New(&memory.Config{Clock: func() int64 { clock += 1000; return clock }})
		r := audit(t, s, limit, "2.5", 3, 2000)
		if r.over.Sign() > 0 || r.Errors > 0 || r.Refused == 0 || r.Admitted.Cmp(big.NewRat(3*10, 1)) < 0 {
			t.Errorf("%s: got %s, %d refused, want at least 30 admitted and none over", limit, r.auditResult(), r.Refused)
		}
	}
}

// TestBenchJSONReport checks the report of -o json: the admitted amount is within the bound, and there are no errors.
func TestBenchJSONReport(t *testing.T) {
	t.Parallel()
	code, out, stderr := runBench(t.Context(), "--store", "memory:", "--limit", "token-bucket 100/s burst 20",
		"--keys", "3", "--clients", "8", "--duration", "50ms", "--warmup", "1ms", "--cost", "2.5", "-o", "json")
	var got struct {
		Rate     float64 `json:"decisions_per_s"`
		Admitted float64
		Refused  int64
		Errors   int64
		Bound    float64
		P50      float64 `json:"p50_us"`
		P99      float64 `json:"p99_us"`
	}
	if err := json.Unmarshal([]byte(out), &got); code != 0 || stderr != "" || err != nil ||
		strings.Count(out, "\n") != 1 {
		t.Fatalf("code %d, %s, %v: %s", code, stderr, err, out)
	}
	if got.Admitted > got.Bound || got.Errors != 0 || got.P99 < got.P50 {
		t.Errorf("got %s", out)
	}
}

func TestBenchSeveralLimits(t *testing.T) {
	t.Parallel()
	for _, extraArgs := range [][]string{
		nil, {"--ids"}, {"--settle", "1"}, {"--settle", "0"}, {"--settle", "7.5", "--zipf", "1"},
	} {
		args := append([]string{
			"--store", "memory:", "--limit", "token-bucket 1000/s burst 100", "--limit", "fixed-window 2000/1s",
			"--limit", "interval 50/10ms", "--keys", "100,5,1", "--cost", "2.5", "--clients", "4",
			"--duration", "50ms", "--warmup", "0",
		}, extraArgs...)
		code, out, stderr := runBench(t.Context(), args...)
		if code != 0 || stderr != "" || !strings.Contains(out, "fixed-window 2000/1s, 5 keys\n") ||
			!strings.Contains(out, "allowed: exact") || !strings.Contains(out, "errors     0\n") {
			t.Errorf("%q: got code %d, %s\n%s\nwant no errors", extraArgs, code, stderr, out)
		}
	}
}

func TestKeyDrawFollowsZipfsLaw(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	const draws = 100_000
	// The share of the first of ten keys is 1 / the sum of 1/k^exponent for k from 1 to 10.
	for exponent, want := range map[float64]float64{0: 0.1, 1: 1 / 2.9290, 2: 1 / 1.5498} {
		d, firstKeyDraws := newKeyDraw(10, exponent), 0.0
		for range draws {
			if d.next(rng) == 0 {
				firstKeyDraws++
			}
		}
		if got := firstKeyDraws / draws; got < want-0.01 || got > want+0.01 {
			t.Errorf("exponent %g: the first key is drawn %.3f of the times, want %.3f", exponent, got, want)
		}
	}
}

func TestBenchReportsAfterAnEarlyEnd(t *testing.T) {
	t.Parallel()
	var code int
	var out, stderr string
	// A bench that ends before its first call has no report, and the machine may pause for 50 ms.
	for _, timeout := range []time.Duration{50 * time.Millisecond, time.Second, 5 * time.Second, time.Minute} {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		code, out, stderr = runBench(ctx, "--store", "memory:", "--duration", "1h", "--warmup", "1ms")
		cancel()
		if code != exitError || stderr != "headgate bench: context deadline exceeded\n" {
			break
		}
	}
	if code != 0 || stderr != "" || !strings.Contains(out, "allowed: exact\n") ||
		!strings.Contains(out, "errors     0\n") {
		t.Errorf("code %d, %s\n%s", code, stderr, out)
	}
}

// faultyStore is a store that reports some refusals as admissions, and fails some calls after it has applied them.
type faultyStore struct {
	store.Store
	falseAdmissions atomic.Int64 // number of further refusals that it reports as admissions
	failures        atomic.Int64 // number of further calls that fail
}

var errFaulty = errors.New("gone")

func (f *faultyStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if err := f.Store.Apply(ctx, ops, outs); err != nil {
		return err
	}
	if outs[0].Granted == 0 && f.falseAdmissions.Add(-1) >= 0 {
		outs[0].Granted = ops[0].Count
	}
	if ops[0].Verb == law.Take && f.failures.Add(-1) >= 0 {
		return errFaulty
	}
	return nil
}

// auditFaulty runs a bench of calls over a faulty store whose clock stands still.
func auditFaulty(t *testing.T, f *faultyStore, limit string, calls int) *benchReport {
	t.Helper()
	f.Store = memory.New(&memory.Config{Clock: func() int64 { return 1_800_000_000_000_000 }})
	return audit(t, f, limit, "1", 1, calls)
}

// audit runs a bench of calls over a store, and returns its report.
func audit(t *testing.T, s store.Store, limit, cost string, keys, calls int) *benchReport {
	t.Helper()
	w := &workload{limits: []keyedLimit{{headgate.MustParse(limit), keys}}, cost: headgate.MustCost(cost)}
	b, err := newBench(t.Context(), headgate.New(s, nil), w, "k/", 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range calls {
		_, _ = b.ask(t.Context(), 0, rng)
	}
	return b.report(load.Result{})
}

func TestBenchReportsAdmissionsBeyondTheLimit(t *testing.T) {
	t.Parallel()
	f := new(faultyStore)
	f.falseAdmissions.Store(3) // beyond the burst of 2,000
	r := auditFaulty(t, f, "token-bucket 1000/s burst 2000", 5000)
	if got, want := r.auditResult(), "2,003 of 2,000 allowed: OVER by 3, on 1 of the keys"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	var out, stderr bytes.Buffer
	if err := r.printJSON(&out, &stderr); err != nil || !strings.Contains(stderr.String(), "OVER by 3") ||
		!strings.Contains(out.String(), `"admitted":2003,"refused":2997,"errors":0,"bound":2000,`) {
		t.Errorf("printJSON: got %v, %s, %s, want OVER by 3", err, stderr.String(), out.String())
	}
}

func TestBenchDoesNotCountErrorsAsAdmitted(t *testing.T) {
	t.Parallel()
	f := new(faultyStore)
	f.failures.Store(4) // of 10 calls that are charged
	r := auditFaulty(t, f, "fixed-window 10/1h", 20)
	if got, want := r.auditResult(), "6 of 10 allowed: exact"; got != want || r.Errors != 4 ||
		!errors.Is(r.firstErr, errFaulty) {
		t.Errorf("got %s, %d errors, first %v; want %s, 4 errors", got, r.Errors, r.firstErr, want)
	}
}

func TestBenchCommandErrors(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"--clients: 0 is not from 1 to 10000": {"--clients", "0"},
		"--clients: 10001":                    {"--clients", "10001"},
		"--keys: 0 is not from 1 to":          {"--keys", "0"},
		"--duration: -1s is not above 0":      {"--duration", "-1s"},
		"--duration: 0s":                      {"--duration", "0"},
		"--warmup: -1s is negative":           {"--warmup", "-1s"},
		`"soon" for "--duration"`:             {"--duration", "soon"},
		"cost: is 0":                          {"--cost", "0"},
		"--cost: 6 is more than fixed-window 5/1s ever lets pass at once": {
			"--cost", "6", "--limit",
			"fixed-window 5/1s",
		},
		"acquired and released, not taken": {"--limit", "concurrency 10 ttl 30s"},
		"amount (at character 14): is 0":   {"--limit", "token-bucket 0/s"},
		`limit: unknown: "nope"`:           {"--limit", "nope"},
		"--keys: 2 numbers for 1 limits":   {"--keys", "1,2"},
		"--keys: 10000001 in all":          {"--keys", "10000000,1", "--limit", "fixed-window 5/1s", "--limit", "fixed-window 5/2s"},
		"--zipf: -1 is not from 0 to 10":   {"--zipf", "-1"},
		"--zipf: NaN is not":               {"--zipf", "nan"},
		"--settle: cost":                   {"--settle", "x"},
		"key: 5":                           {"--key-prefix", strings.Repeat("k", 500)},
		`the scheme "mongo" is not known`:  {"--store", "mongo:x"},
		`unknown command "x"`:              {"x"},
		"config: open missing.yaml":        {"--config", "missing.yaml"},
		"unknown flag: --jsn":              {"--jsn"},
	} {
		code, out, stderr := runBench(t.Context(),
			append([]string{"--store", "memory:", "--duration", "1ms", "--warmup", "0"}, args...)...)
		if code != 2 || out != "" || !strings.HasPrefix(stderr, "headgate bench: ") || !strings.Contains(stderr, want) {
			t.Errorf("%q: code %d, %q, %q; want %q", args, code, out, stderr, want)
		}
	}
}

func TestGroupThousandsAndRound(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"0": "0", "999": "999", "1000": "1,000", "1234567.5": "1,234,567.5",
		"123456": "123,456",
	} {
		if got := accesslog.GroupThousands(s); got != want {
			t.Errorf("GroupThousands(%s): got %s, want %s", s, got, want)
		}
	}
	for d, want := range map[time.Duration]string{999: "999ns", 12345: "12.3µs", 1234567: "1.23ms", 0: "0s"} {
		if got := roundToThreeDigits(d).String(); got != want {
			t.Errorf("roundToThreeDigits(%d): got %s, want %s", d, got, want)
		}
	}
}
