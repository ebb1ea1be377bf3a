// Package api holds the wire types of the HTTP interface. Of the project it
// imports law alone, so that clients can share it.
package api

import (
	"encoding/json"
	"time"
)

// Charge is a cost on a key of a limit.
type Charge struct {
	Limit string      `json:"limit"`          // a name, or a one-line notation where the server accepts it
	Key   string      `json:"key"`            // at most 512 bytes
	NoKey bool        `json:"-"`              // Read found no key, which is not the same as an empty one
	Cost  json.Number `json:"cost,omitempty"` // an exact decimal; absent: 1
	Keep  string      `json:"keep,omitempty"` // headroom: a share such as 10%, or an amount; absent: none
}

// Request asks about one charge, or about several that are admitted all or
// none.
type Request struct {
	Charge
	Charges []Charge `json:"charges,omitempty"`
	Check   bool     `json:"check,omitempty"` // in a batch only: ask without consuming

	// ID makes it a request that is charged once, however often it is sent, and
	// can be settled; Life, such as 10m, is for how long (absent: an hour).
	ID   string `json:"id,omitempty"`
	Life string `json:"life,omitempty"`
}

// Reserve requests charges that may start later.
type Reserve struct {
	Request
	Wait string `json:"wait,omitempty"` // how much later at most, such as 30s; absent: now or not at all
}

// Reserved answers a Reserve.
type Reserved struct {
	Decision
	StartAt *int64 `json:"start_at"` // microseconds since the epoch, by the store's clock; null if it was not made
	DelayMS *int64 `json:"delay_ms"` // rounded up, from this answer on; null if it was not made
	// to cancel gives back all of each charge for as long as it counts: sliding-window and sliding-log
	Refundable bool `json:"refundable"`
}

// Filled answers a Request that fills up: how much of its charge fitted in. The Decision is
// allowed if anything did.
type Filled struct {
	Decision
	Accepted json.Number `json:"accepted"` // of the cost, rounded down to a millionth
	Level    json.Number `json:"level"`    // in use then, rounded up to a millionth
	Brim     bool        `json:"brim"`     // the level stands at the capacity
}

// Debited answers a Request with an ID that was charged whatever the level. The Decision has the figures after it, and
// is allowed if anything was charged.
type Debited struct {
	Decision
	Charged json.Number `json:"charged"` // rounded down to a millionth
	Level   json.Number `json:"level"`   // in use then, rounded up to a millionth
	Over    bool        `json:"over"`    // the level is above the capacity
}

// Refund gives back what is in use of a key, up to a cost. The reason is for the audit.
type Refund struct {
	Subject
	Cost   json.Number `json:"cost,omitempty"` // absent: 1
	Reason string      `json:"reason,omitempty"`
}

// Refunded answers a Refund.
type Refunded struct {
	Returned json.Number `json:"returned"`
}

// Extended answers a Request with an ID that was admitted before, whose costs are now those in
// all. The Decision is about what was charged in addition.
type Extended struct {
	Decision
	Charged []json.Number `json:"charged"` // in all, of each charge; also if it was refused
}

// Settle corrects the costs of charges that were admitted under an id: those of
// its own charges are what it has cost in the end, 0 for nothing. Or it cancels them:
// then they have no costs.
type Settle struct {
	Charge
	Charges []Charge `json:"charges,omitempty"`
	ID      string   `json:"id"`
}

// Settled answers a Settle: by how much the cost of each charge was corrected, up
// or down.
type Settled struct {
	Corrected []json.Number `json:"corrected"`
}

// Batch asks many requests in one go, as if one after another.
type Batch struct {
	Requests []Request `json:"requests"`
}

// Decision answers a request. Of several charges it is about the one that
// refused and has to wait longest, else the one with the smallest share left.
type Decision struct {
	Allowed      bool        `json:"allowed"`
	Limit        string      `json:"limit"`
	Key          string      `json:"key,omitempty"`  // said of several charges only
	Capacity     json.Number `json:"capacity"`       // what can pass at once
	Remaining    json.Number `json:"remaining"`      // what could pass now, rounded down
	RetryAfterMS *int64      `json:"retry_after_ms"` // rounded up; 0 if allowed, null if this cost can never pass
	ResetAfterMS int64       `json:"reset_after_ms"` // rounded up
	At           int64       `json:"at"`             // the store's decision time, microseconds since the epoch
	Entry        int64       `json:"entry,omitempty"`
	Via          string      `json:"via,omitempty"`      // prefetch, local or fallback; absent: the store decided
	Replayed     bool        `json:"replayed,omitempty"` // it was admitted before, under the same id
	// what was in force in the place of the limit itself: an override, or a plan
	Applied string `json:"applied,omitempty"`
	// the figures of every charge that was looked at, of several; the others are about one of them
	Each []Figures `json:"each,omitempty"`
}

// Figures has the decision about one of several charges.
type Figures struct {
	Charge       int         `json:"charge"`  // its place in the request, from 0
	Allowed      bool        `json:"allowed"` // it would have passed alone
	Limit        string      `json:"limit"`
	Key          string      `json:"key"`
	Capacity     json.Number `json:"capacity"`
	Remaining    json.Number `json:"remaining"`
	RetryAfterMS *int64      `json:"retry_after_ms"`
	ResetAfterMS int64       `json:"reset_after_ms"`
	Applied      string      `json:"applied,omitempty"`
}

// Answer is the answer to a request of a batch: a decision or a problem.
type Answer struct {
	*Decision
	Problem *Problem `json:"problem,omitempty"`
}

// Answers answer a Batch, in order.
type Answers struct {
	Answers []Answer `json:"answers"`
}

// LeaseToken is a held charge of a concurrency limit.
type LeaseToken struct {
	Limit  string `json:"limit"`
	Key    string `json:"key"`
	NoKey  bool   `json:"-"` // Read found no key
	Number int64  `json:"number"`
}

