package replay_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/accesslog"
	"github.com/headgate/headgate/internal/replay"
	"github.com/headgate/headgate/internal/testing/tier"
)

// TestCompareReportsEachLimitLikeAlone compares the reports of Compare with single replays, and TopKeyRows with them.
func TestCompareReportsEachLimitLikeAlone(t *testing.T) {
	t.Parallel()
	limits := []headgate.Limit{
		headgate.MustParse("token-bucket 10/1m burst 5"), headgate.MustParse("sliding-log 10/1m"),
		headgate.MustParse("fixed-window 50/1h"), headgate.MustParse("sliding-window 10/1m"),
	}
	logs := []string{"testdata/apache.log.gz"}
	reports, err := replay.Compare(t.Context(), limits, "ip", logs, &replay.Config{Trace: 3, Top: 4})
	if err != nil {
		t.Fatal(err)
	}
	for i, limit := range limits {
		report, err := run(t.Context(), limit, "ip", logs, &replay.Config{Trace: 3, Top: 4})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := asJSON(t, reports[i]), asJSON(t, report); got != want || report.Requests != 10000 {
			t.Errorf("%s: got %.300s, want %.300s", limit, got, want)
		}
	}
	rows := replay.TopKeyRows(reports, 6)
	if len(rows) != 5 || len(rows[0].Denied) != len(limits) { // all limits together have 5 keys in Top
		t.Errorf("got %+v, want 5 rows with %d counts each", rows, len(limits))
	}
	for _, row := range rows {
		for i, r := range reports {
			for _, k := range r.Top {
				if k.Key == row.Key && (k.Denied != row.Denied[i] || k.Requests != row.Requests) {
					t.Errorf("%s: got %+v, want %+v", r.Notation, row, k)
				}
			}
		}
	}
}

