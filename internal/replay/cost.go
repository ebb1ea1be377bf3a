package replay

import (
	"errors"
	"strconv"
	"strings"

	"github.com/headgate/headgate"
)

// Costs are counted in millionths, so that the costs of many requests can be summed.
const (
	million = 1_000_000
	maxCost = 1 << 59 // the maximum of one request: 5.76e11 units
)

var (
	errBadCost   = errors.New("the cost is not a decimal number such as 3 or 0.5")
	errLargeCost = errors.New("the cost is too large")
)

// parseCost reads a decimal, and returns it in millionths, rounded up. "-" is 0: logs write it for an absent size.
func parseCost(text []byte) (int64, error) {
	if len(text) == 1 && text[0] == '-' {
		return 0, nil
	}
	n, err := parsePlainCost(string(text))
	if err != errBadCost { //nolint:errorlint // it is never wrapped
		return n, err
	}
	c, err := headgate.ParseCostUp(string(text)) // slower
	if err != nil {
		return 0, errBadCost
	}
	whole, frac, _ := strings.Cut(c.String(), ".")
	frac += "000000000"[len(frac):] // a Cost has nine decimals at most
	if n, err = parsePlainCost(whole + "." + frac[:6]); err == nil && frac[6:] > "000" {
		n++
	}
	return n, err
}

// parsePlainCost reads a cost of digits, at most six of them after a point but for zeros at the end.
func parsePlainCost(text string) (int64, error) {
	whole, frac, hasPoint := strings.Cut(text, ".")
	if frac = strings.TrimRight(frac, "0"); whole == "" || hasPoint && len(text) == len(whole)+1 || len(frac) > 6 {
		return 0, errBadCost
	}
	n, err := strconv.ParseUint(whole+frac+"000000"[len(frac):], 10, 64)
	switch {
	case errors.Is(err, strconv.ErrSyntax):
		return 0, errBadCost
	case err != nil || n > maxCost:
		return 0, errLargeCost
	}
	return int64(n), nil
}

// costOf converts millionths to a cost.
func costOf(n int64) (headgate.Cost, error) {
	if n%million == 0 {
		return headgate.Units(n / million), nil
	}
	return headgate.ParseCost(Total{n / million, n % million}.String())
}

// Total is a sum of costs: units, and millionths of one.
type Total struct{ units, millionths int64 }

func (t *Total) add(n int64) {
	t.millionths += n % million
	t.units += n/million + t.millionths/million
	t.millionths %= million
}

// String returns the sum as a decimal.
func (t Total) String() string {
	s := strconv.FormatInt(t.units, 10)
	if t.millionths != 0 {
		s += "." + strings.TrimRight(strconv.FormatInt(million+t.millionths, 10)[1:], "0")
	}
	return s
}

// MarshalJSON returns the sum as a number.
func (t Total) MarshalJSON() ([]byte, error) { return []byte(t.String()), nil }
