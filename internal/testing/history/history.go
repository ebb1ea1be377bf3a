// Package history is the format of a recorded run of Headgate, for package check or a person to judge afterwards.
//
// # The file
//
// A history is JSON Lines: UTF-8 text, one JSON object a line, each ended by a line feed. Each object is an [Event].
// Fields have the names of the json tags below, in lower case. There are no other fields, and no event goes back in
// time. Absent numbers are 0, absent texts empty, absent lists empty, absent flags false.
//
// Two clocks occur. "t" is true time: nanoseconds since the start of the run, on one clock that never goes back and
// that all recorders share. Fields that end in "at" are times by the store's clock: microseconds since the Unix epoch.
// Durations are in microseconds. Amounts and costs are texts, so that they are exact: a decimal such as "2.5", or a
// fraction such as "1/3".
//
// # Events
//
// An event has exactly one of these objects, which says what it is:
//
//   - limit: a limit was defined, or changed: then it has another version. It precedes the first call that names it.
//   - call: the process "node" calls the limiter.
//   - return: the answer to the call of the same id. A call has at most one return. A call without a return has an
//     unknown outcome: its process has died, or the run was over.
//   - removal: an override of a key was removed before its end.
//   - fault: something was done to the store, the network or a process.
//   - state: a cell in the store when the run is over and nothing is under way.
//
// # What a recorder must do
//
// It writes a call before it calls the limiter and a return after the limiter has answered, so that the decision lies
// between the two. It writes a fault before the fault can have an effect; only "forget" may follow, by up to "by". It
// leaves out a time that it does not know. The checker finds more if it knows the times of blocks, and "until" of
// unknown outcomes.
//
// The test of this package has a line of each kind.
package history

import (
	"bufio"
	"encoding/json"
	"io"
)

// History is a recorded run, in the order of true time.
type History struct {
	Events []Event
}

func (h *History) Write(to io.Writer) error {
	lines := bufio.NewWriter(to)
	write := json.NewEncoder(lines)
	for i := range h.Events {
		if err := write.Encode(&h.Events[i]); err != nil {
			return err
		}
	}
	return lines.Flush()
}

// Event is one line of a history: a time, a process, and exactly one of the other objects.
type Event struct {
	T       int64    `json:"t"`              // true time, nanoseconds since the start of the run; never goes back
	Node    string   `json:"node,omitempty"` // the process of calls and returns, or what a fault hit
	Limit   *Limit   `json:"limit,omitempty"`
	Call    *Call    `json:"call,omitempty"`
	Return  *Return  `json:"return,omitempty"`
	Removal *Removal `json:"removal,omitempty"`
	Fault   *Fault   `json:"fault,omitempty"`
	State   *State   `json:"state,omitempty"`
}

// The algorithms, as in the notation of limits.
const (
	TokenBucket   = "token-bucket"
	LeakyBucket   = "leaky-bucket"
	GCRA          = "gcra"
	FixedWindow   = "fixed-window"
	Interval      = "interval"
	SlidingWindow = "sliding-window"
	SlidingLog    = "sliding-log"
	Concurrency   = "concurrency"
)

// Limit is a version of a limit, or an override.
type Limit struct {
	Name      string `json:"name"`
	Algorithm string `json:"algorithm"`
	Version   int    `json:"version"`
	Amount    string `json:"amount"`             // units per Period; with concurrency, the most that is held
	Period    int64  `json:"period,omitempty"`   // microseconds; 0 with Calendar and concurrency
	Burst     string `json:"burst,omitempty"`    // what can pass at once; empty: Amount, at least 1
	FromFirst bool   `json:"first,omitempty"`    // fixed-window: windows start at the first charge after the last one
	Calendar  string `json:"calendar,omitempty"` // fixed-window: minute, hour, day, week (from Monday) or month
	Zone      string `json:"zone,omitempty"`     // time zone of Calendar, by its IANA name; empty: UTC
	Block     int64  `json:"block,omitempty"`    // how long a refusal blocks the key, in microseconds
	TTL       int64  `json:"ttl,omitempty"`      // concurrency: microseconds

	Prefetch     string `json:"prefetch,omitempty"`     // what a node may take ahead; empty: nothing
	PrefetchLife int64  `json:"prefetchlife,omitempty"` // microseconds until what it took is lost

	// From is when this version replaces the one before it, by the store's clock, if calls know both; 0: from the
	// first call that names this version.
	From int64 `json:"from,omitempty"`

	// Key makes this version an override: from this event on it replaces the limit for that key alone, and an earlier
	// override of the key. Calls name the first version of a limit that has overrides; their returns say which version
	// has decided.
	Key string `json:"key,omitempty"`
	// Until is the end of an override by the store's clock; 0: none.
	Until int64 `json:"until,omitempty"`
	// MaxApplyTime is how many microseconds pass at most until each process applies the override, or its removal or
	// replacement; 0: not known.
	MaxApplyTime int64 `json:"felt,omitempty"`
}

// Removal removes an override. A replacement needs none.
type Removal struct {
	Limit   string `json:"limit"`
	Version int    `json:"version"`
}

// Charge is a cost on a key of a limit.
type Charge struct {
	Limit   string `json:"limit"`
	Version int    `json:"version"`
	Key     string `json:"key"`
	Cost    string `json:"cost,omitempty"` // as requested; not with block, unblock, reset
	Keep    string `json:"keep,omitempty"` // headroom: what must stay free, an amount or a percentage such as 10%
}

