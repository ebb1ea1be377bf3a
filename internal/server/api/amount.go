package api

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// nanoDigits is how many digits billionths have.
const nanoDigits = 9

// Number writes a non-negative amount of units and billionths of a unit, from 0 to 999,999,999, as in
// google.type.Money: 0 and 31,200,000 are 0.0312.
func Number(units int64, nanos int32) json.Number {
	whole := strconv.FormatInt(units, 10)
	if nanos == 0 {
		return json.Number(whole)
	}
	return json.Number(strings.TrimRight(fmt.Sprintf("%s.%0*d", whole, nanoDigits, nanos), "0"))
}

// Amount parses an amount that [Number] wrote; an empty text is 0.
func Amount(n json.Number) (units int64, nanos int32, err error) {
	if n == "" {
		return 0, 0, nil
	}
	whole, rest, _ := strings.Cut(n.String(), ".")
	u, err := strconv.ParseUint(whole, 10, 63)
	if err == nil && rest != "" {
		var billionths uint64
		billionths, err = strconv.ParseUint(rest+strings.Repeat("0", max(0, nanoDigits-len(rest))), 10, 30)
		nanos = int32(billionths) //nolint:gosec // of 30 bits
	}
	if err != nil || len(rest) > nanoDigits {
		return 0, 0, fmt.Errorf("%.100q is not a decimal of at most %d digits after the point", n, nanoDigits)
	}
	return int64(u), nanos, nil //nolint:gosec // of 63 bits
}
