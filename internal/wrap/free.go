package wrap

import (
	"context"
	"fmt"
	"slices"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// PassBy applies those groups of a batch that have no held op, for drivers that support store.PassHeld; held says which
// ops are. The other groups get store.ErrHeld. If all groups are held, PassBy applies the whole batch, which waits.
func PassBy(ctx context.Context, ops []law.Op, outs []law.Outcome, held []bool,
	apply func(context.Context, []law.Op, []law.Outcome) error,
) error {
	var skip []int
	for i := 0; i < len(ops); {
		j := law.GroupEnd(ops, i)
		groupHeld := slices.Contains(held[i:j], true)
		for ; i < j; i++ {
			if groupHeld {
				skip = append(skip, i)
			}
		}
	}
	if len(skip) == 0 || len(skip) == len(ops) {
		return apply(ctx, ops, outs)
	}
	rest, index := Rest(ops, skip)
	answers := make([]law.Outcome, len(rest))
	Join(outs, answers, index, apply(ctx, rest, answers))
	for _, i := range skip {
		outs[i] = law.Outcome{Err: fmt.Errorf("%w: %q of %s", store.ErrHeld, ops[i].Cell.Key, ops[i].Cell.Limit)}
	}
	return nil
}
