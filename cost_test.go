package headgate_test

import (
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
)

func TestParseCostAndParseCostUp(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{ // want "": an error
		"3": "3", "0.5": "0.5", "30.750": "30.75", "1e1": "10", "4.2e1": "42",
		"1.4e-05": "0.000014", "5E-2": "0.05", "1e+3": "1000", "10e-10": "0.000000001",
		"9007199254740991": "9007199254740991", "000.1": "0.1", "0": "", "0e5": "", "-1": "", "": "", ".5": "",
		"5.": "", "1e": "", "e5": "", "1e1.5": "", "NaN": "", "0x10": "", "1_000": "", "1e-10": "", "1.0000000001": "",
		"9007199254740992": "", "1e16": "", "1e401": "", "1e99999999999": "", "+1": "", "1_": "",
	} {
		got, err := headgate.ParseCost(text)
		if (err == nil) != (want != "") || err == nil && got.String() != want ||
			err != nil && !errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("%q: %s, %v; want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"0.30000000000000004": "0.300000001", "0.000000123456": "0.000000124", "1e-400": "0.000000001", "2": "2",
		"63.599999999999994": "63.6", "123456789.1234567891": "123456789.1234568",
		"9007199254740990.5": "9007199254740991",
		"0":                  "0", "0.0": "0", "-0.0": "0", "0e-7": "0", "-0": "0",
		"-1": "", "-0.1": "", "--0": "", "1e16": "", "9007199254740991.5": "", "inf": "", strings.Repeat("9", 500): "",
	} {
		got, err := headgate.ParseCostUp(text)
		if (err == nil) != (want != "") || err == nil && got.String() != want ||
			err != nil && !errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("%.20q, rounded up: %s, %v; want %q", text, got, err, want)
		}
		if want == "0" && got != headgate.Units(0) {
			t.Errorf("%q: got %#v, want Units(0)", text, got)
		}
	}
}

func TestNanos(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{
		312_000: "0.000312", 1: "0.000000001", 3_000_000_000: "3", 1_500_000_000: "1.5", 1<<53 - 1: "9007199.254740991",
	} {
		if got := headgate.Nanos(n); got != headgate.MustCost(want) {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	if headgate.Nanos(0) != headgate.Units(0) || headgate.Nanos(-1) != headgate.Units(-1) ||
		headgate.Nanos(1<<53) != headgate.Units(-1) {
		t.Error("Nanos(0) is not Units(0), or Nanos below 0 or above 2^53-1 is not the invalid Units(-1)")
	}
}

// TestParseCostUpErrors checks that each error says what is wrong: the exponent, the length, the size or the syntax.
func TestParseCostUpErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"1e99999999999": "has an exponent beyond 400", "1e-401": "has an exponent beyond 400",
		"1." + strings.Repeat("0", 500): "has 502 characters; 400 are read", "1e400": "is too large",
		"1e1.5": "is not a decimal number", "1x": "is not a decimal number",
	} {
		if _, err := headgate.ParseCostUp(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", text, err, want)
		}
	}
}

// TestFineCostsAreRoundedOnce charges, settles, debits and refunds random decimals under limits that count in coarser
// steps. The usage must be the sum of the last three costs, each rounded by itself: up, or down if it is a refund.
func TestFineCostsAreRoundedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 2))
		s := memory.New(nil)
		defer s.Close()
		l := headgate.New(s, nil)
		randomCost := func() headgate.Cost { // of two to eight decimal places
			return headgate.MustCost(fmt.Sprintf("%d.%0*d1", rng.IntN(3), rng.IntN(8), rng.IntN(10)))
		}
		for round, amount := range []string{"1000", "9007199254740", "90071992547409", "7.25"} {
			limit := headgate.MustParse("fixed-window " + amount + "/365d")
			unit := big.NewInt(limit.Params().Unit)
			creditsOf := func(c headgate.Cost, roundUp bool) *big.Int {
				r, _ := new(big.Rat).SetString(c.String())
				r.Mul(r, new(big.Rat).SetInt(unit))
				credits, remainder := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
				if roundUp && remainder.Sign() > 0 {
					credits.Add(credits, big.NewInt(1))
				}
				return credits
			}
			for i := range 200 {
				key := fmt.Sprint(round, i)
				want := new(big.Int)
				once := l.Once("id", 0)
				takeCost, settleCost, debitCost, refundCost := randomCost(), randomCost(), randomCost(), randomCost()
				charge := func(c headgate.Cost) headgate.Charge {
					return headgate.Charge{Limit: limit, Key: key, Cost: c}
				}
				d, err := once.Take(t.Context(), charge(takeCost))
				if err != nil {
					t.Fatal(err)
				}
				if d.Allowed {
					if _, err := once.Settle(t.Context(), charge(settleCost)); err != nil {
						t.Fatal(err)
					}
					want = creditsOf(settleCost, true)
				}
				if _, err := l.Debit(t.Context(), charge(debitCost)); err != nil {
					t.Fatal(err)
				}
				want.Add(want, creditsOf(debitCost, true))
				if _, err := l.Refund(t.Context(), charge(refundCost)); err != nil {
					t.Fatal(err)
				}
				if want.Sub(want, creditsOf(refundCost, false)); want.Sign() < 0 {
					want.SetInt64(0)
				}
				usage, err := l.Usage(t.Context(), key, limit)
				if err != nil {
					t.Fatal(err)
				}
				got, _ := new(big.Rat).SetString(usage[0].Used.String())
				if got.Mul(got, new(big.Rat).SetInt(unit)); got.Cmp(new(big.Rat).SetInt(want)) != 0 {
					t.Errorf("%s: took %s, settled %s, debited %s, refunded %s: %v credits are in use, want %v", limit, takeCost,
						settleCost, debitCost, refundCost, got, want)
				}
			}
		}
	})
}

