package mysql

import (
	"slices"

	"github.com/headgate/headgate/law"
)

// The numbers that a row of a statement may carry, by the names that
// decide.tmpl knows them under.
const (
	pPass = iota
	pPos
	pFirst
	pSize
	pVerb
	pKind
	pAnchor
	pUnit
	pCapacity
	pStep
	pDrain
	pBlock
	pHeal
	pCost
	pCount
	pPartial
	pCeiling
	pTTL
	pNow
	pB0
	pB1
	pB2
	pB3
	pMade
	pWas
	pReturned
	pEntry
	pHistory
	pRow
	pLate
	pPrint
	pGiven // the drain as it is given, for a rule that is remembered
	pGeneration
	pID // the only text
	params
)

var paramNames = [params]string{
	pPass: "pass", pPos: "pos", pFirst: "first", pSize: "size", pVerb: "verb", pKind: "kind", pAnchor: "anchor",
	pUnit: "unit", pCapacity: "capacity", pStep: "step", pDrain: "drain", pBlock: "block", pHeal: "heal",
	pCost: "cost", pCount: "count", pPartial: "partial", pCeiling: "ceiling", pTTL: "ttl", pNow: "now",
	pB0: "b0", pB1: "b1", pB2: "b2", pB3: "b3", pMade: "made", pWas: "was", pReturned: "returned", pEntry: "entry",
	pHistory: "history", pRow: "row", pLate: "late", pPrint: "print", pGiven: "given", pGeneration: "generation", pID: "id",
}

func paramIndex(name string) int { return slices.Index(paramNames[:], name) }

// The passes of a row: see "sequence" in decide.tmpl.
const (
	single       = 0
	firstPass    = 1
	secondPass   = 2
	returnPass   = int(law.Return)
	settleFirst  = int(law.Settle)
	blockPass    = int(law.Block)
	resetPass    = int(law.Reset)
	renewPass    = int(law.Renew)
	onceFirst    = 8 // of a request with an ID, or one that may start late
	onceSecond   = 9
	settleSecond = 10
)

// passNames are the names of passes in decide.tmpl.
var passNames = map[string]int{
	"single": single, "first": firstPass, "second": secondPass, "return": returnPass, "settle first": settleFirst, "settle second": settleSecond,
	"block": blockPass, "reset": resetPass, "renew": renewPass, "once first": onceFirst, "once second": onceSecond,
}

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
	case onceFirst, settleFirst:
		return 0
	case secondPass, onceSecond, settleSecond:
		return 1
	}
	return 2
}

// tells tells whether a row answers an outcome, or nothing, instead of what it is
// made of.
func (r *row) tells() bool {
	switch r.pass {
	case onceFirst, onceSecond, settleFirst, settleSecond:
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
	rooms bool       // it is decided for each cell whether its limit is full
}

// newPlan leaves out the groups that are not valid, and says so in outs.
func newPlan(ops []law.Op, outs []law.Outcome) *plan {
	p := &plan{ops: ops, reads: true}
	touched := map[law.Cell]bool{} // the log of these is written after the run, or what they remember is forgotten
	var named map[admission]bool   // these are remembered, or settled, after the run
	r := run{}
	end := func() {
		if len(r.rows) > 0 {
			p.runs = append(p.runs, r)
		}
		r = run{}
		clear(touched)
		clear(named)
	}
	group := func(i, j int) {
		rows := p.rows(i, j)
		full := len(r.rows) > 0 && len(r.rows)+len(rows) > maxRows
		for k := i; k < j && !full; k++ {
			op := &ops[k]
			full = (op.Params.Kind == law.Log || op.ID != "") && touched[op.Cell] || op.ID != "" && named[admission{op.Cell, op.ID}]
		}
		if full {
			end()
		}
		r.rows = append(r.rows, rows...)
		for k := i; k < j; k++ {
			op := &ops[k]
			p.cells = append(p.cells, op.Cell)
			r.shape.add(op)
			if op.Params.Kind == law.Log && op.Verb != law.Check && op.Verb != law.Block || op.Verb == law.Reset {
				touched[op.Cell] = true
			}
			if op.ID != "" {
				if named == nil {
					named = map[admission]bool{}
				}
				named[admission{op.Cell, op.ID}] = true
			}
			p.reads = p.reads && op.Verb == law.Check
		}
		for k := range rows {
			r.shape.Single = r.shape.Single || rows[k].pass == single
			r.shape.Groups = r.shape.Groups || rows[k].pass == firstPass
			p.reads = p.reads && rows[k].pass == single
		}
	}
	for i := 0; i < len(ops); {
		j := law.GroupEnd(ops, i)
		if err := law.ValidGroup(ops[i:j]); err != nil {
			for ; i < j; i++ {
				outs[i] = law.Outcome{Err: err}
			}
			continue
		}
		for ; (ops[i].Verb == law.Return || ops[i].Verb == law.Renew) && i < j-1; i++ {
			group(i, i+1) // of these each stands alone
		}
		group(i, j)
		i = j
	}
	end()
	for i := range p.runs {
		s := &p.runs[i].shape
		s.Put = s.Log && s.Only() && !p.reads
		s.Admit = p.gathers(p.runs[i].rows)
	}
	slices.SortFunc(p.cells, law.Cell.Compare)
	p.cells = slices.Compact(p.cells)
	return p
}

// has tells whether a run has what f says.
func (p *plan) has(f func(s *shape) bool) bool {
	return slices.ContainsFunc(p.runs, func(r run) bool { return f(&r.shape) })
}

// mayBeFull reports whether it is to be decided for each cell whether its limit is full,
// also where none is known to be: shared cells are named, or there are rows that do not
// begin as a charge does, where that is noticed.
func (p *plan) mayBeFull() bool {
	return p.has(func(s *shape) bool { return s.Return || s.Block || s.Renew }) ||
		slices.ContainsFunc(p.ops, func(op law.Op) bool { return law.IsShared(op.Cell) })
}

// onlyCorrected returns the cells whose charges are corrected, and no more.
func (p *plan) onlyCorrected() []law.Cell {
	others := map[law.Cell]bool{}
	for _, r := range p.runs {
		for _, row := range r.rows {
			if op := &p.ops[row.op]; op.Verb != law.Return && op.Verb != law.Settle && op.Verb != law.Renew {
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
	case law.Return:
		s.Return = true
		s.More = s.More || op.Cost < 0
	case law.Settle:
		s.Settle, s.IDs, s.More = true, true, true
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
		int64(r.pass), int64(r.pos), int64(r.first), int64(r.size), int64(op.Verb), int64(lp.Kind), int64(lp.Anchor),
		lp.Unit, lp.Capacity, lp.Step, max(lp.Drain, 1), lp.Block, lp.HealAfter(),
		op.Cost, op.Count, 0, op.Ceiling, op.TTL, op.Now, op.Window[0], op.Window[1], op.Window[2], op.Window[3],
		op.At, op.Level, op.Returned, op.EntryNumber, lp.History, 0, 0, r.print, 0, 0,
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
	n[pGeneration] = law.Generation(op.Cell)
	return n
}
