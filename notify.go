package headgate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/law"
)

// Crossing is a threshold of [Tail].Notify that a charge has taken the level of a key across.
//
// The process that made the charge tells it, by [Decision].Crossed and to a [CrossingObserver]. It marks in the store
// what it tells, so that all processes tell a threshold of a key once in a window. Limits that have no windows tell it
// at most once in the time in which a full key drains. A change of the limit's amount lets the threshold be told again.
// If the mark cannot be set, it is told all the same, and may be told again. Decisions made without the store, replays
// of an id and callers of SQL functions tell nothing.
type Crossing struct {
	Limit, Key     string
	Percent        int  // the threshold
	Capacity, Used Cost // what passes at once, and what was in use after the charge, rounded up
	At             time.Time
}

// CrossingObserver is an Observer that receives crossings too. The Limiter calls Crossed for each threshold, before the
// Decided of the same request; also for a settlement that charges more, which has no Decided.
type CrossingObserver interface {
	Observer
	// Crossed is called by many goroutines at once, and holds up the caller until it returns.
	Crossed(ctx context.Context, c Crossing)
}

// parseNotify parses thresholds such as 80%,100%.
func parseNotify(s string) (thresholds [4]uint8, err error) {
	list := strings.Split(s, ",")
	for i, text := range list {
		digits, isPercent := strings.CutSuffix(text, "%")
		n, err := strconv.ParseUint(digits, 10, 8)
		if len(list) > len(thresholds) || !isPercent || err != nil || strconv.FormatUint(n, 10) != digits || n == 0 {
			return thresholds, errNotify(s)
		}
		thresholds[i] = uint8(n)
	}
	return thresholds, validNotify(thresholds, Prefetch{})
}

// errNotify returns the error for invalid thresholds.
func errNotify(s string) error {
	return Invalid("notify", "%.100q is not one to four whole percentages up to 100%%, ascending, such as 80%%,100%%",
		s)
}

// validNotify returns what is wrong with the thresholds of a limit with the prefetch p, or nil.
func validNotify(thresholds [4]uint8, p Prefetch) error {
	for i, n := range thresholds[1:] {
		if before := thresholds[i]; n != 0 && n <= before || n > 100 || before > 100 {
			return errNotify(strings.TrimPrefix(notifySuffix(thresholds), " notify "))
		}
	}
	if thresholds[0] != 0 && p != (Prefetch{}) {
		return Invalid("notify", "a limit with prefetch has none: the store does not see each token that is handed out")
	}
	return nil
}

// notifySuffix returns the thresholds as they stand in a notation.
func notifySuffix(thresholds [4]uint8) string {
	s, before := "", " notify "
	for _, n := range thresholds {
		if n != 0 {
			s, before = s+before+strconv.Itoa(int(n))+"%", ","
		}
	}
	return s
}

// MarkLimit is the limit of the cells that mark what was told. No limit has this name, and no notation is like it. In a
// list of cells it comes after all limits: there may be more marks than other cells.
const MarkLimit = "~notified"

// maxMarkSlack is how many microseconds a mark of a window outlasts the window, in case the clock of the server that
// has the mark steps forward. A mark of a shorter window outlasts it by the length of a window: else a key of 1/1s had
// 60 marks at a time.
const maxMarkSlack = 60_000_000

// candidate is a threshold that an op has crossed.
type candidate struct {
	index   int // of the op
	percent uint8
}

