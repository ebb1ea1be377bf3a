package law

import "cmp"

// Max is the largest integer of the laws, 2^53-1: a double, and so Lua, holds it and all smaller ones exactly. Values
// that would exceed it are invalid or saturated.
const Max = 1<<53 - 1

// Never is the RetryAt of a cost that can never pass. A retry time beyond the year 2255 saturates to it too.
const Never = Max

// Kind names one of the three laws. The zero Kind marks a fresh cell, one that no charge has touched.
type Kind uint8

// The laws.
const (
	Bucket Kind = 1 + iota // a level that drains in steps
	Window                 // two counters of adjacent windows
	Log                    // a sum over entries that expire one by one
)

// Anchor says where the steps of the bucket law begin.
type Anchor uint8

// The anchors.
const (
	Own      Anchor = iota // steps begin at the first use of the cell
	Epoch                  // steps begin at multiples of the step since the Unix epoch
	Calendar               // steps begin at the boundaries that the op carries
)

// Params are a limit as the laws see it.
type Params struct {
	Kind   Kind
	Anchor Anchor // Bucket only
	Away   Away   // the answer while the store is away. Laws and drivers ignore it
	Digits uint8  // decimal places of the figures that people see. Laws and drivers ignore it
	// Notify are percentages of Capacity in ascending order, then zeros. Laws and drivers ignore them.
	Notify   [4]uint8
	Unit     int64 // credits per unit of cost, 1 or more
	Capacity int64 // credits: the most that can pass at once
	Step     int64 // microseconds: length of a step, of the window, of a log entry's or lease's life
	Drain    int64 // Bucket only: credits drained per step

	Block   int64 // microseconds for which a refusal blocks the cell; 0: not at all
	History int64 // Log only: microseconds for which attempts are kept, also refused ones; 0: only while they count

	Prefetch     int64 // credits that a process may take up front; 0: none. Drivers ignore it
	PrefetchLife int64 // microseconds after which credits taken up front are lost. Drivers ignore it
	Leased       bool  // Log only: entries are released by their holders. Drivers ignore it

	Deadline int64 // microseconds that a decision may take; 0: the default. Laws and drivers ignore it
}

// Away is the answer while the store cannot decide.
type Away uint8

// The answers. If the limits of one request differ, the smallest value applies.
const (
	AwayDeny  Away = iota // an error, and nothing is admitted
	AwayShare             // each process decides by its share of the limit
	AwayAllow             // everything is admitted
)

// String returns deny, share or allow.
func (a Away) String() string { return [...]string{"deny", "share", "allow"}[min(a, AwayAllow)] }

// Verb is the effect of an op on a cell.
type Verb uint8

// The verbs. A store answers an unknown verb with an error that is ErrInvalid, for that group alone.
const (
	Take  Verb = 1 + iota // charge the cost if it fits
	Check                 // decide like Take, but write nothing
	// give back Cost credits of a charge, as far as the return rule allows; Cost below 0: charge so much more
	Return
	Settle // correct the charge that was made under ID to Cost
	Block  // refuse everything for TTL; 0 lifts a block
	Reset  // forget the cell
	Renew  // let the entry EntryNumber count until a Step from now, or longer if it already does
	// raise the charge that was made under ID to Cost in total
	Extend
)

// Cell names the state of one limit for one key.
type Cell struct {
	Limit string // the limit's name, or its canonical notation
	Key   string // who the limit applies to
}

// Compare orders cells by limit and key, byte by byte. Stores lock and list cells in this order.
func (c Cell) Compare(d Cell) int {
	return cmp.Or(cmp.Compare(c.Limit, d.Limit), cmp.Compare(c.Key, d.Key))
}

// Op is one operation on a cell. Ops of one request stand next to each other in a batch and carry the same Group; they
// are admitted all or none, and all have the same Verb.
type Op struct {
	Verb Verb
	// Alternative numbers the alternatives of a request from 1, in the order in which they are tried; 0: it has none.
	// The ops of each stand next to each other. All of the first alternative that passes are charged, and nothing of
	// the others. Only for Take and Check.
	Alternative uint8
	Group       uint32 // equal and adjacent: one request
	Cell        Cell
	Params      Params

	Cost     int64 // credits for each of Count, 1 or more; Extend: in total; Settle: in total, 0 or more, or Cancelled
	Count    int64 // how many times to charge Cost, 1 or more
	Partial  bool  // grant as many of Count as fit; only in a group of its own
	Ceiling  int64 // level in credits up to which to admit; 0: Params.Capacity
	Deferred bool  // Take: the op may start after its decision, see [Outcome.StartAt]; all of a group or none
	extends  bool  // the op is a Take made from an Extend, for the additional credits

	// ID names a request, so that it is charged once however often it is sent (Take), and can be extended and settled.
	// Each cell of the request remembers the ID by itself, for TTL from the decision, or from the start if deferred.
	ID     string
	TTL    int64  // microseconds: the life of ID (Take, Extend), or of a block
	Reason string // Block: the reason, for people

	// Return: the charge that is corrected, by its outcome (see [Back]): Level and At of the state after the charge
	// (Bucket; Window: At alone), Returned, the sum ever returned to the cell by then (Bucket), and EntryNumber, the
	// charge's entry in the log (Log; for Renew too).
	Level, At, Returned, EntryNumber int64

	// Window are four ascending window boundaries around the present, for Anchor Calendar. A decision time outside
	// them makes the outcome Stale.
	Window [4]int64

	// Params hold from From until before Until, in the store's time; Until 0: without an end. A decision
	// time outside makes the outcome Stale.
	From, Until int64

	Now int64 // test time, microseconds; 0: the store's own clock
}

