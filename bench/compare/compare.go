// Package compare measures cells side by side: all cells of a comparison in a
// round, then the next round, so that what else the machine does meets all of
// them alike. What counts are the medians of the rounds.
package compare

import (
	"context"
	"time"
)

// Side says whose a cell is.
type Side int

// The sides.
const (
	Ours    Side = iota // Headgate: one cell of a comparison
	Rival               // what Headgate is to beat; of several, the best counts
	Ceiling             // the bare statement or arithmetic, without Headgate's code; of several, the best counts
	Self                // Headgate in another setting; of several, the best counts
)

// Cell is one side of a comparison, at one setting.
type Cell struct {
	Side Side
	Name string // whose: "redis_rate v10.0.1"
	At   string // the setting: "32 clients"; may be empty

	// Measure measures for about d.
	Measure func(ctx context.Context, d time.Duration) (Sample, error)
	// Exact counts under a limit that binds. Nil: it is not counted.
	Exact func(ctx context.Context, d time.Duration) (Exactness, error)
	// Meter reads what the servers have spent so far. Nil: it is not known.
	Meter func(ctx context.Context) (Reading, error)
	// Close lets go of what the cell holds; the last cell's comes first. It may
	// be nil.
	Close func()

	Err error // why it cannot be measured
}

// Label returns what a cell is called in tables and pictures.
func (c *Cell) Label() string {
	if c.At == "" {
		return c.Name
	}
	return c.Name + ", " + c.At
}

// Sample is what one cell showed in one round.
type Sample struct {
	Value         float64       // in the unit of the comparison
	P50, P99      time.Duration // of a decision; 0: not measured
	Asked, Failed int64
	FirstError    error
	Bytes, Allocs float64 // of the heap, for a decision
	HasAllocs     bool
	Decisions     float64 // those of the warm-up too; 0: they are not counted, and nor is the cost
	Cost          Cost
	HasCost       bool
}

// Exactness is what was admitted, against what the limit allows.
type Exactness struct {
	Admitted, Allowed float64
	Over              float64 // what each key admitted above its bound, summed up
}

// Reading is what servers have spent up to now. A figure below 0 is not known.
type Reading struct {
	CPU   time.Duration
	Log   int64 // bytes that were written to the log of the database
	Calls int64 // statements that clients have sent
}

// Cost is what a decision costs, on average. A figure below 0 is not known.
type Cost struct {
	Client, Server time.Duration // of CPU: of this process, and of the servers it started
	Log            float64       // bytes
	Calls          float64       // round trips
}

// Unit is what is measured. The zero Unit is PerSecond.
type Unit struct {
	Name  string // "ns", "B", "ms"
	Lower bool   // the lower the better
}

// The units.
var (
	PerSecond  = Unit{}
	Nanosecond = Unit{Name: "ns", Lower: true}
	Bytes      = Unit{Name: "B", Lower: true}
	Millis     = Unit{Name: "ms", Lower: true}
	Statements = Unit{Name: "st/s", Lower: true}
	Rows       = Unit{Name: "rows", Lower: true}
)

// Comparison is a row of the table.
type Comparison struct {
	Name  string // for -only, and the picture's file
	Title string
	Unit  Unit
	Goals []Goal
	// Cells makes ready what is to be measured. An error fails this
	// comparison alone, as an Err does a cell.
	Cells func(ctx context.Context) ([]Cell, error)
	// Rounds bounds the rounds of what hardly varies. Zero: no bound.
	Rounds int
	// Least is for how long a cell is measured in a round at least: several times as long
	// as a request takes. Zero: as the plan says.
	Least time.Duration
	// Shared is what is made once for several comparisons; nil for nothing.
	Shared *Shared
	// Curve names the point of a picture that this comparison is; nil for none.
	Curve *Point
}

// Point is a comparison's place in a picture over callers.
type Point struct {
	Picture, Title string // for the file; above it
	Panel          string // which work
	Callers        int
}

// Shared is made by the first of the comparisons that use it, and let go of after the last.
type Shared struct {
	Left  int // comparisons that are still to come
	Close func()
}

// Done says that one of the comparisons is over. A nil Shared has nothing to let go of.
func (s *Shared) Done() {
	if s == nil {
		return
	}
	if s.Left--; s.Left <= 0 && s.Close != nil {
		s.Close()
		s.Close = nil
	}
}
