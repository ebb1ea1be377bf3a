package postgres

import "github.com/headgate/headgate/law"

// needsReceipt reports whether an op reads or writes the receipt of an ID.
func needsReceipt(op *law.Op) bool {
	return op.Verb == law.Take && op.ID != "" || op.Verb == law.Settle || op.Verb == law.Extend
}

// groupEnd returns the end of the request that starts with op k of the batch: the number of the op after it.
func (b *batch) groupEnd(k int) int {
	end := k + 1
	for end < len(b.indexes) && b.ops[end*opWidth+opGroup] == b.ops[k*opWidth+opGroup] {
		end++
	}
	return end
}

// fingerprints returns for each op the fingerprint of its request, or of its alternative; 0: it is no Take with an ID.
func (b *batch) fingerprints(ops []law.Op) []int64 {
	prints := make([]int64, len(b.indexes))
	for k := 0; k < len(prints); {
		first := b.indexes[k]
		alternative := ops[first:law.AlternativeEnd(ops, first)]
		end := k + len(alternative)
		if op := &alternative[0]; op.Verb != law.Take || op.ID == "" {
			k = end
			continue
		}
		for print := law.Fingerprint(alternative); k < end; k++ {
			prints[k] = print
		}
	}
	return prints
}

// parts returns the ends of the parts of a batch, as numbers of ops. headgate_internal.apply_once looks up and writes
// receipts part by part: a request must see the receipts of its ID that earlier requests wrote, and earlier resets.
func (b *batch) parts(ops []law.Op) (ends []int32) {
	idsOfPart := make(map[string]bool)
	for k := 0; k < len(b.indexes); {
		end := b.groupEnd(k)
		newPart := k > 0 && (ops[b.indexes[k]].Verb == law.Reset) != (ops[b.indexes[k-1]].Verb == law.Reset)
		for i := k; i < end; i++ {
			op := &ops[b.indexes[i]]
			newPart = newPart || needsReceipt(op) && idsOfPart[op.ID]
		}
		if newPart {
			ends = append(ends, int32(k))
			clear(idsOfPart)
		}
		for ; k < end; k++ {
			if op := &ops[b.indexes[k]]; needsReceipt(op) {
				idsOfPart[op.ID] = true
			}
		}
	}
	return append(ends, int32(len(b.indexes)))
}
