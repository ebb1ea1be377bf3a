package check_test

import (
	"bytes"
	"encoding/json"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/history"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/internal/testing/sim/check"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestTamperedHistoriesBreakTheirRule checks that each good history breaks no rule, and that it breaks the named rule
// after it was tampered with. The checker must not change a history.
func TestTamperedHistoriesBreakTheirRule(t *testing.T) {
	cases := slices.Concat(boundCases, levelCases, repeatCases, onceCases, reservationCases, leaseCases, formatCases,
		overrideCases, extendCases)
	if len(cases) < 30 {
		t.Errorf("got %d cases, want at least 30", len(cases))
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b, tamper := c.build()
			for _, v := range check.Check(&b.h) {
				t.Errorf("the good history: %s", v)
			}
			oldJSON, _ := json.Marshal(b.h)
			check.Check(&b.h)
			if newJSON, _ := json.Marshal(b.h); !bytes.Equal(oldJSON, newJSON) {
				t.Error("the checker has changed the history")
			}
			tamper()
			found := check.Check(&b.h)
			if !slices.ContainsFunc(found, func(v check.Violation) bool { return v.Rule == c.rule }) {
				t.Errorf("the tampered history does not break the rule %s: %v", c.rule, found)
			}
			for _, v := range found {
				if len(v.Events) == 0 || v.Text == "" || !strings.HasPrefix(v.String(), v.Rule+": ") {
					t.Errorf("a violation that says too little: %+v", v)
				}
			}
		})
	}
}

// TestCheckImportsOnlyHistory checks that the checker imports none of the code that it judges.
func TestCheckImportsOnlyHistory(t *testing.T) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), f.Name(), nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range file.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			if strings.Contains(path, ".") && path != "github.com/headgate/headgate/internal/testing/history" {
				t.Errorf("%s imports %s", f.Name(), path)
			}
		}
	}
}

// tamperCase builds a good history, and a function that makes it break a rule.
type tamperCase struct {
	name, rule string
	build      func() (*builder, func())
}

