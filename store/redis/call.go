package redis

import (
	"context"
	"encoding/binary"
	"slices"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// call is a call of a script.
type call struct {
	script      script
	keys        []string // all in one slot; for ops: their cells, then the keys that addOpKeys adds
	args        []string
	index       []int // for each op that batch.lua or giveback.lua is to decide: its index in the caller's slice
	*plainCells       // nil: the script has no groups.lua
}

// command returns the command that makes the call: with the script's text, or else with its name.
func (c *call) command(b rueidis.Builder, withText bool) rueidis.Completed {
	if withText {
		return b.Eval().Script(c.script.text).Numkeys(int64(len(c.keys))).Key(c.keys...).Arg(c.args...).Build()
	}
	return b.Evalsha().Sha1(c.script.sha).Numkeys(int64(len(c.keys))).Key(c.keys...).Arg(c.args...).Build()
}

// mode says how a call is decided. A call on trial is the part of a request that lies in one slot; its charges may have
// to be given back.
type mode int64

const (
	forGood mode = iota
	onTrial
)

// encode returns a call of batch.lua for some of the ops, in their order.
func (s *Store) encode(ops []law.Op, index []int, how mode) *call {
	var n needs
	for _, i := range index {
		n |= needsOf(&ops[i])
	}
	if how == forGood && slices.ContainsFunc(index, func(i int) bool { return isPlainOp(&ops[i]) }) {
		return s.groupsCall(batchScripts[n|needsGroups](), ops, index)
	}
	return s.opsCall(batchScripts[n](), nil, ops, index, how)
}

// opsCall returns a call of a script that decides ops. Its first argument describes the ops; extraArgs follow, then the
// arguments that addOpKeys adds.
func (s *Store) opsCall(script script, extraArgs []string, ops []law.Op, index []int, how mode) *call {
	c := &call{
		script: script, index: index, keys: make([]string, len(index), len(index)+4),
		args: make([]string, 1, 1+len(extraArgs)),
	}
	c.args = append(c.args, extraArgs...)
	params := paramTable{doubles: make(doubles, headSize, headSize+paramsSize+48)}
	var runs doubles
	group, fingerprint := int64(0), int64(0)
	for n, i := range index {
		op := &ops[i]
		c.keys[n] = s.cellKey(op.Cell)
		if n == 0 || !sameRequest(ops, index[n-1], i) {
			group++
		}
		if isTakeWithID(op) && (n == 0 || !sameAlternative(ops, index[n-1], i)) {
			fingerprint = law.Fingerprint(requestOf(ops, i))
		}
		next := run{params: params.find(ops, i), ops: 1, group: group}
		next.log, next.note = c.addOpKeys(s, op, fingerprint, how)
		runs.addRun(next)
	}
	head := params.doubles[:0]
	head.add(s.slack.Milliseconds(), s.maxEntries, int64(how), int64(len(params.doubles)+1))
	c.args[0] = rueidis.BinaryString(append(params.doubles, runs...))
	return c
}

// groupsCall returns a call of a script that contains groups.lua.
func (s *Store) groupsCall(script script, ops []law.Op, index []int) *call {
	plain, cells := findPlain(ops, index)
	c := &call{
		script: script, index: index, plainCells: plain, keys: make([]string, len(cells), len(index)+4),
		args: make([]string, 2, 4),
	}
	for n, cell := range cells {
		c.keys[n] = s.cellKey(cell)
	}
	for n, i := range index {
		if plain.cell[n] == 0 {
			c.keys = append(c.keys, s.cellKey(ops[i].Cell))
		}
	}
	params := paramTable{doubles: make(doubles, headSize, headSize+paramsSize+96)}
	var runs runWriter
	var cellNumbers []byte
	for n, group := 0, int64(1); n < len(index); group++ {
		end := requestEnd(ops, index, n)
		if plain.cell[n] == 0 {
			runs.flush()
			for fingerprint := int64(0); n < end; n++ {
				if isTakeWithID(&ops[index[n]]) && (fingerprint == 0 || !sameAlternative(ops, index[n-1], index[n])) {
					fingerprint = law.Fingerprint(requestOf(ops, index[n]))
				}
				next := run{params: params.find(ops, index[n]), ops: 1, group: group}
				next.log, next.note = c.addOpKeys(s, &ops[index[n]], fingerprint, forGood)
				runs.addRun(next)
			}
			continue
		}
		runs.nextShape = runs.nextShape[:0]
		for ; n < end; n++ {
			runs.nextShape = append(runs.nextShape, params.find(ops, index[n]))
			cellNumbers = binary.LittleEndian.AppendUint32(cellNumbers, uint32(plain.cell[n])) //nolint:gosec // above 0
		}
		runs.addRequest()
	}
	runs.flush()
	head := params.doubles[:0]
	head.add(s.slack.Milliseconds(), s.maxEntries, int64(forGood), int64(len(params.doubles)+1))
	c.args[0] = rueidis.BinaryString(append(params.doubles, runs.doubles...))
	c.args[1] = rueidis.BinaryString(cellNumbers)
	return c
}

// isTakeWithID reports whether an op belongs to a request with an ID, which is charged once.
func isTakeWithID(op *law.Op) bool { return op.Verb == law.Take && op.ID != "" }

// requestOf returns the whole request of op i, or its whole alternative. A call may have only the part in one slot.
func requestOf(ops []law.Op, i int) []law.Op {
	start := i
	for start > 0 && sameAlternative(ops, start-1, i) {
		start--
	}
	return ops[start:law.AlternativeEnd(ops, i)]
}

// sameAlternative reports whether op i and the later op j belong to one request, and to one alternative of it.
func sameAlternative(ops []law.Op, i, j int) bool {
	return sameRequest(ops, i, j) && ops[i].Alternative == ops[j].Alternative
}

// addOpKeys adds the keys and arguments that only this op needs, and returns where they begin; 0: there are none. The
// keys, from log on, are the log of the cell, its register and its receipt of the ID; without an ID only a Reset, an op
// on trial and one that gives a trial back have a register. The arguments, from note on, are for a Take the ID, the
// fingerprint and the terms, for an Extend the ID and the terms, for a Settle the terms, and for a Block the reason.
func (c *call) addOpKeys(s *Store, op *law.Op, fingerprint int64, how mode) (log, note int64) {
	hasID := op.ID != "" && (op.Verb == law.Take || op.Verb == law.Extend || op.Verb == law.Settle ||
		op.Verb == law.Return)
	if op.Params.Kind != law.Log && op.Verb != law.Block && op.Verb != law.Reset && !hasID && how == forGood {
		return 0, 0
	}
	c.keys = append(c.keys, s.logKey(op.Cell))
	log = int64(len(c.keys))
	switch {
	case hasID:
		c.keys = append(c.keys, s.registerKey(op.Cell), s.receiptKey(op.Cell, op.ID))
	case op.Verb == law.Reset, how == onTrial:
		c.keys = append(c.keys, s.registerKey(op.Cell))
	}
	switch {
	case isTakeWithID(op):
		c.args = append(c.args, op.ID, strconv.FormatInt(fingerprint, 10), op.Params.Terms().String())
		note = int64(len(c.args)) - 2
	case op.Verb == law.Extend:
		c.args = append(c.args, op.ID, op.Params.Terms().String())
		note = int64(len(c.args)) - 1
	case op.Verb == law.Settle:
		c.args = append(c.args, op.Params.Terms().String())
		note = int64(len(c.args))
	case op.Verb == law.Block && op.Reason != "":
		c.args = append(c.args, op.Reason)
		note = int64(len(c.args))
	}
	return log, note
}

// decode sets the outcomes of the call's ops from the answer v of batch.lua.
func (c *call) decode(v string, ops []law.Op, outs []law.Outcome) error {
	if c.plainCells != nil {
		return c.plainCells.decode(c.index, v, ops, outs)
	}
	if len(v) < 8 {
		return errAnswer
	}
	return decodeOps(v[8:], c.index, outs)
}

// applyLone decides a batch of one plain charge by lone.lua. If it reports false, nothing was done: batch.lua decides.
func (s *Store) applyLone(ctx context.Context, ops []law.Op, outs []law.Outcome) (decided bool, err error) {
	if !s.isLone(ops) {
		return false, nil
	}
	op := &ops[0]
	c := s.loneCall(op)
	retries, err := store.Retry(ctx, s.cfg.RetryFor, func() error {
		v, err := s.sendOne(ctx, c).ToString()
		if err == nil {
			decided, err = decodeLone(v, op, &outs[0])
		}
		return err
	}, mayRetry)
	s.noteRetries(retries, err)
	if err != nil {
		err = classify("apply 1 ops", err)
		outs[0] = law.Outcome{Err: err}
		return true, err
	}
	return decided, nil
}

// isLone reports whether lone.lua may decide a batch.
func (s *Store) isLone(ops []law.Op) bool {
	return len(ops) == 1 && isPlainOp(&ops[0]) && s.checkRequest(ops) == nil
}

// loneCall returns the call of lone.lua for an op.
func (s *Store) loneCall(op *law.Op) *call {
	var numbers [16]int64
	packed := make(doubles, 0, 8*(1+len(loneParams)))
	packed.add(s.slack.Milliseconds())
	packed.add(loneParams.Append(numbers[:0], op)...)
	terms := make([]byte, 0, 32)
	terms = strconv.AppendInt(terms, op.Params.Unit, 10)
	terms = append(terms, ' ')
	terms = strconv.AppendInt(terms, op.Params.Step, 10)
	return &call{
		script: loneScript, keys: []string{s.cellKey(op.Cell)},
		args: []string{rueidis.BinaryString(packed), rueidis.BinaryString(terms)},
	}
}

// sendOne makes one call by the script's name, on the lane if that is free. It repeats the call with the script's text
// if the server does not know the name.
func (s *Store) sendOne(ctx context.Context, c *call) rueidis.RedisResult {
	var client rueidis.CoreClient = s.client
	conn := s.lane.acquire(ctx)
	if conn != nil {
		client = conn
	}
	res := client.Do(ctx, c.command(s.client.B(), false))
	if noScript(res.Error()) {
		res = client.Do(ctx, c.command(s.client.B(), true))
	}
	if conn != nil {
		s.lane.release(res.NonRedisError() == nil && !mayRetry(res.Error()))
	}
	return res
}

// decodeLone sets the outcome of op from the answer of lone.lua. It reports false if batch.lua has to decide: the cell
// is not plain, or after a refusal it has to be blocked, or a part of the cost may fit. Nothing was done then.
func decodeLone(v string, op *law.Op, out *law.Outcome) (decided bool, err error) {
	if v == "" {
		return false, nil
	}
	if len(v) < 9 {
		return false, errAnswer
	}
	sign, clock, cell := v[0], double(v[1:]), v[9:]
	if op.Now != 0 {
		clock = op.Now
	}
	var st law.State
	if cell != "" {
		n, rest, ok := parseNumbers(cell)
		if !ok || rest != "" {
			return false, errAnswer
		}
		st = decodeState(n[:])
	}
	switch {
	case sign == '+' && cell != "":
		*out = law.Outcome{Granted: op.Count, State: st, Used: st.Level, Clock: clock}
		return true, nil
	case sign != '-':
		return false, errAnswer
	case op.Partial || op.Params.Block > 0:
		return false, nil
	}
	d := law.Decide(st, op, clock, 0, nil)
	if d.Moved || d.Outcome.Granted > 0 {
		return false, errAnswer
	}
	*out = d.Outcome
	out.State = st
	return true, nil
}
