package mysql

import (
	"fmt"
	"slices"

	"github.com/headgate/headgate/law"
)

// sumsWidth is how many numbers the statement returns of a cell.
const sumsWidth = 7

// hear turns the answer into outcomes, and returns which ops it has decided, in their order,
// and whether it has made cells.
func (s *sums) hear(answer []int64, outs []law.Outcome) (decided []int, made bool, err error) {
	if len(answer) != len(s.cells)*sumsWidth {
		return nil, false, fmt.Errorf("the server answered about %d cells with %d numbers", len(s.cells), len(answer))
	}
	decided = make([]int, 0, s.count)
	var record law.Record
	list := []*law.Record{&record}
	for k := range s.cells {
		c, n := &s.cells[k], answer[k*sumsWidth:(k+1)*sumsWidth]
		granted, clock := n[0], n[5]
		if granted < 0 || granted == 0 && c.many {
			continue
		}
		p := &s.ops[c.head].Params
		after := law.State{
			Kind: law.Bucket, Level: n[1], At: n[2], Unit: p.Unit, Step: p.Step, EmptyAt: n[3], BlockedUntil: n[4],
		}
		record = law.Record{State: after}
		if n[6] > 0 {
			record.State, made = law.State{}, true
		} else if granted > 0 {
			record.State = p.PlainState(after.Level-granted*c.cost, after.At)
			record.State.BlockedUntil = after.BlockedUntil
		}
		for i := c.head; ; i = s.next[i] {
			law.Apply(s.ops[i:i+1], outs[i:i+1], clock, list)
			decided = append(decided, int(i))
			if i == c.tail {
				break
			}
		}
		if out := &outs[c.tail]; out.State != after || (out.Granted > 0) != (granted > 0) {
			return nil, made, fmt.Errorf("the server's answer makes no sense: %v about %+v", n, s.ops[c.tail])
		}
	}
	slices.Sort(decided)
	return decided, made, nil
}
