package replay_test

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"context"
	"fmt"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/replay"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/internal/testing/tier"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// logEntry is a request of the independent computation.
type logEntry struct {
	at  time.Time
	key string
}

// rule makes, for a key, a function that decides the key's requests one after another. The rules follow their textbook
// definitions, in rationals or counts.
type rule func() func(at time.Time) bool

func tokenBucket(rate *big.Rat, burst int64) rule { // rate in tokens a second
	return func() func(time.Time) bool {
		tokens, last := big.NewRat(burst, 1), time.Time{}
		return func(at time.Time) bool {
			if !last.IsZero() {
				refill := new(big.Rat).Mul(rate, big.NewRat(at.Sub(last).Microseconds(), 1e6))
				if tokens.Add(tokens, refill); tokens.Cmp(big.NewRat(burst, 1)) > 0 {
					tokens.SetInt64(burst)
				}
			}
			last = at
			if tokens.Cmp(big.NewRat(1, 1)) < 0 {
				return false
			}
			tokens.Sub(tokens, big.NewRat(1, 1))
			return true
		}
	}
}

func slidingLog(maxRequests int, period time.Duration) rule {
	return func() func(time.Time) bool {
		var admittedAt []time.Time
		return func(at time.Time) bool {
			n := 0
			for _, p := range admittedAt {
				if at.Before(p.Add(period)) {
					n++
				}
			}
			if n >= maxRequests {
				return false
			}
			admittedAt = append(admittedAt, at)
			return true
		}
	}
}

func fixedWindow(maxRequests int, period time.Duration) rule {
	return func() func(time.Time) bool {
		counts := map[int64]int{}
		return func(at time.Time) bool {
			w := at.Unix() / int64(period/time.Second)
			if counts[w] >= maxRequests {
				return false
			}
			counts[w]++
			return true
		}
	}
}

// compute applies a rule to every key of a log, in the order of the times, and returns the counts.
func compute(entries []logEntry, r rule) (allowed, refused int64, refusedByKey map[string]int64) {
	entries = slices.Clone(entries)
	slices.SortStableFunc(entries, func(a, b logEntry) int { return a.at.Compare(b.at) })
	deciders, refusedByKey := map[string]func(time.Time) bool{}, map[string]int64{}
	for _, e := range entries {
		if deciders[e.key] == nil {
			deciders[e.key] = r()
		}
		if deciders[e.key](e.at) {
			allowed++
		} else {
			refused++
			refusedByKey[e.key]++
		}
	}
	return allowed, refused, refusedByKey
}

var rules = []struct {
	notation string
	rule     rule
}{
	{"token-bucket 10/1m burst 5", tokenBucket(big.NewRat(10, 60), 5)},
	{"token-bucket 3/7s burst 2", tokenBucket(big.NewRat(3, 7), 2)},
	{"sliding-log 10/1m", slidingLog(10, time.Minute)},
	{"sliding-log 3/10s", slidingLog(3, 10*time.Second)},
	{"fixed-window 10/1m", fixedWindow(10, time.Minute)},
	{"fixed-window 50/1h", fixedWindow(50, time.Hour)},
}

// checkRules replays a log with every rule and compares the counts, and those of each refused key.
func checkRules(t *testing.T, name string, entries []logEntry, cfg *replay.Config) {
	t.Helper()
	for _, c := range rules {
		r, err := run(t.Context(), headgate.MustParse(c.notation), "ip", []string{name}, cfg)
		if err != nil {
			t.Fatal(err)
		}
		allowed, refused, refusedByKey := compute(entries, c.rule)
		if r.Requests != int64(len(entries)) || r.Allowed != allowed || r.Denied != refused ||
			r.DeniedKeys != int64(len(refusedByKey)) {
			t.Errorf("%s: got %d admitted, %d refused of %d, %d keys; want %d, %d of %d, %d", c.notation,
				r.Allowed, r.Denied, r.Requests, r.DeniedKeys, allowed, refused, len(entries), len(refusedByKey))
		}
		var want []string
		for k, n := range refusedByKey {
			want = append(want, fmt.Sprintf("%d %s", n, k))
		}
		var got []string
		for _, k := range r.Top {
			got = append(got, fmt.Sprintf("%d %s", k.Denied, k.Key))
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", c.notation, got, want)
		}
		var sum int64
		for _, b := range r.Buckets {
			sum += b.Allowed + b.Denied
		}
		if sum != r.Requests || len(r.Buckets) > 200 {
			t.Errorf("%s: got %d requests in %d buckets, want %d in 200 at most", c.notation, sum, len(r.Buckets), r.Requests)
		}
		t.Logf("%s: %d refused of %d", c.notation, refused, len(entries))
	}
}

func TestAgreesWithAnExactComputation(t *testing.T) {
	t.Parallel()
	seed := tier.Pick(1, 1, rand.Uint64())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 2))
	var entries []logEntry
	var log strings.Builder
	at := time.Date(2024, 2, 28, 23, 30, 0, 0, time.UTC)
	for range tier.Pick(1500, 5000, 5000) {
		at = at.Add(time.Duration(rng.IntN(4)/2) * time.Second)
		e := logEntry{
			at.Add(time.Duration(rng.IntN(11)-5) * time.Second),
			fmt.Sprintf("10.0.0.%d", min(rng.IntN(20), rng.IntN(20), rng.IntN(20))),
		}
		entries = append(entries, e)
		zone := time.FixedZone("", 3600*rng.IntN(3))
		fmt.Fprintf(&log, "%s - - [%s] \"GET / HTTP/1.1\" 200 1 \"-\" \"-\"\n", e.key,
			e.at.In(zone).Format("02/Jan/2006:15:04:05 -0700"))
	}
	name := filepath.Join(t.TempDir(), "access.log")
	if err := os.WriteFile(name, []byte(log.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	checkRules(t, name, entries, &replay.Config{Top: 1000})
}

// TestRealLog checks a replay of four days of a real web server; see testdata/README.md.
func TestRealLog(t *testing.T) {
	t.Parallel()
	const name = "testdata/apache.log.gz"
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var entries []logEntry
	for s := bufio.NewScanner(lines); s.Scan(); {
		fields := strings.Fields(s.Text())
		at, err := time.Parse("[02/Jan/2006:15:04:05-0700]", fields[3]+fields[4])
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, logEntry{at, fields[0]})
	}
	checkRules(t, name, entries, &replay.Config{Top: 1000})
	r, err := run(context.Background(), headgate.MustParse("token-bucket 10/1m burst 5"), "ip",
		[]string{name}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Denied != 1395 || r.Keys != 1753 || r.Busiest.Key != "66.249.73.135" || r.Busiest.Requests != 482 {
		t.Errorf("got %d refused, %d keys, busiest %+v; want 1395, 1753, 66.249.73.135", r.Denied, r.Keys, r.Busiest)
	}
	byDenied := func(a, b replay.KeyReport) int { return cmp.Compare(a.Denied, b.Denied) }
	if mostRefused := slices.MaxFunc(r.Top, byDenied); mostRefused != r.Top[0] {
		t.Errorf("top begins with %+v, want %+v", r.Top[0], mostRefused)
	}
}
