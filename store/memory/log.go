package memory

import (
	"cmp"
	"slices"
	"sort"

	"github.com/headgate/headgate/law"
)

// entries is the log of a cell. list is ordered by the time at which attempts expire, so that Sum can search it; most
// attempts are added at its end. Refused attempts, and those that were cleared or given back, expire at 0: they stand
// in front, ordered by number.
type entries struct {
	list    []law.Entry
	idBytes int64 // the total length of the entries' ids
}

// entryBytes is the size of an entry without its id, with its part of the spare capacity of list.
const entryBytes = 100

// bytes returns the memory that the entries take.
func (e *entries) bytes() int64 {
	if e == nil {
		return 0
	}
	return int64(len(e.list))*entryBytes + e.idBytes
}

func byExpiry(a, b law.Entry) int {
	return cmp.Or(cmp.Compare(a.ExpiresAt, b.ExpiresAt), cmp.Compare(a.Number, b.Number))
}

// firstAfter returns the index of the first entry that expires after t.
func (e *entries) firstAfter(t int64) int {
	return sort.Search(len(e.list), func(i int) bool { return e.list[i].ExpiresAt > t })
}

// Sum implements law.Ledger.
func (e *entries) Sum(after, upTo int64) int64 {
	var sum int64
	for _, x := range e.list[e.firstAfter(max(after, 0)):] {
		if x.ExpiresAt > upTo {
			break
		}
		sum += x.Cost
	}
	return sum
}

// Freed implements law.Ledger.
func (e *entries) Freed(after, need int64) int64 {
	for _, x := range e.list[e.firstAfter(max(after, 0)):] {
		if need -= x.Cost; need <= 0 {
			return x.ExpiresAt
		}
	}
	return law.Never
}

// add inserts an entry at its place in the order.
func (e *entries) add(x law.Entry) {
	i := len(e.list)
	if i > 0 && byExpiry(e.list[i-1], x) > 0 {
		i, _ = slices.BinarySearchFunc(e.list, x, byExpiry)
	}
	e.list = slices.Insert(e.list, i, x)
	e.idBytes += int64(len(x.ID))
}

// clear makes all entries expire. It removes those that need not be kept for a history.
func (e *entries) clear() {
	keptEntries := e.list[:0]
	for _, x := range e.list {
		if x.KeepUntil > x.ExpiresAt {
			x.ExpiresAt = 0
			keptEntries = append(keptEntries, x)
		} else {
			e.idBytes -= int64(len(x.ID))
		}
	}
	e.list = keptEntries
	slices.SortFunc(e.list, byExpiry)
}

// prune removes entries at the front that have expired by the cell's time at, and whose history is not kept beyond now.
func (e *entries) prune(at, now int64) {
	n := 0
	for n < len(e.list) && e.list[n].ExpiresAt <= at && e.list[n].KeepUntil <= now {
		e.idBytes -= int64(len(e.list[n].ID))
		n++
	}
	e.list = slices.Delete(e.list, 0, n)
}

// compact removes from the whole list up to maxRemoved entries that have expired and whose history is not kept
// beyond now. All entries of a cell that is empty at emptyAt have expired by then. It returns how many it removed.
func (e *entries) compact(at, emptyAt, now int64, maxRemoved int) (n int) {
	if emptyAt <= now {
		at = max(at, now)
	}
	e.list = slices.DeleteFunc(e.list, func(x law.Entry) bool {
		isRemoved := n < maxRemoved && x.ExpiresAt <= at && x.KeepUntil <= now
		if isRemoved {
			e.idBytes -= int64(len(x.ID))
			n++
		}
		return isRemoved
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

// lower reduces the cost of an entry by the credits that were given back; less than 0: it adds to it.
func (e *entries) lower(l law.Lowered) {
	if i := e.index(l.Number); i >= 0 {
		x := e.list[i]
		if x.Cost -= l.Credits; x.Cost == 0 {
			x.ExpiresAt = 0
		}
		e.replace(i, x)
	}
}

// renew sets a later expiry of an entry.
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

// replace replaces the entry at an index. The new entry may expire at another time.
func (e *entries) replace(i int, x law.Entry) {
	if e.list[i].ExpiresAt == x.ExpiresAt {
		e.list[i] = x
		return
	}
	e.list = slices.Delete(e.list, i, i+1)
	e.idBytes -= int64(len(x.ID))
	e.add(x)
}
