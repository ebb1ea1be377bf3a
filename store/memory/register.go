package memory

import "github.com/headgate/headgate/law"

// register is what a cell remembers of requests with an ID.
type register struct {
	known map[string]law.Admission
	ids   []string // in the order in which they came: most are forgotten in it
	last  int64    // no admission is kept for longer
}

// Admission implements law.Register.
func (r *register) Admission(id string) (a law.Admission, ok bool) {
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

// admit remembers an admission.
func (r *register) admit(a law.Admission) {
	if r.known == nil {
		r.known = map[string]law.Admission{}
	}
	if _, there := r.known[a.ID]; !there {
		r.ids = append(r.ids, a.ID)
	}
	r.known[a.ID] = a
	r.last = max(r.last, a.KeepUntil)
}

// longer is how much longer than promised an admission is kept, in microseconds:
// a clock that steps back a little finds it again.
const longer = 60_000_000

// prune forgets what is over, of the oldest: so that a register whose cell is in
// use does not grow for ever.
func (r *register) prune(now int64) {
	n := 0
	for n < len(r.ids) && r.known[r.ids[n]].KeepUntil <= now-longer {
		delete(r.known, r.ids[n])
		n++
	}
	r.ids = r.ids[n:]
}

// compact forgets at most so many admissions that are over, and returns how many.
func (r *register) compact(now int64, most int) (n int) {
	left := r.ids[:0]
	for _, id := range r.ids {
		if n < most && r.known[id].KeepUntil <= now {
			delete(r.known, id)
			n++
		} else {
			left = append(left, id)
		}
	}
	r.ids = left
	return n
}
