package redis

import (
	"crypto/sha1" //nolint:gosec // the name that Redis knows a script by
	_ "embed"
	"encoding/hex"
	"slices"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/law"
)

var (
	//go:embed cells.lua
	cellsText string
	//go:embed ops.lua
	opsText string
	//go:embed laws.lua
	lawsText string
	//go:embed returns.lua
	returnsText string
	//go:embed apply.lua
	applyText string
	//go:embed giveback.lua
	giveBackText string
)

// script is a Lua script and the name that Redis knows it by.
type script struct{ text, sha string }

func newScript(text string) script {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // see the import
	return script{text, hex.EncodeToString(sum[:])}
}

var (
	sharedText     = cellsText + opsText + lawsText
	applyScript    = newScript(sharedText + applyText)
	returnScript   = newScript(sharedText + returnsText + applyText)
	giveBackScript = newScript(sharedText + returnsText + giveBackText)
)

// call is one call of a script: keys in one slot, and the ops it answers.
type call struct {
	script script
	keys   []string // of each cell, and of its log
	args   []string
	index  []int // of each op, in the caller's slice
}

// command returns the call by the script's name, or with its text when the
// server does not know it.
func (c *call) command(b rueidis.Builder, withText bool) rueidis.Completed {
	if withText {
		return b.Eval().Script(c.script.text).Numkeys(int64(len(c.keys))).Key(c.keys...).Arg(c.args...).Build()
	}
	return b.Evalsha().Sha1(c.script.sha).Numkeys(int64(len(c.keys))).Key(c.keys...).Arg(c.args...).Build()
}

// encode returns a call of apply.lua for some of the ops, in their order.
// onTrial asks for one request, to be given back if need be.
func (s *Store) encode(ops []law.Op, index []int, onTrial bool) *call {
	trial := "0"
	if onTrial {
		trial = "1"
	}
	script := applyScript
	if slices.ContainsFunc(index, func(i int) bool { return ops[i].Verb == law.Return }) {
		script = returnScript
	}
	return s.call(script, []string{trial}, ops, index)
}

// call writes the arguments of a script: the limits and the ops, then its own.
func (s *Store) call(script script, own []string, ops []law.Op, index []int) *call {
	c := &call{script: script, index: index}
	cells := make(map[law.Cell]int, len(index))
	limits := make(map[law.Params]int, 4)
	var params, list []string
	number := func(to *[]string, values ...int64) {
		for _, v := range values {
			*to = append(*to, strconv.FormatInt(v, 10))
		}
	}
	group := int64(0)
	for n, i := range index {
		op := &ops[i]
		if n == 0 || !together(ops, index[n-1], i) {
			group++
		}
		cell, ok := cells[op.Cell]
		if !ok {
			cell = len(cells) + 1
			cells[op.Cell] = cell
			c.keys = append(c.keys, s.cellKey(op.Cell), s.logKey(op.Cell))
		}
		limit, ok := limits[op.Params]
		if !ok {
			limit = len(limits) + 1
			limits[op.Params] = limit
			p := &op.Params
			number(&params, int64(p.Kind), int64(p.Anchor), p.Unit, p.Capacity, p.Step, max(p.Drain, 1), p.Block, p.History, p.HealAfter())
		}
		partial := int64(0)
		if op.Partial {
			partial = 1
		}
		number(&list, int64(op.Verb), group, int64(cell), int64(limit), op.Cost, op.Count, partial, op.Ceiling, op.TTL, op.Now,
			op.Bounds[0], op.Bounds[1], op.Bounds[2], op.Bounds[3])
		if op.Verb == law.Return {
			number(&list, op.At, op.Returned, op.Entry)
		}
		if op.Verb == law.Block {
			list = append(list, op.Reason)
		} else {
			list = append(list, op.ID)
		}
	}
	c.args = append(s.head(), strconv.Itoa(len(limits)))
	c.args = append(c.args, params...)
	c.args = append(c.args, strconv.Itoa(len(index)))
	c.args = append(c.args, list...)
	c.args = append(c.args, own...)
	return c
}

// together tells whether op i and a later one, j, are of one request, of which
// others may stand between them.
func together(ops []law.Op, i, j int) bool {
	for ; i < j; i++ {
		if ops[i].Group != ops[i+1].Group {
			return false
		}
	}
	return true
}

// head are the arguments that every script begins with.
func (s *Store) head() []string {
	return []string{strconv.FormatInt(slack.Milliseconds(), 10), strconv.Itoa(s.cfg.MaxHistory)}
}

// width is how many numbers apply.lua returns for an op.
const width = 13

func decode(n []int64) law.Outcome {
	return law.Outcome{
		Granted: n[0], State: decodeState(n[1:]), Used: n[8], Clock: n[9], RetryAt: n[10], Entry: n[11], Stale: n[12] != 0,
	}
}

func decodeState(n []int64) law.State {
	return law.State{Kind: law.Kind(n[0]), Level: n[1], Prev: n[2], At: n[3], Unit: n[4], EmptyAt: n[5], BlockedUntil: n[6]}
}
