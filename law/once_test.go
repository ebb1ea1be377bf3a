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
	names := map[int64]string{} // by fingerprint
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
		fingerprint := law.Fingerprint(ops)
		if fingerprint < 0 || fingerprint > law.Max {
			t.Errorf("%s: got %d, want 0 to %d", name, fingerprint, int64(law.Max))
		}
		if other, ok := names[fingerprint]; ok {
			t.Errorf("%s has the fingerprint of %s", name, other)
		}
		names[fingerprint] = name
	}
	request := []law.Op{op("a", "k", 2500, 1000), op("b", "k", 1, 1)}
	for name, same := range map[string][]law.Op{
		"in another order":         {request[1], request[0]},
		"of limits of other units": {op("a", "k", 5, 2), op("b", "k", 7000, 7000)},
	} {
		if law.Fingerprint(request) != law.Fingerprint(same) {
			t.Errorf("the same request %s has another fingerprint", name)
		}
	}
	// Databases hold fingerprints, and SQL computes them, so they must never change.
	const pinnedFingerprint int64 = 1171945143371138
	if got := law.Fingerprint([]law.Op{op("login", "käse", 2500, 1000)}); got != pinnedFingerprint {
		t.Errorf("got %d, want %d: stores would not recognize their receipts", got, pinnedFingerprint)
	}
}

// TestReceiptAndTermsRoundTrip checks that SetCharged and ParseTerms read back what Charged and String wrote, and
// refuse other texts.
func TestReceiptAndTermsRoundTrip(t *testing.T) {
	t.Parallel()
	out := law.Outcome{
		Granted: 3,
		State:   law.State{Kind: law.Log, Level: 1, Prev: 2, At: 4, Unit: 5, Step: 10, EmptyAt: 6, BlockedUntil: 7},
		Used:    8, Clock: 9, EntryNumber: 11, StartAt: law.Max,
	}
	want, got := law.Receipt{Outcome: out}, law.Receipt{}
	if err := got.SetCharged(want.Charged()); err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	terms := (&law.Params{Kind: law.Bucket, Anchor: law.Epoch, Unit: 2, Capacity: 3, Step: 4, Drain: 5}).Terms()
	if got, err := law.ParseTerms(terms.String()); err != nil || got != terms {
		t.Errorf("got %v, %v; want %v", got, err, terms)
	}
	for _, text := range []string{"", "1 2 3", "1 2 3 4 5 x", out.Numbers().String() + " 1"} {
		if err := got.SetCharged(text); err == nil {
			t.Errorf("SetCharged(%q) returned nil, want an error", text)
		}
		if _, err := law.ParseTerms(text); err == nil {
			t.Errorf("ParseTerms(%q) returned nil, want an error", text)
		}
	}
}

// TestTheLifeOfAReservedIDBeginsAtTheStart repeats a reservation that starts in a second, under an id with a life of
// half a second: it is a replay for 1.5 s.
func TestTheLifeOfAReservedIDBeginsAtTheStart(t *testing.T) {
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
			t.Errorf("reserved again after %d us: %+v, want a replay of %+v", now-start, out, first)
		}
	}
	if out := reserve(start + second + second/2); out.Replayed {
		t.Errorf("reserved again after the id's life: %+v, want no replay", out)
	}
}
