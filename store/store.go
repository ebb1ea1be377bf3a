// Package store is the seam between the limiter and the databases: three methods, optional interfaces and errors.
//
// Drivers live in the packages below (memory, sqlite, postgres, mysql, redis); each passes the suite in storetest.
// Wrappers are Stores around a Store.
package store

import (
	"context"

	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/law"
)

// Store keeps cells and applies ops to them. It is safe for concurrent use.
//
// Apply applies a batch as if its groups were applied one after another, in order: adjacent ops of one Group apply all
// or none. outs has the length of ops. A group that fails alone says so in Outcome.Err. One Apply is one round trip and
// one transaction, and holds no lock while it waits for the network or the caller.
//
// An error of Apply itself is the error of every group whose outcome has no Err of its own. Such a group is not known
// to be decided, and no caller may use its outcome as a decision, whatever outs contains: see [Void]. So a store that
// has decided some groups and failed to decide others, as one with several nodes can, returns nil and sets Outcome.Err
// of the others.
//
// Sweep removes up to max cells, log entries and admissions that can no longer matter to any decision, and returns how
// many it removed. Package front calls it in the background, again and again; each call may look at a part of the rows,
// and the next one continues there.
//
// Close releases what the store opened itself. Later calls return ErrClosed.
type Store interface {
	// Apply decides about ops and writes their outcomes.
	Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error
	// Sweep removes rows that can matter to no decision, at most max of them.
	Sweep(ctx context.Context, max int) (removed int, err error)
	// Close releases what the store opened itself. A pool of the caller stays open.
	Close() error
}

// Role is a set of rights that a database user can have.
type Role string

// The roles.
const (
	// RoleApp may take from limits by name, through SQL functions, and nothing else.
	RoleApp Role = "app"
	// RoleService may do all that servers, the command and the Go library do, except migrate.
	RoleService Role = "service"
)

// Migrator is a Store with a schema.
type Migrator interface {
	// Migrate brings the schema to the version that this binary uses. It is idempotent, and returns one line about each
	// thing that it did or left alone for a reason.
	Migrate(ctx context.Context) (report []string, err error)
	// Grant gives a role to a user of the database, and returns a line about each thing done. The user keeps other
	// rights. Errors are ErrInvalid for an unknown role or user; ErrUnsupported where there are no users.
	Grant(ctx context.Context, role Role, user string) (lines []string, err error)
	// Removal returns a line about each thing that Remove would remove.
	Removal(ctx context.Context) (lines []string, err error)
	// Remove removes all that Migrate has made: limits, the state of all keys, histories, functions. Programs that use
	// the store fail from then on with ErrSetup. ErrUnsupported where the store is a file: remove that.
	Remove(ctx context.Context) error
}

// Inspector is a Store that can be inspected. Its methods read without locks and change nothing.
type Inspector interface {
	// Cells returns the cells that q selects, ordered by limit and key, byte by byte, and the store's clock.
	Cells(ctx context.Context, q Query) (cells []Cell, clock int64, err error)
	// Entries returns the newest n entries in the log of a cell, newest first; none if n is 0.
	Entries(ctx context.Context, cell law.Cell, n int) ([]law.Entry, error)
	// KeyCounts returns the numbers of keys of the limits with the most keys, and perhaps the total of all limits. It
	// may return the counts of an earlier call, since to count can take long.
	KeyCounts(ctx context.Context) ([]KeyCount, error)
}

// KeyCount is the number of keys that a limit had at some time.
type KeyCount struct {
	Limit string // the limit's name; empty: all limits of the store together
	Keys  int64  // cells, including those that no longer count
	Max   int64  // the most keys that the store keeps for the limit; 0: any number
	At    int64  // the store's time of the count, in microseconds
}

// Query selects cells. The zero Query selects the first DefaultMax of all.
type Query struct {
	Limit   string // only this limit; empty: all
	Key     string // only this key, if HasKey
	HasKey  bool
	Blocked bool     // only cells that are blocked now
	After   law.Cell // only cells after this one, to page on
	Max     int      // at most this many; 0: DefaultMax
}

// PageSize returns Max, or DefaultMax if Max is 0 or less.
func (q *Query) PageSize() int {
	if q.Max <= 0 {
		return DefaultMax
	}
	return q.Max
}

// Valid returns an error if no cell can match q: an ErrInvalid that names the field. Every Inspector calls it first, so
// that all stores refuse the same queries.
func (q *Query) Valid() error {
	if err := (law.Cell{Limit: q.Limit, Key: q.Key}).ValidText(); err != nil {
		return err
	}
	if err := q.After.ValidText(); err != nil {
		return law.Invalid("after", "%v", err)
	}
	return nil
}

// ValidEntries returns an error if Entries cannot accept the arguments. Every Inspector calls it first.
func ValidEntries(cell law.Cell, n int) error {
	if n < 0 {
		return law.Invalid("n", "is %d; it must not be below 0", n)
	}
	return cell.ValidText()
}

// DefaultMax is the page size of a Query without a Max.
const DefaultMax = 1000

// Cell is a cell as an Inspector shows it.
type Cell struct {
	law.Cell
	State  law.State
	Reason string // why the cell is blocked; empty if it is not
}

// Clock returns the time in microseconds since the Unix epoch.
type Clock func() int64

// SystemClock returns the clock of this machine. It is the only place in the library where the wall clock is read to
// decide something.
func SystemClock() int64 { return sched.Wall().UnixMicro() }
