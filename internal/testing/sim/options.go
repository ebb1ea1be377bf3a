package sim

import (
	"cmp"
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
	Nodes   int           // the most; 0: any
	Callers int           // the most of a node; 0: any
	Limits  int
	Keys    int
	Without []string // faults and verbs that are left out: see Parts
}

// Parts are what can be left out.
var Parts = []string{
	"kills", "crashes", "clocks", "full", "forgets", "changes", "network", "cancels", "operators", "leases",
	"reservations", "ids", "extensions", "waits", "several", "headroom",
}

// sizes are the numbers of Options, by their names.
var sizes = []struct {
	name string
	of   func(*Options) *int
}{
	{"nodes", func(o *Options) *int { return &o.Nodes }},
	{"callers", func(o *Options) *int { return &o.Callers }},
	{"limits", func(o *Options) *int { return &o.Limits }},
	{"keys", func(o *Options) *int { return &o.Keys }},
}

// String returns the options as ParseOptions reads them.
func (o *Options) String() string {
	var list []string
	if o.End > 0 {
		list = append(list, "end="+o.End.String())
	}
	for _, size := range sizes {
		if n := *size.of(o); n > 0 {
			list = append(list, size.name+"="+strconv.Itoa(n))
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
		part, without := strings.CutPrefix(word, "no-")
		size := 0
		for size < len(sizes) && sizes[size].name != name {
			size++
		}
		switch {
		case word == "":
		case without && slices.Contains(Parts, part):
			o.Without = append(o.Without, part)
		case name == "end":
			o.End, err = time.ParseDuration(value)
		case size < len(sizes):
			*sizes[size].of(&o), err = strconv.Atoi(value)
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
	for _, size := range sizes {
		if now := *size.of(o); now != 1 {
			add(func(c *Options) { *size.of(c) = 1 })
			if now == 0 {
				add(func(c *Options) { *size.of(c) = 2 })
			}
		}
	}
	if o.End == 0 || o.End > time.Second {
		most := min(cmp.Or(o.End, 4*time.Hour), 4*time.Hour)
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
