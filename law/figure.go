package law

import "math/bits"

// maxDigits is the most decimal places that an amount can have: billionths.
const maxDigits = 9

// Figure converts credits to the amount that people see, rounded down to p.Digits decimal places: whole units, and
// billionths of a unit. 31,250 credits of a unit of 1,000,000 with four digits are 0 and 31,200,000.
func (p *Params) Figure(credits int64) (units int64, nanos int32) {
	units = credits / p.Unit
	if p.Digits == 0 {
		return units, 0
	}
	hi, lo := bits.Mul64(uint64(credits-units*p.Unit), powersOfTen[p.Digits])
	n, _ := bits.Div64(hi, lo, uint64(p.Unit))
	return units, int32(n * powersOfTen[maxDigits-p.Digits])
}

var powersOfTen = [maxDigits + 1]uint64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9}
