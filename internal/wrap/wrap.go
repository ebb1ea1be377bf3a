// Package wrap helps wrappers and drivers that answer a part of a batch themselves.
package wrap

import "github.com/headgate/headgate/law"

// OnlyTakesAndChecks reports whether a batch has no ops but takes and checks. Then a wrapper may answer some of them
// itself, before the other ops. A block, a reset or a return must not be overtaken by a later take of the same cell.
func OnlyTakesAndChecks(ops []law.Op) bool {
	for i := range ops {
		if v := ops[i].Verb; v != law.Take && v != law.Check {
			return false
		}
	}
	return true
}

// Join copies the answers about a part of a batch into outs. index has the positions of the part's ops in the batch. An
// error of the store is the error of the groups of that part only.
func Join(outs, answers []law.Outcome, index []int, err error) {
	for k, i := range index {
		if outs[i] = answers[k]; err != nil && outs[i].Err == nil {
			outs[i] = law.Outcome{Err: err}
		}
	}
}

// Rest returns the ops of a batch whose index is not in skip, and their indices, for wrappers that answer a part of a
// batch themselves. skip ascends and has whole groups. The groups get new numbers, since two groups with the same
// number may have become neighbours.
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
