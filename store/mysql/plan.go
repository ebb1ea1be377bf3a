package mysql

import (
	"slices"

	"github.com/headgate/headgate/law"
)

// row is an op in a statement; the ops of a group have two.
type row struct {
	op    int // in the caller's slice
	pass  int
	pos   int   // in its group, from 1
	first int   // the first of its group on the same cell
	size  int   // of its group
	print int64 // of its group, where that has an ID
}

// records is how many records a row answers.
func (r *row) records() int {
	switch r.pass {
	case onceFirst, settleFirst, extendFirst:
		return 0
	case secondPass, onceSecond, settleSecond, extendSecond:
		return 1
	}
	return 2
}

// tells tells whether a row answers an outcome, or nothing, instead of what it is
// made of.
func (r *row) tells() bool {
	switch r.pass {
	case onceFirst, onceSecond, settleFirst, settleSecond, extendFirst, extendSecond:
		return true
	}
	return false
}

// run is what one statement decides: rows whose outcomes do not depend on what
// is only written to the log after it.
type run struct {
	rows  []row
	shape shape
}

// admission names what a cell remembers of a request.
type admission struct {
	cell law.Cell
	id   string
}

// once tells whether an op is one of a request with an ID, or of one that may
// start late: see admission.tmpl.
func once(op *law.Op) bool { return !op.Alone() }

// maxRows bounds the rows of a run, so that the text in which the server
// gathers their outcomes stays short. A group larger than that has a run of
// its own.
const maxRows = 512

// plan is a batch as the server is to be asked.
type plan struct {
	ops   []law.Op
	runs  []run
	cells []law.Cell // the distinct cells, in the order in which they are locked
	reads bool       // nothing is written
	plain []plainRun // if it is a plain batch; runs is then one run of all ops
	left  int        // of a plain batch: how many ops were left for the general way
	parts bool       // requests may be settled that were extended
	// values: lists are of values
	values bool
}

// plainRun is a part of a plain batch with one limit.
type plainRun struct {
	rows   []row
	varies [params]bool
}

// newPlan leaves out the groups that are not valid, and says so in outs.
func newPlan(ops []law.Op, outs []law.Outcome) *plan {
	p := &planner{plan: &plan{ops: ops, reads: true}, written: map[law.Cell]bool{}, named: map[admission]bool{}}
	for i := 0; i < len(ops); {
		j := law.GroupEnd(ops, i)
		if err := law.ValidGroup(ops[i:j]); err != nil {
			for ; i < j; i++ {
				outs[i] = law.Outcome{Err: err}
			}
			continue
		}
		for ; (ops[i].Verb == law.Return || ops[i].Verb == law.Renew) && i < j-1; i++ {
			p.add(i, i+1) // of these each stands alone
		}
		p.add(i, j)
		i = j
	}
	p.endRun()
	for i := range p.runs {
		s := &p.runs[i].shape
		s.Put = s.Log && s.Only() && !p.reads
		s.Admit = p.gathers(p.runs[i].rows, onceSecond, gathered)
		s.Mark = p.gathers(p.runs[i].rows, settleSecond, marked)
	}
	slices.SortFunc(p.cells, law.Cell.Compare)
	p.cells = slices.Compact(p.cells)
	return p.plan
}

// planner makes a plan out of groups.
type planner struct {
	*plan
	run     run                // the last one, which is not among the plan's yet
	written map[law.Cell]bool  // their log is written after the run, or what they remember is forgotten
	named   map[admission]bool // they are remembered, or settled, after the run
}

// endRun ends the run.
func (p *planner) endRun() {
	if len(p.run.rows) > 0 {
		p.runs = append(p.runs, p.run)
	}
	p.run = run{}
	clear(p.written)
	clear(p.named)
}

// add adds the group from i to j, in another run where it cannot be decided with
// those before it.
func (p *planner) add(i, j int) {
	rows := p.rows(i, j)
	if !p.together(p.ops[i:j], len(rows)) {
		p.endRun()
	}
	p.run.rows = append(p.run.rows, rows...)
	shape := &p.run.shape
	for k := i; k < j; k++ {
		op := &p.ops[k]
		p.cells = append(p.cells, op.Cell)
		shape.add(op)
		if op.Params.Kind == law.Log && op.Verb != law.Check && op.Verb != law.Block || op.Verb == law.Reset {
			p.written[op.Cell] = true
		}
		if op.ID != "" {
			p.named[admission{op.Cell, op.ID}] = true
		}
		p.reads = p.reads && op.Verb == law.Check
	}
	for k := range rows {
		shape.Single = shape.Single || rows[k].pass == single
		shape.Groups = shape.Groups || rows[k].pass == firstPass
		p.reads = p.reads && rows[k].pass == single
	}
}

// together reports whether a group of so many rows can be decided in the run: it fits,
// and does not depend on what is written only after it.
func (p *planner) together(group []law.Op, rows int) bool {
	if n := len(p.run.rows); n > 0 && n+rows > maxRows {
		return false
	}
	for k := range group {
		op := &group[k]
		if (op.Params.Kind == law.Log || op.ID != "") && p.written[op.Cell] || op.ID != "" &&
			p.named[admission{op.Cell, op.ID}] {
			return false
		}
	}
	return true
}

