package postgres

import "github.com/headgate/headgate/law"

// named reports whether an op is about what a cell remembers of an ID.
func named(op *law.Op) bool {
	return op.Verb == law.Take && op.ID != "" || op.Verb == law.Settle || op.Verb == law.Extend
}

// groupEnd returns the end of the request that starts with op k of those that
// are sent.
func (b *batch) groupEnd(k int) int {
	end := k + 1
	for end < len(b.index) && b.ops[end*opWidth+opGroup] == b.ops[k*opWidth+opGroup] {
		end++
	}
	return end
}

// prints returns for each op the print of its request, where that needs one.
func (b *batch) prints(ops []law.Op) []int64 {
	prints := make([]int64, len(b.index))
	for k := 0; k < len(prints); {
		end := b.groupEnd(k)
		if op := &ops[b.index[k]]; op.Verb != law.Take || op.ID == "" {
			k = end
			continue
		}
		for print := law.Fingerprint(ops[b.index[k] : b.index[end-1]+1]); k < end; k++ {
			prints[k] = print
		}
	}
	return prints
}

// parts returns the ends of the parts in which headgate_internal.apply_once looks up and
// puts down what is remembered: a request must see what those before it have
// done about its ID, or that they have reset its cell.
func (b *batch) parts(ops []law.Op) (ends []int32) {
	seen := make(map[string]bool)
	for k := 0; k < len(b.index); {
		end := b.groupEnd(k)
		apart := k > 0 && (ops[b.index[k]].Verb == law.Reset) != (ops[b.index[k-1]].Verb == law.Reset)
		for i := k; i < end; i++ {
			op := &ops[b.index[i]]
			apart = apart || named(op) && seen[op.ID]
		}
		if apart {
			ends = append(ends, int32(k))
			clear(seen)
		}
		for ; k < end; k++ {
			if op := &ops[b.index[k]]; named(op) {
				seen[op.ID] = true
			}
		}
	}
	return append(ends, int32(len(b.index)))
}
