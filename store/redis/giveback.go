package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/law"
)

// giveBack returns the call of giveback.lua for a part; nil if all IDs of the part were known,
// so that it took nothing. asIfUnsent says that no limit refused: the request ends as if it
// had not been sent.
func (s *Store) giveBack(ops []law.Op, outs []law.Outcome, p *part, asIfUnsent bool) *call {
	states := p.stateRefused
	if asIfUnsent {
		states = p.stateBefore
	}
	var extraArgs []string
	var returnOps []law.Op
	var opIndex, index []int
	for n, i := range p.call.index {
		if p.replayed[n] {
			continue
		}
		credits := ops[i].Cost * outs[i].Granted
		if ops[i].Verb == law.Extend {
			credits = extendedBy(p.oldAdmission[n], &outs[i])
			outs[i].Granted -= credits
		}
		op := law.Back(&ops[i], &outs[i], credits)
		if asIfUnsent {
			op.Params.History = 0 // nothing was refused
		}
		op.ID = ops[i].ID
		extraArgs = append(extraArgs, states[n], p.after[n], p.admission[n], p.oldAdmission[n], p.moved[n])
		opIndex, index, returnOps = append(opIndex, len(opIndex)), append(index, i), append(returnOps, op)
	}
	if len(index) == 0 {
		return nil
	}
	c := s.call(giveBackScript, extraArgs, returnOps, opIndex, onTrial)
	c.index = index
	return c
}

// extendedBy returns the credits that an extension has charged. oldReceipt is the cell's receipt of
// the ID before it; register.lua has its format.
func extendedBy(oldReceipt string, out *law.Outcome) int64 {
	if fields := strings.SplitN(oldReceipt, " ", 4); len(fields) == 4 {
		if oldGranted, err := strconv.ParseInt(fields[2], 10, 64); err == nil {
			return out.Granted - oldGranted
		}
	}
	return out.Granted
}

// giveAllBack makes calls of giveback.lua, and returns an error if a charge may
// remain. It goes on if the caller cancels ctx.
func (s *Store) giveAllBack(ctx context.Context, ops []law.Op, outs []law.Outcome, calls []*call) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.RetryFor)
	defer cancel()
	return worst(s.runCalls(ctx, calls, func(i int, res rueidis.RedisResult) error {
		numbers, err := res.AsIntSlice()
		if err == nil && len(numbers) != 8*len(calls[i].index) {
			err = fmt.Errorf("the script answered with %d numbers", len(numbers))
		}
		if err != nil {
			return err
		}
		for n, op := range calls[i].index {
			outs[op].State = decodeState(numbers[8*n:])
			if ops[op].Params.History == 0 {
				outs[op].EntryNumber = 0
			}
		}
		return nil
	}))
}

// errLeft has no class of its own, so classify makes it an unknown outcome.
var errLeft = errors.New("a part of the request stays charged")
