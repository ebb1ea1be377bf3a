package sim

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/history"
	"github.com/headgate/headgate/internal/testing/history/record"
)

// limit is a limit that callers ask for, in the versions that it has had.
type limit struct {
	name     string
	named    headgate.Limit // what callers ask for that know its name only; zero: they know the version
	versions []version
	current  map[*process]int // the version that a process has; absent: the first
}

type version struct {
	limit    headgate.Limit
	recorded history.Limit
}

func (l *limit) of(p *process) *version { return &l.versions[l.current[p]] }

// charge returns one of a key, as callers of a process ask for it.
func (l *limit) charge(p *process, key string) charge {
	v := l.of(p)
	g := charge{headgate.Charge{Limit: v.limit, Key: key}, l, v.recorded.Version}
	if !l.named.IsZero() {
		g.Limit = l.named
	}
	return g
}

// last returns the newest version that is not of one key alone.
func (l *limit) last() *version {
	if !l.named.IsZero() {
		return &l.versions[0]
	}
	return &l.versions[len(l.versions)-1]
}

func newLimit(name string, recorded history.Limit) *limit {
	l := &limit{name: name, current: map[*process]int{}}
	l.add(recorded)
	return l
}

func (l *limit) add(recorded history.Limit) {
	recorded.Name, recorded.Version, recorded.From = l.name, len(l.versions)+1, 0
	parsed, err := headgate.ParseNamed(l.name, notation(&recorded))
	if err != nil {
		panic(fmt.Sprintf("limit %+v: %v", recorded, err))
	}
	l.versions = append(l.versions, version{parsed.Because(record.Because(recorded.Version)), recorded})
}

// become gives the limit one version alone.
func (l *limit) become(recorded history.Limit) {
	l.versions = nil
	l.add(recorded)
}

// follow makes the last version one that takes the place of the version before at a time of the store's clock.
func (l *limit) follow(at time.Time) {
	v := &l.versions[len(l.versions)-1]
	v.recorded.From = at.UnixMicro()
	var err error
	if v.limit, err = l.versions[len(l.versions)-2].limit.Until(at, v.limit); err != nil {
		panic(err)
	}
}

// enlarge lets so much pass that many callers are admitted together.
func (l *limit) enlarge(rng *rand.Rand) {
	recorded := l.versions[0].recorded
	resize(rng, &recorded, 20, 500)
	l.become(recorded)
}

// resize gives a limit another amount and another burst.
func resize(rng *rand.Rand, recorded *history.Limit, least, span int) {
	recorded.Amount = strconv.Itoa(least + rng.IntN(span))
	if recorded.Burst != "" {
		recorded.Burst = strconv.Itoa(least + rng.IntN(span))
	}
}

// shorten gives the limit a period that is short enough to be seen while it is changed.
func (l *limit) shorten(rng *rand.Rand) {
	recorded := l.versions[0].recorded
	recorded.Calendar, recorded.Zone, recorded.Block = "", "", 0
	recorded.Period = shortPeriods[rng.IntN(2)].Microseconds()
	if recorded.Prefetch = ""; rng.IntN(10) < 7 { // one that is empty a period after its last charge
		recorded.Period, recorded.FromFirst = shortPeriods[0].Microseconds(), false
		recorded.Algorithm, recorded.Burst = quick[rng.IntN(len(quick))], ""
	}
	l.become(recorded)
}

// shortLimit returns a random limit of which the period is short.
func shortLimit(rng *rand.Rand) history.Limit {
	recorded := randomLimit(rng)
	if recorded.Period > time.Minute.Microseconds() {
		recorded.Period = shortPeriods[rng.IntN(2)].Microseconds()
	}
	return recorded
}

// prefetchMuch makes the limit one of which nodes hold many tokens, and which forgets slowly.
func (l *limit) prefetchMuch(rng *rand.Rand) {
	recorded := history.Limit{
		Algorithm: history.TokenBucket, Amount: strconv.Itoa(1 + rng.IntN(12)), Burst: strconv.Itoa(30 + rng.IntN(100)),
		Period: periods[3+rng.IntN(2)].Microseconds(), Prefetch: strconv.Itoa(5 + rng.IntN(20)),
		PrefetchLife: time.Second.Microseconds(),
	}
	l.become(recorded)
}

// quick are algorithms that forget an amount within two periods.
var quick = []string{"token-bucket", "gcra", "sliding-window", "sliding-log"}

