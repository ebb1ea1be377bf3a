package headgate_test

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store/memory"
)

// TestBoundsThatWereTooLow checks that a bound covers charges that exceeded the faulty bounds of earlier versions.
// Those were rounded down, capped at 2^53, or overlooked the shortest windows of some time zones.
func TestBoundsThatWereTooLow(t *testing.T) {
	t.Parallel()
	type step struct {
		after string // the time since the begin
		cost  string
	}
	for _, tt := range []struct {
		notation, begin string
		steps           []step // all are admitted
		want            string // the sum of their costs
	}{
		{"token-bucket 1/s burst 1", "2027-01-15T08:00:00Z", []step{{"0s", "1"}, {"1500us", "0.0015"}}, "1.0015"},
		{"sliding-log 0.0005/1s", "2027-01-15T08:00:00Z", []step{{"0s", "0.0005"}}, "0.0005"},
		{
			"token-bucket 0.000000001/s burst 0.000000001", "2027-01-15T08:00:00Z",
			[]step{{"0s", "0.000000001"}},
			"0.000000001",
		},
		{
			"fixed-window 5000000000000000/1h", "2027-01-15T07:59:59.999999Z",
			[]step{{"0s", "5000000000000000"}, {"1us", "5000000000000000"}},
			"10000000000000000",
		},
		{
			"fixed-window 9007199254740991/1h", "2027-01-15T07:59:59.999999Z",
			[]step{{"0s", "9007199254740991"}, {"1us", "9007199254740991"}},
			"18014398509481982",
		},
		{
			"interval 9007199254740991/1h", "2027-01-15T08:00:00Z",
			[]step{{"0s", "9007199254740991"}, {"1h", "9007199254740991"}},
			"18014398509481982",
		},
		{
			"fixed-window 100/day Antarctica/Troll", "2027-03-27T23:59:59.999999Z",
			[]step{{"0s", "100"}, {"1us", "100"}, {"22h0m0.000001s", "100"}},
			"300",
		},
		{
			"fixed-window 100/week Antarctica/Troll", "2027-03-21T23:59:59.999999Z",
			[]step{{"0s", "100"}, {"1us", "100"}, {"166h0m0.000001s", "100"}},
			"300",
		},
		{
			"fixed-window 100/hour America/Caracas", "2016-05-01T06:29:59.999999Z",
			[]step{{"0s", "100"}, {"1us", "100"}, {"30m0.000001s", "100"}},
			"300",
		},
		{
			"fixed-window 100/hour Asia/Pyongyang", "2018-05-04T14:29:59.999999Z",
			[]step{{"0s", "100"}, {"1us", "100"}, {"30m0.000001s", "100"}},
			"300",
		},
	} {
		t.Run(tt.notation, func(t *testing.T) {
			t.Parallel()
			c := newClock(tt.begin)
			l, limit, begin := newLimiter(c), headgate.MustParse(tt.notation), c.now
			passed, elapsed := new(big.Rat), time.Duration(0)
			for _, s := range tt.steps {
				elapsed, _ = time.ParseDuration(s.after)
				c.now = begin + elapsed.Microseconds()
				d, err := l.Take(t.Context(), headgate.Charge{Limit: limit, Key: "k", Cost: headgate.MustCost(s.cost)})
				if err != nil || !d.Allowed {
					t.Fatalf("%s after %s: %+v, %v", s.cost, s.after, d, err)
				}
				passed.Add(passed, ratOf(headgate.MustCost(s.cost)))
			}
			bound := limit.Bound().In(elapsed)
			if want, _ := new(big.Rat).SetString(tt.want); passed.Cmp(want) != 0 || passed.Cmp(bound.Rat()) > 0 ||
				passed.Cmp(ratOf(bound)) > 0 {
				t.Errorf("%s passed in %s, want %s; the bound is %s", passed.RatString(), elapsed, tt.want, bound)
			}
		})
	}
}

