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

// hit is a request of the independent computation.
type hit struct {
	at  time.Time
	key string
}

// rule makes a function that reports whether a key's next request passes. The rules are written from their textbook
// definitions, in rationals or counts.
type rule func() func(at time.Time) bool

func tokenBucket(rate *big.Rat, burst int64) rule { // rate in tokens a second
	return func() func(time.Time) bool {
		tokens, last := big.NewRat(burst, 1), time.Time{}
		return func(at time.Time) bool {
			if !last.IsZero() {
				gained := new(big.Rat).Mul(rate, big.NewRat(at.Sub(last).Microseconds(), 1e6))
				if tokens.Add(tokens, gained); tokens.Cmp(big.NewRat(burst, 1)) > 0 {
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

func slidingLog(maxHits int, period time.Duration) rule {
	return func() func(time.Time) bool {
		var passed []time.Time
		return func(at time.Time) bool {
			n := 0
			for _, p := range passed {
				if at.Before(p.Add(period)) {
					n++
				}
			}
			if n >= maxHits {
				return false
			}
			passed = append(passed, at)
			return true
		}
	}
}

func fixedWindow(maxHits int, period time.Duration) rule {
	return func() func(time.Time) bool {
		counts := map[int64]int{}
		return func(at time.Time) bool {
			w := at.Unix() / int64(period/time.Second)
			if counts[w] >= maxHits {
				return false
			}
			counts[w]++
			return true
		}
	}
}

// compute applies a rule to every key of a log, in the order of the times.
func compute(hits []hit, r rule) (allowed, denied int64, perKey map[string]int64) {
	hits = slices.Clone(hits)
	slices.SortStableFunc(hits, func(a, b hit) int { return a.at.Compare(b.at) })
	deciders, perKey := map[string]func(time.Time) bool{}, map[string]int64{}
	for _, h := range hits {
		if deciders[h.key] == nil {
			deciders[h.key] = r()
		}
		if deciders[h.key](h.at) {
			allowed++
		} else {
			denied++
			perKey[h.key]++
		}
	}
	return allowed, denied, perKey
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

// checkRules replays a log with every rule and compares all numbers.
func checkRules(t *testing.T, name string, hits []hit, cfg *replay.Config) {
	t.Helper()
	for _, c := range rules {
		r, err := run(t.Context(), headgate.MustParse(c.notation), "ip", []string{name}, cfg)
		if err != nil {
			t.Fatal(err)
		}
		allowed, denied, perKey := compute(hits, c.rule)
		if r.Requests != int64(len(hits)) || r.Allowed != allowed || r.Denied != denied ||
			r.Refused != int64(len(perKey)) {
			t.Errorf("%s: got %d admitted, %d refused of %d, %d keys; want %d, %d of %d, %d", c.notation,
				r.Allowed, r.Denied, r.Requests, r.Refused, allowed, denied, len(hits), len(perKey))
		}
		var want []string
		for k, n := range perKey {
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
			t.Errorf("%s: %d requests in %d buckets", c.notation, sum, len(r.Buckets))
		}
		t.Logf("%s: %d refused of %d", c.notation, denied, len(hits))
	}
}

func TestAgreesWithAnExactComputation(t *testing.T) {
	t.Parallel()
	seed := tier.Pick(1, 1, rand.Uint64())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 2))
	var hits []hit
	var log strings.Builder
	at := time.Date(2024, 2, 28, 23, 30, 0, 0, time.UTC)
	for range tier.Pick(1500, 5000, 5000) {
		at = at.Add(time.Duration(rnd.IntN(4)/2) * time.Second)
		h := hit{
			at.Add(time.Duration(rnd.IntN(11)-5) * time.Second),
			fmt.Sprintf("10.0.0.%d", min(rnd.IntN(20), rnd.IntN(20), rnd.IntN(20))),
		}
		hits = append(hits, h)
		zone := time.FixedZone("", 3600*rnd.IntN(3))
		fmt.Fprintf(&log, "%s - - [%s] \"GET / HTTP/1.1\" 200 1 \"-\" \"-\"\n", h.key,
			h.at.In(zone).Format("02/Jan/2006:15:04:05 -0700"))
	}
	name := filepath.Join(t.TempDir(), "access.log")
	if err := os.WriteFile(name, []byte(log.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	checkRules(t, name, hits, &replay.Config{Top: 1000})
}

// TestRealLog replays four days of a real web server; see testdata/README.md.
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
	var hits []hit
	counts := map[string]int{}
	for s := bufio.NewScanner(lines); s.Scan(); {
		field := strings.Fields(s.Text())
		at, err := time.Parse("[02/Jan/2006:15:04:05-0700]", field[3]+field[4])
		if err != nil {
			t.Fatal(err)
		}
		hits = append(hits, hit{at, field[0]})
		counts[field[0]]++
	}
	checkRules(t, name, hits, &replay.Config{Top: 1000})
	r, err := run(context.Background(), headgate.MustParse("token-bucket 10/1m burst 5"), "ip",
		[]string{name}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Denied != 1395 || r.Keys != 1753 || r.Busiest.Key != "66.249.73.135" || r.Busiest.Requests != 482 {
		t.Errorf("got %d refused, %d keys, busiest %+v", r.Denied, r.Keys, r.Busiest)
	}
	if most := slices.MaxFunc(r.Top, func(
		a, b replay.KeyReport,
	) int {
		return cmp.Compare(a.Denied, b.Denied)
	}); most != r.Top[0] {
		t.Errorf("top begins with %+v", r.Top[0])
	}
}
