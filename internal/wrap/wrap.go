// Package wrap is what wrappers and drivers share that answer a part of a batch themselves.
package wrap

import "github.com/headgate/headgate/law"

// Asks reports whether a batch has nothing but ops that take or check: then a
// wrapper may answer some of them by itself, before the others. A block, a reset
// or a return may come before a take of the same cell, which has to see it.
func Asks(ops []law.Op) bool {
	for i := range ops {
		if v := ops[i].Verb; v != law.Take && v != law.Check {
			return false
		}
	}
	return true
}

// Join puts the answers about a part of a batch where they belong. index says
// where the ops of the part stand in the batch. An error of the store is the
// error of the groups of that part only.
func Join(outs, answers []law.Outcome, index []int, err error) {
	for k, i := range index {
		if outs[i] = answers[k]; err != nil && outs[i].Err == nil {
			outs[i] = law.Outcome{Err: err}
		}
	}
}

// Rest returns the ops of a batch that are not in skip, which ascends and
// names whole groups, and where they stood: for wrappers that answer a part of
// a batch themselves. Groups get new numbers, since two of one number may
// have become neighbours.
func Rest(ops []law.Op, skip []int) (rest []law.Op, index []int) {
	group := uint32(0)
	for i := range ops {
		if len(skip) > 0 && skip[0] == i {
			skip = skip[1:]
			continue
		}
		if n := len(index); n == 0 || index[n-1] != i-1 || ops[i].Group != ops[i-1].Group {
			group++
		}
		rest, index = append(rest, ops[i]), append(index, i)
		rest[len(rest)-1].Group = group
	}
	return rest, index
}