// fewAdmissions is up to how many are put in one by one: a statement that has to
// be prepared takes as long as these.
const fewAdmissions = 4

// gathered tells whether what is remembered of an op can be put in together with
// that of others: it needs no number of an entry.
func gathered(op *law.Op) bool {
	return op.Verb == law.Take && op.ID != "" && op.Params.Kind != law.Log
}

// marked tells whether what an op settles can be written together with what others do: it
// has no entry.
func marked(op *law.Op) bool { return op.Params.Kind != law.Log }

// gathers tells whether so many of the rows of a pass can be written together that it is
// worth it.
func (p *plan) gathers(rows []row, pass int, can func(*law.Op) bool) bool {
	n := 0
	for i := range rows {
		if rows[i].pass == pass && can(&p.ops[rows[i].op]) {
			n++
		}
	}
	return n > fewAdmissions
}

// has tells whether a run has what f says.
func (p *plan) has(f func(s *shape) bool) bool {
	return slices.ContainsFunc(p.runs, func(r run) bool { return f(&r.shape) })
}

// onlyCorrected returns the cells whose charges are corrected or extended, and no more.
func (p *plan) onlyCorrected() []law.Cell {
	others := map[law.Cell]bool{}
	for _, r := range p.runs {
		for _, row := range r.rows {
			switch op := &p.ops[row.op]; op.Verb {
			case law.Return, law.Settle, law.Renew, law.Extend:
			default:
				others[op.Cell] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(p.cells), func(c law.Cell) bool { return others[c] })
}

// add notes what an op needs.
func (s *shape) add(op *law.Op) {
	switch op.Verb {
	case law.Take:
		s.Once = s.Once || once(op)
		s.IDs = s.IDs || op.ID != ""
		s.Late = s.Late || op.Deferred
		s.Timed = s.Timed || op.Timed()
	case law.Check:
		s.Timed = s.Timed || op.Timed()
	case law.Return:
		s.Return = true
		s.More = s.More || op.Cost < 0
	case law.Settle:
		s.Settle, s.IDs, s.More = true, true, true
	case law.Extend:
		s.Extend, s.IDs = true, true
		s.Timed = s.Timed || op.Timed()
	case law.Renew:
		s.Renew = true
		return
	case law.Block:
		s.Block = true
		return
	case law.Reset:
		s.Reset = true
		return
	}
	switch op.Params.Kind {
	case law.Bucket:
		s.Bucket = true
	case law.Window:
		s.Window = true
	case law.Log:
		s.Log = true
	}
}

// rows returns the rows of the group from i to j. Charges that are only
// checked, on different cells, do not need to know of each other.
func (p *plan) rows(i, j int) []row {
	ops := p.ops[i:j]
	rows := make([]row, 0, 2*len(ops))
	repeated := false
	for k := range ops {
		first := slices.IndexFunc(ops, func(op law.Op) bool { return op.Cell == ops[k].Cell })
		repeated = repeated || first < k
		rows = append(rows, row{op: i + k, pos: k + 1, first: first + 1, size: len(ops)})
	}
	first, second := single, 0
	switch verb := ops[0].Verb; {
	case verb == law.Return || verb == law.Block || verb == law.Reset || verb == law.Renew:
		first = int(verb)
	case verb == law.Settle:
		first, second = settleFirst, settleSecond
	case verb == law.Extend:
		first, second = extendFirst, extendSecond
	case once(&ops[0]):
		first, second = onceFirst, onceSecond
	case len(ops) > 1 && (verb == law.Take || repeated):
		first, second = firstPass, secondPass
	}
	var print int64
	if first == onceFirst && ops[0].ID != "" {
		print = law.Fingerprint(ops)
	}
	for k := range rows {
		rows[k].pass, rows[k].print = first, print
	}
	for k := 0; k < len(ops) && second > 0; k++ {
		again := rows[k]
		again.pass = second
		rows = append(rows, again)
	}
	return rows
}

// numbers returns what a row carries, by paramNames.
func (p *plan) numbers(r row) (n [params]int64) {
	op := &p.ops[r.op]
	lp := &op.Params
	n = [params]int64{
		pPass: int64(r.pass), pPos: int64(r.pos), pFirst: int64(r.first), pSize: int64(r.size), pVerb: int64(op.Verb),
		pKind: int64(lp.Kind), pAnchor: int64(lp.Anchor), pUnit: lp.Unit, pCapacity: lp.Capacity, pStep: lp.Step,
		pDrain: max(lp.Drain, 1), pBlock: lp.Block, pHeal: lp.HealAfter(),
		pCost: op.Cost, pCount: op.Count, pCeiling: op.Ceiling, pTTL: op.TTL, pNow: op.Now,
		pB0: op.Window[0], pB1: op.Window[1], pB2: op.Window[2], pB3: op.Window[3], pFrom: op.From, pUntil: op.Until,
		pMade: op.At, pWas: op.Level, pReturned: op.Returned, pEntry: op.EntryNumber, pHistory: lp.History,
		pPrint: r.print, pGeneration: 0, // of a shared cell, which the procedures know still
	}
	if op.Partial {
		n[pPartial] = 1
	}
	if op.Deferred {
		n[pLate] = 1
	}
	if op.ID != "" {
		n[pGiven] = lp.Drain
	}
	return n
}
