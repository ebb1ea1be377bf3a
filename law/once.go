package law

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

// Errors about the ID of an op. Such an error fails a single request, of which nothing is applied.
var (
	// ErrReused: the ID was admitted before, with other charges.
	ErrReused = errors.New("the id was used for other charges")
	// ErrUnknownID: no request of this ID was admitted on the cell, or so long ago that the cell has forgotten the ID.
	ErrUnknownID = errors.New("no request of this id is known")
	// ErrSettled: the request was settled or cancelled before, at another cost.
	ErrSettled = errors.New("it is settled already")
)

// Fingerprint returns a number that differs for requests with different charges, almost certainly. It depends on their
// cells and costs, not on their order or on how many credits a unit of cost has. It is the sum of 52 bits of the
// SHA-256 of each charge, which SQL can compute too.
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

// known returns the receipt that the cell has for an ID at this point of the batch, and whether it is still valid.
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

// knownAlternative returns the first alternative that was admitted under the ID of ops, or zeros if none was. It fails
// with ErrReused if the ID was admitted with charges of no alternative.
func knownAlternative(ops []Op, clock int64, records []*Record) (start, end int, err error) {
	if ops[0].ID == "" {
		return 0, 0, nil
	}
	for i, j := 0, AlternativeEnd(ops, 0); i < len(ops); i, j = j, AlternativeEnd(ops, j) {
		fingerprint := Fingerprint(ops[i:j])
		for k := i; k < j; k++ {
			a, ok := records[k].known(ops[k].ID, ops[k].clock(clock))
			if !ok || a.Settled == Cancelled {
				continue
			}
			if a.Fingerprint == fingerprint {
				return i, j, nil
			}
			err = ErrReused
		}
	}
	return 0, 0, err
}

// applyOnce applies the ops of a request with an ID. An op that was admitted before gets its first outcome again, at
// the present time; the others are decided, all or none. A request can have both kinds: a store that spreads it over
// several servers was cut off between two of them, a cell was reset, or one charge cancelled. The charges of a request
// that is or was deferred need a common start: if one of them has to be decided, all are.
func applyOnce(ops []Op, outs []Outcome, clock int64, records []*Record, group int) {
	fingerprint, needsStart := Fingerprint(ops), ops[0].Deferred
	var indexes []int // ops to decide
	for i := range ops {
		a, ok := records[i].known(ops[i].ID, ops[i].clock(clock))
		switch {
		case !ok, a.Settled == Cancelled:
			indexes = append(indexes, i)
		case a.Fingerprint != fingerprint:
			FailAll(outs, ErrReused)
			return
		default:
			outs[i], needsStart = a.Outcome, needsStart || a.Outcome.StartAt > 0
			outs[i].Clock, outs[i].RetryAt, outs[i].Replayed = ops[i].clock(clock), 0, true
		}
	}
	if len(indexes) == 0 {
		return
	}
	if needsStart && len(indexes) < len(ops) {
		indexes = indexes[:0]
		for i := range ops {
			indexes = append(indexes, i)
		}
	}
	n := len(indexes)
	newOps, newOuts, newRecords := make([]Op, n), make([]Outcome, n), make([]*Record, n)
	for k, i := range indexes {
		newOps[k], newRecords[k] = ops[i], records[i]
	}
	admitted := applyAsked(newOps, newOuts, clock, newRecords, group)
	for k, i := range indexes {
		outs[i] = newOuts[k]
		if admitted {
			r, op := records[i], &ops[i]
			r.Admit = append(r.Admit, Receipt{
				ID: op.ID, Fingerprint: fingerprint, Terms: op.Params.Terms(), Cost: op.Count * op.Cost,
				Outcome: outs[i], Settled: Unsettled, KeepUntil: max(op.clock(clock), outs[i].StartAt) + op.TTL,
			})
		}
	}
}

// applySettle corrects the charges that were made under the ID of the ops to the ops' costs, all or none of them. A
// charge that was settled at the same cost before stays as it is; one whose limit was changed since is not corrected.
func applySettle(ops []Op, outs []Outcome, clock int64, records []*Record) {
	receipts := make([]Receipt, len(ops))
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
		receipts[i] = a
	}
	for i := range ops {
		// If the calendar boundaries of one op are stale, no op is applied.
		if now := max(ops[i].clock(clock), records[i].State.At); ops[i].isStale(now) {
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
		op, r, a := ops[i], records[i], receipts[i]
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

// correctAll corrects the charge of a receipt to the cost of op. Unused credits are given back first from the last
// extension, then from the first charge; additional credits are charged to the last extension, if there is one.
func (r *Record) correctAll(op *Op, a *Receipt, clock int64) Outcome {
	unused := a.Cost - max(op.Cost, 0)
	back := *op
	back.Count = 1
	last := a.Extension
	if last.Cost == 0 {
		back.Cost = unused
		back.setCharge(&a.Outcome)
		return r.correct(&back, clock)
	}
	back.Cost = min(unused, last.Cost)
	back.Level, back.At, back.Returned = last.Level, last.At, last.Returned
	prevBefore := r.State.Prev
	out := r.correct(&back, clock)
	if unused <= last.Cost {
		return out
	}
	returned := out.Granted
	back.Cost = unused - last.Cost
	back.setCharge(&a.Outcome)
	back.Returned += out.State.Prev - prevBefore // credits returned from the extension do not reduce the first charge
	out = r.correct(&back, clock)
	out.Granted += returned
	return out
}

// FailAll sets all outcomes of a request to its error.
func FailAll(outs []Outcome, err error) {
	for i := range outs {
		outs[i] = Outcome{Err: err}
	}
}
