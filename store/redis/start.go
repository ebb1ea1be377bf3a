package redis

import (
	"context"
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

// startTogether makes the charges of a Late request that several slots took on
// trial start when the last of them may. Slots where they could start earlier are
// asked once more, to let them count from there; what others took there meanwhile
// does not make it later. It reports false, or an error, if that cannot be done:
// then the request must be given back.
//
// Where all can start at once, or have started before, nobody is asked again: the
// clocks of servers differ, and each charge counts from the time of its own, as always.
func (s *Store) startTogether(ctx context.Context, ops []law.Op, outs []law.Outcome, group []int, parts []*part) (fits bool, err error) {
	start, waits, _, _ := starts(outs, group)
	var early []*part
	var calls []*call
	for _, p := range parts {
		var index []int
		own := []string{strconv.FormatInt(start, 10)}
		for n, i := range p.call.index {
			if waits && outs[i].StartAt < start {
				index = append(index, i)
				own = append(own, p.after[n], p.admission[n])
			}
		}
		if len(index) > 0 {
			early = append(early, p)
			calls = append(calls, s.call(raiseScript, own, ops, index, forGood))
		}
	}
	fits = true
	var lost error
	_, err = store.Retry(ctx, s.cfg.RetryFor, func() (err error) {
		var openParts []*part
		var openCalls []*call
		for n, res := range s.send(ctx, calls) {
			list, e := res.AsStrSlice()
			if e == nil {
				var all bool
				all, e = early[n].raised(outs, calls[n], list)
				fits = fits && all
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
	if err = worst([]error{err, lost}); err != nil {
		return false, err
	}
	for _, i := range group {
		if fits {
			outs[i].StartAt = start
		} else if outs[i].Granted == 0 {
			outs[i].RetryAt = start
		}
	}
	return fits, nil
}

// raised reads the answer of raise.lua about ops of a part, and reports whether all
// could be written down.
func (p *part) raised(outs []law.Outcome, c *call, list []string) (fits bool, err error) {
	if len(list) != 4*len(c.index) {
		return false, fmt.Errorf("the script answered with %d values", len(list))
	}
	fits = true
	for k, i := range c.index {
		text, used := list[4*k], list[4*k+1]
		n := slices.Index(p.call.index, i)
		p.after[n], p.admission[n] = list[4*k+2], list[4*k+3]
		if text == "" { // it was reset meanwhile: nothing is there to be raised
			continue
		}
		out := &outs[i]
		if used == "" {
			out.Granted, fits = 0, false
			continue
		}
		var ok bool
		if out.Used, err = strconv.ParseInt(used, 10, 64); err != nil {
			return false, err
		}
		if out.State, _, ok = parseCell(text); !ok {
			return false, errAnswer
		}
	}
	return fits, nil
}
