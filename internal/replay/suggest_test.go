package replay

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/accesslog"
	"github.com/headgate/headgate/internal/testing/tier"
)

const apacheLog = "testdata/apache.log.gz"

// TestSuggestionIsWhatReplaySays: each limit that is suggested, and each point of its curves, has the figures of a
// replay of that limit, refuses no more than was requested, and the next tighter number of its kind refuses more.
func TestSuggestionIsWhatReplaySays(t *testing.T) {
	t.Parallel()
	logs := []string{firstLines(t, apacheLog, tier.Pick(2500, 10_000, 10_000))}
	asks := []Ask{{Refuse: 0.01, Keys: true}, {Refuse: 0.001}, {Refuse: 0}}
	for _, ask := range tier.Pick(asks[:1], asks, asks) {
		g, err := suggest(t, ask, "ip", logs, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(g.Choices) != 9 {
			t.Fatalf("got %d limits", len(g.Choices))
		}
		points := 0
		for i := range g.Choices {
			c := &g.Choices[i]
			if !g.acceptable(c.Denied, c.Refused) {
				t.Errorf("%+v: %s refuses %d requests, %d keys", ask, c.Notation, c.Denied, c.Refused)
			}
			seen := false
			for j, p := range c.Curve {
				points++
				if p.Chosen {
					seen = true
					if p.Limit != c.Notation || p.Denied != c.Denied || p.Keys != c.Refused {
						t.Errorf("%s: its point is %+v, its report has %d, %d", c.Notation, p, c.Denied, c.Refused)
					}
					if j > 0 && g.acceptable(c.Curve[j-1].Denied, c.Curve[j-1].Keys) {
						t.Errorf("%+v: %s would do instead of %s", ask, c.Curve[j-1].Limit, p.Limit)
					}
				}
				if j > 0 && p.Denied > c.Curve[j-1].Denied {
					t.Errorf("%s refuses more than %s", p.Limit, c.Curve[j-1].Limit)
				}
			}
			if !seen {
				t.Errorf("%s is not on its own curve", c.Notation)
			}
			if (len(c.Others) > 0) != strings.HasPrefix(c.Notation, "token-bucket") {
				t.Errorf("%s: other rates %+v", c.Notation, c.Others)
			}
			for _, p := range c.Others {
				if !g.acceptable(p.Denied, p.Keys) {
					t.Errorf("%+v: %s refuses %d, %d", ask, p.Limit, p.Denied, p.Keys)
				}
			}
		}
		if points < 60 {
			t.Errorf("%d points", points)
		}
		// What was chosen, and some points of the curves, against replays of their own.
		var limits []headgate.Limit
		for i := range g.Choices {
			limits = append(limits, headgate.MustParse(g.Choices[i].Notation))
		}
		var want []Point
		for i := range g.Choices {
			c := &g.Choices[i]
			for _, p := range slices.Concat(c.Curve[:2], c.Others[:min(1, len(c.Others))]) {
				limits = append(limits, headgate.MustParse(p.Limit))
				want = append(want, p)
			}
		}
		reports, err := Compare(t.Context(), limits, "ip", logs, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range reports[:len(g.Choices)] {
			c := &g.Choices[i]
			if got, want := inJSON(t, c.Report), inJSON(t, r); got != want {
				t.Errorf("%s: got %.200s, want %.200s", c.Notation, got, want)
			}
		}
		for i, r := range reports[len(g.Choices):] {
			if r.Denied != want[i].Denied || r.Refused != want[i].Keys {
				t.Errorf("%+v: replay says %d, %d", want[i], r.Denied, r.Refused)
			}
		}
	}
}

// suggest reads logs and suggests limits for them.
func suggest(t *testing.T, ask Ask, key string, logs []string, cfg *Config) (*Suggestion, error) {
	t.Helper()
	q, err := Read(t.Context(), key, logs, cfg)
	if err != nil {
		return nil, err
	}
	return q.Suggest(t.Context(), ask)
}

// firstLines writes the first lines of a compressed log to a file, and returns its path.
func firstLines(t *testing.T, name string, count int) string {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var first bytes.Buffer
	for s := bufio.NewScanner(lines); count > 0 && s.Scan(); count-- {
		first.Write(append(s.Bytes(), '\n'))
	}
	short := filepath.Join(t.TempDir(), "access.log")
	if err := os.WriteFile(short, first.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return short
}

func inJSON(t *testing.T, r *Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := WriteAllJSON(&b, []*Report{r}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestEvaluatorCountsLikeReplay: the evaluator, which calls the law, counts as many refusals as the Limiter, also with
// costs, and no key that it passes over would have been refused.
func TestEvaluatorCountsLikeReplay(t *testing.T) {
	t.Parallel()
	seed := tier.Pick(1, 1, rand.Uint64())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 7))
	var log strings.Builder
	log.WriteString("ts,who,n\n")
	at := 1e9
	for range tier.Pick(1000, 3000, 3000) {
		at += float64(rnd.IntN(20)) / 2
		fmt.Fprintf(&log, "%v,%d,%v\n", at, min(rnd.IntN(60), rnd.IntN(60)), float64(rnd.IntN(9))/4)
	}
	name := filepath.Join(t.TempDir(), "a.csv")
	if err := os.WriteFile(name, []byte(log.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	in, err := Read(t.Context(), "who", []string{name}, &Config{Config: accesslog.Config{Cost: "n"}})
	if err != nil {
		t.Fatal(err)
	}
	s := newEvaluator(in)
	if _, err := s.findPeaks(t.Context(), []time.Duration{7 * time.Second}); err != nil {
		t.Fatal(err)
	}
	var list []*candidate
	for _, period := range []time.Duration{7 * time.Second, time.Minute, time.Hour} {
		for _, n := range []int64{1, 2, 3, 5, 8, 20, 100} {
			for _, rate := range []int64{1, 3, 10, 50} {
				list = append(list, (&family{kind: tokenBucket, period: period, rate: rate}).limit(n))
			}
			list = append(list, (&family{kind: slidingWindow, period: period}).limit(n),
				(&family{kind: fixedWindow, period: period}).limit(n))
		}
	}
	if err := s.evaluate(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	refusing := 0
	for _, c := range list {
		r, err := decide(t.Context(), c.limit, in, 0)
		if err != nil {
			t.Fatal(err)
		}
		if r.Denied != c.denied || r.Refused != c.keys {
			t.Errorf("seed %d: %s: weighed %d, %d; replayed %d, %d", seed, c.limit, c.denied, c.keys, r.Denied, r.Refused)
		}
		if r.Denied > 0 {
			refusing++
		}
	}
	if refusing < 20 || refusing == len(list) {
		t.Errorf("%d of %d refuse anything", refusing, len(list))
	}
}

func TestPeaks(t *testing.T) {
	t.Parallel()
	seed := tier.Pick(1, 1, rand.Uint64())
	rnd := rand.New(rand.NewPCG(seed, 8))
	type ask struct {
		at   int64
		cost int64
	}
	asks := map[int][]ask{}
	var log strings.Builder
	log.WriteString("ts,who,n\n")
	at := int64(1e9)
	for range 2000 {
		at += int64(rnd.IntN(2)) // often a period apart
		if rnd.IntN(200) == 0 {
			at += int64(rnd.IntN(4000))
		}
		k, n := rnd.IntN(10), int64(rnd.IntN(5))
		asks[k] = append(asks[k], ask{at, n})
		fmt.Fprintf(&log, "%d,%d,%d\n", at, k, n)
	}
	name := filepath.Join(t.TempDir(), "a.csv")
	if err := os.WriteFile(name, []byte(log.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	g, err := suggest(t, Ask{Refuse: 0.01}, "who", []string{name}, &Config{Config: accesslog.Config{Cost: "n"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range g.Peaks {
		var all []int64
		for _, list := range asks {
			most := int64(0)
			for i := range list {
				sum := int64(0)
				for j := i; j < len(list) && list[j].at < list[i].at+int64(p.Period.Seconds()); j++ {
					sum += list[j].cost
				}
				most = max(most, sum)
			}
			all = append(all, most)
		}
		slices.Sort(all)
		if p.Highest.units != all[9] || p.Median.units != all[4] || p.P90.units != all[8] {
			t.Errorf("seed %d, %s: got %+v, want %v", seed, p.Period, p, all)
		}
	}
}

func TestSuggestErrors(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]struct {
		ask Ask
		cfg Config
		log string
	}{
		"refuse:":           {ask: Ask{Refuse: 1}, log: apacheLog},
		"fill:":             {cfg: Config{Fill: true}, log: apacheLog},
		"no such file":      {log: "/does/not/exist"},
		"where:":            {cfg: Config{Where: []string{"x"}}, log: apacheLog},
		"left out by where": {cfg: Config{Where: []string{"ip=x"}}, log: apacheLog},
	} {
		g, err := suggest(t, c.ask, "ip", []string{c.log}, &c.cfg)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %+v, %v", want, g, err)
		}
	}
}

// TestSuggestForCalls: a call reserves more than the evaluator counts, and still no more is refused than Ask allows.
func TestSuggestForCalls(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	for i := range 500 {
		fmt.Fprintf(&log, `{"ts":%d,"user":"u%d","reserved":1000,"used":%d,"duration_s":30}`+"\n", 1e9+i*7, i%5, 10+i%90)
	}
	name := filepath.Join(t.TempDir(), "a.json")
	if err := os.WriteFile(name, []byte(log.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	g, err := suggest(t, Ask{Refuse: 0.05}, "user", []string{name}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range g.Choices {
		if c.Denied > g.Most || c.Passes.Float64() < 1000 {
			t.Errorf("%s refuses %d of %d", c.Notation, c.Denied, g.Most)
		}
	}
	var b bytes.Buffer
	if err := g.WriteJSON(&b); err != nil || !json.Valid(b.Bytes()) {
		t.Errorf("%v: %s", err, b.String())
	}
}
