package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// starts returns the last start of a group's charges; whether one of them still lies
// ahead; and whether some charges were known, and some not.
func starts(outs []law.Outcome, group []int) (start int64, waits, known, unknown bool) {
	for _, i := range group {
		start = max(start, outs[i].StartAt)
		waits = waits || outs[i].StartAt > outs[i].Clock
		known = known || outs[i].Replayed
		unknown = unknown || !outs[i].Replayed
	}
	return start, waits, known, unknown
}

// askAnew asks slots anew that know a Late request, as if they did not, where others
// do not know it: those charges have counted from a start that is not the request's
// any more, and may have drained since.
//
// Where all know it, but not yet its start in common (this was cut off, or is under
// way at another who asks), a slot is asked anew only if others have come after it.
func (s *Store) askAnew(ctx context.Context, ops []law.Op, outs []law.Outcome, group []int, parts []*part) {
	askThose := func(how mode, which func(out *law.Outcome) bool) {
		var list []*part
		for _, p := range parts {
			if which(&outs[p.call.index[0]]) {
				p.call.call, p.admitted = s.encode(ops, p.call.index, how), false
				list = append(list, p)
			}
		}
		s.ask(ctx, ops, outs, list)
	}
	all := func() bool { return !slices.ContainsFunc(parts, func(p *part) bool { return !p.admitted }) }
	if start, waits, _, unknown := starts(outs, group); all() && waits && !unknown {
		askThose(anewIfTouched, func(out *law.Outcome) bool { return out.StartAt < start })
	}
	if _, _, known, unknown := starts(outs, group); all() && known && unknown {
		askThose(anew, func(out *law.Outcome) bool { return out.Replayed })
	}
}

// mostRounds is how often the start of a request is put off because others came in
// between, before it gives way. Each time it is put off further, from firstMargin on
// twice as far, to find a place at the end of lines that grow meanwhile.
const (
	mostRounds  = 10
	firstMargin = 1000 // microseconds
)

var errCrowded = errors.New("others came before a start in common of several slots, again and again")

// startTogether makes the charges of a Late request that several slots took on
// trial start when the last of them may. Slots where they could start earlier are
// asked once more, to let them count from there. Where others have come meanwhile,
// the request stands behind them, which may make its start later, and then all
// slots are asked again. It reports false, or an error, if that cannot be done: then
// the request must be given back.
//
// Where all can start at once, or have started before, nobody is asked again: the
// clocks of servers differ, and each charge counts from the time of its own, as always.
func (s *Store) startTogether(ctx context.Context, ops []law.Op, outs []law.Outcome, group []int, parts []*part) (fits bool, err error) {
	start, waits, _, _ := starts(outs, group)
	if !waits {
		return true, nil
	}
	counts := make(map[int]int64, len(group)) // from when each op counts
	seen := make(map[int]string, len(group))  // its cell, as the last script left it
	for _, p := range parts {
		for n, i := range p.call.index {
			counts[i], seen[i] = outs[i].StartAt, p.after[n]
		}
	}
	for round := range mostRounds {
		later, err := s.raise(ctx, ops, outs, parts, start, counts, seen)
		switch {
		case err != nil:
			return false, err
		case slices.ContainsFunc(group, func(i int) bool { return outs[i].Granted == 0 }):
			for _, i := range group {
				if outs[i].Granted == 0 {
					outs[i].RetryAt = start
				}
			}
			return false, nil
		case later == start:
			for _, i := range group {
				outs[i].StartAt = start
			}
			return true, nil
		}
		start = max(later, min(later+firstMargin<<round, latest(ops, outs, group)))
	}
	return false, errCrowded
}

// latest is how late a request may start at most, for what its charges say of their
// patience.
func latest(ops []law.Op, outs []law.Outcome, group []int) int64 {
	most := int64(law.Max)
	for _, i := range group {
		p := &ops[i].Params
		steps := max(0, ops[i].Ceiling-p.Capacity) / p.Drain
		if steps < (law.Max-outs[i].Clock)/p.Step {
			most = min(most, outs[i].Clock+steps*p.Step)
		}
	}
	return most
}

// raise asks all slots whose charges do not count from the start yet to let them. It
// returns the latest start that one of them says, the same if all agree.
func (s *Store) raise(ctx context.Context, ops []law.Op, outs []law.Outcome, parts []*part, start int64, counts map[int]int64, seen map[int]string) (later int64, err error) {
	var early []*part
	var calls []*call
	for _, p := range parts {
		var index []int
		own := []string{strconv.FormatInt(start, 10)}
		for n, i := range p.call.index {
			if counts[i] < start {
				index = append(index, i)
				own = append(own, p.after[n], seen[i], p.admission[n])
			}
		}
		if len(index) > 0 {
			early = append(early, p)
			calls = append(calls, s.call(raiseScript, own, ops, index, forGood))
		}
	}
	later = start
	var lost error
	_, err = store.Retry(ctx, s.cfg.RetryFor, func() (err error) {
		var openParts []*part
		var openCalls []*call
		for n, res := range s.send(ctx, calls) {
			list, e := res.AsStrSlice()
			if e == nil {
				var at int64
				at, e = early[n].raised(outs, calls[n], list, start, counts, seen)
				later = max(later, at)
			}
			switch {
			case e != nil && again(e):
				err = e
				openParts, openCalls = append(openParts, early[n]), append(openCalls, calls[n])
			case e != nil:
				lost = e
			}
		}
		early, calls = openParts, openCalls
		return err
	}, again)
	return later, worst([]error{err, lost})
}

// raised reads the answer of raise.lua about ops of a part, and returns the latest
// start that it says.
func (p *part) raised(outs []law.Outcome, c *call, list []string, start int64, counts map[int]int64, seen map[int]string) (later int64, err error) {
	if len(list) != 5*len(c.index) {
		return 0, fmt.Errorf("the script answered with %d values", len(list))
	}
	for k, i := range c.index {
		text, used := list[5*k], list[5*k+1]
		at, err := strconv.ParseInt(list[5*k+2], 10, 64)
		if err != nil {
			return 0, err
		}
		n := slices.Index(p.call.index, i)
		p.after[n], p.admission[n] = list[5*k+3], list[5*k+4]
		out := &outs[i]
		switch {
		case text == "": // it was reset meanwhile: nothing is there to be raised
			counts[i] = start
			continue
		case used == "":
			out.Granted = 0
			continue
		case at > start: // it stands behind others, and nothing was changed
			later = max(later, at)
			continue
		}
		counts[i], seen[i] = start, text
		var ok bool
		if out.Used, err = strconv.ParseInt(used, 10, 64); err != nil {
			return 0, err
		}
		if out.State, _, ok = parseCell(text); !ok {
			return 0, errAnswer
		}
	}
	return later, nil
}
