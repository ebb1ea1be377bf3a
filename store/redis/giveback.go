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

// giveBack returns the call of giveback.lua for a part; nil if no op of the part has taken anything. It lowers Granted
// of each Extend that is given back to what was charged before.
//
// asIfUnsent: the request ends with an error or is asked again, so its cells keep no trace of it. Otherwise they keep
// what a refusal would have left.
func (s *Store) giveBack(ops []law.Op, outs []law.Outcome, p *part, asIfUnsent bool) *call {
	statesToRestore := p.stateRefused
	if asIfUnsent {
		statesToRestore = p.stateBefore
	}
	var extraArgs []string
	var returnOps []law.Op
	var positions, callerIndex []int // of returnOps: in returnOps, and in ops
	for n, i := range p.call.index {
		if p.replayed[n] {
			continue
		}
		credits := ops[i].Cost * outs[i].Granted
		if ops[i].Verb == law.Extend {
			credits = extendedBy(p.oldReceipt[n], &outs[i])
			outs[i].Granted -= credits
		}
		op := law.Back(&ops[i], &outs[i], credits)
		if asIfUnsent {
			op.Params.History = 0 // so that no entry of a refused attempt is left
		}
		op.ID = ops[i].ID
		extraArgs = append(extraArgs, statesToRestore[n], p.stateAfter[n], p.receipt[n], p.oldReceipt[n], p.moved[n])
		positions, callerIndex = append(positions, len(returnOps)), append(callerIndex, i)
		returnOps = append(returnOps, op)
	}
	if len(returnOps) == 0 {
		return nil
	}
	c := s.opsCall(giveBackScript, extraArgs, returnOps, positions, onTrial)
	c.index = callerIndex
	return c
}

// extendedBy returns the credits that an extension has charged. oldReceipt is the cell's receipt of the ID before it;
// register.lua has its format.
func extendedBy(oldReceipt string, out *law.Outcome) int64 {
	if fields := strings.SplitN(oldReceipt, " ", 4); len(fields) == 4 {
		if oldGranted, err := strconv.ParseInt(fields[2], 10, 64); err == nil {
			return out.Granted - oldGranted
		}
	}
	return out.Granted
}

// stateNumbers is how many numbers of a cell's state giveback.lua answers.
const stateNumbers = 8

// giveAllBack makes calls of giveback.lua, and sets State and EntryNumber in the outcomes of their ops. It returns an
// error if a charge may remain. It goes on if the caller cancels ctx, for at most Config.RetryFor.
func (s *Store) giveAllBack(ctx context.Context, ops []law.Op, outs []law.Outcome, calls []*call) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.RetryFor)
	defer cancel()
	return worst(s.runCalls(ctx, calls, func(i int, res rueidis.RedisResult) error {
		numbers, err := res.AsIntSlice()
		if err == nil && len(numbers) != stateNumbers*len(calls[i].index) {
			err = fmt.Errorf("the script answered with %d numbers", len(numbers))
		}
		if err != nil {
			return err
		}
		for n, opIndex := range calls[i].index {
			outs[opIndex].State = decodeState(numbers[stateNumbers*n:])
			if ops[opIndex].Params.History == 0 {
				outs[opIndex].EntryNumber = 0 // what was refused keeps no entry
			}
		}
		return nil
	}))
}

// errStillCharged has no class, so classify makes it an unknown outcome.
var errStillCharged = errors.New("a part of the request stays charged")
