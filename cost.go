package headgate

import (
	"errors"
	"math"
	"math/big"
	"math/bits"
	"strconv"
	"strings"

	"github.com/headgate/headgate/law"
)

// Cost is an exact decimal amount: the cost of a charge, or the amount of a limit. It has at most nine digits after the
// point. If a limit counts in coarser steps, mostly thousandths, a charged cost is rounded up and a returned cost is
// rounded down, once and by less than one step. The zero Cost stands for the default: 1 for a charge, and for a limit's
// burst what its documentation says. A Cost is a value; compare with ==.
type Cost struct {
	coef int64 // the digits as a number; less than 0: an invalid cost
	exp  uint8 // how many of the digits stand after the point: none is a trailing zero, except in explicitZero
}

const (
	maxCoef = max53     // the largest coefficient
	maxExp  = 9         // the most digits after the point
	max53   = 1<<53 - 1 // the largest number of 53 bits
)

var pow10 = [...]int64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9}

// Units returns the whole cost n. Units(0) is an explicit zero, for an actual cost (see [Reservation.Settle]); every
// other use of it is an error. So is every use of a Cost from an n below 0 or above 2^53-1.
func Units(n int64) Cost {
	return Cost{coef: n}.explicit()
}

// Nanos returns n billionths of a unit, for costs that are computed with integers: at 3 dollars a million tokens, 104
// tokens cost Nanos(104 * 3000), which is 0.000312. Nanos(0) equals Units(0). Every use of a Cost from an n below 0 or
// above 2^53-1, some nine million units, is an error.
func Nanos(n int64) Cost {
	return Cost{coef: n, exp: maxExp}.explicit()
}

// explicitZero is Units(0): the amount 0, as opposed to the zero Cost, which stands for a default.
var explicitZero = Cost{exp: 1}

// explicit returns the normalized cost for a given coefficient and exponent: 0 becomes explicitZero, a coefficient out
// of range becomes the invalid cost.
func (c Cost) explicit() Cost {
	switch {
	case c.coef == 0:
		return explicitZero
	case c.coef < 0 || c.coef > maxCoef:
		return Cost{coef: -1}
	}
	return c.normalize()
}

// normalize removes trailing zeros after the point.
func (c Cost) normalize() Cost {
	for c.exp > 0 && c.coef%10 == 0 {
		c.coef /= 10
		c.exp--
	}
	return c
}

// ParseCost parses a positive decimal such as "3", "0.5", "30.75" or "1.4e-05", as JSON writes numbers. A number with
// more than nine digits after the point, when it is written without an exponent, is an error. So are signs, NaN and
// infinity. Errors are ErrInvalid.
func ParseCost(s string) (Cost, error) {
	if !strings.ContainsAny(s, "eE") {
		return parseAmount("cost", s)
	}
	r, err := parseDecimal(s)
	if err != nil {
		return Cost{}, err
	}
	c, exact := roundUp(r)
	switch {
	case r.Sign() == 0:
		return Cost{}, Invalid("cost", "is 0; it must be above 0")
	case !exact && c.coef >= 0:
		return Cost{}, Invalid("cost", "%.100q has more than %d digits after the point", s, maxExp)
	case c.coef < 0:
		return Cost{}, Invalid("cost", "%.100q is too large", s)
	}
	return c, nil
}

// ParseCostUp parses a computed number, such as the usage that a service reports. It rounds up a number with too many
// digits: "0.30000000000000004" is 0.300000001. Zero, also as "0.0" or "-0.0", is Units(0). Errors are ErrInvalid.
func ParseCostUp(s string) (Cost, error) {
	r, err := parseDecimal(strings.TrimPrefix(s, "-"))
	switch {
	case err == nil && r.Sign() == 0:
		return explicitZero, nil
	case strings.HasPrefix(s, "-"):
		return Cost{}, Invalid("cost", "%.100q is negative; it must not be below 0", s)
	case err != nil:
		return Cost{}, err
	}
	c, _ := roundUp(r)
	if c.coef < 0 {
		return Cost{}, Invalid("cost", "%.100q is too large", s)
	}
	return c, nil
}

// These bounds keep the time to parse a number bounded.
const (
	maxNumberLen = 400 // the most characters of a number
	maxExponent  = 400 // the largest absolute exponent
)

