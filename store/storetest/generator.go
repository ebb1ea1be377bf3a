package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/headgate/headgate/law"
)

// generator makes random batches: groups, repeated keys, limits that change, a clock that steps back and forth.
type generator struct {
	*rand.Rand
	now  int64
	keys []string

	receipts []receipt  // the last admitted charges, to return or renew
	requests [][]law.Op // the last requests with an ID
	ids      int        // how many IDs, or new keys, were made so far
}

// receipt is an admitted charge.
type receipt struct {
	op         law.Op
	out        law.Outcome // the oracle's, with its number of the entry in the log
	storeEntry int64       // the store's number of the entry
}

// steadyParams are the parameters of limits that keep them. The limit "changing" has any of them.
var steadyParams = []law.Params{
	{Kind: law.Bucket, Unit: 1000, Capacity: 5000, Step: 1, Drain: 1},
	{Kind: law.Bucket, Unit: 7000, Capacity: 35000, Step: 1000, Drain: 3, Block: 5000},
	{Kind: law.Bucket, Anchor: law.Epoch, Unit: 1000, Capacity: 5000, Step: 20000, Drain: law.Max},
	{Kind: law.Bucket, Anchor: law.Calendar, Unit: 1000, Capacity: 5000, Step: 20000, Drain: law.Max},
	{Kind: law.Bucket, Unit: 86_400_000_000, Capacity: 864_000_000_000, Step: 1, Drain: 100_001},
	{Kind: law.Window, Unit: 1000, Capacity: 5000, Step: 10000},
	{Kind: law.Window, Unit: 10, Capacity: 50, Step: 3_000_000},
	{Kind: law.Log, Unit: 1000, Capacity: 5000, Step: 10000},
	{Kind: law.Log, Unit: 1000, Capacity: 5000, Step: 10000, History: 50000, Block: 3000},
}

// deferrableParams are the indices in steadyParams of limits under which a charge can start later.
var deferrableParams = []int{0, 1, 4}

// batch returns a random batch of up to four groups.
func (g *generator) batch() (ops []law.Op) {
	verbs := []law.Verb{law.Take, law.Take, law.Take, law.Take, law.Take, law.Check, law.Block, law.Reset}
	if len(g.receipts) > 0 {
		verbs = append(verbs, law.Return, law.Return, law.Renew)
	}
	if len(g.requests) > 0 {
		verbs = append(verbs, law.Settle, law.Extend)
	}
	for group := range uint32(1 + g.IntN(4)) {
		verb, size := verbs[g.IntN(len(verbs))], 1
		if g.IntN(3) == 0 {
			size = 1 + g.IntN(3)
		}
		var request []law.Op
		switch {
		case verb == law.Return:
			for range size {
				request = append(request, g.returnOp())
			}
		case verb == law.Renew:
			request = append(request, g.renew())
		case verb == law.Settle:
			request = g.settle()
		case verb == law.Extend:
			request = g.extend()
		case verb == law.Take && len(g.requests) > 0 && g.IntN(6) == 0:
			request = g.repeat()
		default:
			request = g.newRequest(verb, size)
		}
		for i := range request {
			request[i].Group = group + 1
			g.setTime(&request[i])
		}
		ops = append(ops, request...)
	}
	return ops
}

// newRequest returns a request of size ops with one verb, sometimes one that may start later or has an ID.
func (g *generator) newRequest(verb law.Verb, size int) (ops []law.Op) {
	changedParams := steadyParams[g.IntN(len(steadyParams))]
	deferred := verb == law.Take && g.IntN(5) == 0
	wait := g.Int64N(20_000)
	overrides := map[law.Cell]law.Params{}
	for range size {
		limit, p := "changing", changedParams
		if deferred || g.IntN(2) == 0 {
			n := g.IntN(len(steadyParams))
			if deferred {
				n = deferrableParams[g.IntN(len(deferrableParams))]
			}
			limit, p = string(rune('a'+n)), steadyParams[n]
		}
		op := g.op(verb, limit, p, size == 1 && !deferred)
		if limit == "changing" { // one key has one limit in a request, but each may have another
			if override, ok := overrides[op.Cell]; ok {
				op.Params = override
			} else if g.IntN(3) == 0 {
				op.Params = steadyParams[g.IntN(len(steadyParams))]
			}
			overrides[op.Cell] = op.Params
		}
		if op.Deferred = deferred; deferred {
			op.Ceiling = p.Ceiling(wait)
		}
		ops = append(ops, op)
	}
	if (verb == law.Take || verb == law.Check) && size > 1 && !deferred && g.IntN(3) == 0 {
		g.setAlternatives(ops)
	}
	if verb == law.Take && !ops[0].Partial && g.IntN(4) == 0 {
		g.ids++
		id, ttl := fmt.Sprint("id ", g.ids), int64(60*sec)<<g.IntN(5)
		for i := range ops {
			ops[i].ID, ops[i].TTL = id, ttl
		}
		g.requests = append(g.requests, ops)
		g.requests = g.requests[max(0, len(g.requests)-8):]
	}
	return ops
}

