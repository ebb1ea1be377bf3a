package memory

import "github.com/headgate/headgate/law"

// register has the receipts of a cell.
type register struct {
	byID          map[string]law.Receipt
	idBytes       int64 // the total length of the ids
	lastKeepUntil int64 // the latest KeepUntil of all receipts
	compactAt     int   // how many receipts, but 64 at least, there have to be before admit removes expired ones
}

// receiptBytes is the size of a receipt without its id, in a map that is two thirds full.
const receiptBytes = 450

// bytes returns the memory that the receipts take.
func (r *register) bytes() int64 {
	if r == nil {
		return 0
	}
	return int64(len(r.byID))*receiptBytes + r.idBytes
}

// keepLonger is how many microseconds longer than promised admit keeps a receipt, for a clock that steps back a little.
const keepLonger = 60_000_000

// Receipt implements law.Receipts.
func (r *register) Receipt(id string) (a law.Receipt, ok bool) {
	if r != nil {
		a, ok = r.byID[id]
	}
	return a, ok
}

func (r *register) len() int {
	if r == nil {
		return 0
	}
	return len(r.byID)
}

// admit adds the receipt of an admission. Whenever the number of receipts has doubled, it removes expired ones. So the
// register of a busy cell does not grow for ever, and each admission has the same cost on average.
func (r *register) admit(a law.Receipt, now int64) {
	if r.byID == nil {
		r.byID = map[string]law.Receipt{}
	}
	if _, exists := r.byID[a.ID]; !exists {
		r.idBytes += int64(len(a.ID))
	}
	r.byID[a.ID] = a
	r.lastKeepUntil = max(r.lastKeepUntil, a.KeepUntil)
	if len(r.byID) >= max(r.compactAt, 64) {
		r.compact(now-keepLonger, len(r.byID))
		r.compactAt = 2 * len(r.byID)
	}
}

// compact removes up to maxRemoved expired receipts, and returns how many.
func (r *register) compact(now int64, maxRemoved int) (n int) {
	for id := range r.byID {
		if n < maxRemoved && r.byID[id].KeepUntil <= now {
			delete(r.byID, id)
			r.idBytes -= int64(len(id))
			n++
		}
	}
	return n
}