// TestBoundsOfTinyAndHugeAmounts checks that the text of a bound is exact or rounded up, also for calendar windows.
func TestBoundsOfTinyAndHugeAmounts(t *testing.T) {
	t.Parallel()
	for notation, want := range map[string]string{
		"token-bucket 0.000000001/s burst 0.000000001": "0.000000002 in one second",
		"fixed-window 5000000000000000/1h":             "10000000000000000 in one hour",
		"interval 9007199254740991/1h":                 "18014398509481982 in one hour",
		"token-bucket 1/3s burst 1":                    "2 in 3 seconds",
		"fixed-window 100/day":                         "200 in 24 hours",
		"fixed-window 100/day Antarctica/Troll":        "300 in 24 hours",
		"fixed-window 100/week UTC":                    "200 in 7 days",
		"fixed-window 100/hour Europe/Berlin":          "200 in one hour",
		"fixed-window 100/hour Australia/Lord_Howe":    "200 in one hour",
		"fixed-window 100/month Antarctica/Troll":      "200 in 28 days, 300 in 31 days",
		"sliding-window 0.000001/1m":                   "0.000001 in one minute",
		"fixed-window 9007199254740991/month Europe/Paris": "18014398509481982 in 28 days, " +
			"27021597764222973 in 31 days",
	} {
		limit := headgate.MustParse(notation)
		if got := limit.Bound().String(); !strings.HasSuffix(got, "; at worst "+want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	fourThirds := headgate.MustParse("token-bucket 1/3s burst 1").Bound().In(time.Second)
	if fourThirds.Rat().Cmp(big.NewRat(4, 3)) != 0 || fourThirds.String() != "1.333333334" {
		t.Errorf("got %s, as text %s; want 4/3, rounded up", fourThirds.Rat(), fourThirds)
	}
	if got := headgate.MustParse("token-bucket 9007199254740991/us burst 1").Bound().In(1 << 62).String(); got != "4611686018427388" {
		t.Errorf("in 146 years %s pass, want one for each microsecond, and one", got)
	}
	if got := (headgate.Limit{}).Bound().In(time.Hour).String(); got != "0" {
		t.Errorf("the zero Limit lets %s pass, want 0", got)
	}
}

// zones have large, odd and frequent changes of their offsets, or none.
var zones = []string{
	"UTC", "Europe/Berlin", "Europe/Dublin", "Europe/Lisbon", "Europe/Moscow", "Europe/Volgograd", "Europe/Istanbul",
	"Africa/Cairo", "Africa/Casablanca", "Africa/El_Aaiun", "Africa/Juba", "Africa/Sao_Tome", "America/New_York",
	"America/Caracas", "America/Nuuk", "America/Scoresbysund", "America/Sao_Paulo", "America/St_Johns",
	"America/Havana", "America/Asuncion", "America/Metlakatla", "America/Danmarkshavn", "America/Argentina/San_Luis",
	"Antarctica/Troll", "Antarctica/Casey", "Antarctica/Vostok", "Antarctica/Macquarie", "Asia/Pyongyang",
	"Asia/Kathmandu", "Asia/Colombo", "Asia/Dhaka", "Asia/Gaza", "Asia/Tehran", "Asia/Kabul", "Asia/Beirut",
	"Asia/Amman", "Asia/Anadyr", "Asia/Kamchatka", "Asia/Chita", "Asia/Singapore", "Australia/Lord_Howe",
	"Australia/Eucla", "Australia/Darwin", "Pacific/Apia", "Pacific/Fakaofo", "Pacific/Kwajalein", "Pacific/Kiritimati",
	"Pacific/Enderbury", "Pacific/Chatham", "Pacific/Norfolk", "Pacific/Easter", "Pacific/Bougainville", "Pacific/Fiji",
	"Pacific/Tongatapu",
}

// fewZones are the zones for make test. TestBoundsThatWereTooLow has the shortest windows of some other zones.
var fewZones = []string{"UTC", "Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia"}

// TestNoWindowsOfTheCalendarPassMoreThanTheirBound checks bounds around changes of a zone's offset. From the last
// microsecond of one window to the first of another, the bound is at least the amounts of all windows touched.
func TestNoWindowsOfTheCalendarPassMoreThanTheirBound(t *testing.T) {
	t.Parallel()
	for _, zone := range tier.Pick(fewZones, zones, zones) {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()
			seed := tier.Pick(1, 1, rand.Uint64())
			rng := rand.New(rand.NewPCG(seed, 0))
			loc, err := time.LoadLocation(zone)
			if err != nil {
				t.Fatal(err)
			}
			for i, length := range []time.Duration{time.Hour, 24 * time.Hour, 7 * 24 * time.Hour, 31 * 24 * time.Hour} {
				unit := []string{"hour", "day", "week", "month"}[i]
				if unit == "month" && tier.Pick(zone != "Europe/Berlin", rng.IntN(4) > 0, false) {
					continue // months take most of the time
				}
				limit := headgate.MustParse("fixed-window 7/" + unit + " " + zone)
				bound, amount := limit.Bound(), headgate.Units(7)
				maxRatio := 0.0
				for _, at := range offsetChanges(loc, rng) {
					ends := windowEndsAround(t, limit, length, at)
					for i := range ends {
						for j := i; j < len(ends); j++ {
							first := ends[i].Add(-time.Microsecond)
							n, err := limit.Within(first, ends[j], amount)
							if err != nil || n != int64(j-i+2) {
								t.Fatalf("seed %d: %s, from %s to %s: %d windows, %v; want %d", seed, limit, first, ends[j], n,
									err, j-i+2)
							}
							maxAmount := bound.In(ends[j].Sub(first))
							if maxAmount.Rat().Cmp(big.NewRat(7*n, 1)) < 0 {
								t.Fatalf("seed %d: %s: %d pass from %s to %s, the bound is %s", seed, limit, 7*n, first, ends[j], maxAmount)
							}
							maxRatio = max(maxRatio, float64(7*n)/maxAmount.Float64())
						}
					}
				}
				// In these zones a whole day was skipped. It counts as a window of no length, so the bound is loose.
				skipsDay := zone == "Pacific/Enderbury" || zone == "Pacific/Kwajalein" || zone == "Pacific/Fakaofo" ||
					zone == "Pacific/Apia"
				if maxRatio < 0.99 && !skipsDay {
					t.Errorf("seed %d: %s: the bound is loose: at most %.2f of it passed", seed, limit, maxRatio)
				}
			}
		})
	}
}