// TestDecimalPlacesOfRemaining checks that RemainingCost and CapacityCost have as many decimal places as the scale or
// the capacity of the limit, rounded down, and that Inspect and Usage agree with the decision.
func TestDecimalPlacesOfRemaining(t *testing.T) {
	for _, tt := range []struct {
		limit, cost          string // cost is taken first
		capacity, remaining  string
		wholeUnits           int64  // remaining, rounded down
		refusedCost, fitCost string // costs for which no room and just room remains; fitCost "": none fits
		hasRoom              bool   // the RetryAfter of Usage is 0
	}{
		{"fixed-window 50/month scale 6", "0.0000624", "50", "49.999937", 49, "49.999938", "49.999937", true},
		{"fixed-window 0.05/month scale 9", "0.0000624", "0.05", "0.0499376", 0, "0.049937601", "0.0499376", true},
		{"fixed-window 0.05/month", "0.0000624", "0.05", "0.04", 0, "0.0491", "0.049", true},
		{"token-bucket 1.5/s burst 2.25", "0.5", "2.25", "1.75", 1, "1.751", "1.75", true},
		{"sliding-log 5/1h", "0.5", "5", "4", 4, "4.501", "4.5", true},
		{"sliding-log 5/1h scale 4", "5", "5", "0", 0, "0.0001", "", false},
	} {
		l := newLimiter(newClock("2026-11-28T10:00:00Z"))
		charge := func(cost string) headgate.Charge {
			return headgate.Charge{Limit: headgate.MustParse(tt.limit), Key: "k", Cost: headgate.MustCost(cost)}
		}
		d, err := l.Take(t.Context(), charge(tt.cost))
		if err != nil || !d.Allowed || d.CapacityCost().String() != tt.capacity ||
			d.RemainingCost().String() != tt.remaining || d.Remaining != tt.wholeUnits {
			t.Errorf("%s: %+v, %v: %s of %s; want %s of %s", tt.limit, d, err, d.RemainingCost(), d.CapacityCost(), tt.remaining,
				tt.capacity)
		}
		check, err := l.Check(t.Context(), charge(tt.cost), charge(tt.refusedCost))
		if err != nil || check.Allowed || len(check.Each) != 2 || check.Each[0].RemainingCost() != d.RemainingCost() ||
			check.Each[1].CapacityCost() != d.CapacityCost() {
			t.Errorf("%s: two charges: %+v, %v; want a refusal with the same figures", tt.limit, check, err)
		}
		if refused, err := l.Take(t.Context(), charge(tt.refusedCost)); err != nil || refused.Allowed {
			t.Errorf("%s: %s more is %+v, %v; want a refusal", tt.limit, tt.refusedCost, refused, err)
		}
		s, err := l.Inspect(t.Context(), headgate.MustParse(tt.limit), "k")
		if err != nil || s.Remaining != d.Remaining || s.RemainingNanos != d.RemainingNanos {
			t.Errorf("%s: inspected %+v, %v; want what the decision says", tt.limit, s, err)
		}
		usage, err := l.Usage(t.Context(), "k", headgate.MustParse(tt.limit))
		if err != nil || (usage[0].RetryAfter == 0) != tt.hasRoom {
			t.Errorf("%s: usage %+v, %v; want RetryAfter 0: %v", tt.limit, usage, err, tt.hasRoom)
		}
		if tt.fitCost == "" {
			continue
		}
		if d, err := l.Take(t.Context(), charge(tt.fitCost)); err != nil || !d.Allowed {
			t.Errorf("%s: %s more is %+v, %v; want it admitted", tt.limit, tt.fitCost, d, err)
		}
	}
}
