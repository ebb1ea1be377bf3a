package memory

import "github.com/headgate/headgate/law"

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
	for i := range e.list {
		x := e.list[i]
		if x.Number != l.Number {
			continue
		}
		if e.list[i].Cost -= l.Credits; e.list[i].Cost == 0 {
			x.Cost, x.ExpiresAt = 0, 0
			e.list = append(e.list[:i], e.list[i+1:]...)
			e.add(x)
		}
		return
	}
}
