package compare

import (
	"fmt"
	"strings"
	"time"
)

// Goal is what Headgate is to reach.
type Goal struct {
	Text string
	// holds is asked with Headgate's figure and that of side; nil where the
	// goal looks at Headgate's alone.
	side  Side
	holds func(r *Result, ours, other *Figure) bool
}

// Times asks for at least so many times what the best rival does.
func Times(factor float64) Goal {
	return Goal{number(factor) + "x", Rival, func(r *Result, ours, other *Figure) bool {
		return r.better(ours, other) >= factor
	}}
}

// TimesOf asks for so many times what each of the rivals does whose label
// begins with a name.
func TimesOf(name string, factor float64) Goal {
	return Goal{number(factor) + "x " + name, Rival, func(r *Result, ours, _ *Figure) bool {
		met := false
		for i := range r.Figures {
			if f := &r.Figures[i]; f.Side == Rival && f.Err == nil && strings.HasPrefix(f.Label, name) {
				if met = r.better(ours, f) >= factor; !met {
					return false
				}
			}
		}
		return met
	}}
}

// P99 asks for a p99 of at most a share of the best rival's.
func P99(share float64) Goal {
	return Goal{"p99 at " + number(share), Rival, func(_ *Result, ours, other *Figure) bool {
		return float64(ours.P99) <= share*float64(other.P99)
	}}
}

// Within asks for a figure within a factor of the best ceiling's.
func Within(factor float64) Goal {
	return Goal{"within " + number(factor) + "x of the ceiling", Ceiling, func(r *Result, ours, other *Figure) bool {
		return r.better(ours, other)*factor >= 1
	}}
}

// Beside asks for a figure within a factor of Headgate's own in another setting.
func Beside(factor float64) Goal {
	return Goal{"within " + number(factor) + "x of itself", Self, func(r *Result, ours, other *Figure) bool {
		return r.better(ours, other)*factor >= 1
	}}
}

// TimesItself asks for so many times what Headgate does in another setting.
func TimesItself(factor float64) Goal {
	return Goal{number(factor) + "x itself", Self, func(r *Result, ours, other *Figure) bool {
		return r.better(ours, other) >= factor
	}}
}

// P99Below asks for a p99 of at most so much.
func P99Below(most time.Duration) Goal {
	return Goal{"p99 at most " + most.String(), Ours, func(_ *Result, ours, _ *Figure) bool {
		return ours.P99 <= most
	}}
}

// AtLeast asks for at least so much.
func AtLeast(least float64) Goal {
	return Goal{"at least " + fmt.Sprintf("%.0f", least) + "/s", Ours, func(_ *Result, ours, _ *Figure) bool {
		return ours.Median >= least
	}}
}

// Below asks for a figure of at most so much.
func Below(most float64, u Unit) Goal {
	return Goal{"at most " + number(most) + " " + u.Name, Ours, func(_ *Result, ours, _ *Figure) bool {
		return ours.Median <= most
	}}
}

// Verdict says whether the goals are met: yes, the ones that are not, or that
// it cannot be told.
func (r *Result) Verdict() string {
	ours := r.Best(Ours)
	if ours == nil {
		return "open"
	}
	if ours.HasExact && ours.Exact.Over > 0 {
		return "no: it admitted too many"
	}
	verdict := "yes"
	for _, g := range r.Goals {
		other := r.Best(g.side)
		switch {
		case other == nil:
			return "open"
		case !g.holds(r, ours, other) && verdict == "yes":
			verdict = "no"
			if len(r.Goals) > 1 {
				verdict += ": " + g.Text
			}
		}
	}
	return verdict
}

// Aim returns the goals in words.
func (r *Result) Aim() string {
	texts := make([]string, len(r.Goals))
	for i, g := range r.Goals {
		texts[i] = g.Text
	}
	return strings.Join(texts, ", ")
}

func number(f float64) string { return fmt.Sprintf("%.4g", f) }
