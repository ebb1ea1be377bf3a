package config

import (
	"cmp"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/law"
)

// NotationBounds bounds the notations in requests, which anybody may send. A zero field bounds nothing.
type NotationBounds struct {
	MaxPeriod time.Duration // how long a charge may count or block, or an attempt be remembered
	Max       int           // different notations in use at a time
}

// DefaultNotationBounds are the default bounds. The longest calendar window, a month, is a little longer than 31 days
// where clocks are changed.
var DefaultNotationBounds = NotationBounds{MaxPeriod: 32 * 24 * time.Hour, Max: 1000}

// NotationBounds returns the configured bounds, or the defaults.
func (r *Reader) NotationBounds() (n NotationBounds) {
	n.MaxPeriod = read(r, NotationMaxPeriod, DefaultNotationBounds.MaxPeriod,
		"a length of time such as 30s, 15m or 30d", headgate.ParsePeriod)
	n.Max = cmp.Or(r.Count(MaxNotations), DefaultNotationBounds.Max)
	return n
}

// check returns an error if the longest period of a notation's limit is longer than MaxPeriod.
func (n *NotationBounds) check(l headgate.Limit) error {
	if d := LongestPeriod(l); n.MaxPeriod > 0 && d > n.MaxPeriod {
		return headgate.Invalid("limit",
			"what %q admits, refuses or remembers may count for %s; a notation in a request may have %s at most (%s)",
			l, formatDays(d), formatDays(n.MaxPeriod), NotationMaxPeriod.Name)
	}
	return nil
}

// LongestPeriod returns the longest period of a limit: window, time until a full bucket is empty (2 s at least: see
// law.Params.HealAfter), block or history.
func LongestPeriod(l headgate.Limit) time.Duration {
	p := l.Params()
	us := max(p.Step, p.Block, p.History)
	if p.Kind == law.Bucket {
		us = max(us, p.HealAfter())
	}
	return time.Duration(min(us, int64(1<<63-1)/1000)) * time.Microsecond // without overflow
}

// formatDays formats a duration for people, in days, rounded up, if it has at least two.
func formatDays(d time.Duration) string {
	if day := 24 * time.Hour; d >= 2*day {
		return fmt.Sprintf("%d days", (d+day-1)/day)
	}
	return d.String()
}
