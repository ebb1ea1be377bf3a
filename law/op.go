package law

import "cmp"

// Max is the largest integer of the laws, 2^53-1: the largest that a double,
// and so Lua, holds exactly. Values that would pass it are saturated.
const Max = 1<<53 - 1

// Never is the RetryAt of a cost that can never pass. It is also what a
// retry time beyond the year 2255 saturates to.
const Never = Max

// Kind names one of the three laws. The zero Kind marks a fresh cell, one
// that no charge has touched.
type Kind uint8

// The laws.
const (
	Bucket Kind = 1 + iota // a level that drains in steps
	Window                 // two counters of adjacent windows
	Log                    // a sum over entries that expire one by one
)

// Anchor says from where the steps of the bucket law are counted.
type Anchor uint8

// The anchors.
const (
	Own      Anchor = iota // from the cell's own time: its first use
	Epoch                  // from multiples of the step since the Unix epoch
	Calendar               // from the boundaries that the op carries
)

// Params are a limit as the laws see it.
type Params struct {
	Kind     Kind
	Anchor   Anchor // Bucket only
	Away     Away   // what is answered while the store is away. Laws and drivers ignore it
	Digits   uint8  // after the point, of the figures that people see. Laws and drivers ignore it
	Unit     int64  // credits per unit of cost, 1 or more
	Capacity int64  // credits: the most that can pass at once
	Step     int64  // microseconds: length of a step, of the window, of a log entry's or lease's life
	Drain    int64  // Bucket only: credits drained per step

	Block   int64 // microseconds for which a refusal blocks the cell; 0: not at all
	History int64 // Log only: microseconds for which attempts are remembered, the refused ones too; 0: only what counts

	Prefetch     int64 // credits a node may take up front; 0: none. Drivers ignore it
	PrefetchLife int64 // microseconds until what a node took up front is lost. Drivers ignore it
	Leased       bool  // Log only: entries are released by their holders. Drivers ignore it

	Deadline int64 // microseconds that a decision may take; 0: the default. Laws and drivers ignore it
}

// Away is the answer while the store cannot decide.
type Away uint8

// What is answered. Where the limits of one request differ, the smallest value holds.
const (
	AwayDeny  Away = iota // an error, and nothing is admitted
	AwayShare             // each process decides by its part of the limit
	AwayAllow             // everything is admitted
)

// String returns deny, share or allow.
func (a Away) String() string { return [...]string{"deny", "share", "allow"}[min(a, AwayAllow)] }

// Verb is the effect of an op on a cell.
type Verb uint8

// The verbs. A store that does not know one answers it with an error that is
// ErrInvalid, for that group alone.
const (
	Take  Verb = 1 + iota // charge, if it fits
	Check                 // the answer Take would give; nothing is written
	// give back Cost of a charge, as far as the return rule allows; less than 0: charge so much more
	Return
	Settle // make Cost the cost of a charge of the request ID
	Block  // refuse everything for TTL; 0 lifts a block
	Reset  // forget the cell
	Renew  // let Entry count for another Step from now, or for as long as it does
	// charge more under the ID of a request, so that Cost is what it has charged in all
	Extend
)

// Cell names the state of one limit for one key.
type Cell struct {
	Limit string // the limit's name, or its canonical notation
	Key   string // who it is applied to
}

// Compare orders cells by limit and key, byte by byte: the order in which stores
// lock and list them.
func (c Cell) Compare(d Cell) int {
	return cmp.Or(cmp.Compare(c.Limit, d.Limit), cmp.Compare(c.Key, d.Key))
}

// Op is one operation on a cell. Ops of one request stand next to each
// other in a batch and carry the same Group; they are admitted all or none,
// and all have the same Verb.
type Op struct {
	Verb   Verb
	Group  uint32 // equal and adjacent: one request
	Cell   Cell
	Params Params

	Cost     int64 // credits per count, 1 or more; Extend: in all; Settle: in all, 0 or more, or Cancelled
	Count    int64 // how many of Cost, 1 or more
	Partial  bool  // grant as many of Count as fit; only in a group of its own
	Ceiling  int64 // credits up to which to admit; 0: Params.Capacity
	Deferred bool  // Take: it may start later than at its decision, see [Outcome.StartAt]; all of a group or none
	extends  bool  // it takes what an op of verb Extend charges in addition

	// ID names a request, so that it is charged once however often it is sent
	// (Take), and can be extended and settled. It is known for each cell of the request by
	// itself, for TTL from the decision that admitted it, or from its start.
	ID     string
	TTL    int64  // microseconds: the life of ID (Take, Extend), or of a block
	Reason string // Block: why, for people

	// Return: what the outcome of the charge said, see [Back]. Level and At are
	// those of the state that it made (Bucket; Window: At alone), Returned is the
	// sum ever returned to the cell by then (Bucket), EntryNumber its entry in the log
	// (Log; Renew too).
	Level, At, Returned, EntryNumber int64

	// Window are four ascending window boundaries around the present, for
	// Anchor Calendar. A time outside them makes the outcome Stale.
	Window [4]int64

	// Take, Check: Params hold from From until before Until, in the store's time; 0: without an
	// end. A time outside makes the outcome Stale.
	From, Until int64

	Now int64 // test time, microseconds; 0: the store's own clock
}

