package memory

import "github.com/headgate/headgate/law"

// register has the receipts of a cell.
type register struct {
	known map[string]law.Receipt
	ids   int64 // the bytes of their ids
	last  int64 // no admission is kept for longer
	full  int   // at how many to look for those that are over
}

// receiptBytes is the size of a request without its id, in a map that is two thirds full.
const receiptBytes = 450

// bytes returns what the requests take.
func (r *register) bytes() int64 {
	if r == nil {
		return 0
	}
	return int64(len(r.known))*receiptBytes + r.ids
}

// longer is how much longer than promised an admission is kept, in microseconds:
// a clock that steps back a little finds it again.
const longer = 60_000_000

// Receipt implements law.Receipts.
func (r *register) Receipt(id string) (a law.Receipt, ok bool) {
	if r != nil {
		a, ok = r.known[id]
	}
	return a, ok
}

func (r *register) len() int {
	if r == nil {
		return 0
	}
	return len(r.known)
}

// admit remembers an admission. Whenever there are twice as many as counted the
// last time, it forgets those that are over: so that a register whose cell is in
// use does not grow for ever, and each admission costs the same.
func (r *register) admit(a law.Receipt, now int64) {
	if r.known == nil {
		r.known = map[string]law.Receipt{}
	}
	if _, again := r.known[a.ID]; !again {
		r.ids += int64(len(a.ID))
	}
	r.known[a.ID] = a
	r.last = max(r.last, a.KeepUntil)
	if len(r.known) >= max(r.full, 64) {
		r.compact(now-longer, len(r.known))
		r.full = 2 * len(r.known)
	}
}

// compact forgets at most most admissions that are over, and returns how many.
func (r *register) compact(now int64, most int) (n int) {
	for id := range r.known {
		if n < most && r.known[id].KeepUntil <= now {
			delete(r.known, id)
			r.ids -= int64(len(id))
			n++
		}
	}
	return n
}
