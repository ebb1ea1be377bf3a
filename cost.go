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

// Cost is an exact decimal amount: what a charge costs, what a limit allows.
// It has at most nine digits after the point. Where a limit counts in coarser steps, mostly
// thousandths, what is charged is rounded up and what is given back down, once and by less than
// one step. The zero Cost stands for "not said": one for a charge, the default for a limit's
// burst. A Cost is a value; compare with ==.
type Cost struct {
	coef int64 // the digits, positive once said
	exp  uint8 // how many of them stand after the point; no trailing zeros
}

// maxCoef keeps coefficients below 2^53; maxExp is how fine a cost can be.
const (
	maxCoef = law53
	maxExp  = 9
	law53   = 1<<53 - 1
)

var pow10 = [...]int64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9}

// Units returns the whole cost n. Units(0) is nothing at all: what something may
// have cost in the end, see [Reservation.Settle]; every other use refuses it. An n
// below 0 makes a Cost that every use of it refuses.
func Units(n int64) Cost {
	return Cost{coef: n}.said()
}

// Nanos returns n billionths of a unit, for costs that are computed with integers: at 3 dollars a million tokens, 104
// tokens cost Nanos(104 * 3000), which is 0.000312. For n of 0 and below it is as Units; an n above 2^53-1, some nine
// million units, makes a Cost that every use of it refuses.
func Nanos(n int64) Cost {
	return Cost{coef: n, exp: maxExp}.said()
}

// nothing is a cost of zero that was said, apart from the zero Cost.
var nothing = Cost{exp: 1}

// said keeps a zero or negative number apart from the zero Cost.
func (c Cost) said() Cost {
	switch {
	case c.coef == 0:
		return nothing
	case c.coef < 0 || c.coef > maxCoef:
		return Cost{coef: -1}
	}
	return c.normal()
}

func (c Cost) normal() Cost {
	for c.exp > 0 && c.coef%10 == 0 {
		c.coef /= 10
		c.exp--
	}
	return c
}