// Acquired answers a Request that acquires: what is held until it is released, or
// not renewed for so long.
type Acquired struct {
	Decision
	Held  []LeaseToken `json:"held,omitempty"`
	TTLMS int64        `json:"ttl_ms,omitempty"`
}

// Leases are to be renewed or released.
type Leases struct {
	Held []LeaseToken `json:"held"`
}

// Lost answers Leases: whether some of them had ended before.
type Lost struct {
	Lost bool `json:"lost"`
}

// Subject names one key of a limit.
type Subject struct {
	Limit string `json:"limit"`
	Key   string `json:"key"`
	NoKey bool   `json:"-"` // Read found no key
}

// InspectRequest asks about a key.
type InspectRequest struct {
	Subject
	Attempts int `json:"attempts,omitempty"` // how many of the newest at most, up to MaxAttempts; 0: 20
}

// MaxAttempts is how many attempts of a key are returned at most.
const MaxAttempts = 10_000

// ResetRequest asks to forget a key. The reason is for the audit.
type ResetRequest struct {
	Subject
	Reason string `json:"reason,omitempty"`
}

// Block asks to refuse a key for a while.
type Block struct {
	Subject
	For    string `json:"for"` // such as 15m; "0" lifts the block
	Reason string `json:"reason,omitempty"`
}

// Override asks to give a key another limit in the place of a named one, or to take that away again.
type Override struct {
	Subject
	Override string `json:"override,omitempty"` // the limit, in one line; absent if it is removed
	Remove   bool   `json:"remove,omitempty"`
	For      string `json:"for,omitempty"` // such as 1h; absent: until it is removed
	Reason   string `json:"reason,omitempty"`

	Prefix bool       `json:"-"` // of all keys that begin with Key; only a program that has the store can say it
	Until  *time.Time `json:"-"` // in the place of For; only a program that has the store can say it
}

// Changed is the effect of a change of the catalog.
type Changed struct {
	Version int64        `json:"version"` // that it made; the newest if nothing was changed
	Changes []ItemChange `json:"changes"`
}

// Observe reports the response of a provider to a request that was charged to a key.
type Observe struct {
	Subject
	Status int `json:"status"` // of the response
	// of the response; those that do not ask to hold back are ignored. Several values of one are separated by commas
	Headers map[string]string `json:"headers"`
}

// Observed answers an Observe.
type Observed struct {
	BlockedForMS int64  `json:"blocked_for_ms"`  // 0 if the response does not ask to hold back
	Field        string `json:"field,omitempty"` // the header that asks for it
}

// Reset answers a reset.
type Reset struct {
	Existed bool `json:"existed"`
}

// Status is what is known about a key. Times are microseconds since the
// epoch, null where there is none.
type Status struct {
	Limit        string      `json:"limit"`
	Key          string      `json:"key"`
	Exists       bool        `json:"exists"`
	Rule         string      `json:"rule,omitempty"`    // the limit that is in force, in one line
	Applied      string      `json:"applied,omitempty"` // what is in force in the place of the limit itself
	Used         json.Number `json:"used"`
	Capacity     json.Number `json:"capacity,omitempty"`
	Remaining    json.Number `json:"remaining,omitempty"`
	At           int64       `json:"at"`
	ResetAt      *int64      `json:"reset_at"`
	BlockedUntil *int64      `json:"blocked_until"`
	Reason       string      `json:"reason,omitempty"`
	History      []Attempt   `json:"history,omitempty"`
}

// Attempt is an entry of a history.
type Attempt struct {
	Number  int64       `json:"number"`
	At      int64       `json:"at"`
	Cost    json.Number `json:"cost"`
	Allowed bool        `json:"allowed"`
}

// Cells lists keys.
type Cells struct {
	Cells []Status `json:"cells"`
}

// Limit describes a named limit.
type Limit struct {
	Name        string `json:"name"`
	Limit       string `json:"limit"` // the one-line notation
	Description string `json:"description,omitempty"`
	Bound       string `json:"bound"` // the most that can pass, in words
}

// Limits lists the named limits.
type Limits struct {
	Limits []Limit `json:"limits"`
}

// Health answers a health check of a server that is well.
type Health struct {
	Status string `json:"status"`           // ok
	Config string `json:"config,omitempty"` // why the config file is not applied; absent: it is, or there is none
	Limits []Keys `json:"limits,omitempty"` // whose keys the store bounds, that are full, or nearly: the fullest first
}

// Keys counts the keys of a limit.
type Keys struct {
	Limit string `json:"limit,omitempty"` // absent: all limits of the store together
	Keys  int64  `json:"keys"`
	Max   int64  `json:"max"` // that the store keeps at most
}

// The types of problems that a program may want to distinguish from others of the
// same status.
const (
	Unavailable    = "urn:headgate:unavailable"     // the store cannot be asked; nothing was charged
	Busy           = "urn:headgate:busy"            // too many wait; nothing was charged
	Full           = "urn:headgate:full"            // there is no room for the key; nothing was charged
	OutcomeUnknown = "urn:headgate:outcome-unknown" // it may have been charged
	IDReused       = "urn:headgate:id-reused"       // the id was admitted with other charges
	IDSettled      = "urn:headgate:id-settled"      // the id was settled, or cancelled, otherwise
	IDUnknown      = "urn:headgate:id-unknown"      // nothing was admitted under the id, or its life is over
)

// Problem is an error, as RFC 9457 has it.
type Problem struct {
	Type   string `json:"type,omitempty"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	Field  string `json:"field,omitempty"` // what is wrong in the request, where it is known
}

// Error makes a Problem an error for clients.
func (p *Problem) Error() string { return p.Detail }
