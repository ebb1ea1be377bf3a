package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/sched"
)

// Severity says how much a Finding matters.
type Severity string

// The severities.
const (
	Fine  Severity = "ok"
	Note  Severity = "note"  // it may be on purpose; the finding says what it costs
	Wrong Severity = "wrong" // limits are not exact, admitted charges can be lost, or requests wait
)

// Finding is a Doctor's finding about one subject.
type Finding struct {
	Check    string   `json:"check"` // the subject, such as "isolation"
	Severity Severity `json:"severity"`
	Found    string   `json:"found"`            // one line
	Remedy   string   `json:"remedy,omitempty"` // what to do about it; empty if it is Fine
}

// Doctor is a Store that can look for what is wrong with its server and its schema. It does so even if the store itself
// would refuse to work, for example because the schema is not migrated.
type Doctor interface {
	// Examine looks at one subject after the other, and returns a finding about each. It changes nothing. If it cannot
	// reach a server, it returns the error with the earlier findings.
	Examine(ctx context.Context) ([]Finding, error)
}

// Findings collects findings, for implementations of Doctor.
type Findings []Finding

// OK adds the finding that a subject is fine.
func (f *Findings) OK(check, format string, args ...any) {
	*f = append(*f, Finding{Check: check, Severity: Fine, Found: fmt.Sprintf(format, args...)})
}

// Add adds a finding with its remedy.
func (f *Findings) Add(s Severity, check, found, remedy string) {
	*f = append(*f, Finding{check, s, found, remedy})
}

// Expect adds the finding fine if ok is true, else the finding found with its severity and remedy.
func (f *Findings) Expect(ok bool, check, fine string, s Severity, found, remedy string) {
	if ok {
		s, found, remedy = Fine, fine, ""
	}
	f.Add(s, check, found, remedy)
}

// Away adds the finding that one of several nodes cannot be reached, and returns nil. It returns all other errors, and
// any error of a store with one node.
func (f *Findings) Away(ctx context.Context, node string, nodes int, err error) error {
	if nodes == 1 || ctx.Err() != nil || !errors.Is(err, ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	f.Add(Wrong, "node", fmt.Sprintf("%s cannot be asked: %v", node, err),
		"start it and have it join the others, or remove it from the URL")
	return nil
}

// Schema adds a finding about the schema that headgate migrate makes: err is the error of a check of the tables,
// isOlder says that the functions in the store are older than the binary, and installed is what the store has. It
// reports whether the binary can use the tables.
func (f *Findings) Schema(err error, isOlder bool, installed string) bool {
	switch {
	case errors.Is(err, ErrSchemaNewer):
		f.Add(Wrong, "schema", err.Error(), "use the newer binary of headgate here too")
	case err != nil:
		f.Add(Wrong, "schema", err.Error(), "run headgate migrate")
	case isOlder:
		f.Add(Note, "schema", "the functions and procedures are older than this binary", "run headgate migrate")
	default:
		f.OK("schema", "%s", installed)
	}
	return err == nil
}

// MostUnswept is the most keys that may wait for a sweep for more than ten minutes. A Doctor counts up to one more.
const MostUnswept = 10_000

// Sweeper adds a finding about the number of keys that a sweep could have removed ten minutes ago.
func (f *Findings) Sweeper(unswept int) {
	f.Expect(unswept <= MostUnswept, "sweeper",
		fmt.Sprintf("%d keys that count for nothing wait to be removed", unswept), Wrong,
		fmt.Sprintf("more than %d keys have counted for nothing for ten minutes, and are still there", MostUnswept),
		"run a server, which sweeps in the background, or headgate sweep from cron")
}

// manyKeys is the number of keys of a limit from which callers may be inventing them.
const manyKeys = 1_000_000

// Keys adds a finding about the numbers of keys of the limits.
func (f *Findings) Keys(counts []KeyCount) {
	total, largest := int64(0), KeyCount{}
	for _, c := range counts {
		total += c.Keys
		if c.Keys > largest.Keys {
			largest = c
		}
	}
	if largest.Keys < manyKeys {
		f.OK("keys", "%d keys of %d limits, at most %d of one (%s)", total, len(counts), largest.Keys,
			cmp.Or(largest.Limit, "none"))
		return
	}
	f.Add(Note, "keys", fmt.Sprintf("limit %s has %d keys, of %d in all", largest.Limit, largest.Keys, total),
		"if callers can invent them, charge a limit by address before it, so that one caller makes few")
}

// maxClockDifference is the largest difference between two clocks that is fine. docs/stores.md allows nodes as much.
const maxClockDifference = 2 * time.Second

// Clock adds a finding about the difference between a server's clock and the clock of this machine. read returns the
// server's clock in microseconds since the Unix epoch; its error is returned.
func (f *Findings) Clock(name string, read func() (int64, error)) error {
	begin, before := sched.Now(), sched.Wall()
	theirs, err := read()
	if err != nil {
		return err
	}
	took := sched.Since(begin)
	apart := time.UnixMicro(theirs).Sub(before.Add(took / 2)).Round(time.Millisecond)
	found := fmt.Sprintf("%s is %s from the clock of this machine", name, apart)
	f.Expect(apart.Abs() <= maxClockDifference+took/2, "clock", found, Note, found,
		"keep both right with NTP: limits go by the server's clock, and a jump of it admits up to one more "+
			"burst for each key")
	return nil
}