// The verbs of a call.
const (
	Take    = "take"    // with or without waiting; the answer of a call that waited may have no time
	Check   = "check"   // decides and takes nothing
	Reserve = "reserve" // takes for a start that may lie ahead
	Extend  = "extend"  // charges more under Idem, until its total is the cost of these charges
	Settle  = "settle"  // corrects the costs of an admission to Actual
	Cancel  = "cancel"  // returns the costs of an admission
	Acquire = "acquire" // takes a lease
	Renew   = "renew"
	Release = "release"
	Reset   = "reset" // forgets the cells of Charges
	Block   = "block" // refuses all on the cells of Charges, for as long as For says
	Unblock = "unblock"
)

// Call is a call of the limiter. Its charges are admitted all or none.
type Call struct {
	ID      int      `json:"id"` // unique in the history, above 0
	Verb    string   `json:"verb"`
	Charges []Charge `json:"charges,omitempty"` // may be left out by settle, cancel, renew and release with Of
	Idem    string   `json:"idem,omitempty"`    // idempotency key
	Life    int64    `json:"life,omitempty"`    // of Idem, microseconds; 0: longer than the run
	Of      int      `json:"of,omitempty"`      // the call whose admission this settles, cancels, renews or releases
	Actual  []string `json:"actual,omitempty"`  // settle: the final cost of each charge of Of or of Charges

	// Front is the server that repeats refusals and hands out prefetched tokens for the node; empty: the node itself.
	Front string `json:"front,omitempty"`
	// AutoRenew says, for acquire, that the node renews the lease in the background until it releases it or ends. Such
	// renewals are no calls. A release that is Done shows that the lease was held until then.
	AutoRenew bool  `json:"kept,omitempty"`
	Wait      int64 `json:"wait,omitempty"` // how far ahead the start may lie, or how long the call waits; microseconds
	For       int64 `json:"for,omitempty"`  // block: microseconds
}

// The outcomes of a return.
const (
	Admitted = "admitted" // take, check, reserve, acquire, extend
	Refused  = "refused"  // the same verbs; and renew and release: the lease had ended
	Done     = "done"     // all other verbs
	Nothing  = "nothing"  // an error, and certainly nothing was done
	Unknown  = "unknown"  // an error, and it may have been done, or be done later
)

// The sources of an answer.
const (
	ViaStore    = "store"
	ViaFallback = "fallback" // the store was away, and the limit's policy decided
	ViaPrefetch = "prefetch" // the node had prefetched the tokens
	ViaRepeat   = "repeat"   // a refusal that the node repeated without the store
)

// Return is the answer to a call.
type Return struct {
	ID       int    `json:"id"` // the ID of the call
	Outcome  string `json:"outcome"`
	Error    string `json:"error,omitempty"`    // for people
	At       int64  `json:"at,omitempty"`       // the time decided for, by the store's clock; 0: not known
	Via      string `json:"via,omitempty"`      // empty: store
	Replayed bool   `json:"replayed,omitempty"` // the same idempotency key had this answer before

	Each    []Figures `json:"each,omitempty"`    // one for each charge, in their order; may be left out
	StartAt int64     `json:"startat,omitempty"` // reserve: the start, by the store's clock

	// Corrected is, for settle and cancel, how much of each cost was given back, or was charged in addition if the
	// actual cost is above the cost. Rounded down to a millionth.
	Corrected []string `json:"corrected,omitempty"`

	// Charged is, for extend, how much each charge has cost in all, even if the extension was refused. Rounded down to
	// a millionth.
	Charged []string `json:"charged,omitempty"`

	// Until is, for an unknown outcome, the true time by which the call was done, if it was: nanoseconds since the
	// start of the run. 0: not known, so at any time.
	Until int64 `json:"until,omitempty"`
}

// Figures are the numbers in the answer about one charge.
type Figures struct {
	Remaining  int64 `json:"remaining"`            // whole units that could pass now; -1: not known
	RetryAfter int64 `json:"retryafter,omitempty"` // microseconds, of a refused charge; -1: never
	Capacity   int64 `json:"capacity,omitempty"`   // whole units that can pass at once; 0: not known
	Version    int   `json:"version,omitempty"`    // version of the limit that decided; 0: the one that the call names
}

// The kinds of faults. A checker allows for the first four. Kill, Full and kinds of other names excuse nothing.
const (
	Clock  = "clock"  // the store's clock was moved By microseconds
	Forget = "forget" // a fail-over or restart, at most By ago, lost what was decided after the true time Since
	Drift  = "drift"  // from the start: the store's clock gains or loses up to By millionths against true time

	// EarlyClock holds for the whole run: the store reads its clock before it locks what it charges, so of two
	// concurrent calls the one that is charged first may have the later time.
	EarlyClock = "early"

	Kill = "kill" // a process ended
	Full = "full" // the store had no room
)

// Fault is something that was done to the system.
type Fault struct {
	Kind  string `json:"kind"`
	By    int64  `json:"by,omitempty"`    // microseconds; of Drift, millionths
	Since int64  `json:"since,omitempty"` // nanoseconds since the start of the run
}

// State is the state of a cell after the run.
type State struct {
	Limit   string `json:"limit"`
	Version int    `json:"version"` // the version of the limit with which the cell was inspected
	Key     string `json:"key"`
	Used    string `json:"used"` // in use at At, exact or rounded up to a millionth
	At      int64  `json:"at"`
}
