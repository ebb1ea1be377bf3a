package law_test

import (
	"testing"

	"github.com/headgate/headgate/law"
)

// tableCharge is one charge of a table that was computed by hand. Times are in microseconds.
type tableCharge struct {
	at         int64 // since the start of an hour
	units      int64
	granted    bool
	retryAfter int64 // the time until this cost can pass; 0: it was granted; law.Never: it never can
}

const (
	minute = 60 * second
	hour   = 60 * minute
	day    = 24 * hour
)

// bucket returns a token bucket of n units a second with this burst.
func bucket(n, burst int64) law.Params {
	return law.Params{Kind: law.Bucket, Unit: 1_000_000, Capacity: burst * 1_000_000, Step: 1, Drain: n}
}

// exactLog returns a sliding log of n units in a window of so many microseconds.
func exactLog(n, window int64) law.Params {
	return law.Params{Kind: law.Log, Unit: 1000, Capacity: n * 1000, Step: window}
}

// twoWindows returns a sliding window of n units in a window of so many microseconds.
func twoWindows(n, window int64) law.Params {
	return law.Params{Kind: law.Window, Unit: 1000, Capacity: n * 1000, Step: window}
}

// fixedWindowOf returns a fixed window of n units. Its windows start at multiples of their length since the epoch.
func fixedWindowOf(n, window int64) law.Params {
	return law.Params{
		Kind: law.Bucket, Anchor: law.Epoch, Unit: 1000, Capacity: n * 1000, Step: window, Drain: law.Max,
	}
}

// TestTablesByHand has tables for the laws, and for faults of limiters in the articles that docs/project/articles.md
// lists: "(001, fault 17)" in a name means fault 17, in article 001.
func TestTablesByHand(t *testing.T) {
	t.Parallel()
	const hourStart = start - start%hour
	hourly := fixedWindowOf(2, hour)
	firstUse := hourly
	firstUse.Anchor = law.Own
	for _, tt := range []struct {
		name    string
		p       law.Params
		charges []tableCharge
	}{
		{"token bucket", bucket(1, 3), []tableCharge{
			{0, 2, true, 0},
			{0, 2, false, 1 * second},
			{0, 1, true, 0},
			{0, 1, false, second},
			{second - 1, 1, false, 1},
			{second, 1, true, 0},
			{100 * second, 3, true, 0},
			{100 * second, 4, false, law.Never},
		}},
		{"fixed window by the epoch", hourly, []tableCharge{
			{3599 * second, 2, true, 0},
			{3599 * second, 1, false, second},
			{3600 * second, 2, true, 0},
			{3600 * second, 1, false, 3600 * second},
		}},
		{"fixed window from the first request", firstUse, []tableCharge{
			{5, 1, true, 0},
			{3600 * second, 1, true, 0},
			{3600 * second, 1, false, 5},
			{3600*second + 5, 2, true, 0},
			{3600*second + 6, 1, false, 3600*second - 1},
		}},
		{
			"interval refill, phase from first use",
			law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 3000, Step: 10 * second, Drain: 1000},
			[]tableCharge{
				{7, 3, true, 0},
				{9 * second, 1, false, second + 7},
				{10*second + 7, 1, true, 0},
				{10*second + 7, 2, false, 20 * second},
				{30*second + 7, 2, true, 0},
			},
		},
		{"sliding window", twoWindows(4, 4*second), []tableCharge{
			{0, 4, true, 0},
			{second, 1, false, 4 * second},
			{4 * second, 1, false, second},
			{5*second - 10, 1, false, 10},
			{5 * second, 1, true, 0},
			{5 * second, 1, false, second},
			{6 * second, 1, true, 0},
			{6 * second, 2, false, 2 * second},
			{8 * second, 2, true, 0},
		}},
		{"sliding log", exactLog(2, 10*second), []tableCharge{
			{0, 1, true, 0},
			{4 * second, 1, true, 0},
			{5 * second, 1, false, 5 * second},
			{5 * second, 2, false, 9 * second},
			{10*second - 1, 1, false, 1},
			{10 * second, 1, true, 0},
			{10 * second, 1, false, 4 * second},
			{30 * second, 2, true, 0},
			{30 * second, 3, false, law.Never},
		}},
		{"fractions are kept however often a client asks (000, fault 1)", bucket(1, 1), []tableCharge{
			{0, 1, true, 0},
			{100_000, 1, false, 900_000},
			{200_000, 1, false, 800_000},
			{300_000, 1, false, 700_000},
			{999_999, 1, false, 1},
			{second, 1, true, 0},
		}},
		{"half a token is not a whole one (000, fault 2)", bucket(10, 10), []tableCharge{
			{0, 10, true, 0}, {50_000, 1, false, 50_000}, {99_999, 1, false, 1}, {100_000, 1, true, 0},
		}},
		{"an idle bucket holds its burst and no more (000, fault 4)", bucket(1, 10), []tableCharge{
			{0, 1, true, 0}, {3600 * second, 10, true, 0}, {3600 * second, 1, false, second},
		}},
		{"a refusal is no debt (000, fault 5; 004, fault 37)", bucket(1, 1), []tableCharge{
			{0, 1, true, 0}, {100, 1, false, second - 100}, {200, 1, false, second - 200}, {second, 1, true, 0},
		}},
		{"a window is exact to the microsecond (001, fault 17; 003, fault 22)", exactLog(1, second), []tableCharge{
			{999_999, 1, true, 0}, {1_000_000, 1, false, 999_999}, {1_999_998, 1, false, 1}, {1_999_999, 1, true, 0},
		}},
		{"a grant does not put off the refill (003, fault 23)", firstUse, []tableCharge{
			{0, 1, true, 0}, {3599 * second, 1, true, 0}, {3600 * second, 2, true, 0},
		}},
		{"idle time does not swallow a fill (004, fault 32)", bucket(1, 10), []tableCharge{
			{0, 1, true, 0}, {4 * second, 5, true, 0}, {4 * second, 6, false, second},
		}},
		{"what exactly fits is admitted (004, fault 36)", bucket(1, 10), []tableCharge{{0, 10, true, 0}}},
	} {
		var c cell
		for i, ch := range tt.charges {
			out := c.apply(take(tt.p, ch.units*tt.p.Unit), hourStart+ch.at)
			retryAfter := int64(0)
			if out.RetryAt == law.Never {
				retryAfter = law.Never
			} else if out.Granted == 0 {
				retryAfter = out.RetryAt - out.Clock
			}
			if (out.Granted == 1) != ch.granted || retryAfter != ch.retryAfter {
				t.Errorf("%s, charge %d: granted %d, retry after %d us; want %+v", tt.name, i+1, out.Granted, retryAfter, ch)
			}
		}
	}
}
