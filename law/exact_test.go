package law_test

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/law"
)

// TestASlidingWindowIsExactAtRoundTimes halfway through, and after a tenth, of windows that a millionth of a second
// does not divide finely enough.
func TestASlidingWindowIsExactAtRoundTimes(t *testing.T) {
	t.Parallel()
	for _, window := range []int64{10, 1_000_000, 60 * second, 3600 * second, 86400 * second, 7 * 86400 * second} {
		for tenths, want := range map[int64]int64{1: 10, 5: 50, 9: 90, 10: 100} {
			p := law.Params{Kind: law.Window, Unit: 1, Capacity: 100, Step: window}
			from := start - start%window
			var c cell
			if out := c.apply(take(p, 100), from); out.Granted != 1 {
				t.Fatalf("%+v", out)
			}
			op := take(p, 1)
			op.Count, op.Partial = 1000, true
			if out := c.apply(op, from+window+window/10*tenths); out.Granted != want {
				t.Errorf("window of %d us: after %d tenths %d are granted, want %d", window, tenths, out.Granted, want)
			}
		}
	}
}

// TestSplitEqualsSingleRequests compares the answers to several callers with those that they get one by one.
func TestSplitEqualsSingleRequests(t *testing.T) {
	t.Parallel()
	blocking := five
	blocking.Block = second
	for _, p := range []law.Params{
		five,
		blocking,
		{Kind: law.Window, Unit: 1000, Capacity: 5000, Step: second},
		{Kind: law.Bucket, Anchor: law.Epoch, Unit: 1000, Capacity: 5000, Step: second, Drain: law.Max},
		{Kind: law.Log, Unit: 1000, Capacity: 5000, Step: second},
	} {
		for callers := int64(1); callers <= 7; callers++ {
			var together, alone cell
			op := take(p, 1000)
			op.Count, op.Partial = callers, true
			out := together.apply(op, start)
			for rank := range callers {
				got, want := law.Split(&op, &out, rank), alone.apply(take(p, 1000), start)
				if p.Kind == law.Log { // one entry stands for all
					got.EntryNumber, want.EntryNumber = 0, 0
				}
				if p.Block > 0 { // which all see
					got.State.BlockedUntil, want.State.BlockedUntil = 0, 0
					got.State.EmptyAt, want.State.EmptyAt = 0, 0
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
	block := law.Op{Verb: law.Block, Params: five, Cost: 1, Count: 1, TTL: 10 * second, Reason: "abuse"}
	if out := c.apply(block, start); out.State.BlockedUntil != start+10*second || c.Reason != "abuse" {
		t.Errorf("%+v, reason %q", out, c.Reason)
	}
	if out := c.apply(take(five, 1000), start+second); out.Granted != 0 || out.RetryAt != start+10*second {
		t.Errorf("blocked: %+v", out)
	}
	block.TTL, block.Reason = 0, "not now"
	if out := c.apply(block, start+2*second); out.State.BlockedUntil != 0 || out.RetryAt != 0 || c.Reason != "" {
		t.Errorf("%+v, reason %q", out, c.Reason)
	}
	if out := c.apply(take(five, 1000), start+2*second); out.Granted != 1 {
		t.Errorf("no longer blocked: %+v", out)
	}
}

// TestCreditsOfAnotherUnitAreRoundedUp by changing the unit of a limit whose cell has some in use.
func TestCreditsOfAnotherUnitAreRoundedUp(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ from, credits, to, want int64 }{
		{3, 10, 7, 24}, // 23 1/3
		{3, 10, 8, 27}, // 26 2/3
		{3, 9, 7, 21},
		{1, 5, 1000, 5000},
		{1000, 1, 1, 1},
		{1000, 1000, 1, 1},
		{1000, 1001, 1, 2},
		{1, law.Max, 2, law.Max},
	} {
		p := law.Params{Kind: law.Log, Unit: c.from, Capacity: law.Max, Step: second}
		var cell cell
		cell.apply(take(p, c.credits), start)
		p.Unit = c.to
		check := take(p, 1)
		check.Verb = law.Check
		if out := cell.apply(check, start); out.Used-out.Granted != c.want {
			t.Errorf("%d credits of unit %d are %d of unit %d, want %d", c.credits, c.from, out.Used-out.Granted, c.to, c.want)
		}
	}
}

func TestHowLongAnEntryIsKept(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ history, granted, refused int64 }{
		{0, 10 * second, -1}, {second, 10 * second, second}, {20 * second, 20 * second, 20 * second},
	} {
		var cell cell
		p := law.Params{Kind: law.Log, Unit: 1, Capacity: 1, Step: 10 * second, History: c.history}
		cell.apply(take(p, 1), start)
		cell.apply(take(p, 1), start)
		list := cell.Entries
		if list[0].KeepUntil != start+c.granted || list[0].ExpiresAt != start+10*second {
			t.Errorf("history %d: granted %+v", c.history, list[0])
		}
		if c.refused < 0 && len(list) != 1 ||
			c.refused >= 0 && (len(list) != 2 || list[1].KeepUntil != start+c.refused || list[1].ExpiresAt != 0) {
			t.Errorf("history %d: %+v", c.history, list)
		}
	}
}

func TestInvalidTexts(t *testing.T) {
	t.Parallel()
	for text, valid := range map[string]bool{
		"": true, "a": true, "ä": true,
		"\x00": false, "\x00a": false, "a\x00": false, "a\x00b": false, "\xff": false, "a\xc3": false,
		strings.Repeat("a", 10): true, strings.Repeat("a", 11): false,
	} {
		if err := law.ValidText("text", text, 10); (err == nil) != valid {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestCeilings are levels up to which a charge may go that starts later.
func TestCeilings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ wait, want int64 }{
		{-1, 5000},
		{-second, 5000},
		{0, 5000},
		{second - 1, 5000},
		{second, 6000},
		{10 * second, 15000},
		{law.Max, law.Max},
	} {
		p := five
		if c.wait == law.Max {
			p.Drain = law.Max / 2
		}
		if got := p.Ceiling(c.wait); got != c.want {
			t.Errorf("for %d us: %d, want %d", c.wait, got, c.want)
		}
	}
}
