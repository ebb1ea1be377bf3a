package redis

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/headgate/headgate/law"
)

// doubles are numbers for a script, packed as little-endian doubles; head.lua has their meaning.
type doubles []byte

func (d *doubles) add(values ...int64) {
	for _, v := range values {
		*d = binary.LittleEndian.AppendUint64(*d, math.Float64bits(float64(v)))
	}
}

var paramsSize = 8 * len(opParams) // the bytes of a set of parameters

const (
	headSize     = 4 * 8 // the bytes of the four doubles that a call begins with
	recentParams = 8     // how many of the last sets of parameters find compares with
)

// paramTable has the sets of parameters of a call's ops, each set once as a rule.
type paramTable struct {
	doubles                    // the head of the call, then the sets
	firstOps [recentParams]int // the first op of each of the last few sets
	count    int               // the number of sets
	current  int               // the set that find returned last
}

// find returns the place of an op's parameters, as Lua counts bytes: from 1. It adds them unless a recent set is equal.
func (a *paramTable) find(ops []law.Op, i int) int64 {
	if a.count == 0 || !sameParams(&ops[a.firstOps[a.current%recentParams]], &ops[i]) {
		a.current = max(0, a.count-recentParams)
		for a.current < a.count && !sameParams(&ops[a.firstOps[a.current%recentParams]], &ops[i]) {
			a.current++
		}
		if a.current == a.count {
			a.firstOps[a.current%recentParams] = i
			a.count++
			var numbers [32]int64
			a.add(opParams.Append(numbers[:0], &ops[i])...)
		}
	}
	return int64(headSize + a.current*paramsSize + 1)
}

// run describes adjacent requests of plain charges of one shape, or one op of any other kind; head.lua and groups.lua
// have the meaning of its numbers.
type run struct{ params, ops, group, log, note int64 }

func (d *doubles) addRun(r run) { d.add(r.params, r.ops, r.group, r.log, r.note) }

// sameParams reports whether two ops differ at most in what opParams leaves out, such as the cell and the ID.
func sameParams(a, b *law.Op) bool {
	return a.Cost == b.Cost && a.Count == b.Count && a.Partial == b.Partial && a.Deferred == b.Deferred &&
		a.Now == b.Now && a.Verb == b.Verb && a.Alternative == b.Alternative && a.Params == b.Params &&
		a.Ceiling == b.Ceiling && a.TTL == b.TTL && a.At == b.At && a.Level == b.Level && a.Returned == b.Returned &&
		a.EntryNumber == b.EntryNumber && a.Window == b.Window && a.From == b.From && a.Until == b.Until
}

// sameRequest reports whether op i and the later op j belong to one request.
func sameRequest(ops []law.Op, i, j int) bool {
	for ; i < j; i++ {
		if ops[i].Group != ops[i+1].Group {
			return false
		}
	}
	return true
}

var errAnswer = errors.New("the script answered with something else")

// decodeOps sets the outcomes of the ops of index from their answers in v.
func decodeOps(v string, index []int, outs []law.Outcome) error {
	for _, i := range index {
		if len(v) <= law.Width*8 || v[0] != '=' {
			return errAnswer
		}
		var n law.Numbers
		for k := range n {
			n[k] = double(v[1+8*k:])
		}
		outs[i] = n.Outcome()
		v = v[1+law.Width*8:]
	}
	if v != "" {
		return errAnswer
	}
	return nil
}

// double returns the first double of v, a whole number.
func double(v string) int64 {
	_ = v[7] // one check of the bounds for all that follows
	bits := uint64(v[0]) | uint64(v[1])<<8 | uint64(v[2])<<16 | uint64(v[3])<<24 |
		uint64(v[4])<<32 | uint64(v[5])<<40 | uint64(v[6])<<48 | uint64(v[7])<<56
	return int64(math.Float64frombits(bits))
}

// decodeState returns the state of the first stateNumbers numbers of a cell.
func decodeState(n []int64) law.State {
	return law.State{
		Kind: law.Kind(n[0]), Level: n[1], Prev: n[2], At: n[3], Unit: n[4], Step: n[5], EmptyAt: n[6],
		BlockedUntil: n[7],
	}
}

// isPlainOp reports whether groups.lua may decide an op, and lone.lua a request of this op alone.
func isPlainOp(op *law.Op) bool {
	return op.Verb == law.Take && op.Alone() && !op.Timed() && op.Params.Plain()
}

// parseNumbers parses the numbers at the beginning of a cell's text: its state, and the number of its last log entry.
func parseNumbers(v string) (n [stateNumbers + 1]int64, rest string, ok bool) {
	at := 0
	for k := range n {
		start, sum := at, int64(0)
		for at < len(v) && v[at] >= '0' && v[at] <= '9' {
			sum = sum*10 + int64(v[at]-'0')
			at++
		}
		if at == start || at-start > 18 || at == len(v) || v[at] != ' ' {
			return n, "", false
		}
		n[k] = sum
		at++
	}
	return n, v[at:], true
}
