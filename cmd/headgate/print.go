package main

import (
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/headgate/headgate/internal/server/api"
)

// newTable aligns columns below their names, if they have some. Flush writes it.
func newTable(w io.Writer, names string) *tabwriter.Writer {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if names != "" {
		fmt.Fprintln(t, names)
	}
	return t
}

// instant writes a time of the store for people.
func instant(us int64) string {
	return time.UnixMicro(us).Local().Format("2006-01-02 15:04:05.000 MST")
}

// key writes a key so that a terminal shows it and nothing else happens.
func key(k string) string {
	if q := strconv.Quote(k); q[1:len(q)-1] != k || k == "" {
		return q
	}
	return k
}

// text is key for what may be empty.
func text(s string) string {
	if s == "" {
		return ""
	}
	return key(s)
}

func printStatus(w io.Writer, s *api.Status) error {
	t := newTable(w, "")
	line := func(name, format string, args ...any) { fmt.Fprintf(t, name+"\t"+format+"\n", args...) }
	line("limit", "%s", s.Limit)
	line("key", "%s", key(s.Key))
	if s.Rule != "" && s.Rule != s.Limit {
		rule := s.Rule
		if s.Applied != "" {
			rule += ", by " + text(s.Applied)
		}
		line("in force", "%s", rule)
	}
	if !s.Exists {
		line("used", "0 of %s; never used, reset, or used long ago", s.Capacity)
		return t.Flush()
	}
	line("used", "%s of %s", s.Used, s.Capacity)
	if s.Remaining != "" {
		line("remaining", "%s", s.Remaining)
	}
	if s.EmptyAt != nil && *s.EmptyAt > s.At {
		line("empty at", "%s, in %s", instant(*s.EmptyAt), time.Duration(*s.EmptyAt-s.At)*time.Microsecond)
	}
	if s.BlockedUntil != nil {
		line("blocked", "until %s, %s more", instant(*s.BlockedUntil),
			time.Duration(*s.BlockedUntil-s.At)*time.Microsecond)
		if s.Reason != "" {
			line("reason", "%s", key(s.Reason))
		}
	}
	for _, a := range s.History {
		line("attempt", "%s  %s  cost %s  #%d", instant(a.At),
			map[bool]string{true: "allowed", false: "refused"}[a.Allowed], a.Cost, a.Number)
	}
	return t.Flush()
}