var shortPeriods = []time.Duration{10 * time.Second, time.Minute}

// change adds a version that differs, and returns its index. Sudden: in its algorithm.
func (l *limit) change(rng *rand.Rand, sudden bool) int {
	before := l.versions[len(l.versions)-1].recorded
	recorded := before
	for notation(&recorded) == notation(&before) {
		recorded = l.changed(rng, sudden)
	}
	l.add(recorded)
	return len(l.versions) - 1
}

// changed returns the newest version with some other numbers, or by another algorithm.
func (l *limit) changed(rng *rand.Rand, sudden bool) history.Limit {
	recorded := l.versions[len(l.versions)-1].recorded
	if sudden && recorded.Period > 0 && recorded.Burst == "" && recorded.Prefetch == "" {
		recorded.Algorithm, recorded.FromFirst = quick[rng.IntN(len(quick))], false
		return recorded
	}
	switch rng.IntN(3) {
	case 0:
		if recorded.Prefetch != "" {
			recorded.Prefetch = "1"
		}
		n, _ := strconv.Atoi(recorded.Amount)
		recorded.Amount = strconv.Itoa(max(1, n+rng.IntN(7)-3))
		if recorded.Burst != "" {
			recorded.Burst = strconv.Itoa(1 + rng.IntN(12))
		}
	case 1: // only another period, where there is one
		if recorded.Period > 0 {
			recorded.Period = periods[rng.IntN(4)].Microseconds()
		}
	default:
		recorded = shortLimit(rng)
	}
	return recorded
}

var algorithms = []string{
	"token-bucket", "token-bucket", "leaky-bucket", "gcra", "fixed-window", "fixed-window", "interval",
	"sliding-window", "sliding-log", "sliding-log",
}

var periods = []time.Duration{time.Second, 10 * time.Second, time.Minute, 7 * time.Minute, time.Hour}

// randomLimit returns a limit with a period that is short enough for the simulation to see many of them, and an amount
// small enough to be reached.
func randomLimit(rng *rand.Rand) history.Limit {
	t := history.Limit{
		Algorithm: algorithms[rng.IntN(len(algorithms))], Amount: strconv.Itoa(1 + rng.IntN(12)),
		Period: periods[rng.IntN(len(periods))].Microseconds(),
	}
	switch t.Algorithm {
	case "token-bucket", "leaky-bucket", "gcra", "interval":
		t.Burst = strconv.Itoa(1 + rng.IntN(12))
	case "fixed-window":
		switch rng.IntN(4) {
		case 0:
			t.FromFirst = true
		case 1:
			t.Period = 0
			t.Calendar = []string{"hour", "day"}[rng.IntN(2)]
			t.Zone = []string{"UTC", "Europe/Berlin", "Antarctica/Troll"}[rng.IntN(3)]
		}
	}
	if rng.IntN(8) == 0 {
		t.Block = (time.Duration(1+rng.IntN(60)) * time.Second).Microseconds()
	}
	prefetches := t.Burst != "" || t.Algorithm == "fixed-window"
	if prefetches && t.Block == 0 && rng.IntN(3) == 0 {
		most, _ := strconv.Atoi(t.Amount)
		if t.Burst != "" {
			most, _ = strconv.Atoi(t.Burst)
		}
		t.Prefetch = strconv.Itoa(1 + rng.IntN(most))
		t.PrefetchLife = []time.Duration{time.Second, 250 * time.Millisecond}[rng.IntN(2)].Microseconds()
	}
	return t
}

// notation writes a limit as a configuration does.
func notation(t *history.Limit) string {
	us := func(n int64) string { return strconv.FormatInt(n, 10) + "us" }
	if t.Algorithm == history.Concurrency {
		return "concurrency " + t.Amount + " ttl " + us(t.TTL)
	}
	text := t.Algorithm + " " + t.Amount + "/"
	if t.Calendar != "" {
		text += t.Calendar + " " + t.Zone
	} else {
		text += us(t.Period)
	}
	if t.FromFirst {
		text += " from-first"
	}
	if t.Burst != "" {
		text += map[bool]string{false: " burst ", true: " capacity "}[t.Algorithm == history.LeakyBucket] + t.Burst
	}
	if t.Block > 0 {
		text += " block " + us(t.Block)
	}
	if t.Prefetch != "" {
		text += " prefetch " + t.Prefetch + "/" + us(t.PrefetchLife)
	}
	return text
}