var boundCases = []tamperCase{
	{"one too many", "bound", func() (*builder, func()) {
		b := newBuilder(tokenBucket("1", "3"))
		b.take(0, "1")
		b.take(1, "2")
		id := b.take(2, "1", withRefusal(second-1))
		return b, func() { b.returns[id].Outcome = history.Admitted }
	}},
	{"a microsecond too early", "bound", func() (*builder, func()) {
		b := newBuilder(tokenBucket("1", "1"))
		b.take(0, "1")
		id := b.take(second, "1")
		return b, func() { b.postpone(id, -1) }
	}},
	{"fixed window, before the boundary", "bound", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", 60*second))
		b.take(60*second-2, "5")
		id := b.take(60*second, "5")
		return b, func() { b.postpone(id, -1) }
	}},
	{"a day of 23 hours", "bound", func() (*builder, func()) {
		b := newBuilder(history.Limit{
			Algorithm: history.FixedWindow, Amount: "5", Calendar: "day", Zone: "Europe/Berlin",
		})
		begin := int64(1_711_839_600_000_000 - base) // 2024-03-30 23:00 UTC, midnight in Berlin
		b.take(begin, "5")
		id := b.take(begin+23*hour, "5")
		return b, func() { b.postpone(id, -1) }
	}},
	{"an hour of 30 minutes", "bound", func() (*builder, func()) {
		b := newBuilder(history.Limit{
			Algorithm: history.FixedWindow, Amount: "5", Calendar: "hour", Zone: "Asia/Pyongyang",
		})
		begin := int64(1_525_444_200_000_000 - base) // 2018-05-04 14:30 UTC, 23:00 there
		// At 23:30 the clocks are put forward to 00:00. True time has to be above 0, and the store's time lies before
		// base.
		id := 0
		for _, at := range []int64{begin - 1, begin, begin + hour/2} {
			id = b.take(at-begin+1, "5", func(_ *history.Call, r *history.Return) { r.At = base + at })
		}
		return b, func() { b.returns[id].At-- }
	}},
	{"sliding log, at the edge", "bound", func() (*builder, func()) {
		b := newBuilder(history.Limit{Algorithm: history.SlidingLog, Amount: "5", Period: 60 * second})
		b.take(7, "2")
		b.take(8, "3")
		id := b.take(7+60*second, "2")
		return b, func() { b.postpone(id, -1) }
	}},
	{"sliding window, above its share", "bound", func() (*builder, func()) {
		b := newBuilder(history.Limit{Algorithm: history.SlidingWindow, Amount: "100", Period: 60 * second})
		b.take(30*second, "100")
		id := b.take(90*second, "50")
		return b, func() { b.calls[id].Charges[0].Cost = "50.001" }
	}},
	{"interval, a microsecond too early", "bound", func() (*builder, func()) {
		b := newBuilder(history.Limit{Algorithm: history.Interval, Amount: "2", Period: 10 * second, Burst: "3"})
		b.take(3, "3")
		id := b.take(3+10*second, "2")
		return b, func() { b.postpone(id, -1) }
	}},
	{"from the first, a microsecond too early", "bound", func() (*builder, func()) {
		b := newBuilder(history.Limit{Algorithm: history.FixedWindow, Amount: "3", Period: 10 * second, FromFirst: true})
		b.take(3, "1")
		b.take(5*second, "2")
		id := b.take(3+10*second, "3")
		return b, func() { b.postpone(id, -1) }
	}},
	{"prefetch above its allowance", "bound", func() (*builder, func()) {
		l := tokenBucket("10", "10")
		l.Prefetch, l.PrefetchLife = "5", second
		b := newBuilder(l)
		b.take(0, "10")
		for i := range int64(10) {
			b.take(i+1, "1", func(_ *history.Call, r *history.Return) { r.Via = history.ViaPrefetch })
		}
		return b, func() { b.calls[1].Charges[0].Cost = "10.1" }
	}},
	{"more was admitted than a fail-over can have lost", "bound", func() (*builder, func()) {
		b := newBuilder(history.Limit{Algorithm: history.SlidingLog, Amount: "5", Period: hour})
		b.take(1, "3")
		b.take(2, "2")
		f := b.addFault(3, history.Fault{Kind: history.Forget, Since: 500})
		b.take(4, "5")
		return b, func() { f.Since = 1900 }
	}},
	{"a clock that was not put forward", "bound", func() (*builder, func()) {
		b := newBuilder(tokenBucket("1", "5"))
		b.take(1, "5")
		f := b.addFault(2, history.Fault{Kind: history.Clock, By: 10 * second})
		b.take(3, "5", func(_ *history.Call, r *history.Return) { r.At += 10 * second })
		return b, func() { f.By = 0 }
	}},
	{"a charge that waits while the clock jumps beyond its start", "bound", func() (*builder, func()) {
		b := newBuilder(tokenBucket("1", "5"))
		onFastClock := func(_ *history.Call, r *history.Return) { r.At += 10 * second }
		b.take(1, "5")
		id := b.take(2, "2", func(c *history.Call, r *history.Return) { c.Wait, r.At = 3*second, 0 })
		b.addFault(3, history.Fault{Kind: history.Clock, By: 10 * second})
		b.take(4, "5", onFastClock)
		b.returnAt(id, 2*second)
		b.take(2*second+10, "2", onFastClock)
		return b, func() { b.calls[id].Wait = 0 }
	}},
	{"a clock put back that creates tokens", "bound", func() (*builder, func()) {
		b := newBuilder(tokenBucket("1", "5"))
		b.take(1, "5")
		b.addFault(2, history.Fault{Kind: history.Clock, By: -10 * second})
		id := b.take(3, "1", withRefusal(second), func(_ *history.Call, r *history.Return) { r.At -= 10 * second })
		return b, func() { b.returns[id].Outcome = history.Admitted }
	}},
	{"a clock read early, and calls that follow each other", "figures", func() (*builder, func()) {
		b := newBuilder(tokenBucket("1", "5"))
		b.addFault(0, history.Fault{Kind: history.EarlyClock})
		b.take(1, "1")
		id := b.take(2*1000, "1")
		return b, func() { b.returns[id].Each = []history.Figures{{Remaining: 5, Capacity: 5}} }
	}},
	{"a clock that gains more", "bound", func() (*builder, func()) {
		b := newBuilder(tokenBucket("1", "1"))
		f := b.addFault(0, history.Fault{Kind: history.Drift, By: 200})
		b.take(0, "1")
		b.take(second-150, "1", func(_ *history.Call, r *history.Return) { r.At += 150 })
		return b, func() { f.By = 100 }
	}},
	{"one too many after a loss, which excuses only what came before it", "bound", func() (*builder, func()) {
		b := newBuilder(tokenBucket("1", "5"))
		b.take(1, "2")
		b.addFault(2, history.Fault{Kind: history.Forget})
		b.take(3, "5")
		id := b.take(4, "1", withRefusal(second))
		return b, func() { b.returns[id].Outcome = history.Admitted }
	}},
	{"more than a fail-over within a time can have lost", "bound", func() (*builder, func()) {
		b := newBuilder(tokenBucket("1", "5"))
		b.take(1, "5")
		b.take(10, "5") // the new primary has lost the charge of 5
		f := b.addFault(20, history.Fault{Kind: history.Forget, By: 15})
		return b, func() { f.By = 5 }
	}},
	{"times that lie", "bound", func() (*builder, func()) {
		b := newBuilder(tokenBucket("1", "5"))
		b.take(1, "5")
		id := b.take(5*second+1, "5")
		return b, func() { b.postpone(id, -second); b.returns[id].At += second }
	}},
	{"a change that forgets", "bound", func() (*builder, func()) {
		shorter := fixedWindow("100", 60*second)
		shorter.Version = 2
		b := newBuilder(fixedWindow("100", hour), shorter)
		b.take(55*60*second+55*second, "60")
		id := b.take(55*60*second+57*second, "40", withVersion(2))
		return b, func() { b.calls[id].Charges[0].Cost = "50" }
	}},
	{"a change to another algorithm that forgets", "bound", func() (*builder, func()) {
		l := history.Limit{Algorithm: history.SlidingLog, Version: 2, Amount: "10", Period: hour}
		b := newBuilder(fixedWindow("10", hour), l)
		b.take(1, "9")
		id := b.take(2, "1", withVersion(2))
		return b, func() { b.calls[id].Charges[0].Cost = "2" }
	}},
	{"a reset that was none", "bound", func() (*builder, func()) {
		b := newBuilder(tokenBucket("1", "5"))
		b.take(1, "5")
		id := b.addCall(2, history.Reset, "", withOutcome(history.Done))
		b.take(3, "5")
		return b, func() { b.returns[id].Outcome = history.Nothing }
	}},
	{"a cancellation that was none", "bound", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", day))
		id := b.take(1, "5")
		cancellation := b.addFollowUp(2, history.Cancel, id, withCorrected("5"))
		b.take(3, "5")
		return b, func() { b.returns[cancellation].Outcome = history.Nothing }
	}},
}