// parseDecimal parses digits, optionally with a point and an exponent.
func parseDecimal(s string) (*big.Rat, error) {
	syntaxErr := Invalid("cost", "%.100q is not a decimal number such as 3 or 0.5", s)
	mantissa, exponent := s, "0"
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		mantissa, exponent = s[:i], s[i+1:]
	}
	n, err := strconv.Atoi(exponent)
	whole, frac, hasPoint := strings.Cut(mantissa, ".")
	switch {
	case whole == "", hasPoint && frac == "", !isDigits(whole), !isDigits(frac), errors.Is(err, strconv.ErrSyntax):
		return nil, syntaxErr
	case err != nil, n < -maxExponent, n > maxExponent:
		return nil, Invalid("cost", "%.100q has an exponent beyond %d", s, maxExponent)
	case len(s) > maxNumberLen:
		return nil, Invalid("cost", "has %d characters; %d are read", len(s), maxNumberLen)
	}
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		return nil, syntaxErr
	}
	return r, nil
}

// roundUp returns the smallest cost that is not below r, with as many digits as fit, and whether it equals r. For a
// number that is too large it returns Cost{coef: -1}.
func roundUp(r *big.Rat) (c Cost, exact bool) {
	for exp := maxExp; exp >= 0; exp-- {
		scaled := new(big.Rat).Mul(r, big.NewRat(pow10[exp], 1))
		if q := ceilRat(scaled); q.IsInt64() && q.Int64() <= maxCoef {
			return Cost{coef: q.Int64(), exp: uint8(exp)}.normalize(), scaled.IsInt()
		}
	}
	return Cost{coef: -1}, false
}

func ceilRat(r *big.Rat) *big.Int {
	q, m := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	if m.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return q
}

// parseAmount parses a positive decimal without an exponent; errors name the field.
func parseAmount(field, s string) (Cost, error) {
	whole, frac, hasPoint := strings.Cut(s, ".")
	if whole == "" || hasPoint && frac == "" || !isDigits(whole) || !isDigits(frac) {
		if strings.HasPrefix(s, "-") {
			return Cost{}, Invalid(field, "%.100q is negative; it must be above 0", s)
		}
		return Cost{}, Invalid(field, "%.100q is not a decimal number such as 3 or 0.5", s)
	}
	frac = strings.TrimRight(frac, "0")
	if len(frac) > maxExp {
		return Cost{}, Invalid(field, "%.100q has more than %d digits after the point", s, maxExp)
	}
	var n int64
	for _, d := range whole + frac {
		if n > maxCoef/10 {
			return Cost{}, Invalid(field, "%.100q is too large", s)
		}
		n = n*10 + int64(d-'0')
	}
	switch {
	case n == 0:
		return Cost{}, Invalid(field, "is 0; it must be above 0")
	case n > maxCoef:
		return Cost{}, Invalid(field, "%.100q is too large", s)
	}
	return Cost{coef: n, exp: uint8(len(frac))}.normalize(), nil
}

func isDigits(s string) bool { return strings.Trim(s, "0123456789") == "" }

