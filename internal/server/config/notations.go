package config

import (
	"cmp"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/law"
)

// Notations bounds the notations in requests, which anybody may send. A zero field bounds nothing.
type Notations struct {
	MaxPeriod time.Duration // how long a charge may count or block, or an attempt be remembered
	Max       int           // different notations in use at a time
}

// DefaultNotations are the default bounds. The longest calendar window, a month, is a little longer than 31 days where
// clocks are changed.
var DefaultNotations = Notations{MaxPeriod: 32 * 24 * time.Hour, Max: 1000}

// Notations returns the configured bounds, or the defaults.
func (r *Reader) Notations() (n Notations) {
	n.MaxPeriod = read(r, NotationMaxPeriod, DefaultNotations.MaxPeriod, "a length of time such as 30s, 15m or 30d",
		headgate.ParsePeriod)
	n.Max = cmp.Or(r.Count(MaxNotations), DefaultNotations.Max)
	return n
}

// check returns an error if the longest period of a notation's limit is longer than MaxPeriod.
func (n *Notations) check(l headgate.Limit) error {
	if d := LongestPeriod(l); n.MaxPeriod > 0 && d > n.MaxPeriod {
		return headgate.Invalid("limit",
			"what %q admits, refuses or remembers may count for %s; a notation in a request may have %s at most (%s)",
			l, formatDays(d), formatDays(n.MaxPeriod), NotationMaxPeriod.Name)
	}
	return nil
}

// LongestPeriod returns the longest period of a limit: window, time until a full bucket is empty, block or history.
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
