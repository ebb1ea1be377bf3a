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

// limit is a limit that callers charge, with all versions that it has had.
type limit struct {
	name     string
	named    headgate.Limit // the name alone, for callers that know no version; zero: callers know the version
	versions []version
	indexes  map[*process]int // of the version that a process has, in versions; absent: 0
}

type version struct {
	limit    headgate.Limit
	recorded history.Limit
}

// versionFor returns the version that a process has.
func (l *limit) versionFor(p *process) *version { return &l.versions[l.indexes[p]] }

// charge returns a charge of a key by the version that a process has.
func (l *limit) charge(p *process, key string) charge {
	v := l.versionFor(p)
	g := charge{headgate.Charge{Limit: v.limit, Key: key}, l, v.recorded.Version}
	if !l.named.IsZero() {
		g.Limit = l.named
	}
	return g
}

// newest returns the newest version that is no override.
func (l *limit) newest() *version {
	if !l.named.IsZero() {
		return &l.versions[0]
	}
	return &l.versions[len(l.versions)-1]
}

func newLimit(name string, recorded history.Limit) *limit {
	l := &limit{name: name, indexes: map[*process]int{}}
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

// replaceVersions makes recorded the only version of the limit.
func (l *limit) replaceVersions(recorded history.Limit) {
	l.versions = nil
	l.add(recorded)
}

// schedule lets the newest version replace the one before it at a time of the store's clock.
func (l *limit) schedule(at time.Time) {
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
	l.replaceVersions(recorded)
}

// resize gives a limit a random amount and a random burst, if it has one.
func resize(rng *rand.Rand, recorded *history.Limit, minAmount, span int) {
	recorded.Amount = strconv.Itoa(minAmount + rng.IntN(span))
	if recorded.Burst != "" {
		recorded.Burst = strconv.Itoa(minAmount + rng.IntN(span))
	}
}

// shortenPeriod gives the limit a period so short that many periods pass while the limit changes.
func (l *limit) shortenPeriod(rng *rand.Rand) {
	recorded := l.versions[0].recorded
	recorded.Calendar, recorded.Zone, recorded.Block = "", "", 0
	recorded.Period = shortPeriods[rng.IntN(2)].Microseconds()
	if recorded.Prefetch = ""; rng.IntN(10) < 7 { // an algorithm that has forgotten all charges a period after the last
		recorded.Period, recorded.FromFirst = shortPeriods[0].Microseconds(), false
		recorded.Algorithm, recorded.Burst = forgetful[rng.IntN(len(forgetful))], ""
	}
	l.replaceVersions(recorded)
}

// shortLimit returns a random limit with a short period.
func shortLimit(rng *rand.Rand) history.Limit {
	recorded := randomLimit(rng)
	if recorded.Period > time.Minute.Microseconds() {
		recorded.Period = shortPeriods[rng.IntN(2)].Microseconds()
	}
	return recorded
}

// prefetchMuch makes the limit a bucket that drains slowly and of which nodes prefetch many tokens.
func (l *limit) prefetchMuch(rng *rand.Rand) {
	recorded := history.Limit{
		Algorithm: history.TokenBucket, Amount: strconv.Itoa(1 + rng.IntN(12)), Burst: strconv.Itoa(30 + rng.IntN(100)),
		Period: periods[3+rng.IntN(2)].Microseconds(), Prefetch: strconv.Itoa(5 + rng.IntN(20)),
		PrefetchLife: time.Second.Microseconds(),
	}
	l.replaceVersions(recorded)
}

// forgetful lists the algorithms that forget a charge within two periods.
var forgetful = []string{"token-bucket", "gcra", "sliding-window", "sliding-log"}

var shortPeriods = []time.Duration{10 * time.Second, time.Minute}

// change adds a version that differs from the newest, and returns its index. switchAlgorithm lets it differ in its
// algorithm, if it can.
func (l *limit) change(rng *rand.Rand, switchAlgorithm bool) int {
	before := l.versions[len(l.versions)-1].recorded
	recorded := before
	for notation(&recorded) == notation(&before) {
		recorded = l.variant(rng, switchAlgorithm)
	}
	l.add(recorded)
	return len(l.versions) - 1
}

// variant returns the newest version with other numbers or another algorithm.
func (l *limit) variant(rng *rand.Rand, switchAlgorithm bool) history.Limit {
	recorded := l.versions[len(l.versions)-1].recorded
	if switchAlgorithm && recorded.Period > 0 && recorded.Burst == "" && recorded.Prefetch == "" {
		recorded.Algorithm, recorded.FromFirst = forgetful[rng.IntN(len(forgetful))], false
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
	l := history.Limit{
		Algorithm: algorithms[rng.IntN(len(algorithms))], Amount: strconv.Itoa(1 + rng.IntN(12)),
		Period: periods[rng.IntN(len(periods))].Microseconds(),
	}
	switch l.Algorithm {
	case "token-bucket", "leaky-bucket", "gcra", "interval":
		l.Burst = strconv.Itoa(1 + rng.IntN(12))
	case "fixed-window":
		switch rng.IntN(4) {
		case 0:
			l.FromFirst = true
		case 1:
			l.Period = 0
			l.Calendar = []string{"hour", "day"}[rng.IntN(2)]
			l.Zone = []string{"UTC", "Europe/Berlin", "Antarctica/Troll"}[rng.IntN(3)]
		}
	}
	if rng.IntN(8) == 0 {
		l.Block = (time.Duration(1+rng.IntN(60)) * time.Second).Microseconds()
	}
	prefetches := l.Burst != "" || l.Algorithm == "fixed-window"
	if prefetches && l.Block == 0 && rng.IntN(3) == 0 {
		maxPrefetch, _ := strconv.Atoi(l.Amount)
		if l.Burst != "" {
			maxPrefetch, _ = strconv.Atoi(l.Burst)
		}
		l.Prefetch = strconv.Itoa(1 + rng.IntN(maxPrefetch))
		l.PrefetchLife = []time.Duration{time.Second, 250 * time.Millisecond}[rng.IntN(2)].Microseconds()
	}
	return l
}

// notation writes a limit as a configuration does.
func notation(l *history.Limit) string {
	us := func(n int64) string { return strconv.FormatInt(n, 10) + "us" }
	if l.Algorithm == history.Concurrency {
		return "concurrency " + l.Amount + " ttl " + us(l.TTL)
	}
	text := l.Algorithm + " " + l.Amount + "/"
	if l.Calendar != "" {
		text += l.Calendar + " " + l.Zone
	} else {
		text += us(l.Period)
	}
	if l.FromFirst {
		text += " from-first"
	}
	if l.Burst != "" {
		text += map[bool]string{false: " burst ", true: " capacity "}[l.Algorithm == history.LeakyBucket] + l.Burst
	}
	if l.Block > 0 {
		text += " block " + us(l.Block)
	}
	if l.Prefetch != "" {
		text += " prefetch " + l.Prefetch + "/" + us(l.PrefetchLife)
	}
	return text
}
