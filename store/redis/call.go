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

// call is a call of a script: keys in one slot, and the ops it answers.
type call struct {
	script      script
	keys        []string // of each op its cell, then what some have of their own
	args        []string
	index       []int // of each op, in the caller's slice
	*plainCells       // nil: the script has no groups.lua
}

// command returns the call by the script's name, or with its text when the
// server does not know it.
func (c *call) command(b rueidis.Builder, withText bool) rueidis.Completed {
	if withText {
		return b.Eval().Script(c.script.text).Numkeys(int64(len(c.keys))).Key(c.keys...).Arg(c.args...).Build()
	}
	return b.Evalsha().Sha1(c.script.sha).Numkeys(int64(len(c.keys))).Key(c.keys...).Arg(c.args...).Build()
}

// mode is how a call is decided. One on trial is the part of a request that lies in
// one slot, and may have to be given back.
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
	if how == forGood && slices.ContainsFunc(index, func(i int) bool { return plain(&ops[i]) }) {
		return s.groupsCall(scripts[n|needsGroups](), ops, index)
	}
	return s.call(scripts[n](), nil, ops, index, how)
}

// call writes the arguments of a script: the ops, then its own.
func (s *Store) call(script script, own []string, ops []law.Op, index []int, how mode) *call {
	c := &call{
		script: script, index: index, keys: make([]string, len(index), len(index)+4),
		args: make([]string, 1, 1+len(own)),
	}
	c.args = append(c.args, own...)
	what := asked{doubles: make(doubles, headSize, headSize+askSize+48)}
	var runs doubles
	group, print := int64(0), int64(0)
	for n, i := range index {
		op := &ops[i]
		c.keys[n] = s.cellKey(op.Cell)
		if n == 0 || !together(ops, index[n-1], i) {
			group++
			if once(op) {
				print = law.Fingerprint(whole(ops, i))
			}
		}
		next := run{asked: what.find(ops, i), ops: 1, group: group}
		next.log, next.note = c.own(s, op, print, how)
		runs.run(next)
	}
	head := what.doubles[:0]
	head.add(s.slack.Milliseconds(), s.history, int64(how), int64(len(what.doubles)+1))
	c.args[0] = rueidis.BinaryString(append(what.doubles, runs...))
	return c
}

// groupsCall writes the arguments of a script with groups.lua.
func (s *Store) groupsCall(script script, ops []law.Op, index []int) *call {
	g, cells := findPlain(ops, index)
	c := &call{
		script: script, index: index, plainCells: g, keys: make([]string, len(cells), len(index)+4),
		args: make([]string, 2, 4),
	}
	for n, cell := range cells {
		c.keys[n] = s.cellKey(cell)
	}
	for n, i := range index {
		if g.cell[n] == 0 {
			c.keys = append(c.keys, s.cellKey(ops[i].Cell))
		}
	}
	what := asked{doubles: make(doubles, headSize, headSize+askSize+96)}
	var runs shapes
	var numbers []byte
	for n, group := 0, int64(1); n < len(index); group++ {
		m := requestEnd(ops, index, n)
		if g.cell[n] == 0 {
			runs.flush()
			print := int64(0)
			if once(&ops[index[n]]) {
				print = law.Fingerprint(whole(ops, index[n]))
			}
			for ; n < m; n++ {
				op := run{asked: what.find(ops, index[n]), ops: 1, group: group}
				op.log, op.note = c.own(s, &ops[index[n]], print, forGood)
				runs.run(op)
			}
			continue
		}
		runs.next = runs.next[:0]
		for ; n < m; n++ {
			runs.next = append(runs.next, what.find(ops, index[n]))
			numbers = binary.LittleEndian.AppendUint32(numbers, uint32(g.cell[n])) //nolint:gosec // more than 0
		}
		runs.request()
	}
	runs.flush()
	head := what.doubles[:0]
	head.add(s.slack.Milliseconds(), s.history, int64(forGood), int64(len(what.doubles)+1))
	c.args[0] = rueidis.BinaryString(append(what.doubles, runs.doubles...))
	c.args[1] = rueidis.BinaryString(numbers)
	return c
}

// once reports whether an op is one of a request that is charged once.
func once(op *law.Op) bool { return op.Verb == law.Take && op.ID != "" }

