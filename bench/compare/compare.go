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
	Ceiling             // what nothing of this kind can beat; of several, the best counts
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
}

// Exactness is what was admitted, against what the limit allows.
type Exactness struct {
	Admitted, Allowed float64
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
	// Why says what was found to be in the way where a goal is not met: it is
	// written below the figures then.
	Why string
}