// MustCost parses a constant. It panics where ParseCost would fail.
func MustCost(s string) Cost { return must(ParseCost(s)) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// String returns the shortest decimal; "0" for the zero Cost, "invalid" for an invalid one.
func (c Cost) String() string {
	if c.coef < 0 {
		return "invalid"
	}
	return formatDecimal(strconv.FormatInt(c.coef, 10), int(c.exp))
}

// formatDecimal puts the point before the last places digits, and removes trailing zeros after the point.
func formatDecimal(digits string, places int) string {
	if n := places + 1 - len(digits); n > 0 {
		digits = strings.Repeat("0", n) + digits
	}
	whole, fraction := digits[:len(digits)-places], strings.TrimRight(digits[len(digits)-places:], "0")
	if fraction == "" {
		return whole
	}
	return whole + "." + fraction
}

// Float64 returns the nearest float, for charts; decisions never use it.
func (c Cost) Float64() float64 { return float64(c.coef) / math.Pow10(int(c.exp)) }

// IsZero reports whether c is the zero Cost, which stands for a default. It is false for Units(0).
func (c Cost) IsZero() bool { return c == Cost{} }

// rat returns the exact value.
func (c Cost) rat() *big.Rat { return big.NewRat(c.coef, pow10[c.exp]) }

// errTooFine says that a cost is not a whole number of credits.
var errTooFine = Invalid("cost", "is finer than the smallest step of the limit")

// credits converts the cost into credits; unit is the number of credits for a cost of 1. If the result is not a whole
// number, it is rounded up, and err is errTooFine.
func (c Cost) credits(unit int64) (n int64, err error) {
	if c.IsZero() {
		return unit, nil
	}
	if c.coef <= 0 {
		return 0, Invalid("cost", "must be above 0")
	}
	den := uint64(pow10[c.exp])
	hi, lo := bits.Mul64(uint64(c.coef), uint64(unit))
	if hi >= den {
		return 0, Invalid("cost", "%s is too large", c)
	}
	q, r := bits.Div64(hi, lo, den)
	if r > 0 {
		q, err = q+1, errTooFine
	}
	if q > max53 {
		return 0, Invalid("cost", "%s is too large", c)
	}
	return int64(q), err
}

// closedUnit marks the Params of Closed. No other limit has this unit with a capacity of one credit: that would be a
// burst of half a millionth, for which limits get a finer unit.
const closedUnit = 2_000_000

// isClosed reports whether p are the Params of Closed.
func isClosed(p *law.Params) bool { return p.Capacity == 1 && p.Unit == closedUnit }

// chargeCredits returns the credits that a charge of the cost takes, rounded up. For Closed it returns more credits
// than the capacity, also if the cost is finer than a credit, or more than can be counted.
func (c Cost) chargeCredits(p *law.Params) (int64, error) {
	if isClosed(p) && (c.coef > 0 || c.IsZero()) {
		return p.Capacity + 1, nil
	}
	n, err := c.credits(p.Unit)
	if err == errTooFine { //nolint:errorlint // it is never wrapped
		err = nil
	}
	return n, err
}

// refundCredits returns the credits to give back for the cost: rounded down, possibly to 0, and at most max53.
func (c Cost) refundCredits(p *law.Params) (int64, error) {
	n, err := c.credits(p.Unit)
	if err == errTooFine { //nolint:errorlint // it is never wrapped
		return n - 1, nil
	}
	return c.saturate(n, err, p)
}

// actualCredits returns the credits of an actual cost, rounded up. The cost may be 0.
func (c Cost) actualCredits(p *law.Params) (int64, error) {
	switch {
	case c == explicitZero:
		return 0, nil
	case c.coef < 0:
		return 0, Invalid("cost", "must not be below 0")
	}
	return c.chargeCredits(p)
}

// saturate replaces the error of a cost that is max53 credits or more by that number.
func (c Cost) saturate(n int64, err error, p *law.Params) (int64, error) {
	if err != nil && c.Float64()*float64(p.Unit) >= max53 {
		return max53, nil
	}
	return n, err
}

// smallestCost returns the smallest decimal cost that a unit can express.
func smallestCost(unit int64) Cost {
	for exp := maxExp; exp > 0; exp-- {
		if unit%pow10[exp] == 0 {
			return Cost{coef: 1, exp: uint8(exp)}
		}
	}
	// No power of ten divides the unit, so a whole unit is the smallest decimal.
	return Cost{coef: 1}
}

// costOf returns credits of a limit as a cost, rounded up or down to a millionth, or to its digits if they are more.
func costOf(credits int64, p *law.Params, ceil bool) Cost {
	exp := max(6, p.Digits)
	n := new(big.Int).Mul(big.NewInt(credits), big.NewInt(pow10[exp]))
	q, r := new(big.Int).QuoRem(n, big.NewInt(p.Unit), new(big.Int))
	if ceil && r.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	if q.IsInt64() && q.Int64() <= math.MaxInt64-1 {
		return Cost{coef: q.Int64(), exp: exp}.normalize()
	}
	return Cost{coef: credits / p.Unit} // more than an int64 holds: whole units
}

// checkAmount returns an error about the field if an amount is not above 0.
func checkAmount(field string, c Cost) error {
	if c.coef <= 0 {
		return Invalid(field, "must be above 0")
	}
	return nil
}

// MarshalText implements encoding.TextMarshaler, for JSON, configurations and flags: it returns the decimal, or no text
// for the zero Cost. For an invalid cost, such as Units(-1), it returns ErrInvalid.
func (c Cost) MarshalText() ([]byte, error) {
	switch {
	case c.IsZero():
		return nil, nil
	case c.coef < 0:
		return nil, Invalid("cost", "must not be below 0")
	}
	return []byte(c.String()), nil
}

// UnmarshalText implements encoding.TextUnmarshaler: it reads what MarshalText writes and what [ParseCost] reads. "0"
// is Units(0). Errors are ErrInvalid, and leave c as it was.
func (c *Cost) UnmarshalText(text []byte) error {
	switch string(text) {
	case "":
		*c = Cost{}
		return nil
	case "0":
		*c = explicitZero
		return nil
	}
	parsed, err := ParseCost(string(text))
	if err == nil {
		*c = parsed
	}
	return err
}

// Set implements flag.Value: it reads the same texts as [Cost.UnmarshalText].
func (c *Cost) Set(text string) error { return c.UnmarshalText([]byte(text)) }