// offsetChanges returns two ordinary instants, and random changes of a zone's offset: some of the changes by an hour,
// and more of the other changes.
func offsetChanges(loc *time.Location, rng *rand.Rand) []time.Time {
	list := []time.Time{time.Date(2026, 2, 27, 12, 0, 0, 0, loc), time.Date(2027, 6, 1, 0, 0, 0, 0, loc)}
	var hourChanges, oddChanges []time.Time
	for at := time.Date(1971, 1, 1, 0, 0, 0, 0, loc); ; {
		_, next := at.ZoneBounds()
		if !next.IsZero() && !next.After(at) { // ZoneBounds returns such an end at the end of leap years
			next = at.Add(24 * time.Hour)
		}
		if next.IsZero() || next.Year() > 2045 {
			break
		}
		_, oldOffset := next.Add(-time.Second).Zone()
		switch _, newOffset := next.Zone(); newOffset - oldOffset {
		case 0:
		case 3600, -3600:
			hourChanges = append(hourChanges, next)
		default:
			oddChanges = append(oddChanges, next)
		}
		at = next
	}
	for _, sample := range []struct {
		size    int
		changes []time.Time
	}{{tier.Pick(1, 3, 10), hourChanges}, {tier.Pick(2, 8, 20), oddChanges}} {
		changes := sample.changes
		rng.Shuffle(len(changes), func(i, j int) { changes[i], changes[j] = changes[j], changes[i] })
		list = append(list, changes[:min(sample.size, len(changes))]...)
	}
	return list
}