// whole returns the request of op i: of one over several slots, a call has a part.
func whole(ops []law.Op, i int) []law.Op {
	from := i
	for from > 0 && ops[from-1].Group == ops[i].Group {
		from--
	}
	return ops[from:law.GroupEnd(ops, i)]
}

// own adds what an op alone has, and says where: the log of its cell, if it may
// be touched, then what is remembered of IDs; and the note that goes into the log
// or beside a block, then the print and the rule; to extend, the rule; to settle, the rule alone. 0 is for none. On
// trial, and when that is given back, each op has a register.
func (c *call) own(s *Store, op *law.Op, print int64, how mode) (log, note int64) {
	named := op.ID != "" && (op.Verb == law.Take || op.Verb == law.Extend || op.Verb == law.Settle ||
		op.Verb == law.Return)
	if op.Params.Kind != law.Log && op.Verb != law.Block && op.Verb != law.Reset && !named && how == forGood {
		return 0, 0
	}
	c.keys = append(c.keys, s.logKey(op.Cell))
	log = int64(len(c.keys))
	switch {
	case named:
		c.keys = append(c.keys, s.registerKey(op.Cell), s.admissionKey(op.Cell, op.ID))
	case op.Verb == law.Reset, how == onTrial:
		c.keys = append(c.keys, s.registerKey(op.Cell))
	}
	switch {
	case once(op):
		c.args = append(c.args, op.ID, strconv.FormatInt(print, 10), op.Params.Terms().String())
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

// decode reads the answers of batch.lua.
func (c *call) decode(v string, ops []law.Op, outs []law.Outcome) error {
	if c.plainCells != nil {
		return c.plainCells.decode(c.index, v, ops, outs)
	}
	if len(v) < 8 {
		return errAnswer
	}
	return decodeOps(v[8:], c.index, outs)
}

// alone decides a batch of one plain charge by lone.lua. If it reports false, nothing was
// done: the charge is one for a call of batch.lua.
func (s *Store) alone(ctx context.Context, ops []law.Op, outs []law.Outcome) (decided bool, err error) {
	if !s.mayBeAlone(ops) {
		return false, nil
	}
	op := &ops[0]
	c := s.loneCall(op)
	repeated, err := store.Retry(ctx, s.cfg.RetryFor, func() error {
		v, err := s.sendOne(ctx, c).ToString()
		if err == nil {
			decided, err = lone(v, op, &outs[0])
		}
		return err
	}, again)
	s.repeated(repeated, err)
	if err != nil {
		err = classify("apply 1 ops", err)
		outs[0] = law.Outcome{Err: err}
		return true, err
	}
	return decided, nil
}

// mayBeAlone reports whether a batch may be one for lone.lua.
func (s *Store) mayBeAlone(ops []law.Op) bool {
	return len(ops) == 1 && plain(&ops[0]) && s.refusal(ops) == nil
}

// loneCall returns the call of lone.lua for an op.
func (s *Store) loneCall(op *law.Op) *call {
	var numbers [16]int64
	packed := make(doubles, 0, 8*(1+len(loneAsks)))
	packed.add(s.slack.Milliseconds())
	packed.add(loneAsks.Append(numbers[:0], op)...)
	terms := make([]byte, 0, 32)
	terms = strconv.AppendInt(terms, op.Params.Unit, 10)
	terms = append(terms, ' ')
	terms = strconv.AppendInt(terms, op.Params.Step, 10)
	return &call{
		script: loneScript, keys: []string{s.cellKey(op.Cell)},
		args: []string{rueidis.BinaryString(packed), rueidis.BinaryString(terms)},
	}
}

// sendOne makes one call by the script's name, and again with its text if the server does
// not know that.
func (s *Store) sendOne(ctx context.Context, c *call) rueidis.RedisResult {
	var client rueidis.CoreClient = s.client
	conn := s.lane.take(ctx)
	if conn != nil {
		client = conn
	}
	res := client.Do(ctx, c.command(s.client.B(), false))
	if noScript(res.Error()) {
		res = client.Do(ctx, c.command(s.client.B(), true))
	}
	if conn != nil {
		s.lane.leave(res.NonRedisError() == nil && !again(res.Error()))
	}
	return res
}

// lone reads the answer of lone.lua. It reports false if nothing was done: about a
// refusal too, if that has to be written down or a part of what was asked may fit.
func lone(v string, op *law.Op, out *law.Outcome) (decided bool, err error) {
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
		n, rest, ok := numbers(cell)
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
