package redis

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/law"
)

// askAnew asks slots anew that know a Late request, as if they did not, where others
// do not know it: those charges have counted from a start that is not the request's
// any more, and may have drained since.
func (s *Store) askAnew(ctx context.Context, ops []law.Op, outs []law.Outcome, group []int, parts []*part) {
	known := func(i int) bool { return outs[i].Replayed }
	if slices.ContainsFunc(parts, func(p *part) bool { return !p.admitted }) || !slices.ContainsFunc(group, known) {
		return
	}
	var list []*part
	for _, p := range parts {
		if known(p.call.index[0]) {
			list = append(list, p)
		}
	}
	if len(list) == len(parts) {
		return
	}
	for _, p := range list {
		p.call.call, p.admitted = s.encodeFor(p.asking, ops, p.call.index, anew), false
	}
	s.ask(ctx, list, func(p *part, list []message) error { return p.read(ops, outs, list) })
}

// mostRounds is how often a start is put off because others came in between. Each
// time it is put off further, from firstMargin on twice as far, to find a place at
// the end of lines that grow meanwhile: the last time by half a minute.
const (
	mostRounds  = 16
	firstMargin = 1000 // microseconds
)

// startTogether makes the charges of a Late request that several slots took on
// trial start when the last of them may. Slots where they could start earlier are
// asked once more, to let them count from there. Where others have come meanwhile,
// the request stands behind them, which may make its start later, and then all
// slots are asked again. If that cannot be done, there is an error, or refused says
// what is said of some charges, and the request must be given back.
//
// Where all can start at once, or could when they were charged, nobody is asked
// again: the clocks of servers differ, and each charge counts from the time of its
// own, as always. But if they were charged in two askings, the request has not begun
// in the first, and they have to start together.
func (s *Store) startTogether(ctx context.Context, ops []law.Op, outs []law.Outcome, group []int, parts []*part) (refused map[int]law.Outcome, err error) {
	waits, apart, first := false, false, int64(0)
	for n, p := range parts {
		wait, by := p.charged(outs[p.call.index[0]])
		if n == 0 {
			first = by
		}
		waits, apart = waits || wait, apart || by != first
	}
	if !waits && !apart {
		return nil, nil
	}
	last := latest(ops, outs, group)
	var start int64
	for _, i := range group {
		start = max(start, outs[i].StartAt)
	}
	for round := 0; ; round++ {
		var early []*part
		for _, p := range parts {
			if outs[p.call.index[0]].StartAt < start {
				early = append(early, p)
			}
		}
		if len(early) == 0 {
			return nil, nil
		}
		if round == mostRounds {
			return full(early, outs, start), nil
		}
		own, refused, err := s.raise(ctx, ops, outs, early, start)
		if refused != nil || err != nil {
			return refused, err
		}
		if own > start {
			start = max(own, min(own+firstMargin<<round, last))
		}
	}
}

// charged tells whether a part had to wait when it was charged, or was raised, perhaps
// when that time was over; and in which asking. A part starts at one time, as it is
// decided at once.
func (p *part) charged(out law.Outcome) (waits bool, by int64) {
	if by = p.asking; out.Replayed { // then its clock is of now
		_, numbers, _ := strings.Cut(p.admission[0], "|") // see register.lua
		end := strings.LastIndexByte(numbers, ' ')
		by, _ = strconv.ParseInt(numbers[end+1:], 10, 64)
		if n, err := law.ParseNumbers(numbers[:max(end, 0)]); err == nil {
			out = n.Outcome()
		}
	}
	return out.StartAt != out.Clock, by
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

// full refuses the charges of parts that find no place.
func full(parts []*part, outs []law.Outcome, retryAt int64) map[int]law.Outcome {
	refused := map[int]law.Outcome{}
	for _, p := range parts {
		for _, i := range p.call.index {
			refused[i] = law.Outcome{Used: outs[i].Used, RetryAt: retryAt}
		}
	}
	return refused
}

// raise asks parts to start later. It returns the latest start that one of them
// says, the same if all agree; or what those say that refuse.
func (s *Store) raise(ctx context.Context, ops []law.Op, outs []law.Outcome, parts []*part, start int64) (last int64, refused map[int]law.Outcome, err error) {
	asked := slices.Clone(ops)
	for _, p := range parts {
		for _, i := range p.call.index {
			left := law.Back(&ops[i], &outs[i], 1)
			asked[i].Level, asked[i].At, asked[i].Returned = left.Level, left.At, left.Returned
			asked[i].Late = true
		}
		p.call.call = s.encodeFor(p.asking, asked, p.call.index, later, strconv.FormatInt(start, 10))
	}
	said := make([]law.Outcome, len(ops))
	last = start
	s.ask(ctx, parts, func(p *part, list []message) error {
		t, err := p.call.texts(asked, said, list)
		if err != nil {
			return err
		}
		at, no := int64(0), false
		for _, i := range p.call.index {
			at, no = max(at, said[i].StartAt), no || said[i].Granted != ops[i].Count
		}
		switch last = max(last, at); {
		case no:
			if refused == nil {
				refused = map[int]law.Outcome{}
			}
			for _, i := range p.call.index {
				refused[i] = said[i]
			}
		case at == start:
			p.stands(outs, said, &t)
		}
		return nil
	})
	errs := make([]error, len(parts))
	for n, p := range parts {
		errs[n] = p.err
	}
	return last, refused, worst(errs)
}

// stands takes over what became of a part that starts later now. A cell that was as
// the part left it becomes what it was when all is given back, and is still known
// if it was before. Another is charged anew; what was charged there before is
// nobody's any more.
func (p *part) stands(outs, said []law.Outcome, t *texts) {
	for n, i := range p.call.index {
		kept, known := said[i].Replayed, outs[i].Replayed
		outs[i] = said[i]
		outs[i].Replayed = kept && known
		p.known[n] = p.known[n] || shared(t.admission[n])
		switch {
		case !kept:
			p.was[n], p.before[n], p.admission[n] = t.was[n], t.before[n], t.admission[n]
			if t.forgotten[n] != "" {
				p.forgotten[n] = t.forgotten[n]
			}
		case t.forgotten[n] == p.admission[n]: // nobody else was told of it
			p.admission[n] = t.admission[n]
		}
		if t.after[n] != "" && (!kept || sameBlock(t.after[n], p.after[n])) {
			p.after[n] = t.after[n] // else what was before has no block
		}
	}
}

// shared tells whether another asking has been told of an admission: see register.lua.
func shared(admission string) bool {
	fields := strings.SplitN(admission, " ", 7)
	return len(fields) == 7 && fields[5] == "1"
}

// sameBlock tells whether two texts of a cell say the same of a block.
func sameBlock(a, b string) bool {
	one, why, _ := parseCell(a)
	other, whyOther, _ := parseCell(b)
	return one.BlockedUntil == other.BlockedUntil && why == whyOther
}