// Alone reports whether op is over with its decision: it has no ID by which the store
// remembers it, and it does not start later.
func (op *Op) Alone() bool { return op.ID == "" && !op.Deferred }

// Timed reports whether what op asks holds for a time only, by which it can be Stale.
func (op *Op) Timed() bool { return op.From != 0 || op.Until != 0 }

// Plain reports whether op is a plain charge: it takes its cost once, all of it up to the
// capacity or nothing, stands alone, and holds at any time. What a store or a wrapper may do with one can
// depend on its parameters, its cell and its time too.
func (op *Op) Plain() bool {
	return op.Verb == Take && op.Count == 1 && !op.Partial && op.Ceiling == 0 && op.Alone() && !op.Timed()
}

// State is a cell: one row in a database. The zero State is a fresh cell.
type State struct {
	Kind         Kind
	Level        int64 // credits in use as of At
	Prev         int64 // Bucket: sum ever returned. Window: credits of the window before
	At           int64 // the time Level holds for
	Unit         int64 // credits per unit of cost when Level was written
	Step         int64 // Params.Step when Level was written
	EmptyAt      int64 // from here on Level and Prev count as 0
	BlockedUntil int64 // everything is refused before this time
}

// Via says how an outcome was reached.
type Via uint8

// The ways. Drivers know the first only.
const (
	ViaStore    Via = iota // the store decided
	ViaPrefetch            // out of credits taken up front
	ViaLocal               // a refusal repeated without the store
	ViaFallback            // the store was away, and Params.Away decided
)

// String returns store, prefetch, local or fallback.
func (v Via) String() string {
	return [...]string{"store", "prefetch", "local", "fallback"}[min(v, ViaFallback)]
}

// Outcome is a store's raw answer to an op. What people see (remaining,
// retry-after, headers) is derived from it in package headgate.
type Outcome struct {
	// Granted is how many of Count the cell has room for. In a refused group
	// nothing was charged, whatever Granted says: the request was admitted if
	// every op of the group has Granted == Count (or Partial and Granted > 0).
	// Of Return it is how many credits were given back, of Settle too; less than
	// 0 is what was charged in addition. Of Renew and Reset it is 1, or 0 if there
	// was nothing. Of Extend it is the credits charged under the ID in all, once the op is
	// done: Cost or more if it was admitted. A charge of a refused group that would fit has RetryAt 0.
	Granted int64
	State   State // as it stands after the op
	Used    int64 // credits in use at the decision, the grant included
	Clock   int64 // the store's clock at the decision; see [Op.DecidedAt]
	// RetryAt is when the rest of Count could pass if nobody else came; 0: all was granted. Of a Take of a log that
	// was granted and left no room for a cost of 1, it is when that fits, which the state does not say; a replay does
	// not say it either.
	RetryAt int64

	StartAt     int64 // when a deferred request that was admitted may start: at its decision or later; else 0
	EntryNumber int64 // number of the entry in the log, where one was written; else 0
	Via         Via   // how the outcome was reached
	Stale       bool  // the decision time lies outside Window, or From and Until; nothing was done
	// ID was admitted, extended or settled so before: all but Clock, and Granted of Extend, is what
	// was said at first.
	Replayed bool
	Err      error // this group failed and nothing of it was done
}

// Carried is the ID of an entry that stands for what was used before the
// limit was changed, or the clock stepped back.
const Carried = "carried over"

// Entry is an attempt in the log of a cell.
type Entry struct {
	Number    int64  // ascending within a store
	ID        string // of the request, where it has one, or Carried
	At        int64
	ExpiresAt int64 // it counts while the time is before this; 0: it does not count
	KeepUntil int64 // it may be forgotten from here on
	Cost      int64 // credits wanted
	Granted   bool
}

// Ledger is the log of one cell, as the log law needs to see it. Only granted
// entries are in it.
type Ledger interface {
	// Sum returns the credits of the entries with after < ExpiresAt <= upto.
	Sum(after, upto int64) int64
	// Freed returns the smallest ExpiresAt > after for which
	// Sum(after, ExpiresAt) >= need, or Never.
	Freed(after, need int64) int64
	// Entry returns the credits of a granted entry and its ExpiresAt; 0, 0 if
	// there is none of that number.
	Entry(number int64) (credits, expiresAt int64)
}
