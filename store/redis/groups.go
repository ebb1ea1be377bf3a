package redis

import (
	"cmp"
	"slices"
	"strings"

	"github.com/headgate/headgate/law"
)

// plainCells numbers the cells of the plain requests of a call of groups.lua.
type plainCells struct {
	cell  []int32 // of each op of the call, the number of its cell, from 1; 0 if its request is not plain
	count int     // of plain requests
}

// requestEnd returns the end of the request of op n of a call.
func requestEnd(ops []law.Op, index []int, n int) int {
	m := n + 1
	for m < len(index) && together(ops, index[m-1], index[m]) {
		m++
	}
	return m
}

// findPlain finds the plain requests of a call, and their cells. A request that is not plain closes its cells to later
// ones.
func findPlain(ops []law.Op, index []int) (g *plainCells, cells []law.Cell) {
	g = &plainCells{cell: make([]int32, len(index))}
	const closed = -1 // to plain requests
	numbers := make(map[law.Cell]int32, len(index))
	for n := 0; n < len(index); {
		m := requestEnd(ops, index, n)
		isPlain := true
		for k := n; k < m && isPlain; k++ {
			op := &ops[index[k]]
			isPlain = plain(op) && numbers[op.Cell] != closed
		}
		for k := n; k < m; k++ {
			c := ops[index[k]].Cell
			if !isPlain {
				numbers[c] = closed
				continue
			}
			if g.cell[k] = numbers[c]; g.cell[k] == 0 {
				cells = append(cells, c)
				g.cell[k] = int32(len(cells)) //nolint:gosec // as many as fit in a batch
				numbers[c] = g.cell[k]
			}
		}
		n = m
	}
	g.count = len(cells)
	return g, cells
}

// shapes writes requests of the same shape as one run. A shape lists the parameters of the charges of a request.
type shapes struct {
	doubles
	open, next []int64 // shapes: places of parameters
	count      int64   // requests of the shape open
}

// request adds a request of the shape next.
func (s *shapes) request() {
	if s.count > 0 && !slices.Equal(s.open, s.next) {
		s.flush()
	}
	s.open = append(s.open[:0], s.next...)
	s.count++
}

// flush writes the run of the requests of the shape open.
func (s *shapes) flush() {
	if s.count == 0 {
		return
	}
	s.run(run{asked: s.open[0], ops: s.count, group: -int64(len(s.open))})
	s.add(s.open[1:]...)
	s.count = 0
}

// decode sets the outcomes of the ops of index from the answer v of groups.lua.
func (p *plainCells) decode(index []int, v string, ops []law.Op, outs []law.Outcome) error {
	if len(v) < 8 {
		return errAnswer
	}
	d := decider{clock: double(v), ops: ops, outs: outs}
	requests := 0
	for n := 0; n < len(index); n = requestEnd(ops, index, n) {
		if p.cell[n] > 0 {
			requests++
		}
	}
	if v = v[8:]; len(v) < requests {
		return errAnswer
	}
	signs := v[:requests]
	v, ok := d.read(v[requests:], p.count)
	if !ok {
		return errAnswer
	}
	var rest []int
	for n := 0; n < len(index); {
		m := requestEnd(ops, index, n)
		sign := byte('?')
		if p.cell[n] > 0 {
			sign, signs = signs[0], signs[1:]
		}
		switch sign {
		case '?':
			rest = append(rest, index[n:m]...)
		case '+':
			ok = d.grant(index[n:m], p.cell[n:m])
		case '-':
			ok = d.refuse(index[n:m], p.cell[n:m])
		default:
			ok = false
		}
		if !ok {
			return errAnswer
		}
		n = m
	}
	return decodeOps(v, rest, outs)
}

// decider derives the outcomes of plain requests from the states of their cells before the batch.
type decider struct {
	clock  int64
	ops    []law.Op
	outs   []law.Outcome
	states []law.State // of each cell, as the requests up to now leave it
	known  []known
}

// known says which state of a cell a decider has.
type known byte

const (
	unknown known = iota // none: the cell is not plain
	initial              // the state before the batch
	charged              // the state after a charge of the batch
)

// read reads the texts of cells, and returns what comes after them.
func (d *decider) read(v string, cells int) (rest string, ok bool) {
	d.states, d.known = make([]law.State, cells), make([]known, cells)
	for c := range d.states {
		if c > 0 {
			if v, ok = strings.CutPrefix(v, ";"); !ok {
				return "", false
			}
		}
		if after, other := strings.CutPrefix(v, "!"); other {
			v = after
			continue
		}
		d.known[c] = initial
		if v == "" || v[0] < '0' || v[0] > '9' {
			continue
		}
		n, after, ok := numbers(v)
		if !ok {
			return "", false
		}
		d.states[c], v = decodeState(n[:]), after
	}
	return v, true
}

// grant writes the outcomes of a request that was granted.
func (d *decider) grant(request []int, cell []int32) bool {
	for k, i := range request {
		op, out, c := &d.ops[i], &d.outs[i], cell[k]-1
		clock := cmp.Or(op.Now, d.clock)
		switch st := &d.states[c]; d.known[c] {
		case charged:
			*st = op.Params.PlainState(st.Level+op.Cost*op.Count, st.At)
			*out = law.Outcome{Granted: op.Count, State: *st, Used: st.Level, Clock: clock}
		case initial:
			v := law.Decide(*st, op, clock, 0, nil)
			if v.Moved || v.Outcome.Granted != op.Count {
				return false
			}
			*out, *st, d.known[c] = v.Outcome, v.Outcome.State, charged
		default:
			return false
		}
	}
	return true
}

// refuse writes the outcomes of a request that was refused.
func (d *decider) refuse(request []int, cell []int32) bool {
	n := len(request)
	records, ops, outs := make([]*law.Record, n), make([]law.Op, n), make([]law.Outcome, n)
	for k, i := range request {
		if d.known[cell[k]-1] == unknown {
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