// setAlternatives makes alternatives of the ops of a request: one, or as many as there are ops.
func (g *generator) setAlternatives(ops []law.Op) {
	for i := range ops {
		ops[i].Alternative = 1
		if i > 0 {
			ops[i].Alternative = ops[i-1].Alternative + uint8(g.IntN(2)) //nolint:gosec // few
		}
	}
}

// plainParams are the indices in steadyParams of limits whose charges can be plain and that never block.
var plainParams = [...]int{0, 2, 4}

// plainBatch returns a batch of plain charges, mostly at one time, as coalesced callers send them. A request has up to
// three charges, often of one cell. Now and then the batch is a block of a cell instead.
func (g *generator) plainBatch() (ops []law.Op) {
	if g.IntN(12) == 0 {
		n := plainParams[g.IntN(len(plainParams))]
		block := g.op(law.Block, string(rune('a'+n)), steadyParams[n], false)
		block.TTL = g.Int64N(100_000) // beyond the time at which the cell is empty
		g.setTime(&block)
		return []law.Op{block}
	}
	for group := range uint32(1 + g.IntN(8)) {
		size := max(1, g.IntN(6)-2)
		for range size {
			n := plainParams[g.IntN(len(plainParams))]
			op := g.op(law.Take, string(rune('a'+n)), steadyParams[n], size == 1)
			if g.IntN(2) == 0 {
				op.Count = 1
			}
			if g.IntN(3) > 0 {
				op.Ceiling = 0
			}
			if size == 1 && g.IntN(4) == 0 {
				g.ids++
				op.Cell.Key = fmt.Sprint("new ", g.ids-g.IntN(2))
			}
			op.Group = group + 1
			ops = append(ops, op)
		}
		if size > 1 && g.IntN(8) == 0 {
			g.setAlternatives(ops[len(ops)-size:])
		}
	}
	g.setTime(&ops[0])
	for i := range ops {
		if ops[i].Now = ops[0].Now; g.IntN(40) == 0 {
			g.setTime(&ops[i])
		}
	}
	return ops
}

// repeat returns an earlier request with an ID. Some of the requests get another cost, or may no longer start later.
func (g *generator) repeat() []law.Op {
	ops := slices.Clone(g.requests[g.IntN(len(g.requests))])
	if g.IntN(3) == 0 {
		for i := range ops {
			ops[i].Deferred, ops[i].Ceiling = false, 0
		}
	}
	if g.IntN(6) == 0 {
		ops[0].Cost++
	}
	return ops
}

// someCharges returns some charges of an earlier request with an ID.
func (g *generator) someCharges() []law.Op {
	ops := slices.Clone(g.requests[g.IntN(len(g.requests))])
	if i := g.IntN(len(ops)); ops[i].Alternative > 0 { // mostly of one alternative
		j := law.AlternativeEnd(ops, i)
		ops = ops[i:j:j]
	}
	for i := range ops {
		ops[i].Alternative = 0
	}
	g.Shuffle(len(ops), func(i, j int) { ops[i], ops[j] = ops[j], ops[i] })
	return ops[:1+g.IntN(len(ops))]
}

// settle returns ops that settle or cancel charges.
func (g *generator) settle() []law.Op {
	ops := g.someCharges()
	for i := range ops {
		op := &ops[i]
		cost := []int64{0, law.Cancelled, op.Cost * op.Count, g.Int64N(2*op.Cost*op.Count + 1)}[g.IntN(4)]
		*op = law.Op{Verb: law.Settle, Cell: op.Cell, Params: op.Params, ID: op.ID, Cost: cost, Count: 1}
	}
	return ops
}

// extend returns ops that extend charges.
func (g *generator) extend() []law.Op {
	ops := g.someCharges()
	for i := range ops {
		op := &ops[i]
		op.Verb, op.Deferred, op.Ceiling = law.Extend, false, 0
		op.Cost, op.Count = op.Cost*op.Count+g.Int64N(2*op.Params.Unit), 1
		if g.IntN(6) == 0 { // it leaves headroom
			op.Ceiling = 1 + g.Int64N(op.Params.Capacity)
		}
	}
	return ops
}

