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

// TestSuggestionIsWhatReplaySays checks that each suggested limit, and some points of its curves, have the figures of a
// replay of that limit, that it refuses no more than allowed, and that the next smaller number refuses too much.
func TestSuggestionIsWhatReplaySays(t *testing.T) {
	t.Parallel()
	logs := []string{firstLines(t, apacheLog, tier.Pick(2500, 10_000, 10_000))}
	optionsList := []SuggestOptions{{Refuse: 0.01, OfKeys: true}, {Refuse: 0.001}, {Refuse: 0}}
	for _, options := range tier.Pick(optionsList[:1], optionsList, optionsList) {
		s, err := suggest(t, options, "ip", logs, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Choices) != 9 {
			t.Fatalf("got %d limits, want 9: three for each of three periods", len(s.Choices))
		}
		points := 0
		for i := range s.Choices {
			c := &s.Choices[i]
			if !s.acceptable(c.Denied, c.DeniedKeys) {
				t.Errorf("%+v: %s refuses %d requests, %d keys", options, c.Notation, c.Denied, c.DeniedKeys)
			}
			onCurve := false
			for j, p := range c.Curve {
				points++
				if p.Chosen {
					onCurve = true
					if p.Limit != c.Notation || p.Denied != c.Denied || p.DeniedKeys != c.DeniedKeys {
						t.Errorf("%s: its point is %+v, its report has %d, %d", c.Notation, p, c.Denied, c.DeniedKeys)
					}
					if j > 0 && s.acceptable(c.Curve[j-1].Denied, c.Curve[j-1].DeniedKeys) {
						t.Errorf("%+v: %s would do instead of %s", options, c.Curve[j-1].Limit, p.Limit)
					}
				}
				if j > 0 && p.Denied > c.Curve[j-1].Denied {
					t.Errorf("%s refuses more than %s", p.Limit, c.Curve[j-1].Limit)
				}
			}
			if !onCurve {
				t.Errorf("%s is not on its own curve", c.Notation)
			}
			if (len(c.OtherRates) > 0) != strings.HasPrefix(c.Notation, "token-bucket") {
				t.Errorf("%s: other rates %+v", c.Notation, c.OtherRates)
			}
			for _, p := range c.OtherRates {
				if !s.acceptable(p.Denied, p.DeniedKeys) {
					t.Errorf("%+v: %s refuses %d, %d", options, p.Limit, p.Denied, p.DeniedKeys)
				}
			}
		}
		if points < 60 {
			t.Errorf("got %d points, want at least 60", points)
		}
		// Compare the choices, and some points of the curves, with replays.
		var limits []headgate.Limit
		for i := range s.Choices {
			limits = append(limits, headgate.MustParse(s.Choices[i].Notation))
		}
		var want []Point
		for i := range s.Choices {
			c := &s.Choices[i]
			for _, p := range slices.Concat(c.Curve[:2], c.OtherRates[:min(1, len(c.OtherRates))]) {
				limits = append(limits, headgate.MustParse(p.Limit))
				want = append(want, p)
			}
		}
		reports, err := Compare(t.Context(), limits, "ip", logs, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range reports[:len(s.Choices)] {
			c := &s.Choices[i]
			if got, want := asJSON(t, c.Report), asJSON(t, r); got != want {
				t.Errorf("%s: got %.200s, want %.200s", c.Notation, got, want)
			}
		}
		for i, r := range reports[len(s.Choices):] {
			if r.Denied != want[i].Denied || r.DeniedKeys != want[i].DeniedKeys {
				t.Errorf("%+v: replay says %d, %d", want[i], r.Denied, r.DeniedKeys)
			}
		}
	}
}

// suggest reads logs and suggests limits for them.
func suggest(t *testing.T, options SuggestOptions, key string, logs []string, cfg *Config) (*Suggestion, error) {
	t.Helper()
	reqs, err := Read(t.Context(), key, logs, cfg)
	if err != nil {
		return nil, err
	}
	return reqs.Suggest(t.Context(), options)
}

// firstLines writes the first count lines of a compressed log to a file, and returns its path.
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
	var b bytes.Buffer
	for s := bufio.NewScanner(lines); count > 0 && s.Scan(); count-- {
		b.Write(append(s.Bytes(), '\n'))
	}
	path := filepath.Join(t.TempDir(), "access.log")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func asJSON(t *testing.T, r *Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := WriteAllJSON(&b, []*Report{r}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestEvaluatorCountsLikeReplay checks that the evaluator, which calls the law, counts as many refusals as the Limiter,
// also with costs. So the Limiter refuses no request of a key that the evaluator skips.
func TestEvaluatorCountsLikeReplay(t *testing.T) {
	t.Parallel()
	seed := tier.Pick(1, 1, rand.Uint64())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 7))
	var log strings.Builder
	log.WriteString("ts,who,n\n")
	at := 1e9
	for range tier.Pick(1000, 3000, 3000) {
		at += float64(rng.IntN(20)) / 2
		fmt.Fprintf(&log, "%v,%d,%v\n", at, min(rng.IntN(60), rng.IntN(60)), float64(rng.IntN(9))/4)
	}
	name := filepath.Join(t.TempDir(), "a.csv")
	if err := os.WriteFile(name, []byte(log.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	reqs, err := Read(t.Context(), "who", []string{name}, &Config{Config: accesslog.Config{Cost: "n"}})
	if err != nil {
		t.Fatal(err)
	}
	ev := newEvaluator(reqs)
	if _, err := ev.findPeaks(t.Context(), []time.Duration{7 * time.Second}); err != nil {
		t.Fatal(err)
	}
	var list []*candidate
	for _, period := range []time.Duration{7 * time.Second, time.Minute, time.Hour} {
		for _, n := range []int64{1, 2, 3, 5, 8, 20, 100} {
			for _, rate := range []int64{1, 3, 10, 50} {
				list = append(list, (&family{kind: tokenBucket, period: period, rate: rate}).candidate(n))
			}
			list = append(list, (&family{kind: slidingWindow, period: period}).candidate(n),
				(&family{kind: fixedWindow, period: period}).candidate(n))
		}
	}
	if err := ev.evaluate(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	refusingLimits := 0
	for _, c := range list {
		r, err := decide(t.Context(), c.limit, reqs, 0)
		if err != nil {
			t.Fatal(err)
		}
		if r.Denied != c.denied || r.DeniedKeys != c.deniedKeys {
			t.Errorf("seed %d: %s: got %d, %d; want %d, %d", seed, c.limit, c.denied, c.deniedKeys, r.Denied,
				r.DeniedKeys)
		}
		if r.Denied > 0 {
			refusingLimits++
		}
	}
	if refusingLimits < 20 || refusingLimits == len(list) {
		t.Errorf("%d of %d limits refuse anything, want at least 20 and not all", refusingLimits, len(list))
	}
}

func TestPeaksOfKeys(t *testing.T) {
	t.Parallel()
	seed := tier.Pick(1, 1, rand.Uint64())
	rng := rand.New(rand.NewPCG(seed, 8))
	type entry struct {
		at   int64
		cost int64
	}
	entries := map[int][]entry{}
	var log strings.Builder
	log.WriteString("ts,who,n\n")
	at := int64(1e9)
	for range 2000 {
		at += int64(rng.IntN(2)) // often exactly a second apart
		if rng.IntN(200) == 0 {
			at += int64(rng.IntN(4000))
		}
		k, n := rng.IntN(10), int64(rng.IntN(5))
		entries[k] = append(entries[k], entry{at, n})
		fmt.Fprintf(&log, "%d,%d,%d\n", at, k, n)
	}
	name := filepath.Join(t.TempDir(), "a.csv")
	if err := os.WriteFile(name, []byte(log.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := suggest(t, SuggestOptions{Refuse: 0.01}, "who", []string{name}, &Config{Config: accesslog.Config{Cost: "n"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range s.Peaks {
		var peaks []int64
		for _, list := range entries {
			peak := int64(0)
			for i := range list {
				sum := int64(0)
				for j := i; j < len(list) && list[j].at < list[i].at+int64(p.Period.Seconds()); j++ {
					sum += list[j].cost
				}
				peak = max(peak, sum)
			}
			peaks = append(peaks, peak)
		}
		slices.Sort(peaks)
		if p.Highest.units != peaks[9] || p.Median.units != peaks[4] || p.P90.units != peaks[8] {
			t.Errorf("seed %d, %s: got %+v, want %v", seed, p.Period, p, peaks)
		}
	}
}

func TestSuggestErrors(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]struct {
		options SuggestOptions
		cfg     Config
		log     string
	}{
		"refuse:":           {options: SuggestOptions{Refuse: 1}, log: apacheLog},
		"fill:":             {cfg: Config{Fill: true}, log: apacheLog},
		"no such file":      {log: "/does/not/exist"},
		"where:":            {cfg: Config{Where: []string{"x"}}, log: apacheLog},
		"left out by where": {cfg: Config{Where: []string{"ip=x"}}, log: apacheLog},
	} {
		s, err := suggest(t, c.options, "ip", []string{c.log}, &c.cfg)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %+v, %v", want, s, err)
		}
	}
}

// TestSuggestForCalls checks that suggested limits refuse no more than allowed if calls reserve more than they use.
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
	s, err := suggest(t, SuggestOptions{Refuse: 0.05}, "user", []string{name}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range s.Choices {
		if c.Denied > s.MaxRefused || c.MostInPeriod.Float64() < 1000 {
			t.Errorf("%s refuses %d of %d", c.Notation, c.Denied, s.MaxRefused)
		}
	}
	var b bytes.Buffer
	if err := s.WriteJSON(&b); err != nil || !json.Valid(b.Bytes()) {
		t.Errorf("%v: %s", err, b.String())
	}
}