// Alone reports whether the cell alone decides op, and the store forgets op then: it has no ID, does not start later,
// and is no part of an alternative.
func (op *Op) Alone() bool { return op.ID == "" && !op.Deferred && op.Alternative == 0 }

// Timed reports whether the parameters of op hold for a limited time, outside which its outcome is Stale.
func (op *Op) Timed() bool { return op.From != 0 || op.Until != 0 }

// Plain reports whether op is a plain charge: it takes its cost once, all of it up to the capacity or nothing, is
// [Op.Alone], and holds at any time. Stores and wrappers may also ask for certain parameters, cells and times.
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

// The ways to an outcome. Drivers use ViaStore only.
const (
	ViaStore    Via = iota // the store decided
	ViaPrefetch            // granted from credits taken up front
	ViaLocal               // a refusal repeated without the store
	ViaFallback            // the store was away, and Params.Away decided
)

// String returns store, prefetch, local or fallback.
func (v Via) String() string {
	return [...]string{"store", "prefetch", "local", "fallback"}[min(v, ViaFallback)]
}

// Outcome is a store's raw answer to an op. Package headgate derives from it what people see, such as headers.
type Outcome struct {
	// Granted is how many of Count the cell has room for. In a refused group nothing was charged, whatever Granted
	// says: the request was admitted if every op of the group has Granted == Count (or Partial and Granted > 0). A
	// charge of a refused group that would fit has RetryAt 0. Of a group with alternatives, one was charged if every op
	// of that one has Granted == Count; those after it have zero outcomes.
	//
	// For Return and Settle, Granted is how many credits were given back, or less than 0: charged in addition. For
	// Renew and Reset it is 1, or 0 if there was no entry or cell. For Extend it is the credits charged under the ID in
	// total, after the op: Cost or more if the op was admitted.
	Granted int64
	State   State // the state after the op
	Used    int64 // credits in use at the decision, the grant included
	Clock   int64 // the store's clock at the decision; see [Op.DecidedAt]
	// RetryAt is when the rest of Count could pass if nobody else came; 0: all was granted. Exception: if a Take of a
	// log was granted and left no room for a cost of 1, RetryAt is when a cost of 1 fits, which the state does not
	// tell. A replay does not have that time. For Block it is the end of the block.
	RetryAt int64

	StartAt     int64 // when a deferred request that was admitted may start: at its decision or later; else 0
	EntryNumber int64 // number of the entry in the log, where one was written; else 0
	Via         Via   // how the outcome was reached
	Crossed     uint8 // the highest of Params.Notify that the op has told. Stores leave it 0
	Stale       bool  // the decision time lies outside Window, or From and Until; nothing was done
	// Replayed: ID was admitted, extended or settled like this before. The outcome is the first one, except for Clock
	// and, for Extend, Granted.
	Replayed bool
	Err      error // the group failed; none of its ops was applied, unless Err is a store.ErrUnknownOutcome
}

// Carried is the ID of an entry that stands for all credits in use when the limit was changed, or the clock set back.
const Carried = "carried over"

// Entry is an attempt in the log of a cell.
type Entry struct {
	Number    int64  // ascending within a cell
	ID        string // ID of the request, if it has one, or Carried
	At        int64  // time of the attempt
	ExpiresAt int64  // the entry counts before this time; 0: it does not count
	KeepUntil int64  // from this time on the entry may be removed
	Cost      int64  // credits charged, or wanted by a refused attempt
	Granted   bool
}

// Ledger is what the log law reads of the log of one cell. It contains the granted entries only.
type Ledger interface {
	// Sum returns the credits of the entries with after < ExpiresAt <= upto.
	Sum(after, upto int64) int64
	// Freed returns the smallest ExpiresAt > after for which Sum(after, ExpiresAt) >= need, or Never.
	Freed(after, need int64) int64
	// Entry returns the credits and ExpiresAt of the granted entry with this number; 0, 0 if there is none.
	Entry(number int64) (credits, expiresAt int64)
}
