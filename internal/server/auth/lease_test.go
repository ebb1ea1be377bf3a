package auth

import (
	"math/rand/v2"
	"testing"
)

// callers reads two callers, one of which has two tokens.
func callers(t *testing.T) (app, other *Caller) {
	t.Helper()
	text, err := Text([]Entry{
		{Name: "app", Role: "take", Hashes: []string{Hash("hgt_a"), Hash("hgt_b")}},
		{Name: "other", Role: "take", Hashes: []string{Hash("hgt_c")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := Parse("tokens.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	return tokens.Token("hgt_b"), tokens.Token("hgt_c")
}

// TestLeasesAreOfTheirCaller: the number that a caller is told is exact in JSON, and leads back to the lease for that
// caller alone.
func TestLeasesAreOfTheirCaller(t *testing.T) {
	t.Parallel()
	app, other := callers(t)
	rng := rand.New(rand.NewPCG(1, 2))
	taken, seen := 0, map[int64]bool{}
	for i := range int64(20_000) {
		number := i
		if i > 10_000 {
			number = rng.Int64N(leaseMax)
		}
		told := app.SealLease(number)
		if told <= 1<<leaseBits || told >= 1<<(leaseBits+1) || seen[told] {
			t.Fatalf("lease %d is told as %d", number, told)
		}
		seen[told] = true
		if got, ok := app.OpenLease(told); !ok || got != number {
			t.Fatalf("lease %d is told as %d, and opened as %d, %v", number, told, got, ok)
		}
		if got, ok := other.OpenLease(told); ok {
			if taken++; got == number {
				t.Errorf("another caller opens lease %d", number)
			}
		}
	}
	if taken > 20 { // one of 4096, of numbers that no lease has
		t.Errorf("another caller opens %d of 20000 numbers", taken)
	}
	if _, ok := other.OpenLease(45); ok {
		t.Error("a number that was guessed is a lease")
	}
	for _, large := range []int64{leaseMax, 1<<leaseBits - 1} {
		if got, ok := app.OpenLease(app.SealLease(large)); !ok || got != large {
			t.Errorf("lease %d is opened as %d, %v", large, got, ok)
		}
	}
	if got, ok := (*Caller)(nil).OpenLease((*Caller)(nil).SealLease(45)); !ok || got != 45 {
		t.Errorf("without callers lease 45 is %d, %v", got, ok)
	}
}

// TestALeaseOutlivesItsToken: it is known by the other tokens of its caller, in whatever order they stand.
func TestALeaseOutlivesItsToken(t *testing.T) {
	t.Parallel()
	app, _ := callers(t)
	told := app.SealLease(45)
	text, err := Text([]Entry{{Name: "app", Role: "take", Hashes: []string{Hash("hgt_new"), Hash("hgt_a")}}})
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := Parse("tokens.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := tokens.Token("hgt_new").OpenLease(told); !ok || got != 45 {
		t.Errorf("lease 45 is opened as %d, %v", got, ok)
	}
}
