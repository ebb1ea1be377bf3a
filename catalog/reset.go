package catalog

import (
	"context"
	"fmt"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// resetBatch is how many keys one batch resets, and locks.
const resetBatch = 100

// Reset forgets what all keys have used of a limit, their blocks and the ids of requests; [headgate.Limiter.Reset] does
// so for one key. It returns how many keys it has reset. After an error some keys are not reset, and Reset may be
// repeated. A key that is charged meanwhile may be reset or not.
//
// The error is headgate.ErrInvalid for a limit of concurrency, whose leases others still hold. It is
// headgate.ErrUnsupported for a store that cannot list its keys, and store.ErrSetup for a memory store without Names.
func (c *Catalog) Reset(ctx context.Context, name string) (keys int, err error) {
	if err := c.Refresh(ctx); err != nil {
		return 0, err
	}
	limit, err := c.current.Load().find(name)
	if err != nil {
		return 0, err
	}
	if limit.Concurrency() {
		return 0, headgate.Invalid("limit", "%s is a limit of concurrency: what is held cannot be reset", name)
	}
	inspector, ok := store.As[store.Inspector](c.store)
	if !ok {
		return 0, fmt.Errorf("%w: the store cannot list the keys of a limit", headgate.ErrUnsupported)
	}
	ops, outs := make([]law.Op, resetBatch), make([]law.Outcome, resetBatch)
	for q := (store.Query{Limit: limit.Name(), Max: resetBatch}); ; {
		cells, _, err := inspector.Cells(ctx, q)
		if err != nil || len(cells) == 0 {
			return keys, err
		}
		for i := range cells {
			q.After = cells[i].Cell
			ops[i] = law.Op{
				Verb: law.Reset, Group: uint32(i + 1), Cell: q.After,
				Params: law.Params{Kind: law.Bucket, Unit: 1, Capacity: 1, Step: 1, Drain: 1}, // any valid ones do
			}
		}
		if err := c.store.Apply(ctx, ops[:len(cells)], outs[:len(cells)]); err != nil {
			return keys, err
		}
		for i := range cells {
			if err := outs[i].Err; err != nil {
				return keys, err
			}
			keys += int(outs[i].Granted)
		}
	}
}