// BenchmarkCheck checks histories of 100,000 decisions, of which one in ten is a refusal.
func BenchmarkCheck(b *testing.B) {
	const n = 100_000
	for _, c := range []struct {
		name         string
		limit        history.Limit
		keys         int
		lossInterval int // one of so many answers is lost; 0: none
		clockJumps   bool
	}{
		{"token-bucket", tokenBucket("1000", "100"), 1, 0, false},
		{"token-bucket, lost answers", tokenBucket("1000", "100"), 1, 50, false},
		{"token-bucket, a clock that jumps", tokenBucket("1000", "100"), 1, 0, true},
		{"token-bucket, 1000 keys", tokenBucket("1000", "100"), 1000, 0, false},
		{"fixed-window", fixedWindow("1000", second), 1, 0, false},
		{
			"a day in Berlin",
			history.Limit{Algorithm: history.FixedWindow, Amount: "100000", Calendar: "day", Zone: "Europe/Berlin"},
			1, 0, false,
		},
		{
			"sliding-window",
			history.Limit{Algorithm: history.SlidingWindow, Amount: "1000", Period: second},
			1, 0, false,
		},
		{"sliding-log", history.Limit{Algorithm: history.SlidingLog, Amount: "1000", Period: second}, 1, 0, false},
	} {
		b.Run(c.name, func(b *testing.B) {
			hist := newBuilder(c.limit)
			for i := range int64(n) {
				if c.clockJumps && i%1000 == 0 {
					hist.addFault(i*1000, history.Fault{Kind: history.Clock, By: 1})
				}
				cost, option := "1", withRemaining(-1)
				if i%10 == 9 {
					cost, option = "100001", withRefusal(-1)
				}
				id := hist.take(i*1000, cost, option)
				hist.calls[id].Charges[0].Key = strconv.Itoa(int(i) % c.keys)
				if c.lossInterval > 0 && i%int64(c.lossInterval) == 0 {
					*hist.returns[id] = history.Return{ID: id, Outcome: history.Unknown, Until: i*1000_000 + 100}
				}
			}
			b.ResetTimer()
			for b.Loop() {
				if found := check.Check(&hist.h); len(found) > 0 {
					b.Fatal(found[0])
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/decision")
		})
	}
}