func asJSON(t *testing.T, r *replay.Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := replay.WriteAllJSON(&b, []*replay.Report{r}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestWhereSinceAndUntil(t *testing.T) {
	t.Parallel()
	log := `{"ts":1,"ip":"192.0.2.1","method":"GET","path":"/x","tag":["1"]}
{"ts":2,"ip":"192.0.2.1","method":"POST","path":"/api/1"}
{"ts":3,"ip":"192.0.2.2","method":"POST","path":"/api/2","user":"bot/1"}
{"ts":4,"ip":"192.0.2.2","path":"/api/3"}
`
	name := writeFile(t, "a.json", []byte(log))
	for _, c := range []struct {
		where        []string
		since, until int64
		requests     int64
		filtered     int64
		unparsed     int64
	}{
		{requests: 4},
		{where: []string{"method=POST"}, requests: 2, filtered: 2},
		{where: []string{"method!=POST"}, requests: 2, filtered: 2}, // line 4 has no method
		{where: []string{"path~^/api/"}, requests: 3, filtered: 1},
		{where: []string{"path~^/api/", "user!~(?i)bot"}, requests: 2, filtered: 2},
		{where: []string{"method="}, requests: 1, filtered: 3},
		{where: []string{"path=/api/1", "path=/api/2"}, filtered: 4},
		{where: []string{"tag=1"}, filtered: 3, unparsed: 1},
		{since: 2, requests: 3, filtered: 1},
		{until: 2, requests: 1, filtered: 3},
		{since: 2, until: 4, requests: 2, filtered: 2},
	} {
		cfg := &replay.Config{Where: c.where}
		if c.since > 0 {
			cfg.Since = time.Unix(c.since, 0)
		}
		if c.until > 0 {
			cfg.Until = time.Unix(c.until, 0)
		}
		r, err := run(t.Context(), bucket, "ip", []string{name}, cfg)
		if c.requests == 0 {
			if err == nil || !strings.Contains(err.Error(), "left out") && c.unparsed == 0 {
				t.Errorf("%v: got %+v, error %v; want an error", c, r, err)
			}
			continue
		}
		if err != nil || r.Requests != c.requests || r.Filtered != c.filtered || r.Unparsed != c.unparsed {
			t.Errorf("%v: got %+v, %v", c, r, err)
		}
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	log := "time,ip,user,path\n" +
		"1,2001:db8:0:1::7,ann,/a\n2,2001:db8:0:1::8,ann,/b|c\n3,2001:db8:0:2::9,ann,/b\n4,10.0.0.1,ann|x,/a\n5,10.0.0.2,ann,/a\n" +
		"6,::ffff:10.0.0.2,ann,/a\n7,host.example.com,ann,/a\n8,a:b,ann,/a\n"
	name := writeFile(t, "a.csv", []byte(log))
	for key, want := range map[string][]string{
		"ip":     {"10.0.0.1", "10.0.0.2", "2001:db8:0:1::/64", "2001:db8:0:2::/64"},
		"ip/48":  {"10.0.0.1", "10.0.0.2", "2001:db8::/48"},
		"ip/128": {"10.0.0.1", "10.0.0.2", "2001:db8:0:1::7", "2001:db8:0:1::8", "2001:db8:0:2::9"},
		"user":   {"ann", "ann|x"},
		"user,ip": {
			`ann\|x|10.0.0.1`, "ann|10.0.0.2", "ann|2001:db8:0:1::/64", "ann|2001:db8:0:2::/64",
		},
	} {
		r, err := run(t.Context(), headgate.MustParse("token-bucket 100/1m"), key, []string{name},
			&replay.Config{Trace: 99})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range r.Steps {
			if !slices.Contains(got, s.Key) {
				got = append(got, s.Key)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) || r.Keys != int64(len(want)) {
			t.Errorf("%s: got %q, want %q", key, got, want)
		}
	}
}

// TestCosts compares Config.Cost and Config.Fill with a leaky bucket in floats, which are exact enough.
func TestCosts(t *testing.T) {
	t.Parallel()
	seed := tier.Pick(1, 1, rand.Uint64())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 5))
	const rate, capacity = 1.5, 4.0
	var log strings.Builder
	log.WriteString("ts,who,n\n")
	type entry struct{ at, n float64 }
	var entries []entry
	at := 1.0
	for range 400 {
		at += float64(rng.IntN(16)) / 8
		n := float64(rng.IntN(25)) / 4
		entries = append(entries, entry{at, n})
		fmt.Fprintf(&log, "%v,a,%v\n", at, n)
	}
	name := writeFile(t, "a.csv", []byte(log.String()))
	for _, fill := range []bool{false, true} {
		r, err := run(t.Context(), headgate.MustParse("leaky-bucket 1.5/s capacity 4"), "who", []string{name},
			&replay.Config{Config: accesslog.Config{Cost: "n"}, Fill: fill, Trace: 400})
		if err != nil {
			t.Fatal(err)
		}
		level, lastTime := 0.0, 0.0
		for i, e := range entries {
			level, lastTime = max(0, level-(e.at-lastTime)*rate), e.at
			levelBefore, overflow := level, 0.0
			switch {
			case level+e.n <= capacity:
				level += e.n
			case fill:
				level, overflow = capacity, level+e.n-capacity
			default:
				overflow = e.n
			}
			s := r.Steps[i]
			if !isNear(s.Before, levelBefore) || !isNear(s.After, level) || s.Allowed != (overflow == 0) ||
				s.Brim != isNear(level, capacity) ||
				fill && s.Overflow.String() != fmt.Sprint(math.Round(overflow*1e6)/1e6) {
				t.Fatalf("seed %d, fill %t, request %d of %v at %v: got %+v; want %v to %v, %v over", seed, fill, i, e.n,
					e.at, s, levelBefore, level, overflow)
			}
		}
	}
}

func isNear(a, b float64) bool { return math.Abs(a-b) < 1e-6 }

// TestCallsAreSettled compares a log of calls with a simulation: the start of a call charges the reserved cost, and the
// end of the call corrects the charge to the used cost.
func TestCallsAreSettled(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	// In the window of a day, a refused call charges nothing, and unused tokens are free from the end of the call on.
	start := time.Date(2025, 5, 1, 0, 0, 0, 0, time.UTC)
	type call struct{ at, end, reserved, used int }
	seed := tier.Pick(1, 1, rand.Uint64())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 6))
	var calls []call
	for i := range 300 {
		c := call{at: 10 * i, reserved: 1 + rng.IntN(100)}
		c.end = c.at + 1 + 2*rng.IntN(40) // odd, while calls begin at even times
		c.used = rng.IntN(c.reserved + 20)
		calls = append(calls, c)
		fmt.Fprintf(&log, `{"ts":%q,"user":"a","reserved":%d,"used":%d,"duration_s":%d}`+"\n",
			start.Add(time.Duration(c.at)*time.Second).Format(time.RFC3339), c.reserved, c.used, c.end-c.at)
	}
	limit := headgate.MustParse("fixed-window 4000/1d")
	r, err := run(t.Context(), limit, "user", []string{writeFile(t, "a.json", []byte(log.String()))},
		&replay.Config{Trace: 300})
	if err != nil {
		t.Fatal(err)
	}
	inUse, refusals := 0, 0
	type settlement struct{ end, back int }
	var settlements []settlement
	for i, c := range calls {
		for j := 0; j < len(settlements); {
			if settlements[j].end <= c.at {
				inUse -= settlements[j].back
				settlements = slices.Delete(settlements, j, j+1)
			} else {
				j++
			}
		}
		allowed := inUse+c.reserved <= 4000
		if s := r.Steps[i]; s.Allowed != allowed || !isNear(s.Before, float64(inUse)) {
			t.Fatalf("seed %d, call %d: got %+v; want %t at %d", seed, i, s, allowed, inUse)
		}
		if allowed {
			inUse += c.reserved
			settlements = append(settlements, settlement{c.end, c.reserved - c.used})
		} else {
			refusals++
		}
	}
	if refusals == 0 || int(r.Denied) != refusals {
		t.Errorf("got %d refused, want %d and more than 0", r.Denied, refusals)
	}
}

