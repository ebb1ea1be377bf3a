package auth

import (
	"math/rand/v2"
	"testing"
)

// parseCallers returns two callers, app by its second token.
func parseCallers(t *testing.T) (app, other *Caller) {
	t.Helper()
	text, err := FileText([]Entry{
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
	return tokens.CallerByToken("hgt_b"), tokens.CallerByToken("hgt_c")
}

// TestLeasesAreOfTheirCaller checks that a sealed number is exact in JSON (53 bits), and that only its caller opens it.
func TestLeasesAreOfTheirCaller(t *testing.T) {
	t.Parallel()
	app, other := parseCallers(t)
	rng := rand.New(rand.NewPCG(1, 2))
	opened, sealedNumbers := 0, map[int64]bool{}
	for i := range int64(20_000) {
		number := i
		if i > 10_000 {
			number = rng.Int64N(leaseMax)
		}
		sealed := app.SealLease(number)
		if sealed <= 1<<leaseBits || sealed >= 1<<(leaseBits+1) || sealedNumbers[sealed] {
			t.Fatalf("lease %d is sealed as %d, want a new number within the range", number, sealed)
		}
		sealedNumbers[sealed] = true
		if got, ok := app.OpenLease(sealed); !ok || got != number {
			t.Fatalf("lease %d is sealed as %d, and opened as %d, %v", number, sealed, got, ok)
		}
		if got, ok := other.OpenLease(sealed); ok {
			if opened++; got == number {
				t.Errorf("another caller opens lease %d", number)
			}
		}
	}
	if opened > 20 { // about 1 of 4096 numbers opens, 5 of 20,000, each as a wrong number
		t.Errorf("another caller opens %d of 20000 numbers, want at most 20", opened)
	}
	if _, ok := other.OpenLease(45); ok {
		t.Error("a number that was never sealed is opened")
	}
	for _, large := range []int64{leaseMax, 1<<leaseBits - 1} {
		if got, ok := app.OpenLease(app.SealLease(large)); !ok || got != large {
			t.Errorf("lease %d: opened as %d, %v", large, got, ok)
		}
	}
	if got, ok := (*Caller)(nil).OpenLease((*Caller)(nil).SealLease(45)); !ok || got != 45 {
		t.Errorf("without callers lease 45 is %d, %v", got, ok)
	}
}

// TestALeaseOutlivesItsToken checks that a new token of a caller opens leases that were sealed with one that is kept.
func TestALeaseOutlivesItsToken(t *testing.T) {
	t.Parallel()
	app, _ := parseCallers(t)
	sealed := app.SealLease(45)
	text, err := FileText([]Entry{{Name: "app", Role: "take", Hashes: []string{Hash("hgt_new"), Hash("hgt_a")}}})
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := Parse("tokens.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := tokens.CallerByToken("hgt_new").OpenLease(sealed); !ok || got != 45 {
		t.Errorf("lease 45 is opened as %d, %v", got, ok)
	}
}
