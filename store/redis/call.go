package redis

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// call is one call of a script: keys in one slot, and the ops it answers.
type call struct {
	script script
	keys   []string // of each op its cell, then what some have of their own
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
	if !s.cluster {
		n |= needsRoom
	}
	for _, i := range index {
		n |= needsOf(&ops[i])
	}
	c := s.call(scripts[n](), nil, ops, index, how)
	if !s.cluster {
		c.keys = append(c.keys, s.roomKey())
	}
	return c
}

// doubles are the arguments of a script but for its texts: what they say is in
// head.lua.
type doubles []byte

func (d *doubles) add(values ...int64) {
	for _, v := range values {
		*d = binary.LittleEndian.AppendUint64(*d, math.Float64bits(float64(v)))
	}
}

var askSize = 8 * len(asks)

const (
	headSize = 4 * 8 // of the first doubles of a call
	maxAsked = 8     // places among which the same is looked for
)

// asked is what the ops of a call ask, each thing once as a rule.
type asked struct {
	doubles
	from  [maxAsked]int // ops that were the first to ask the last few things
	many  int           // things
	place int           // of what was asked last, among them
}

// find returns where that is which an op asks, from 1, as Lua counts.
func (a *asked) find(ops []law.Op, i int) int64 {
	if a.many == 0 || !same(&ops[a.from[a.place%maxAsked]], &ops[i]) {
		a.place = max(0, a.many-maxAsked)
		for a.place < a.many && !same(&ops[a.from[a.place%maxAsked]], &ops[i]) {
			a.place++
		}
		if a.place == a.many {
			a.from[a.place%maxAsked] = i
			a.many++
			a.ask(&ops[i])
		}
	}
	return int64(headSize + a.place*askSize + 1)
}

// run are ops that stand next to each other in a call: plain charges who ask
// the same, with group 0, or one op of any other kind.
type run struct{ asked, ops, group, log, note int64 }

// call writes the arguments of a script: the ops, then its own.
func (s *Store) call(script script, own []string, ops []law.Op, index []int, how mode) *call {
	c := &call{
		script: script, index: index, keys: make([]string, len(index), len(index)+4),
		args: make([]string, 1, 1+len(own)),
	}
	c.args = append(c.args, own...)
	what := asked{doubles: make(doubles, headSize, headSize+askSize+48)}
	var runs doubles
	var open run
	group, last, print := int64(0), true, int64(0)
	for n, i := range index {
		op := &ops[i]
		c.keys[n] = s.cellKey(op.Cell)
		first := last // of its request
		last = n == len(index)-1 || !together(ops, i, index[n+1])
		if first {
			group++
			if once(op) {
				print = law.Fingerprint(whole(ops, i))
			}
		}
		next := run{asked: what.find(ops, i), ops: 1, group: group}
		if first && last && how == forGood && plain(op) {
			if next.group = 0; n > 0 && open.group == 0 && open.asked == next.asked {
				open.ops++
				continue
			}
		} else {
			next.log, next.note = c.own(s, op, print, how)
		}
		if n > 0 {
			runs.run(open)
		}
		open = next
	}
	runs.run(open)
	head := what.doubles[:0]
	head.add(s.slack.Milliseconds(), int64(s.cfg.MaxHistory), int64(how), int64(len(what.doubles)+1))
	c.args[0] = rueidis.BinaryString(append(what.doubles, runs...))
	return c
}

// once tells whether an op is one of a request that is charged once.
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

func (d *doubles) run(r run) { d.add(r.asked, r.ops, r.group, r.log, r.note) }

// ask writes what an op asks.
func (d *doubles) ask(op *law.Op) {
	var numbers [32]int64
	d.add(asks.Append(numbers[:0], op)...)
}

// same reports whether two ops ask the same of their cells, but for their ID and
// Reason: and whether these are cells of keys, or such that keys share.
func same(a, b *law.Op) bool {
	return a.Cost == b.Cost && a.Count == b.Count && a.Partial == b.Partial && a.Deferred == b.Deferred &&
		a.Now == b.Now && a.Verb == b.Verb && a.Params == b.Params &&
		a.Ceiling == b.Ceiling && a.TTL == b.TTL && a.At == b.At && a.Level == b.Level && a.Returned == b.Returned &&
		a.EntryNumber == b.EntryNumber && a.Window == b.Window && a.From == b.From && a.Until == b.Until && law.IsShared(a.Cell) == law.IsShared(b.Cell)
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

var errAnswer = errors.New("the script answered with something else")

// decode reads the answers of batch.lua.
func (c *call) decode(v string, ops []law.Op, outs []law.Outcome) error {
	if len(v) < 8 {
		return errAnswer
	}
	clock := double(v)
	v = v[8:]
	for _, i := range c.index {
		op, out := &ops[i], &outs[i]
		switch {
		case len(v) > law.Width*8 && v[0] == '=':
			var n law.Numbers
			for k := range n {
				n[k] = double(v[1+8*k:])
			}
			*out = n.Outcome()
			v = v[1+law.Width*8:]
		default:
			n, rest, ok := numbers(v)
			if !ok {
				return errAnswer
			}
			*out = law.Outcome{Granted: op.Count, State: decodeState(n[:]), Used: n[1], Clock: op.Now}
			if op.Now == 0 {
				out.Clock = clock
			}
			v = rest
		}
	}
	if v != "" {
		return errAnswer
	}
	return nil
}

// double reads the first of some doubles.
func double(v string) int64 {
	_ = v[7]
	bits := uint64(v[0]) | uint64(v[1])<<8 | uint64(v[2])<<16 | uint64(v[3])<<24 |
		uint64(v[4])<<32 | uint64(v[5])<<40 | uint64(v[6])<<48 | uint64(v[7])<<56
	return int64(math.Float64frombits(bits))
}

func decodeState(n []int64) law.State {
	return law.State{
		Kind: law.Kind(n[0]), Level: n[1], Prev: n[2], At: n[3], Unit: n[4], Step: n[5], EmptyAt: n[6],
		BlockedUntil: n[7],
	}
}

// plain reports whether a request of op alone is one that plain.lua may decide in place.
func plain(op *law.Op) bool {
	return op.Verb == law.Take && op.Alone() && !op.Timed() && op.Params.Plain()
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
	s.repeats.Add(int64(repeated))
	store.Observe(s.cfg.Observer, repeated, err)
	if err != nil {
		err = classify("apply 1 ops", err)
		outs[0] = law.Outcome{Err: err}
		return true, err
	}
	return decided, nil
}

// mayBeAlone reports whether a batch may be one for lone.lua.
func (s *Store) mayBeAlone(ops []law.Op) bool {
	return len(ops) == 1 && plain(&ops[0]) && !law.IsShared(ops[0].Cell) && s.refusal(ops) == nil
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
	c := &call{
		script: loneScript, keys: make([]string, 1, 2),
		args: []string{rueidis.BinaryString(packed), rueidis.BinaryString(terms)},
	}
	c.keys[0] = s.cellKey(op.Cell)
	if !s.cluster {
		c.keys = append(c.keys, s.roomKey())
	}
	return c
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
