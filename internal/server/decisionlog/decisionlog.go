// Package decisionlog logs a line for some of the decisions of a server, with the reason of the decision, and for each
// threshold that a charge has crossed.
package decisionlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/service"
)

// MaxLines is how many lines are written in a second at most. The first line after omitted ones has their number.
const MaxLines = 1000

// Message is the message of every line about a decision.
const Message = "decision"

// Config selects what is logged.
type Config struct {
	Log *slog.Logger
	// Refused and Admitted are the shares of decisions that are logged, from 0 to 1. Failures count as refused.
	Refused, Admitted float64
	Clock             func() time.Time // nil: time.Now
}

// Log writes decisions and crossings to a log. It is a headgate.CrossingObserver, and safe for concurrent use.
type Log struct {
	cfg Config

	mu      sync.Mutex
	second  int64 // the second that lines counts; guarded by mu
	lines   int   // lines in that second; guarded by mu
	omitted int   // lines left out since the last line; guarded by mu
}

// New returns a Log. It logs crossings whatever the shares are.
func New(c Config) *Log {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	return &Log{cfg: c}
}

// Decided implements headgate.Observer. It logs the decision, if chance and MaxLines let it.
func (l *Log) Decided(ctx context.Context, e headgate.Event) {
	share := l.cfg.Refused
	if e.Err == nil && e.Decision.Allowed {
		share = l.cfg.Admitted
	}
	if share <= 0 || share < 1 && rand.Float64() >= share {
		return
	}
	omitted, ok := l.admitLine(ctx)
	if !ok {
		return
	}
	attrs := attrsOf(ctx, &e)
	if share < 1 {
		attrs = append(attrs, slog.Float64("share", share))
	}
	l.cfg.Log.LogAttrs(ctx, slog.LevelInfo, Message, append(attrs, omitted...)...)
}

// Crossed implements headgate.CrossingObserver. It logs the crossing, if MaxLines lets it.
func (l *Log) Crossed(ctx context.Context, c headgate.Crossing) {
	if omitted, ok := l.admitLine(ctx); ok {
		l.cfg.Log.LogAttrs(ctx, slog.LevelInfo, "crossed a threshold", append([]slog.Attr{
			slog.String("limit", Text(c.Limit)), slog.String("key", Text(c.Key)), slog.Int("percent", c.Percent),
			slog.String("capacity", c.Capacity.String()), slog.String("used", c.Used.String()),
		}, omitted...)...)
	}
}

// admitLine counts a line, and reports whether it may be written. omitted says how many were left out before it, if any
// were.
func (l *Log) admitLine(ctx context.Context) (omitted []slog.Attr, ok bool) {
	if !l.cfg.Log.Enabled(ctx, slog.LevelInfo) {
		return nil, false
	}
	now := l.cfg.Clock().Unix()
	l.mu.Lock()
	defer l.mu.Unlock()
	if now != l.second {
		l.second, l.lines = now, 0
	}
	if l.lines >= MaxLines {
		l.omitted++
		return nil, false
	}
	l.lines++
	if l.omitted > 0 {
		omitted = []slog.Attr{slog.Int("omitted", l.omitted)}
	}
	l.omitted = 0
	return omitted, true
}

func attrsOf(ctx context.Context, e *headgate.Event) []slog.Attr {
	d := &e.Decision
	attrs := make([]slog.Attr, 0, 20)
	add := func(name, text string) { attrs = append(attrs, slog.String(name, text)) }
	c := chargeOf(e)
	outcome, limit, key := "refused", d.LimitName, d.Key
	switch {
	case e.Err != nil:
		outcome, limit, key = "failed", e.Limit, c.Key
	case d.Allowed:
		outcome = "admitted"
	}
	add("outcome", outcome)
	add("limit", Text(limit))
	add("key", Text(key))
	add("cost", cmp.Or(c.Cost, headgate.Units(1)).String())
	if !c.Keep.IsZero() {
		add("keep", c.Keep.String())
	}
	if n := len(e.Charges); n > 1 {
		attrs = append(attrs, slog.Int("charges", n))
	}
	add("why", reason(e, &c))
	if e.Err == nil {
		attrs = append(attrs, amount("capacity", d.Capacity, d.CapacityCost()),
			amount("remaining", d.Remaining, d.RemainingCost()))
		switch {
		case d.Allowed:
		case d.RetryAfter == headgate.Never:
			add("retry_after", "never")
		default:
			attrs = append(attrs, slog.Duration("retry_after", d.RetryAfter))
		}
		if d.Applied != "" {
			add("applied", Text(d.Applied))
		}
		add("way", d.Via.String())
	}
	add("verb", string(e.Verb))
	add("protocol", service.ProtocolOf(ctx).String())
	return append(attrs, slog.Duration("took", e.Took))
}

// amount returns an attribute with a number of units: an integer, unless the exact number has digits after the point.
func amount(name string, units int64, exact headgate.Cost) slog.Attr {
	if exact == headgate.Units(units) {
		return slog.Int64(name, units)
	}
	return slog.Float64(name, exact.Float64())
}

// chargeOf returns the charge whose limit, key and alternative are those of the decision; if there is none, the first.
func chargeOf(e *headgate.Event) (c headgate.Charge) {
	if len(e.Charges) > 0 {
		c = e.Charges[0]
	}
	for i := range e.Decision.Each {
		f, d := &e.Decision.Each[i], &e.Decision
		if f.LimitName == d.LimitName && f.Key == d.Key && f.Charge < len(e.Charges) &&
			(d.Alternative == 0 || e.Charges[f.Charge].Alternative == d.Alternative) {
			return e.Charges[f.Charge]
		}
	}
	return c
}

func reason(e *headgate.Event, c *headgate.Charge) string {
	d := &e.Decision
	remaining, capacity := d.RemainingCost(), d.CapacityCost()
	switch cost := cmp.Or(c.Cost, headgate.Units(1)); {
	case errors.Is(e.Err, headgate.ErrInvalid):
		return "the request is wrong: " + Text(e.Err.Error())
	case e.Err != nil:
		return "nothing was decided: " + Text(e.Err.Error())
	case d.Replayed:
		return "the id was charged before, and the decision is the one of then"
	case d.Via == headgate.ViaFallback:
		return "the store is away, and the limit says what is answered then"
	case d.Allowed:
		return fmt.Sprintf("a cost of %s fits, %s of %s remain", cost, remaining, capacity)
	case d.RetryAfter == headgate.Never && !c.Keep.IsZero():
		return fmt.Sprintf("a cost of %s that leaves %s can never pass, the capacity is %s", cost, c.Keep, capacity)
	case d.RetryAfter == headgate.Never:
		return fmt.Sprintf("a cost of %s can never pass, the capacity is %s", cost, capacity)
	case cost.Float64() > remaining.Float64():
		return fmt.Sprintf("a cost of %s does not fit, %s of %s remain", cost, remaining, capacity)
	case !c.Keep.IsZero():
		return fmt.Sprintf("a cost of %s leaves less than %s, %s of %s remain", cost, c.Keep, remaining, capacity)
	}
	return "it is held back until then"
}

// Text returns a text for a log: as it is, or as a quoted Go string if it has a quote, a backslash, or an unprintable
// character, such as a control character or one that changes the direction of the text.
func Text(s string) string {
	if q := strconv.Quote(s); q[1:len(q)-1] != s {
		return q
	}
	return s
}
