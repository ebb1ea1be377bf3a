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

func TestParseCost(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{ // empty: an error
		"3": "3", "0.5": "0.5", "30.750": "30.75", "1e1": "10", "4.2e1": "42", "1.4e-05": "0.000014", "5E-2": "0.05",
		"1e+3": "1000", "10e-10": "0.000000001", "9007199254740991": "9007199254740991",
		"000.1": "0.1",
		"0":     "", "0e5": "", "-1": "", "": "", ".5": "", "5.": "", "1e": "", "e5": "", "1e1.5": "", "NaN": "",
		"0x10":  "",
		"1_000": "",
		"1e-10": "", "1.0000000001": "", "9007199254740992": "", "1e16": "", "1e401": "", "1e99999999999": "",
		"+1": "", "1_": "",
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
			t.Errorf("%q is not Units(0)", text)
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
		t.Error("0, and what no cost can be")
	}
}

// TestErrorsOfNumbersThatAreTooLong checks that each error says what is wrong: the exponent, the length or the syntax.
func TestErrorsOfNumbersThatAreTooLong(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		"1e99999999999": "has an exponent beyond 400", "1e-401": "has an exponent beyond 400",
		"1." + strings.Repeat("0", 500): "has 502 characters; 400 are read", "1e400": "is too large",
		"1e1.5": "is not a decimal number", "1x": "is not a decimal number",
	} {
		if _, err := headgate.ParseCostUp(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.20q: %v, want %q", text, err, says)
		}
	}
}

// TestFineCostsAreRoundedOnce charges, settles and gives back random decimals of up to nine digits under limits that
// count in coarser steps, and compares the usage with exact rationals.
func TestFineCostsAreRoundedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 2))
		s := memory.New(nil)
		defer s.Close()
		l := headgate.New(s, nil)
		number := func() headgate.Cost {
			return headgate.MustCost(fmt.Sprintf("%d.%0*d1", random.IntN(3), random.IntN(8), random.IntN(10)))
		}
		for round, amount := range []string{"1000", "9007199254740", "90071992547409", "7.25"} {
			limit := headgate.MustParse("fixed-window " + amount + "/365d")
			unit := big.NewInt(limit.Params().Unit)
			rounded := func(c headgate.Cost, up bool) *big.Int {
				r, _ := new(big.Rat).SetString(c.String())
				r.Mul(r, new(big.Rat).SetInt(unit))
				q, rest := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
				if up && rest.Sign() > 0 {
					q.Add(q, big.NewInt(1))
				}
				return q
			}
			for i := range 200 {
				key := fmt.Sprint(round, i)
				want := new(big.Int)
				once := l.Once("id", 0)
				first, settled, other, back := number(), number(), number(), number()
				of := func(c headgate.Cost) headgate.Charge { return headgate.Charge{Limit: limit, Key: key, Cost: c} }
				d, err := once.Take(t.Context(), of(first))
				if err != nil {
					t.Fatal(err)
				}
				if d.Allowed {
					if _, err := once.Settle(t.Context(), of(settled)); err != nil {
						t.Fatal(err)
					}
					want = rounded(settled, true)
				}
				if _, err := l.Debit(t.Context(), of(other)); err != nil {
					t.Fatal(err)
				}
				want.Add(want, rounded(other, true))
				if _, err := l.Refund(t.Context(), of(back)); err != nil {
					t.Fatal(err)
				}
				if want.Sub(want, rounded(back, false)); want.Sign() < 0 {
					want.SetInt64(0)
				}
				u, err := l.Usage(t.Context(), key, limit)
				if err != nil {
					t.Fatal(err)
				}
				got, _ := new(big.Rat).SetString(u[0].Used.String())
				if got.Mul(got, new(big.Rat).SetInt(unit)); got.Cmp(new(big.Rat).SetInt(want)) != 0 {
					t.Errorf("%s: took %s, settled %s, debited %s, refunded %s: %v credits are in use, want %v", limit, first,
						settled, other, back, got, want)
				}
			}
		}
	})
}

// TestFiguresWithDigitsAfterThePoint checks that Remaining has as many digits as the scale or the capacity of the
// limit.
func TestFiguresWithDigitsAfterThePoint(t *testing.T) {
	for _, tt := range []struct {
		limit, cost        string
		capacity, left     string
		whole              int64
		exhausted, smaller string // a cost that does not fit any more, and one that does
		passes             bool   // a cost of 1, or the smallest of a limit that lets less pass
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
			d.RemainingCost().String() != tt.left || d.Remaining != tt.whole {
			t.Errorf("%s: %+v, %v: %s of %s; want %s of %s", tt.limit, d, err, d.RemainingCost(), d.CapacityCost(), tt.left,
				tt.capacity)
		}
		two, err := l.Check(t.Context(), charge(tt.cost), charge(tt.exhausted))
		if err != nil || two.Allowed || len(two.Each) != 2 || two.Each[0].RemainingCost() != d.RemainingCost() ||
			two.Each[1].CapacityCost() != d.CapacityCost() {
			t.Errorf("%s: two charges: %+v, %v", tt.limit, two, err)
		}
		if refused, err := l.Take(t.Context(), charge(tt.exhausted)); err != nil || refused.Allowed {
			t.Errorf("%s: %s more is %+v, %v; want a refusal", tt.limit, tt.exhausted, refused, err)
		}
		s, err := l.Inspect(t.Context(), headgate.MustParse(tt.limit), "k")
		if err != nil || s.Remaining != d.Remaining || s.RemainingNanos != d.RemainingNanos {
			t.Errorf("%s: inspected %+v, %v; want what the decision says", tt.limit, s, err)
		}
		u, err := l.Usage(t.Context(), "k", headgate.MustParse(tt.limit))
		if err != nil || (u[0].RetryAfter == 0) != tt.passes {
			t.Errorf("%s: usage %+v, %v", tt.limit, u, err)
		}
		if tt.smaller == "" {
			continue
		}
		if d, err := l.Take(t.Context(), charge(tt.smaller)); err != nil || !d.Allowed {
			t.Errorf("%s: %s more is %+v, %v; want it admitted", tt.limit, tt.smaller, d, err)
		}
	}
}