// tellCrossings tells the thresholds that the ops of decided requests have crossed, unless the store has a mark that
// they were told. It asks for all marks in one more call, whose failure changes no decision. Requests that cross no
// threshold make no such call.
func (l *Limiter) tellCrossings(ctx context.Context, r *request) {
	var candidates []candidate
	var marks []law.Op
	for i, j := 0, law.AlternativeEnd(r.ops, 0); i < len(r.ops); i, j = j, law.AlternativeEnd(r.ops, j) {
		if !canTell(r.ops[i:j], r.outs[i:j]) {
			continue
		}
		for k := i; k < j; k++ {
			op, out := &r.ops[k], &r.outs[k]
			before, whole := out.Used-chargedCredits(op, out), op.Params.Capacity
			for _, percent := range op.Params.Notify {
				// The products stay below 2^60.
				if level := int64(percent) * whole; percent > 0 && before*100 < level && out.Used*100 >= level {
					candidates = append(candidates, candidate{k, percent})
					marks = append(marks, markOp(op, out, percent, uint32(len(marks)+1)))
				}
			}
		}
	}
	if len(marks) == 0 {
		return
	}
	outs := make([]law.Outcome, len(marks))
	markCtx, cancel := sched.WithTimeout(ctx, cmp.Or(l.timeout, DefaultTimeout)) // a call that waits for room has none
	defer cancel()
	err := l.store.Apply(markCtx, marks, outs)
	for i, c := range candidates {
		if err == nil && outs[i].Err == nil && outs[i].Granted == 0 {
			continue
		}
		op, out := &r.ops[c.index], &r.outs[c.index]
		out.Crossed = max(out.Crossed, c.percent)
		if l.crossings != nil {
			l.crossings.Crossed(ctx, Crossing{
				Limit: op.Cell.Limit, Key: op.Cell.Key, Percent: int(c.percent),
				Capacity: costOf(op.Params.Capacity, &op.Params, false), Used: costOf(out.Used, &op.Params, true),
				At: time.UnixMicro(op.DecidedAt(out)).UTC(),
			})
		}
	}
}

// canTell reports whether the ops of one request, or of one alternative, have been applied, and a limit of theirs has
// thresholds.
func canTell(ops []law.Op, outs []law.Outcome) bool {
	notifies := false
	for i := range ops {
		op, out, refused := &ops[i], &outs[i], false
		notifies = notifies || op.Params.Notify[0] != 0
		switch op.Verb {
		case law.Take:
			refused = out.Granted < op.Count && (!op.Partial || out.Granted == 0)
		case law.Extend:
			refused = out.Granted < op.Cost
		case law.Settle, law.Return:
		default:
			return false
		}
		if refused || out.Stale || out.Err != nil {
			return false
		}
	}
	return notifies
}

// chargedCredits returns the credits by which an admitted op has raised the level of its cell; less than 0 if it has
// lowered it. For an extension, of which the outcome tells the sum alone, it is that sum: what was crossed before has a
// mark. That may be over, unless the limit is a fixed window: then an extension can tell a threshold again though the
// level was not below it since.
func chargedCredits(op *law.Op, out *law.Outcome) int64 {
	switch {
	case out.Replayed || out.Via != law.ViaStore:
		return 0
	case op.Verb == law.Take:
		return out.Granted * op.Cost
	case op.Verb == law.Extend:
		return out.Granted
	default:
		return -out.Granted
	}
}

// markOp returns the op that marks a threshold as told, which is refused if it is marked. Each window has a mark of its
// own, named by its end, and so has each amount of the limit: who gets a higher one in the window is told of that too.
func markOp(op *law.Op, out *law.Outcome, percent uint8, group uint32) law.Op {
	p := &op.Params
	end, step := int64(0), p.DrainTime()
	if p.Kind == law.Window || p.Kind == law.Bucket && p.Drain == law.Max {
		end = out.State.EmptyAt
		step = max(0, end-out.Clock) + min(p.Step, maxMarkSlack)
	}
	c := &op.Cell
	name := sha256.Sum256(fmt.Appendf(nil, "%d %d %s %d %s %s", percent, end, costOf(p.Capacity, p, false),
		len(c.Limit), c.Limit, c.Key))
	return law.Op{
		Verb: law.Take, Group: group, Cost: 1, Count: 1,
		Cell:   law.Cell{Limit: MarkLimit, Key: hex.EncodeToString(name[:16])},
		Params: law.Params{Kind: law.Bucket, Unit: 1, Capacity: 1, Step: step, Drain: law.Max},
	}
}
