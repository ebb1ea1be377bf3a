package check

import (
	"math/big"
	"math/bits"
)

// num is an integer of 128 bits. Sums and products wrap around. Amounts are counted in a fraction of a unit, which
// family.scale chooses for each limit so that all of its costs and its rate are whole numbers.
type num struct {
	hi int64
	lo uint64
}

func numOf(n int64) num { return num{n >> 63, uint64(n)} }

func (a num) plus(b num) num {
	lo, carry := bits.Add64(a.lo, b.lo, 0)
	return num{a.hi + b.hi + int64(carry), lo}
}

func (a num) minus(b num) num {
	lo, borrow := bits.Sub64(a.lo, b.lo, 0)
	return num{a.hi - b.hi - int64(borrow), lo}
}

// times multiplies by k, which is not negative.
func (a num) times(k int64) num {
	hi, lo := bits.Mul64(a.lo, uint64(k))
	return num{int64(hi) + a.hi*k, lo}
}

// dividedBy divides a, which is not negative, by k, which is positive, and rounds down.
func (a num) dividedBy(k int64) num {
	hi := uint64(a.hi) / uint64(k)
	lo, _ := bits.Div64(uint64(a.hi)%uint64(k), a.lo, uint64(k))
	return num{int64(hi), lo}
}

func (a num) less(b num) bool { return a.hi < b.hi || a.hi == b.hi && a.lo < b.lo }

func (a num) exceeds(b num) bool { return b.less(a) }

func (a num) positive() bool { return num{}.less(a) }

func maxNum(a, b num) num {
	if a.less(b) {
		return b
	}
	return a
}

func minNum(a, b num) num {
	if b.less(a) {
		return b
	}
	return a
}

func (a num) toBig() *big.Int {
	n := big.NewInt(a.hi)
	n.Lsh(n, 64)
	return n.Add(n, new(big.Int).SetUint64(a.lo))
}

// fromBig returns n, which must fit into 128 bits.
func fromBig(n *big.Int) num {
	hi := new(big.Int).Rsh(n, 64)
	lo := new(big.Int).And(n, new(big.Int).SetUint64(1<<64-1))
	return num{hi.Int64(), lo.Uint64()}
}
