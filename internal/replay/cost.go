package replay

import (
	"errors"
	"strconv"
	"strings"

	"github.com/headgate/headgate"
)

// Costs are counted in millionths, so that those of many requests can be summed.
const (
	million = 1_000_000
	maxCost = 1 << 59 // 5.7e11 of one request
)

var (
	errCost     = errors.New("the cost is not a decimal number such as 3 or 0.5")
	errCostHigh = errors.New("the cost is too large")
)

// parseCost reads a cost in millionths, rounded up. "-" is 0, as logs write a size that is none.
func parseCost(text []byte) (int64, error) {
	if len(text) == 1 && text[0] == '-' {
		return 0, nil
	}
	n, err := plainCost(string(text))
	if err != errCost { //nolint:errorlint // it is never wrapped
		return n, err
	}
	c, err := headgate.ParseCostUp(string(text)) // which takes longer
	if err != nil {
		return 0, errCost
	}
	whole, frac, _ := strings.Cut(c.String(), ".")
	frac += "000000000"[len(frac):]
	if n, err = plainCost(whole + "." + frac[:6]); err == nil && frac[6:] > "000" {
		n++
	}
	return n, err
}

// plainCost reads digits, of which at most six are after a point.
func plainCost(text string) (int64, error) {
	whole, frac, point := strings.Cut(text, ".")
	if frac = strings.TrimRight(frac, "0"); whole == "" || point && len(text) == len(whole)+1 || len(frac) > 6 {
		return 0, errCost
	}
	n, err := strconv.ParseUint(whole+frac+"000000"[len(frac):], 10, 64)
	switch {
	case errors.Is(err, strconv.ErrSyntax):
		return 0, errCost
	case err != nil || n > maxCost:
		return 0, errCostHigh
	}
	return int64(n), nil
}

// costOf returns the cost of millionths.
func costOf(n int64) (headgate.Cost, error) {
	if n%million == 0 {
		return headgate.Units(n / million), nil
	}
	return headgate.ParseCost(Total{n / million, n % million}.String())
}

// Total is the sum of costs.
type Total struct{ units, rest int64 } // rest in millionths

func (t *Total) add(n int64) {
	t.rest += n % million
	t.units += n/million + t.rest/million
	t.rest %= million
}

// String writes the sum as a decimal.
func (t Total) String() string {
	s := strconv.FormatInt(t.units, 10)
	if t.rest != 0 {
		s += "." + strings.TrimRight(strconv.FormatInt(million+t.rest, 10)[1:], "0")
	}
	return s
}

// MarshalJSON writes the sum as a number.
func (t Total) MarshalJSON() ([]byte, error) { return []byte(t.String()), nil }
