package store

import (
	"context"

	"github.com/headgate/headgate/law"
)

// Brief is the outcome of a single plain charge, reduced to what its caller needs, so that it travels in registers.
type Brief struct {
	Granted bool
	Via     law.Via
	Used    int64 // credits in use at the decision, the grant included
	Clock   int64 // the store's clock, from which delays are counted
	At      int64 // the time for which the charge was decided, see law.Op.DecidedAt
	RetryAt int64 // when the charge could pass if no others came; 0: it was granted
	EmptyAt int64 // from then on the cell is empty and not blocked
	Blocked bool  // the cell is blocked
}

// OneTaker is a Store that can often decide about a single plain charge at once, in this process, without a batch: an
// op of verb Take with a Count of 1, in a group of its own, with no ID, ceiling, boundaries or test time.
//
// TakeOne reports whether it has decided. If it has not, nothing was done, and the caller calls Apply. It checks the
// key and the cost as Apply does (and leaves it to Apply to say what is wrong), allocates nothing and never waits for a
// network. p is not written to and not kept after the call.
type OneTaker interface {
	// TakeOne decides about one charge of a cell, if it can at once.
	TakeOne(ctx context.Context, cell law.Cell, p *law.Params, cost int64) (b Brief, decided bool)
}
