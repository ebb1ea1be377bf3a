package law

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

// What can be wrong with the ID of an op: the fault of one request, of which
// nothing was done then.
var (
	// ErrReused: the ID was admitted before, with other charges.
	ErrReused = errors.New("the id was used for other charges")
	// ErrUnknownID: no request of this ID was admitted on the cell, or so long ago
	// that it was forgotten.
	ErrUnknownID = errors.New("no request of this id is known")
	// ErrSettled: it was settled or cancelled before, at another cost.
	ErrSettled = errors.New("it is settled already")
)

// Fingerprint returns a number that differs for requests with different charges, as
// good as always: their cells and costs, in any order and whatever credits a unit
// of cost has. It is a sum of 52 bits of the SHA-256 of each, which SQL can compute
// too.
func Fingerprint(ops []Op) int64 {
	var sum uint64
	for i := range ops {
		op := &ops[i]
		credits, unit := op.Cost*op.Count, op.Params.Unit
		d := gcd(credits, unit)
		c := &op.Cell
		h := sha256.Sum256(fmt.Appendf(nil, "%d:%s%d:%s%d/%d", len(c.Limit), c.Limit, len(c.Key), c.Key,
			credits/d, unit/d))
		sum += binary.BigEndian.Uint64(h[:]) >> 12
	}
	return int64(sum & Max)
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// known returns what the cell remembers of an ID within the batch.
func (r *Record) known(id string, clock int64) (a Receipt, ok bool) {
	for i := len(r.Admit) - 1; i >= 0; i-- {
		if r.Admit[i].ID == id {
			return r.Admit[i], r.Admit[i].KeepUntil > clock
		}
	}
	if r.Forget || r.Receipts == nil {
		return a, false
	}
	a, ok = r.Receipts.Receipt(id)
	return a, ok && a.KeepUntil > clock
}

// applyOnce applies the ops of a request with an ID: those that were admitted
// before are answered with what was said then, at the present time; the others are
// decided, all or none. Both can be if a store that spreads a request over several
// servers was cut off between two of them, or a cell was reset, or one charge
// cancelled. A request that is Late, or was, needs a start in common, so then all
// are decided.
func applyOnce(ops []Op, outs []Outcome, clock int64, records []*Record, group int) {
	print, starts := Fingerprint(ops), ops[0].Deferred
	var rest []int
	for i := range ops {
		a, ok := records[i].known(ops[i].ID, ops[i].clock(clock))
		switch {
		case !ok, a.Settled == Cancelled:
			rest = append(rest, i)
		case a.Fingerprint != print:
			FailAll(outs, ErrReused)
			return
		default:
			outs[i], starts = a.Outcome, starts || a.Outcome.StartAt > 0
			outs[i].Clock, outs[i].RetryAt, outs[i].Replayed = ops[i].clock(clock), 0, true
		}
	}
	if len(rest) == 0 {
		return
	}
	if starts && len(rest) < len(ops) {
		rest = rest[:0]
		for i := range ops {
			rest = append(rest, i)
		}
	}
	newOps, newOuts, newRecords := make([]Op, len(rest)), make([]Outcome, len(rest)), make([]*Record, len(rest))
	for k, i := range rest {
		newOps[k], newRecords[k] = ops[i], records[i]
	}
	admitted := applyAsked(newOps, newOuts, clock, newRecords, group)
	for k, i := range rest {
		outs[i] = newOuts[k]
		if admitted {
			r, op := records[i], &ops[i]
			r.Admit = append(r.Admit, Receipt{
				ID: op.ID, Fingerprint: print, Terms: op.Params.Terms(), Cost: op.Count * op.Cost, Outcome: outs[i],
				Settled: Unsettled, KeepUntil: max(op.clock(clock), outs[i].StartAt) + op.TTL,
			})
		}
	}
}

// applySettle makes the ops' costs those of the admissions of their ID, all or
// none of them. Which were settled at the same cost before stay as they are; of a
// limit that was changed since nothing is corrected.
func applySettle(ops []Op, outs []Outcome, clock int64, records []*Record) {
	known := make([]Receipt, len(ops))
	for i := range ops {
		a, ok := records[i].known(ops[i].ID, ops[i].clock(clock))
		switch {
		case !ok:
			FailAll(outs, ErrUnknownID)
			return
		case a.Settled != Unsettled && a.Settled != ops[i].Cost:
			FailAll(outs, ErrSettled)
			return
		}
		known[i] = a
	}
	for i := range ops {
		// Two boundaries of a calendar: nothing is done before all are known.
		if now := max(ops[i].clock(clock), records[i].State.At); ops[i].stale(now) {
			for k := range ops {
				outs[k] = Outcome{
					State: records[k].State, Clock: max(ops[k].clock(clock), records[k].State.At),
					Stale: true,
				}
			}
			return
		}
	}
	for i := range ops {
		op, r, a := ops[i], records[i], known[i]
		if a.Settled != Unsettled {
			outs[i] = Outcome{State: r.State, Clock: op.clock(clock), Replayed: true}
			continue
		}
		a.Settled = op.Cost
		r.Admit = append(r.Admit, a)
		if a.Terms != op.Params.Terms() {
			outs[i] = Outcome{State: r.State, Clock: op.clock(clock)}
			continue
		}
		outs[i] = r.correctAll(&op, &a, op.clock(clock))
	}
}

// correctAll makes the cost of op that of a charge: what is unused is given back by the last
// extension first, and what was used in addition is charged to it.
func (r *Record) correctAll(op *Op, a *Receipt, clock int64) Outcome {
	unused := a.Cost - max(op.Cost, 0)
	back := *op
	back.Count = 1
	last := a.Extension
	if last.Cost == 0 {
		back.Cost = unused
		back.of(&a.Outcome)
		return r.correct(&back, clock)
	}
	back.Cost = min(unused, last.Cost)
	back.Level, back.At, back.Returned = last.Level, last.At, last.Returned
	before := r.State.Prev
	out := r.correct(&back, clock)
	if unused <= last.Cost {
		return out
	}
	given := out.Granted
	back.Cost = unused - last.Cost
	back.of(&a.Outcome)
	back.Returned += out.State.Prev - before // it was charged later, and takes nothing from what was charged first
	out = r.correct(&back, clock)
	out.Granted += given
	return out
}

// FailAll gives all outcomes of a request its error.
func FailAll(outs []Outcome, err error) {
	for i := range outs {
		outs[i] = Outcome{Err: err}
	}
}
