package redis

import (
	"cmp"
	"slices"
	"strings"

	"github.com/headgate/headgate/law"
)

// plainCells numbers the cells of the plain requests of a call of groups.lua.
type plainCells struct {
	cell  []int32 // for each op of the call: the number of its cell, from 1; 0 if its request is not plain
	count int     // the number of cells
}

// requestEnd returns the end of the request that begins at op n of a call.
func requestEnd(ops []law.Op, index []int, n int) int {
	end := n + 1
	for end < len(index) && sameRequest(ops, index[end-1], index[end]) {
		end++
	}
	return end
}

// findPlain finds the plain requests of a call, and their cells. After a request that is not plain, no request on its
// cells counts as plain.
func findPlain(ops []law.Op, index []int) (plain *plainCells, cells []law.Cell) {
	plain = &plainCells{cell: make([]int32, len(index))}
	const notPlain = -1 // the cell of a request that is not plain
	numbers := make(map[law.Cell]int32, len(index))
	for n := 0; n < len(index); {
		end := requestEnd(ops, index, n)
		isPlain := true
		for k := n; k < end && isPlain; k++ {
			op := &ops[index[k]]
			isPlain = isPlainOp(op) && numbers[op.Cell] != notPlain
		}
		for k := n; k < end; k++ {
			c := ops[index[k]].Cell
			if !isPlain {
				numbers[c] = notPlain
				continue
			}
			if plain.cell[k] = numbers[c]; plain.cell[k] == 0 {
				cells = append(cells, c)
				plain.cell[k] = int32(len(cells)) //nolint:gosec // as many as fit in a batch
				numbers[c] = plain.cell[k]
			}
		}
		n = end
	}
	plain.count = len(cells)
	return plain, cells
}

// runWriter writes runs, and consecutive requests of the same shape as one run. A shape lists where the parameters of a
// request's charges are, see paramTable.
type runWriter struct {
	doubles
	openShape, nextShape []int64 // each the places of a request's parameters
	count                int64   // requests of openShape
}

// addRequest adds a request of the shape nextShape.
func (s *runWriter) addRequest() {
	if s.count > 0 && !slices.Equal(s.openShape, s.nextShape) {
		s.flush()
	}
	s.openShape = append(s.openShape[:0], s.nextShape...)
	s.count++
}

// flush writes the run of the requests of openShape.
func (s *runWriter) flush() {
	if s.count == 0 {
		return
	}
	s.addRun(run{params: s.openShape[0], ops: s.count, group: -int64(len(s.openShape))})
	s.add(s.openShape[1:]...)
	s.count = 0
}

// decode sets the outcomes of the ops of index from the answer of groups.lua.
func (p *plainCells) decode(index []int, answer string, ops []law.Op, outs []law.Outcome) error {
	if len(answer) < 8 {
		return errAnswer
	}
	d := decider{clock: double(answer), ops: ops, outs: outs}
	requests := 0
	for n := 0; n < len(index); n = requestEnd(ops, index, n) {
		if p.cell[n] > 0 {
			requests++
		}
	}
	if answer = answer[8:]; len(answer) < requests {
		return errAnswer
	}
	signs := answer[:requests]
	answer, ok := d.read(answer[requests:], p.count)
	if !ok {
		return errAnswer
	}
	var otherOps []int
	for n := 0; n < len(index); {
		end := requestEnd(ops, index, n)
		sign := byte('?')
		if p.cell[n] > 0 {
			sign, signs = signs[0], signs[1:]
		}
		switch sign {
		case '?':
			otherOps = append(otherOps, index[n:end]...)
		case '+':
			ok = d.grant(index[n:end], p.cell[n:end])
		case '-':
			ok = d.refuse(index[n:end], p.cell[n:end])
		default:
			ok = false
		}
		if !ok {
			return errAnswer
		}
		n = end
	}
	return decodeOps(answer, otherOps, outs)
}

// decider derives the outcomes of plain requests from the states of their cells before the batch.
type decider struct {
	clock   int64
	ops     []law.Op
	outs    []law.Outcome
	states  []law.State // for each cell: its state after the requests up to now
	origins []stateOrigin
}

// stateOrigin says where a decider's state of a cell comes from.
type stateOrigin byte

const (
	unknown stateOrigin = iota // there is no state: the cell is not plain
	initial                    // the state before the batch
	charged                    // the state after a charge of the batch
)

// read sets states and origins from the texts of a number of cells, and returns the rest of answer.
func (d *decider) read(answer string, cells int) (rest string, ok bool) {
	d.states, d.origins = make([]law.State, cells), make([]stateOrigin, cells)
	for c := range d.states {
		if c > 0 {
			if answer, ok = strings.CutPrefix(answer, ";"); !ok {
				return "", false
			}
		}
		if after, other := strings.CutPrefix(answer, "!"); other {
			answer = after
			continue
		}
		d.origins[c] = initial
		if answer == "" || answer[0] < '0' || answer[0] > '9' {
			continue
		}
		n, after, ok := parseNumbers(answer)
		if !ok {
			return "", false
		}
		d.states[c], answer = decodeState(n[:]), after
	}
	return answer, true
}

// grant sets the outcomes of a granted request. It reports false if their cells cannot have granted it.
func (d *decider) grant(request []int, cell []int32) bool {
	for k, i := range request {
		op, out, c := &d.ops[i], &d.outs[i], cell[k]-1
		clock := cmp.Or(op.Now, d.clock)
		switch st := &d.states[c]; d.origins[c] {
		case charged:
			*st = op.Params.PlainState(st.Level+op.Cost*op.Count, st.At)
			*out = law.Outcome{Granted: op.Count, State: *st, Used: st.Level, Clock: clock}
		case initial:
			v := law.Decide(*st, op, clock, 0, nil)
			if v.Moved || v.Outcome.Granted != op.Count {
				return false
			}
			*out, *st, d.origins[c] = v.Outcome, v.Outcome.State, charged
		default:
			return false
		}
	}
	return true
}

// refuse sets the outcomes of a refused request. It reports false if the refusal would have changed a cell.
func (d *decider) refuse(request []int, cell []int32) bool {
	n := len(request)
	records, ops, outs := make([]*law.Record, n), make([]law.Op, n), make([]law.Outcome, n)
	for k, i := range request {
		if d.origins[cell[k]-1] == unknown {
			return false
		}
		ops[k] = d.ops[i]
		if first := slices.Index(cell[:k], cell[k]); first >= 0 {
			records[k] = records[first]
		} else {
			records[k] = &law.Record{State: d.states[cell[k]-1]}
		}
	}
	law.Apply(ops, outs, d.clock, records)
	for k, i := range request {
		if records[k].Dirty || outs[k].Stale || outs[k].Err != nil {
			return false
		}
		d.outs[i] = outs[k]
	}
	return true
}