// ParseCost parses a positive decimal such as "3", "0.5", "30.75" or "1.4e-05", as JSON has numbers. It
// has to have at most nine digits after the point when it is written without an exponent. There may be no
// sign before it, NaN or infinity. Errors are ErrInvalid.
func ParseCost(s string) (Cost, error) {
	if !strings.ContainsAny(s, "eE") {
		return parseAmount("cost", s)
	}
	r, err := decimal(s)
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

// ParseCostUp parses a computed number, such as the usage that a service reports. It rounds up what is too precise:
// "0.30000000000000004" is 0.300000001. Zero, also as "0.0" or "-0.0", is Units(0). Errors are those of ParseCost.
func ParseCostUp(s string) (Cost, error) {
	r, err := decimal(strings.TrimPrefix(s, "-"))
	switch {
	case err == nil && r.Sign() == 0:
		return nothing, nil
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

// The longest number that is read, and its greatest exponent: so it takes a bounded time.
const (
	maxDigits   = 400
	maxExponent = 400
)

// decimal reads digits, perhaps with a point and an exponent.
func decimal(s string) (*big.Rat, error) {
	bad := Invalid("cost", "%.100q is not a decimal number such as 3 or 0.5", s)
	mantissa, exponent := s, "0"
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		mantissa, exponent = s[:i], s[i+1:]
	}
	n, err := strconv.Atoi(exponent)
	whole, frac, point := strings.Cut(mantissa, ".")
	switch {
	case whole == "", point && frac == "", !digits(whole), !digits(frac), errors.Is(err, strconv.ErrSyntax):
		return nil, bad
	case err != nil, n < -maxExponent, n > maxExponent:
		return nil, Invalid("cost", "%.100q has an exponent beyond %d", s, maxExponent)
	case len(s) > maxDigits:
		return nil, Invalid("cost", "has %d characters; %d are read", len(s), maxDigits)
	}
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		return nil, bad
	}
	return r, nil
}

// roundUp returns the smallest cost that is not below a number, with as many digits as fit, and whether it is that
// number. A number that is too large is Cost{coef: -1}.
func roundUp(r *big.Rat) (c Cost, exact bool) {
	for exp := maxExp; exp >= 0; exp-- {
		scaled := new(big.Rat).Mul(r, big.NewRat(pow10[exp], 1))
		if q := ceilRat(scaled); q.IsInt64() && q.Int64() <= maxCoef {
			return Cost{coef: q.Int64(), exp: uint8(exp)}.normal(), scaled.IsInt()
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

func parseAmount(field, s string) (Cost, error) {
	whole, frac, point := strings.Cut(s, ".")
	if whole == "" || point && frac == "" || !digits(whole) || !digits(frac) {
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
	return Cost{coef: n, exp: uint8(len(frac))}.normal(), nil
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// MustCost parses a constant. It panics where ParseCost would fail.
func MustCost(s string) Cost { return must(ParseCost(s)) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// String returns the shortest decimal; "0" for the zero Cost.
func (c Cost) String() string {
	if c.coef < 0 {
		return "invalid"
	}
	return decimalOf(strconv.FormatInt(c.coef, 10), int(c.exp))
}

// decimalOf returns the shortest decimal of digits of which the last ones stand after the point.
func decimalOf(digits string, after int) string {
	if n := after + 1 - len(digits); n > 0 {
		digits = strings.Repeat("0", n) + digits
	}
	whole, fraction := digits[:len(digits)-after], strings.TrimRight(digits[len(digits)-after:], "0")
	if fraction == "" {
		return whole
	}
	return whole + "." + fraction
}

// Float64 returns the nearest float, for pictures; decisions never use it.
func (c Cost) Float64() float64 { return float64(c.coef) / math.Pow10(int(c.exp)) }

// IsZero reports whether c is the zero Cost, which was not said: Units(0) is not.
func (c Cost) IsZero() bool { return c == Cost{} }

// rat returns the exact value.
func (c Cost) rat() *big.Rat { return big.NewRat(c.coef, pow10[c.exp]) }

// errFine is why a cost is not a whole number of credits.
var errFine = Invalid("cost", "is finer than the smallest step of the limit")

// credits returns how many credits of which unit make one a cost is. Where that is no whole number it is rounded up,
// and err is errFine.
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
		q, err = q+1, errFine
	}
	if q > law53 {
		return 0, Invalid("cost", "%s is too large", c)
	}
	return int64(q), err
}

// closedUnit distinguishes the Params of Closed from all others: a burst of half a millionth has a finer unit.
const closedUnit = 2_000_000

// closed reports whether p are the Params of Closed.
func closed(p *law.Params) bool { return p.Capacity == 1 && p.Unit == closedUnit }

// charged returns the credits that a charge takes: a cost that is finer than they are is rounded up. Of Closed it is
// what does not fit, also where the cost is finer than all credits, or more than can be counted.
func (c Cost) charged(p *law.Params) (int64, error) {
	if closed(p) && (c.coef > 0 || c.IsZero()) {
		return p.Capacity + 1, nil
	}
	n, err := c.credits(p.Unit)
	if err == errFine { //nolint:errorlint // it is never wrapped
		err = nil
	}
	return n, err
}

// refunded returns the credits that are given back: rounded down, also to 0, and at most as many as a cell can hold.
func (c Cost) refunded(p *law.Params) (int64, error) {
	n, err := c.credits(p.Unit)
	if err == errFine { //nolint:errorlint // it is never wrapped
		return n - 1, nil
	}
	return c.most(n, err, p)
}

// actual returns the credits of what something has cost in the end, rounded up: also 0.
func (c Cost) actual(p *law.Params) (int64, error) {
	switch {
	case c == nothing:
		return 0, nil
	case c.coef < 0:
		return 0, Invalid("cost", "must not be below 0")
	}
	return c.charged(p)
}

// saturated returns the credits of what is charged whatever the level: rounded up, at most as many as a cell can hold.
func (c Cost) saturated(p *law.Params) (int64, error) {
	n, err := c.charged(p)
	return c.most(n, err, p)
}

// most turns the error of a cost that is more than a cell can hold into as many credits as it can.
func (c Cost) most(n int64, err error, p *law.Params) (int64, error) {
	if err != nil && c.Float64()*float64(p.Unit) >= law53 {
		return law53, nil
	}
	return n, err
}

// smallest returns the smallest decimal cost that a unit can express.
func smallest(unit int64) Cost {
	for exp := maxExp; exp > 0; exp-- {
		if unit%pow10[exp] == 0 {
			return Cost{coef: 1, exp: uint8(exp)}
		}
	}
	// Without a power of ten in it, a unit may still divide into tenths
	// that are not powers: say the whole.
	return Cost{coef: 1}
}

// costOf returns credits of a limit as a cost, rounded up or down to a millionth, or to the digits that the limit has.
func costOf(credits int64, p *law.Params, up bool) Cost {
	exp := max(6, p.Digits)
	n := new(big.Int).Mul(big.NewInt(credits), big.NewInt(pow10[exp]))
	q, r := new(big.Int).QuoRem(n, big.NewInt(p.Unit), new(big.Int))
	if up && r.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	if q.IsInt64() && q.Int64() <= math.MaxInt64-1 {
		return Cost{coef: q.Int64(), exp: exp}.normal()
	}
	return Cost{coef: credits / p.Unit} // beyond 9e12: whole units
}

// checkAmount returns what is wrong with an amount given as a Go value.
func checkAmount(field string, c Cost) error {
	if c.coef <= 0 {
		return Invalid(field, "must be above 0")
	}
	return nil
}

// MarshalText implements encoding.TextMarshaler, so that a Cost can stand in JSON, a
// configuration, a flag: the decimal, and nothing for the zero Cost. A cost that every
// use refuses, such as Units(-1), is ErrInvalid.
func (c Cost) MarshalText() ([]byte, error) {
	switch {
	case c.IsZero():
		return nil, nil
	case c.coef < 0:
		return nil, Invalid("cost", "must not be below 0")
	}
	return []byte(c.String()), nil
}

// UnmarshalText implements encoding.TextUnmarshaler: it reads what MarshalText writes,
// and else what [ParseCost] does. "0" is Units(0). Errors are ErrInvalid, and leave c as
// it was.
func (c *Cost) UnmarshalText(text []byte) error {
	switch string(text) {
	case "":
		*c = Cost{}
		return nil
	case "0":
		*c = nothing
		return nil
	}
	parsed, err := ParseCost(string(text))
	if err == nil {
		*c = parsed
	}
	return err
}

// Set implements flag.Value, as [Cost.UnmarshalText].
func (c *Cost) Set(text string) error { return c.UnmarshalText([]byte(text)) }
