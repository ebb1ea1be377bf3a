package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/sched"
)

// Options make the simulation of a seed smaller than the seed says. The zero Options
// change nothing. What is left out changes the rest too, since all of it draws from the
// same random numbers: a fault may be gone, or another one may be there.
type Options struct {
	End     time.Duration // the longest time simulated; 0: any
	Nodes   int           // at most so many; 0: any
	Callers int           // at most so many a node; 0: any
	Limits  int
	Keys    int
	Without []string // faults and verbs that are left out: see Parts
}

// Parts are what can be left out.
var Parts = []string{
	"kills", "crashes", "clocks", "full", "forgets", "changes", "network", "cancels", "operators", "leases",
	"reservations", "ids", "extensions", "waits", "several", "headroom",
}

// String returns the options as ParseOptions reads them.
func (o *Options) String() string {
	var list []string
	if o.End > 0 {
		list = append(list, "end="+o.End.String())
	}
	for _, n := range []struct {
		name string
		of   int
	}{{"nodes", o.Nodes}, {"callers", o.Callers}, {"limits", o.Limits}, {"keys", o.Keys}} {
		if n.of > 0 {
			list = append(list, n.name+"="+strconv.Itoa(n.of))
		}
	}
	for _, w := range o.Without {
		list = append(list, "no-"+w)
	}
	return strings.Join(list, ",")
}

// ParseOptions reads options such as "nodes=1,end=10m,no-clocks".
func ParseOptions(text string) (o Options, err error) {
	for word := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(word, "=")
		number := func(at *int) { *at, err = strconv.Atoi(value) }
		part, without := strings.CutPrefix(word, "no-")
		switch {
		case word == "":
		case without && slices.Contains(Parts, part):
			o.Without = append(o.Without, part)
		case name == "end":
			o.End, err = time.ParseDuration(value)
		case name == "nodes":
			number(&o.Nodes)
		case name == "callers":
			number(&o.Callers)
		case name == "limits":
			number(&o.Limits)
		case name == "keys":
			number(&o.Keys)
		default:
			err = fmt.Errorf("%q is not known", word)
		}
		if err != nil {
			return o, fmt.Errorf("options: %w", err)
		}
	}
	return o, nil
}

// smaller returns options that simulate less, the largest steps first.
func (o *Options) smaller() (list []Options) {
	add := func(change func(*Options)) {
		c := *o
		c.Without = slices.Clone(o.Without)
		change(&c)
		list = append(list, c)
	}
	for _, p := range Parts {
		if !slices.Contains(o.Without, p) {
			add(func(c *Options) { c.Without = append(c.Without, p) })
		}
	}
	for _, n := range []func(*Options) *int{
		func(c *Options) *int { return &c.Nodes }, func(c *Options) *int { return &c.Callers },
		func(c *Options) *int { return &c.Limits }, func(c *Options) *int { return &c.Keys },
	} {
		if now := *n(o); now != 1 {
			add(func(c *Options) { *n(c) = 1 })
			if now == 0 {
				add(func(c *Options) { *n(c) = 2 })
			}
		}
	}
	if o.End == 0 || o.End > time.Second {
		most := min(max(o.End, 0), 4*time.Hour)
		if most == 0 {
			most = 4 * time.Hour
		}
		for part := time.Duration(16); part >= 2; part /= 2 {
			add(func(c *Options) { c.End = most / part })
		}
	}
	return list
}

// Shrink looks for smaller options under which a seed still fails, as fails says of the
// options, until none of the next smaller ones does or the time is over.
func Shrink(o Options, within time.Duration, fails func(Options) bool) Options {
	begin := sched.Now()
	for again := true; again; {
		again = false
		for _, c := range o.smaller() {
			if sched.Since(begin) > within {
				return o
			}
			if fails(c) {
				o, again = c, true
				break
			}
		}
	}
	return o
}
