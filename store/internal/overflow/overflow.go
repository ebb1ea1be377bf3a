// Package overflow lets drivers answer keys that have no cell of their own, of
// limits that have as many keys as they may.
//
// A driver says that of an op by Outcome.Full, and does nothing about the group.
// [Apply] asks it once more with the limit's shared cell in the place of the key's.
package overflow

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/internal/wrap"
)

// Counts are how many ops shared cells have answered, by limit. The zero Counts
// is ready for use, by any number of goroutines.
type Counts struct {
	mu sync.Mutex
	n  map[string]int64 // guarded by mu
}

// Of returns the count of a limit.
func (c *Counts) Of(limit string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[limit]
}

// All returns all counts.
func (c *Counts) All() map[string]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.n)
}

func (c *Counts) add(limit string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int64{}
	}
	if _, known := c.n[limit]; !known && len(c.n) >= maxCounts {
		limit = "" // somebody invents limits
	}
	c.n[limit]++
}

// maxCounts is how many limits are counted each by itself. All others are counted
// together, as the limit without a name.
const maxCounts = 10_000

// rounds is how often a request is sent to another cell before it fails. Twice is rare,
// but a store that counts exactly may begin and end to share with each key that comes
// and goes, on a loaded machine between any two questions.
const rounds = 100

// Applier is what Apply of a driver does but for full limits: its outcomes may say
// Full.
type Applier func(ctx context.Context, ops []law.Op, outs []law.Outcome) error

// Apply applies a batch, and asks again for those groups of which an op is Full,
// after the others: an op that takes, checks, returns or renews is applied to the
// shared cell of its limit, and its outcome says Shared. What cannot be, fails with
// store.ErrFull: an ID is known for each key by itself, and so is a block. counts may
// be nil. ops are not changed.
//
// An error of the first question is returned. One of a later question is the error
// of the groups that it was about.
func Apply(ctx context.Context, ops []law.Op, outs []law.Outcome, apply Applier, counts *Counts) error {
	if err := apply(ctx, ops, outs); err != nil {
		return err
	}
	Redirect(ctx, ops, outs, apply, counts)
	return nil
}

// Redirect is what Apply does after the first question.
func Redirect(ctx context.Context, ops []law.Op, outs []law.Outcome, apply Applier, counts *Counts) {
	var index []int // of the ops to ask again
	for i := 0; i < len(ops); {
		j := law.GroupEnd(ops, i)
		if undecided(outs[i:j]) {
			for k := i; k < j; k++ {
				index = append(index, k)
			}
		}
		i = j
	}
	if index == nil {
		return
	}
	r := redirection{ops: ops, outs: outs, index: index, counts: counts}
	r.run(ctx, apply)
}

// undecided reports whether nothing was done about a group because of a full limit.
func undecided(outs []law.Outcome) bool {
	for i := range outs {
		if outs[i].Full != 0 {
			return true
		}
	}
	return false
}

// redirection is a part of a batch that is on its way to shared cells.
type redirection struct {
	ops    []law.Op // of the whole batch, as they were asked
	outs   []law.Outcome
	index  []int // the ops that are not decided yet
	counts *Counts
	sent   map[int]law.Cell // the cells in whose place shared ones stand, by op
}

func (r *redirection) run(ctx context.Context, apply Applier) {
	r.sent = make(map[int]law.Cell, len(r.index))
	for try := 0; ; try++ {
		r.redirect()
		if len(r.index) == 0 {
			return
		}
		if try == rounds {
			r.fail(fmt.Errorf("%w: limit %q begins and ends to share a cell all the time", store.ErrConflict,
				r.ops[r.index[0]].Cell.Limit))
			return
		}
		if err := ctx.Err(); err != nil {
			r.fail(err)
			return
		}
		asked := make([]law.Op, len(r.index))
		answers := make([]law.Outcome, len(r.index))
		group := uint32(0)
		for k, i := range r.index {
			if k == 0 || r.index[k-1] != i-1 || r.ops[i].Group != r.ops[i-1].Group {
				group++ // two of one number may have become neighbours
			}
			asked[k] = r.ops[i]
			asked[k].Group = group
			if c, ok := r.sent[i]; ok {
				asked[k].Cell = c
				if op := &asked[k]; op.Verb == law.Return && op.Cost > 0 && op.Params.Kind != law.Log && !op.Shared {
					// of a cell that is gone: nothing of it is here. An entry of a log would not be found
					op.Level, op.At = 0, 0
				}
			}
		}
		wrap.Join(r.outs, answers, r.index, apply(ctx, asked, answers))
	}
}

// redirect chooses the cells for those groups that are not decided yet, and drops
// the others from the index.
func (r *redirection) redirect() {
	var rest []int
	for a := 0; a < len(r.index); {
		i := r.index[a]
		j := law.GroupEnd(r.ops, i)
		a += j - i
		if !undecided(r.outs[i:j]) {
			r.decided(i, j)
			continue
		}
		if !r.choose(i, j) {
			continue
		}
		for k := i; k < j; k++ {
			rest = append(rest, k)
		}
	}
	r.index = rest
}

// decided marks what shared cells have answered.
func (r *redirection) decided(i, j int) {
	for k := i; k < j; k++ {
		if _, ok := r.sent[k]; ok && r.outs[k].Err == nil {
			r.outs[k].Shared = true
			r.counts.add(r.ops[k].Cell.Limit)
		}
	}
}

// choose chooses the cells for one group, or answers it.
func (r *redirection) choose(i, j int) bool {
	for k := i; k < j; k++ {
		op, full := &r.ops[k], r.outs[k].Full
		switch {
		case full == 0:
		case law.IsShared(op.Cell):
			r.failGroup(i, j, law.Invalid("key", "%q is not shared any more", op.Cell.Key))
			return false
		case full == law.Ended:
			delete(r.sent, k)
		case op.Verb == law.Block && op.TTL == 0 && j == i+1: // there is none to lift
			r.outs[k] = law.Outcome{Granted: op.Count, Clock: r.outs[k].Clock}
			return false
		case op.Verb == law.Block || op.ID != "":
			what := "a request with an id"
			if op.Verb == law.Block {
				what = "a block"
			}
			r.failGroup(i, j, fmt.Errorf(
				"%w: limit %q has as many keys as it may, and this one is not among them; %s needs a key of its own",
				store.ErrFull, op.Cell.Limit, what))
			return false
		default:
			r.sent[k] = law.SharedCell(op.Cell.Limit, full)
		}
	}
	return true
}

func (r *redirection) failGroup(i, j int, err error) {
	for k := i; k < j; k++ {
		r.outs[k] = law.Outcome{Err: err}
	}
}

func (r *redirection) fail(err error) {
	for _, i := range r.index {
		r.outs[i] = law.Outcome{Err: err}
	}
}
