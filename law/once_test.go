package law_test

import (
	"testing"

	"github.com/headgate/headgate/law"
)

func TestFingerprintsTellRequestsApart(t *testing.T) {
	t.Parallel()
	op := func(limit, key string, credits, unit int64) law.Op {
		return law.Op{Cell: law.Cell{Limit: limit, Key: key}, Cost: credits, Count: 1, Params: law.Params{Unit: unit}}
	}
	prints := map[int64]string{}
	for name, ops := range map[string][]law.Op{
		"one":                 {op("a", "k", 2500, 1000)},
		"another cost":        {op("a", "k", 2501, 1000)},
		"another key":         {op("a", "l", 2500, 1000)},
		"another limit":       {op("b", "k", 2500, 1000)},
		"a longer key":        {op("a", "1:k", 2500, 1000)},
		"a limit with digits": {op("a1", ":k", 2500, 1000)},
		"two":                 {op("a", "k", 2500, 1000), op("b", "k", 1, 1)},
		"two of one":          {op("a", "k", 2500, 1000), op("a", "k", 2500, 1000)},
	} {
		p := law.Fingerprint(ops)
		if p < 0 || p > law.Max {
			t.Errorf("%s: %d is not a number of the laws", name, p)
		}
		if other, ok := prints[p]; ok {
			t.Errorf("%s has the print of %s", name, other)
		}
		prints[p] = name
	}
	one := []law.Op{op("a", "k", 2500, 1000), op("b", "k", 1, 1)}
	for name, same := range map[string][]law.Op{
		"in another order":          {one[1], one[0]},
		"of a limit of other units": {op("a", "k", 5, 2), op("b", "k", 7000, 7000)},
	} {
		if law.Fingerprint(one) != law.Fingerprint(same) {
			t.Errorf("%s it has another print", name)
		}
	}
	// Databases hold it, and SQL computes it.
	if got := law.Fingerprint([]law.Op{op("login", "käse", 2500, 1000)}); got != pinnedFingerprint {
		t.Errorf("the print has changed to %d: what stores remember is not known any more", got)
	}
}

const pinnedFingerprint = 1171945143371138

func TestNumbersAreReadBack(t *testing.T) {
	t.Parallel()
	out := law.Outcome{
		Granted: 3, State: law.State{Kind: law.Log, Level: 1, Prev: 2, At: 4, Unit: 5, EmptyAt: 6, BlockedUntil: 7},
		Used: 8, Clock: 9, EntryNumber: 11, StartAt: law.Max,
	}
	first, back := law.Receipt{Outcome: out}, law.Receipt{}
	if err := back.SetCharged(first.Charged()); err != nil || back != first {
		t.Errorf("%+v, %v; want %+v", back, err, first)
	}
	rule := (&law.Params{Kind: law.Bucket, Anchor: law.Epoch, Unit: 2, Capacity: 3, Step: 4, Drain: 5}).Terms()
	if got, err := law.ParseTerms(rule.String()); err != nil || got != rule {
		t.Errorf("%v, %v; want %v", got, err, rule)
	}
	for _, bad := range []string{"", "1 2 3", "1 2 3 4 5 x", out.Numbers().String() + " 1"} {
		if err := back.SetCharged(bad); err == nil {
			t.Errorf("%q is read as what was charged", bad)
		}
		if _, err := law.ParseTerms(bad); err == nil {
			t.Errorf("%q is read as a rule", bad)
		}
	}
}

// TestAReservationIsRememberedFromItsStartOn repeats a reservation within the life of its id, which begins at its
// start.
func TestAReservationIsRememberedFromItsStartOn(t *testing.T) {
	t.Parallel()
	var c cell
	p := bucket(1, 1)
	c.apply(take(p, p.Unit), start)
	reserve := func(now int64) law.Outcome {
		op := take(p, p.Unit)
		op.ID, op.TTL, op.Deferred, op.Ceiling = "a", second/2, true, p.Ceiling(20*second)
		return c.apply(op, now)
	}
	first := reserve(start)
	for _, now := range []int64{start + second/4, start + second, start + second + second/2 - 1} {
		if out := reserve(now); !out.Replayed || out.StartAt != first.StartAt {
			t.Errorf("asked again after %d us: %+v, want %+v", now-start, out, first)
		}
	}
	if out := reserve(start + second + second/2); out.Replayed {
		t.Errorf("asked again after its life: %+v", out)
	}
}