// renew returns an op that prolongs an entry, which it names by the oracle's number.
func (g *generator) renew() law.Op {
	r := &g.receipts[g.IntN(len(g.receipts))]
	p := r.op.Params
	p.Step = max(1, p.Step/int64(1+g.IntN(3))) // the limit may have another time to live by now
	return law.Op{Verb: law.Renew, Cell: r.op.Cell, Params: p, EntryNumber: r.out.EntryNumber}
}

// op returns a random op. Only an op that is alone in its request may be a partial take.
func (g *generator) op(verb law.Verb, limit string, p law.Params, alone bool) law.Op {
	op := law.Op{
		Verb: verb, Params: p, Cell: law.Cell{Limit: limit, Key: g.keys[g.IntN(len(g.keys))]},
		Cost: 1 + g.Int64N(3*p.Unit), Count: 1 + g.Int64N(3), Partial: alone && g.IntN(3) == 0,
	}
	switch g.IntN(8) {
	case 0:
		op.Ceiling = p.Capacity * 3
	case 1: // it leaves headroom
		op.Ceiling = 1 + g.Int64N(p.Capacity)
	case 2: // it is charged whatever the level
		op.Ceiling = p.Highest()
	}
	if verb == law.Block {
		op.TTL, op.Reason = g.Int64N(3)*10000, "because"
	}
	return op
}

// returnOp returns an op that returns some or all of a charge, or charges more. It names the entry by the oracle's
// number, which testModel replaces by the store's number.
func (g *generator) returnOp() law.Op {
	r := &g.receipts[g.IntN(len(g.receipts))]
	credits := 1 + g.Int64N(r.op.Cost*r.out.Granted)
	if g.IntN(4) == 0 {
		credits = -credits
	}
	return law.Back(&r.op, &r.out, credits)
}

// addReceipts keeps receipts of the charges that a batch has admitted.
func (g *generator) addReceipts(ops []law.Op, got, want []law.Outcome) {
	for i := 0; i < len(ops); {
		j, admitted := law.AlternativeEnd(ops, i), ops[i].Verb == law.Take
		for k := i; k < j; k++ {
			admitted = admitted && !want[k].Stale && want[k].Err == nil && want[k].Granted > 0 &&
				(want[k].Granted == ops[k].Count || ops[k].Partial)
		}
		for k := i; k < j && admitted; k++ {
			g.receipts = append(g.receipts, receipt{ops[k], want[k], got[k].EntryNumber})
		}
		i = j
	}
	g.receipts = g.receipts[max(0, len(g.receipts)-12):]
}

// storeNumber returns the store's number of an entry by the oracle's number, or 0 if there is no receipt.
func (g *generator) storeNumber(entry int64) int64 {
	for _, r := range g.receipts {
		if r.out.EntryNumber == entry {
			return r.storeEntry
		}
	}
	return 0
}

// setTime moves the clock, and sets an op's time, calendar window and the range of times in which it holds.
func (g *generator) setTime(op *law.Op) {
	switch g.IntN(120) {
	case 0:
		g.now -= 3_000_000 + g.Int64N(30_000_000)
	case 1:
		g.now += g.Int64N(30_000_000)
	case 2, 3, 4, 5, 6, 7, 8, 9:
		g.now -= g.Int64N(30000)
	default:
		g.now += g.Int64N(4000)
	}
	op.Now = g.now
	begin := op.Now - op.Now%20000
	op.Window = [4]int64{begin - 20000, begin, begin + 20000, begin + 40000}
	switch g.IntN(20) {
	case 0: // the window of another month
		op.Window = [4]int64{begin - 60000, begin - 50000, begin - 40000, begin - 30000}
	case 1: // the window of another time zone
		op.Window = [4]int64{begin - 25000, begin - 5000, begin + 21000, begin + 40000}
	}
	if op.Verb != law.Take && op.Verb != law.Check {
		return
	}
	switch g.IntN(30) { // the op holds from or until a time, which may be past
	case 0:
		op.From = max(0, op.Now+g.Int64N(40_000)-20_000)
	case 1:
		op.Until = max(1, op.Now+g.Int64N(40_000)-20_000)
	case 2:
		op.From, op.Until = op.Now, op.Now+1+g.Int64N(2)
	case 3:
		op.From, op.Until = max(0, op.Now-g.Int64N(2)), max(1, op.Now)
	}
}
