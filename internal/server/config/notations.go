package config

import (
	"cmp"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/law"
)

// Notations bound the notations in requests, of people who may be anybody. A field
// that is zero bounds nothing.
type Notations struct {
	MaxPeriod time.Duration // for which a charge may count or block, or an attempt be remembered
	Max       int           // different ones at a time
}

// DefaultNotations are the bounds of a server whose configuration has no others. The longest
// window of a calendar, a month, is a little longer than 31 days where clocks are
// changed.
var DefaultNotations = Notations{MaxPeriod: 32 * 24 * time.Hour, Max: 1000}

// Notations returns the bounds that flags, variables or the file say, or else the defaults.
func (r *Reader) Notations() (n Notations) {
	n.MaxPeriod = read(r, NotationMaxPeriod, DefaultNotations.MaxPeriod, "a length of time such as 30s, 15m or 30d",
		headgate.ParsePeriod)
	n.Max = cmp.Or(r.Count(MaxNotations), DefaultNotations.Max)
	return n
}

// valid returns what of the limit of a notation is too long.
func (n *Notations) valid(l headgate.Limit) error {
	if d := Longest(l); n.MaxPeriod > 0 && d > n.MaxPeriod {
		return headgate.Invalid("limit",
			"what %q admits, refuses or remembers may count for %s; a notation in a request may have %s at most (%s)",
			l, days(d), days(n.MaxPeriod), NotationMaxPeriod.Name)
	}
	return nil
}

// Longest returns the longest period that a limit's notation says or means: that of its
// windows, the time in which a full key is empty, its block and its history.
func Longest(l headgate.Limit) time.Duration {
	p := l.Params()
	us := max(p.Step, p.Block, p.History)
	if p.Kind == law.Bucket {
		us = max(us, p.HealAfter())
	}
	return time.Duration(min(us, int64(1<<63-1)/1000)) * time.Microsecond
}

// days writes a length of time for people who think in days.
func days(d time.Duration) string {
	if day := 24 * time.Hour; d >= 2*day {
		return fmt.Sprintf("%d days", (d+day-1)/day)
	}
	return d.String()
}
