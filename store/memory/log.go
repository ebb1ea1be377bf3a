package memory

import (
	"cmp"
	"slices"
	"sort"

	"github.com/headgate/headgate/law"
)

// entries is the log of a cell. Attempts are mostly added in the order in
// which they expire; list is kept in that order, so that sums are found by
// search. Refused attempts, and those that count no more, expire at 0 and
// stand in front in the order of their numbers.
type entries struct {
	list []law.Entry
	ids  int64 // the bytes of their ids
}

// entryBytes is the size of an entry without its id, with its share of the room for more.
const entryBytes = 100

// bytes returns what the entries take.
func (e *entries) bytes() int64 {
	if e == nil {
		return 0
	}
	return int64(len(e.list))*entryBytes + e.ids
}

func byExpiry(a, b law.Entry) int {
	return cmp.Or(cmp.Compare(a.ExpiresAt, b.ExpiresAt), cmp.Compare(a.Number, b.Number))
}

// after returns the index of the first entry that expires after t.
func (e *entries) after(t int64) int {
	return sort.Search(len(e.list), func(i int) bool { return e.list[i].ExpiresAt > t })
}

// Sum implements law.Ledger.
func (e *entries) Sum(after, upto int64) int64 {
	var sum int64
	for _, x := range e.list[e.after(max(after, 0)):] {
		if x.ExpiresAt > upto {
			break
		}
		sum += x.Cost
	}
	return sum
}

// Freed implements law.Ledger.
func (e *entries) Freed(after, need int64) int64 {
	for _, x := range e.list[e.after(max(after, 0)):] {
		if need -= x.Cost; need <= 0 {
			return x.ExpiresAt
		}
	}
	return law.Never
}

// add appends an entry at its place.
func (e *entries) add(x law.Entry) {
	i := len(e.list)
	if i > 0 && byExpiry(e.list[i-1], x) > 0 {
		i, _ = slices.BinarySearchFunc(e.list, x, byExpiry)
	}
	e.list = slices.Insert(e.list, i, x)
	e.ids += int64(len(x.ID))
}

// clear makes all entries count no more; those without a history go.
func (e *entries) clear() {
	kept := e.list[:0]
	for _, x := range e.list {
		if x.KeepUntil > x.ExpiresAt {
			x.ExpiresAt = 0
			kept = append(kept, x)
		} else {
			e.ids -= int64(len(x.ID))
		}
	}
	e.list = kept
	slices.SortFunc(e.list, byExpiry)
}

// prune forgets the entries at the front that count no more as of the cell's
// time at, and that nobody asked to keep until now.
func (e *entries) prune(at, now int64) {
	n := 0
	for n < len(e.list) && e.list[n].ExpiresAt <= at && e.list[n].KeepUntil <= now {
		e.ids -= int64(len(e.list[n].ID))
		n++
	}
	e.list = slices.Delete(e.list, 0, n)
}

// compact prunes the whole list, also of a cell that is empty since
// emptyAt. It forgets at most most entries, and returns how many.
func (e *entries) compact(at, emptyAt, now int64, most int) (n int) {
	if emptyAt <= now {
		at = max(at, now)
	}
	e.list = slices.DeleteFunc(e.list, func(x law.Entry) bool {
		gone := n < most && x.ExpiresAt <= at && x.KeepUntil <= now
		if gone {
			e.ids -= int64(len(x.ID))
			n++
		}
		return gone
	})
	return n
}

// keepUntil returns the time from which on no entry is worth keeping.
func (e *entries) keepUntil() (t int64) {
	for i := range e.list {
		t = max(t, e.list[i].ExpiresAt, e.list[i].KeepUntil)
	}
	return t
}

// Entry implements law.Ledger.
func (e *entries) Entry(number int64) (credits, expiresAt int64) {
	for _, x := range e.list {
		if x.Number == number && x.Granted {
			return x.Cost, x.ExpiresAt
		}
	}
	return 0, 0
}

// lower takes what was given back from the entry it was charged in.
func (e *entries) lower(l law.Lowered) {
	if i := e.index(l.Number); i >= 0 {
		x := e.list[i]
		if x.Cost -= l.Credits; x.Cost == 0 {
			x.ExpiresAt = 0
		}
		e.replace(i, x)
	}
}

// renew lets an entry count for longer.
func (e *entries) renew(n law.Renewed) {
	if i := e.index(n.Number); i >= 0 {
		x := e.list[i]
		x.ExpiresAt, x.KeepUntil = n.To, max(x.KeepUntil, n.To)
		e.replace(i, x)
	}
}

// index returns the index of an entry, -1 if there is none.
func (e *entries) index(number int64) int {
	return slices.IndexFunc(e.list, func(x law.Entry) bool { return x.Number == number })
}

// replace puts an entry, which may expire at another time, in the place of that
// at an index.
func (e *entries) replace(i int, x law.Entry) {
	if e.list[i].ExpiresAt == x.ExpiresAt {
		e.list[i] = x
		return
	}
	e.list = slices.Delete(e.list, i, i+1)
	e.ids -= int64(len(x.ID))
	e.add(x)
}
