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
	name           string
	nameOnly       headgate.Limit // for callers that know no version; zero: callers know the version
	versions       []version
	versionIndexes map[*process]int // the index in versions of the version that a process has; absent: 0
}

type version struct {
	limit      headgate.Limit
	definition history.Limit
}

func (l *limit) versionFor(p *process) *version { return &l.versions[l.versionIndexes[p]] }

// charge returns a charge of a key by the version that a process has.
func (l *limit) charge(p *process, key string) charge {
	v := l.versionFor(p)
	c := charge{headgate.Charge{Limit: v.limit, Key: key}, l, v.definition.Version}
	if !l.nameOnly.IsZero() {
		c.Limit = l.nameOnly
	}
	return c
}

func newLimit(name string, definition history.Limit) *limit {
	l := &limit{name: name, versionIndexes: map[*process]int{}}
	l.addVersion(definition)
	return l
}

func (l *limit) addVersion(definition history.Limit) {
	definition.Name, definition.Version, definition.From = l.name, len(l.versions)+1, 0
	parsed, err := headgate.ParseNamed(l.name, notation(&definition))
	if err != nil {
		panic(fmt.Sprintf("limit %+v: %v", definition, err))
	}
	l.versions = append(l.versions, version{parsed.Because(record.Because(definition.Version)), definition})
}

// replaceVersions makes definition the only version of the limit.
func (l *limit) replaceVersions(definition history.Limit) {
	l.versions = nil
	l.addVersion(definition)
}

// schedule lets the newest version replace the one before it at a time of the store's clock.
func (l *limit) schedule(at time.Time) {
	v := &l.versions[len(l.versions)-1]
	v.definition.From = at.UnixMicro()
	var err error
	if v.limit, err = l.versions[len(l.versions)-2].limit.Until(at, v.limit); err != nil {
		panic(err)
	}
}

// enlarge gives the limit an amount with which many callers are admitted together.
func (l *limit) enlarge(rng *rand.Rand) {
	definition := l.versions[0].definition
	resize(rng, &definition, 20, 500)
	l.replaceVersions(definition)
}

// resize gives a limit a random amount and a random burst, if it has one.
func resize(rng *rand.Rand, definition *history.Limit, minAmount, span int) {
	definition.Amount = strconv.Itoa(minAmount + rng.IntN(span))
	if definition.Burst != "" {
		definition.Burst = strconv.Itoa(minAmount + rng.IntN(span))
	}
}

// shortenPeriod gives the limit a period so short that many periods pass while the limit changes.
func (l *limit) shortenPeriod(rng *rand.Rand) {
	definition := l.versions[0].definition
	definition.Calendar, definition.Zone, definition.Block = "", "", 0
	definition.Period = shortPeriods[rng.IntN(2)].Microseconds()
	if definition.Prefetch = ""; rng.IntN(10) < 7 { // an algorithm that forgets a charge within two periods
		definition.Period, definition.FromFirst = shortPeriods[0].Microseconds(), false
		definition.Algorithm, definition.Burst = fastAlgorithms[rng.IntN(len(fastAlgorithms))], ""
	}
	l.replaceVersions(definition)
}

// shortLimit returns a random limit whose period is a minute at most, or that of a calendar.
func shortLimit(rng *rand.Rand) history.Limit {
	definition := randomLimit(rng)
	if definition.Period > time.Minute.Microseconds() {
		definition.Period = shortPeriods[rng.IntN(2)].Microseconds()
	}
	return definition
}

// prefetchMuch makes the limit a bucket that drains slowly, with a large prefetch.
func (l *limit) prefetchMuch(rng *rand.Rand) {
	definition := history.Limit{
		Algorithm: history.TokenBucket, Amount: strconv.Itoa(1 + rng.IntN(12)), Burst: strconv.Itoa(30 + rng.IntN(100)),
		Period: periods[3+rng.IntN(2)].Microseconds(), Prefetch: strconv.Itoa(5 + rng.IntN(20)),
		PrefetchLife: time.Second.Microseconds(),
	}
	l.replaceVersions(definition)
}

// fastAlgorithms are algorithms that, without a burst, forget a charge within two periods.
var fastAlgorithms = []string{"token-bucket", "gcra", "sliding-window", "sliding-log"}

var shortPeriods = []time.Duration{10 * time.Second, time.Minute}

// change adds a version that differs from the newest, and returns its index. With switchAlgorithm it differs in its
// algorithm alone, if it can.
func (l *limit) change(rng *rand.Rand, switchAlgorithm bool) int {
	oldVersion := l.versions[len(l.versions)-1].definition
	definition := oldVersion
	for notation(&definition) == notation(&oldVersion) {
		definition = l.variant(rng, switchAlgorithm)
	}
	l.addVersion(definition)
	return len(l.versions) - 1
}

// variant returns the newest version with other numbers or another algorithm, or another limit; it may be the same.
func (l *limit) variant(rng *rand.Rand, switchAlgorithm bool) history.Limit {
	definition := l.versions[len(l.versions)-1].definition
	if switchAlgorithm && definition.Period > 0 && definition.Burst == "" && definition.Prefetch == "" {
		definition.Algorithm, definition.FromFirst = fastAlgorithms[rng.IntN(len(fastAlgorithms))], false
		return definition
	}
	switch rng.IntN(3) {
	case 0:
		if definition.Prefetch != "" {
			definition.Prefetch = "1"
		}
		n, _ := strconv.Atoi(definition.Amount)
		definition.Amount = strconv.Itoa(max(1, n+rng.IntN(7)-3))
		if definition.Burst != "" {
			definition.Burst = strconv.Itoa(1 + rng.IntN(12))
		}
	case 1: // only another period, where there is one
		if definition.Period > 0 {
			definition.Period = periods[rng.IntN(4)].Microseconds()
		}
	default:
		definition = shortLimit(rng)
	}
	return definition
}

var algorithms = []string{ // each as often as its weight
	"token-bucket", "token-bucket", "leaky-bucket", "gcra", "fixed-window", "fixed-window", "interval",
	"sliding-window", "sliding-log", "sliding-log",
}

var periods = []time.Duration{time.Second, 10 * time.Second, time.Minute, 7 * time.Minute, time.Hour}

// randomLimit returns a random limit, with an amount that is small enough to be reached.
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
	canPrefetch := l.Burst != "" || l.Algorithm == "fixed-window"
	if canPrefetch && l.Block == 0 && rng.IntN(3) == 0 {
		maxPrefetch, _ := strconv.Atoi(l.Amount)
		if l.Burst != "" {
			maxPrefetch, _ = strconv.Atoi(l.Burst)
		}
		l.Prefetch = strconv.Itoa(1 + rng.IntN(maxPrefetch))
		l.PrefetchLife = []time.Duration{time.Second, 250 * time.Millisecond}[rng.IntN(2)].Microseconds()
	}
	return l
}

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
