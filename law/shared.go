package law

import (
	"strconv"
	"strings"
)

// A limit may have a bounded number of keys in a store. While it has as many, keys
// that have no cell share one: the shared cell of the limit. A period of sharing
// has a number, its generation, and each has a cell of its own.
//
// That is exact for each key, since all that is charged to it is covered by one
// cell at a time. A cell of its own goes only when nothing in it counts any more.
// While the limit shares, no key is given a cell of its own. The period ends only
// when nothing in the shared cell counts any more, and what names the shared cell of
// a period that has ended is not applied.

// sharedPrefix begins the keys of shared cells, and of no others.
const sharedPrefix = "headgate:shared:"

// Ended is the [Outcome.Full] of an op on a shared cell whose period has ended.
const Ended = -1

// SharedCell returns the cell that the keys of a limit share in one period of
// sharing. Generations count from 1.
func SharedCell(limit string, generation int64) Cell {
	return Cell{Limit: limit, Key: sharedPrefix + strconv.FormatInt(generation, 10)}
}

// Generation returns the period of sharing whose cell c is, or 0 if c is the cell
// of a key.
func Generation(c Cell) int64 {
	digits, ok := strings.CutPrefix(c.Key, sharedPrefix)
	if !ok || digits == "" || digits[0] < '1' || digits[0] > '9' {
		return 0
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n > Max {
		return 0
	}
	return n
}

// IsShared reports whether c is a shared cell.
func IsShared(c Cell) bool { return Generation(c) > 0 }

// reserved says why nobody can have this key, or nil.
func reserved(key string) error {
	if strings.HasPrefix(key, sharedPrefix) {
		return Invalid("key", "begins with %q, which is kept for cells that keys share", sharedPrefix)
	}
	return nil
}