func TestReasonsOfLines(t *testing.T) {
	t.Parallel()
	log := strings.Repeat(line(1, alice), 9) + "one\ntwo\n" + `192.0.2.1 - - [17/May/2015:10:05:61 +0000] "GET / HTTP/1.1" 200 1 "-" "-"` + "\n\n"
	r, err := run(t.Context(), bucket, "ip", []string{writeFile(t, "a.log", []byte(log))}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Reasons []struct {
			Reason   string
			Unparsed bool
			Lines    int
			First    struct{ Line int }
		}
	}
	if err := json.Unmarshal([]byte(asJSON(t, r)), &got); err != nil {
		t.Fatal(err)
	}
	if want := "[{does not begin with a host, an identity and a user true 2 {10}} {has no time such as " +
		"[17/May/2015:10:05:03 +0000] in its place true 1 {12}} {is blank false 1 {13}}]"; fmt.Sprint(got.Reasons) != want {
		t.Errorf("got %v, want %s", got.Reasons, want)
	}
}

// TestManyReasonsAreCountedAsOne replays lines with 25 different reasons, some of them again: 20 reasons are kept, each
// with all of its lines, and all others are one.
func TestManyReasonsAreCountedAsOne(t *testing.T) {
	t.Parallel()
	log := line(1, alice)
	for i := range 30 {
		bad := strings.Replace(line(2, alice), "- -", "- "+strings.Repeat("k", 513+i%25), 1)
		log += bad + bad
	}
	r, err := run(t.Context(), bucket, "user", []string{writeFile(t, "a.log", []byte(log))}, nil)
	if err != nil {
		t.Fatal(err)
	}
	lines := int64(0)
	for _, reason := range r.Reasons {
		lines += reason.Lines
	}
	// 25 reasons of 2 lines each; the first 5 again.
	if len(r.Reasons) != 21 || lines != 60 || r.Reasons[4].Lines != 4 || r.Reasons[20].Lines != 10 {
		t.Errorf("got %d reasons of %d lines, the fifth of %d and the last of %d, want 21 of 60, 4 and 10",
			len(r.Reasons), lines, r.Reasons[4].Lines, r.Reasons[20].Lines)
	}
}