// windowEndsAround returns the ends of the windows around an instant.
func windowEndsAround(t *testing.T, limit headgate.Limit, length time.Duration, at time.Time) (ends []time.Time) {
	t.Helper()
	at = at.Truncate(time.Minute) // some zone files list an instant in 2038 at which no offset changes
	for from := at.Add(-3 * length); from.Before(at.Add(3 * length)); {
		// The window ends at the first full minute at which a second charge of its whole amount passes.
		low, high := from, from.Add(5*length/2)
		for high.Sub(low) > time.Minute {
			mid := low.Add((high.Sub(low) / 2).Truncate(time.Minute))
			n, err := limit.Within(from, mid, headgate.Units(7))
			if err != nil {
				t.Fatal(err)
			}
			if n > 1 {
				high = mid
			} else {
				low = mid
			}
		}
		from = high
		ends = append(ends, from)
	}
	return ends
}

// TestNoRatePassesMoreThanItsBound fills up limits with random rates at random times, and checks all intervals.
func TestNoRatePassesMoreThanItsBound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, checkNoRatePassesMoreThanItsBound)
}

func checkNoRatePassesMoreThanItsBound(t *testing.T) {
	seed := tier.Pick(1, 1, rand.Uint64())
	rng := rand.New(rand.NewPCG(seed, 0))
	amounts := []string{"1", "3", "0.0005", "0.000001", "7.5", "150001", "999999999", "0.000000003", "12345.678"}
	periods := []string{"s", "1m", "1d", "30d", "7ms", "3us"}
	formats := []string{
		"token-bucket %s/%s burst %s", "interval %s/%s burst %s", "fixed-window %s/%s",
		"fixed-window %s/%s from-first", "sliding-window %s/%s", "sliding-log %s/%s",
	}
	compiled := 0
	rounds := tier.Pick(150, 1500, 15_000)
	for range rounds {
		args := []any{amounts[rng.IntN(len(amounts))], periods[rng.IntN(len(periods))], amounts[rng.IntN(len(amounts))]}
		format := formats[rng.IntN(len(formats))]
		if format != formats[0] && format != formats[1] {
			args = args[:2]
		}
		limit, err := headgate.Parse(fmt.Sprintf(format, args...))
		if err != nil {
			continue // the amount does not fit into 53 bits
		}
		compiled++
		p, now := limit.Params(), int64(1_772_366_459_000_000)+rng.Int64N(1e9)
		m := memory.New(&memory.Config{Clock: func() int64 { return now }})
		op := law.Op{
			Verb: law.Take, Group: 1, Cell: law.Cell{Limit: "l", Key: "k"}, Params: p, Cost: 1,
			Count: p.Capacity, Partial: true,
		}
		var times []int64
		sums := []*big.Int{new(big.Int)} // sums[i]: credits that passed before times[i]
		for range 25 {
			outs := make([]law.Outcome, 1)
			if err := m.Apply(t.Context(), []law.Op{op}, outs); err != nil || outs[0].Err != nil {
				t.Fatalf("seed %d: %s: %v, %v", seed, limit, err, outs[0].Err)
			}
			times = append(times, now)
			sums = append(sums, new(big.Int).Add(sums[len(sums)-1], big.NewInt(outs[0].Granted)))
			now += []int64{0, 1, p.Step - 1, p.Step, p.Step + 1, rng.Int64N(2*p.Step) + 1, rng.Int64N(1e7)}[rng.IntN(7)]
		}
		for i := range times {
			for j := i; j < len(times); j++ {
				passed := new(big.Rat).SetFrac(new(big.Int).Sub(sums[j+1], sums[i]), big.NewInt(p.Unit))
				d := time.Duration(times[j]-times[i]) * time.Microsecond
				if bound := limit.Bound().In(d); passed.Cmp(bound.Rat()) > 0 {
					t.Fatalf("seed %d: %s: %s passed in %s, the bound is %s", seed, limit, passed.RatString(), d, bound)
				}
			}
		}
	}
	if compiled < rounds/3 {
		t.Errorf("only %d of %d limits fit, want a third or more", compiled, rounds)
	}
}
