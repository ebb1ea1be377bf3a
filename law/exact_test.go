package law_test

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/law"
)

// TestASlidingWindowIsExactAtRoundTimes checks that after n tenths of a window n tenths of the previous window's usage
// are free, for windows as short as ten microseconds and as long as a week.
func TestASlidingWindowIsExactAtRoundTimes(t *testing.T) {
	t.Parallel()
	for _, window := range []int64{10, 1_000_000, 60 * second, 3600 * second, 86400 * second, 7 * 86400 * second} {
		for tenths, want := range map[int64]int64{1: 10, 5: 50, 9: 90, 10: 100} {
			p := law.Params{Kind: law.Window, Unit: 1, Capacity: 100, Step: window}
			windowStart := start - start%window
			var c cell
			if out := c.apply(take(p, 100), windowStart); out.Granted != 1 {
				t.Fatalf("got %+v, want all 100 granted", out)
			}
			op := take(p, 1)
			op.Count, op.Partial = 1000, true
			if out := c.apply(op, windowStart+window+window/10*tenths); out.Granted != want {
				t.Errorf("window of %d us: after %d tenths %d are granted, want %d", window, tenths, out.Granted, want)
			}
		}
	}
}

// TestSplitEqualsSingleRequests compares the outcomes that Split gives to the callers of one op with the outcomes that
// they get one by one.
func TestSplitEqualsSingleRequests(t *testing.T) {
	t.Parallel()
	blocking := bucketOf5
	blocking.Block = second
	for _, p := range []law.Params{
		bucketOf5,
		blocking,
		{Kind: law.Window, Unit: 1000, Capacity: 5000, Step: second},
		{Kind: law.Bucket, Anchor: law.Epoch, Unit: 1000, Capacity: 5000, Step: second, Drain: law.Max},
		{Kind: law.Log, Unit: 1000, Capacity: 5000, Step: second},
	} {
		for callers := int64(1); callers <= 7; callers++ {
			var sharedCell, singleCell cell
			op := take(p, 1000)
			op.Count, op.Partial = callers, true
			out := sharedCell.apply(op, start)
			for rank := range callers {
				got, want := law.Split(&op, &out, rank), singleCell.apply(take(p, 1000), start)
				if want.Granted > 0 { // all callers share one entry, and see the block after the last one's refusal
					if p.Kind == law.Log {
						want.EntryNumber = 1
					}
					if p.Block > 0 && callers > 5 {
						want.State.BlockedUntil = start + p.Block
					}
				}
				if got != want {
					t.Errorf("%+v, caller %d of %d:\n got %+v\nwant %+v", p, rank, callers, got, want)
				}
			}
		}
	}
}

func TestABlockIsSetAndLifted(t *testing.T) {
	t.Parallel()
	var c cell
	block := law.Op{Verb: law.Block, Params: bucketOf5, Cost: 1, Count: 1, TTL: 10 * second, Reason: "abuse"}
	if out := c.apply(block, start); out.State.BlockedUntil != start+10*second || c.Reason != "abuse" {
		t.Errorf("block: %+v, reason %q; want a block of 10 s for abuse", out, c.Reason)
	}
	if out := c.apply(take(bucketOf5, 1000), start+second); out.Granted != 0 || out.RetryAt != start+10*second {
		t.Errorf("take of a blocked key: %+v; want a refusal", out)
	}
	block.TTL, block.Reason = 0, "not now"
	if out := c.apply(block, start+2*second); out.State.BlockedUntil != 0 || out.RetryAt != 0 || c.Reason != "" {
		t.Errorf("lifted: %+v, reason %q; want no block", out, c.Reason)
	}
	if out := c.apply(take(bucketOf5, 1000), start+2*second); out.Granted != 1 {
		t.Errorf("take after the block was lifted: %+v; want a grant", out)
	}
}

// TestCreditsOfAnotherUnitAreRoundedUp changes the unit of a limit, and checks the level in credits of the new unit.
func TestCreditsOfAnotherUnitAreRoundedUp(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ oldUnit, credits, newUnit, want int64 }{
		{3, 10, 7, 24}, // 23 1/3
		{3, 10, 8, 27}, // 26 2/3
		{3, 9, 7, 21},
		{1, 5, 1000, 5000},
		{1000, 1, 1, 1},
		{1000, 1000, 1, 1},
		{1000, 1001, 1, 2},
		{1, law.Max, 2, law.Max},
	} {
		p := law.Params{Kind: law.Log, Unit: tt.oldUnit, Capacity: law.Max, Step: second}
		var c cell
		c.apply(take(p, tt.credits), start)
		p.Unit = tt.newUnit
		check := take(p, 1)
		check.Verb = law.Check
		if out := c.apply(check, start); out.Used-out.Granted != tt.want {
			t.Errorf("%d credits of unit %d are %d of unit %d, want %d", tt.credits, tt.oldUnit, out.Used-out.Granted,
				tt.newUnit, tt.want)
		}
	}
}

// TestHistoryKeepsEntries checks how long the entries of an admitted and a refused attempt are kept. -1: there is none.
func TestHistoryKeepsEntries(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ history, keepAdmitted, keepRefused int64 }{
		{0, 10 * second, -1}, {second, 10 * second, second}, {20 * second, 20 * second, 20 * second},
	} {
		var c cell
		p := law.Params{Kind: law.Log, Unit: 1, Capacity: 1, Step: 10 * second, History: tt.history}
		c.apply(take(p, 1), start)
		c.apply(take(p, 1), start)
		list := c.Entries
		if list[0].KeepUntil != start+tt.keepAdmitted || list[0].ExpiresAt != start+10*second {
			t.Errorf("history %d: the admitted entry is %+v", tt.history, list[0])
		}
		if tt.keepRefused < 0 && len(list) != 1 || tt.keepRefused >= 0 &&
			(len(list) != 2 || list[1].KeepUntil != start+tt.keepRefused || list[1].ExpiresAt != 0) {
			t.Errorf("history %d: the entries are %+v", tt.history, list)
		}
	}
}

func TestValidText(t *testing.T) {
	t.Parallel()
	for text, valid := range map[string]bool{
		"": true, "a": true, "ä": true,
		"\x00": false, "\x00a": false, "a\x00": false, "a\x00b": false, "\xff": false, "a\xc3": false,
		strings.Repeat("a", 10): true, strings.Repeat("a", 11): false,
	} {
		if err := law.ValidText("text", text, 10); (err == nil) != valid {
			t.Errorf("%q: %v, want valid: %v", text, err, valid)
		}
	}
}

// TestCeiling checks the level up to which an op may charge that may wait for its start.
func TestCeiling(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ wait, want int64 }{
		{-1, 5000},
		{-second, 5000},
		{0, 5000},
		{second - 1, 5000},
		{second, 6000},
		{10 * second, 15000},
		{law.Max, law.Max},
	} {
		p := bucketOf5
		if tt.wait == law.Max {
			p.Drain = law.Max / 2 // so that the ceiling exceeds law.Max
		}
		if got := p.Ceiling(tt.wait); got != tt.want {
			t.Errorf("wait of %d us: ceiling %d, want %d", tt.wait, got, tt.want)
		}
	}
}
