// Package api has the types of the HTTP interface. It imports only package law of the project: clients share it.
package api

import (
	"encoding/json"
	"time"
)

// Charge is a cost on a key of a limit.
type Charge struct {
	Limit string      `json:"limit"`          // a name, or a one-line notation where the server accepts it
	Key   string      `json:"key"`            // at most 512 bytes
	NoKey bool        `json:"-"`              // Read found no key; an empty key is valid
	Cost  json.Number `json:"cost,omitempty"` // an exact decimal; absent: 1
	Keep  string      `json:"keep,omitempty"` // headroom: a share such as 10%, or an amount; absent: none

	// Alternative numbers the alternatives of a request from 1, for take and check; absent: it has none.
	Alternative int `json:"alternative,omitempty"`

	// Count has the cost made of the usage of the request: tokens, input, output or money. Then Cost is absent.
	Count string `json:"count,omitempty"`
}

// Request has one charge, or several that are admitted all or none.
type Request struct {
	Charge
	Charges []Charge `json:"charges,omitempty"`
	Check   bool     `json:"check,omitempty"` // only in a batch: decide without charging

	// ID is an idempotency key: the request is charged once, however often it is sent, and can be settled. Life, such
	// as 10m, is how long the ID is remembered (absent: an hour).
	ID   string `json:"id,omitempty"`
	Life string `json:"life,omitempty"`

	Used
}

// Used is what a call of a language model used, for charges that count it.
type Used struct {
	Model string          `json:"model,omitempty"` // has a price in the config file
	Usage json.RawMessage `json:"usage,omitempty"` // as the model reports it, or the answer or event that it stands in
}

// Reserve requests charges that may start later.
type Reserve struct {
	Request
	Wait string `json:"wait,omitempty"` // the longest delay of the start, such as 30s; absent: none
}

// Reserved answers a Reserve.
type Reserved struct {
	Decision
	StartAt *int64 `json:"start_at"` // microseconds since the epoch, by the store's clock; null if it was refused
	DelayMS *int64 `json:"delay_ms"` // from this answer to the start, rounded up; null if it was refused
	// Refundable says that a cancel gives back each charge in full while it counts: sliding-window and sliding-log.
	Refundable bool `json:"refundable"`
}

// Filled answers a Request to fill up. The Decision is allowed if any part of the cost was accepted.
type Filled struct {
	Decision
	Accepted json.Number `json:"accepted"` // accepted part of the cost, rounded down to a millionth
	Level    json.Number `json:"level"`    // level after the charge, rounded up to a millionth
	Brim     bool        `json:"brim"`     // the level is at the capacity
}

// Debited answers a Request to debit. The Decision is of after the debit, and allowed if anything was charged.
type Debited struct {
	Decision
	Charged json.Number `json:"charged"` // rounded down to a millionth
	Level   json.Number `json:"level"`   // level after the charge, rounded up to a millionth
	Over    bool        `json:"over"`    // the level is above the capacity
}

// Refund gives back, up to a cost, what a key has in use. The reason is for the audit.
type Refund struct {
	Subject
	Cost   json.Number `json:"cost,omitempty"` // absent: 1
	Reason string      `json:"reason,omitempty"`
}

// Refunded answers a Refund.
type Refunded struct {
	Returned json.Number `json:"returned"`
}

// Extended answers a Request to extend the charges under an ID. The Decision is about the additional charges.
type Extended struct {
	Decision
	Charged []json.Number `json:"charged"` // total cost of each charge, also if the extension was refused
}

// Settle corrects the costs of charges that were admitted under an id to its own costs, which may be 0. In a request to
// cancel, its charges have no costs.
type Settle struct {
	Charge
	Charges []Charge `json:"charges,omitempty"`
	ID      string   `json:"id"`

	Used
}

// Settled answers a Settle: by how much the cost of each charge was corrected, up or down.
type Settled struct {
	Corrected []json.Number `json:"corrected"`
}

// Batch has many requests, which are decided as if one after another.
type Batch struct {
	Requests []Request `json:"requests"`
}

// Decision answers a request. If the request has several charges, the figures are about the refused charge with the
// longest wait, or else the charge with the smallest share remaining.
type Decision struct {
	Allowed      bool        `json:"allowed"`
	Limit        string      `json:"limit"`
	Key          string      `json:"key,omitempty"`  // only if there are several charges
	Capacity     json.Number `json:"capacity"`       // the most that can pass at once
	Remaining    json.Number `json:"remaining"`      // the most that could pass now, rounded down
	RetryAfterMS *int64      `json:"retry_after_ms"` // rounded up; 0 if allowed, null if this cost can never pass
	ResetAfterMS int64       `json:"reset_after_ms"` // rounded up
	At           int64       `json:"at"`             // the store's decision time, microseconds since the epoch
	Entry        int64       `json:"entry,omitempty"`
	Via          string      `json:"via,omitempty"`      // prefetch, local or fallback; absent: the store decided
	Replayed     bool        `json:"replayed,omitempty"` // the request was admitted before, under the same id
	// Applied is the override or plan that was in force in the place of the limit itself.
	Applied string `json:"applied,omitempty"`
	// Alternative is the one that was taken, or can pass first; absent: the request has none.
	Alternative int `json:"alternative,omitempty"`
	// Crossed is the highest threshold, in percent, that was crossed and told; absent: none.
	Crossed int `json:"crossed,omitempty"`
	// Each has the figures of all charges that were evaluated, if there are several.
	Each []Figures `json:"each,omitempty"`
}

// Figures has the decision about one of several charges.
type Figures struct {
	Charge       int         `json:"charge"`  // index of the charge in the request
	Allowed      bool        `json:"allowed"` // the charge would have passed alone
	Limit        string      `json:"limit"`
	Key          string      `json:"key"`
	Capacity     json.Number `json:"capacity"`
	Remaining    json.Number `json:"remaining"`
	RetryAfterMS *int64      `json:"retry_after_ms"`
	ResetAfterMS int64       `json:"reset_after_ms"`
	Applied      string      `json:"applied,omitempty"`
	Crossed      int         `json:"crossed,omitempty"`
}

// Answer is the answer to a request of a batch: a decision or a problem.
type Answer struct {
	*Decision
	Problem *Problem `json:"problem,omitempty"`
}

// Answers answers a Batch, in the order of its requests.
type Answers struct {
	Answers []Answer `json:"answers"`
}

// LeaseToken identifies a lease of a concurrency limit.
type LeaseToken struct {
	Limit  string `json:"limit"`
	Key    string `json:"key"`
	NoKey  bool   `json:"-"` // Read found no key
	Number int64  `json:"number"`
}

// Acquired answers a Request to acquire: leases that are held until they are released, or not renewed for the ttl.
type Acquired struct {
	Decision
	Held  []LeaseToken `json:"held,omitempty"`
	TTLMS int64        `json:"ttl_ms,omitempty"`
}

// Leases names leases to renew or release.
type Leases struct {
	Held []LeaseToken `json:"held"`
}

// Lost answers Leases: whether some of the leases had already ended, or are not the caller's.
type Lost struct {
	Lost bool `json:"lost"`
}

// Subject names one key of a limit.
type Subject struct {
	Limit string `json:"limit"`
	Key   string `json:"key"`
	NoKey bool   `json:"-"` // Read found no key
}

// InspectRequest requests the state of a key.
type InspectRequest struct {
	Subject
	Attempts int `json:"attempts,omitempty"` // how many of the newest attempts, up to MaxAttempts; 0: 20
}

// MaxAttempts is the most attempts of a key that are returned.
const MaxAttempts = 10_000

// ResetRequest removes the state of a key. The reason is for the audit.
type ResetRequest struct {
	Subject
	Reason string `json:"reason,omitempty"`
}

// Block refuses a key for a while.
type Block struct {
	Subject
	For    string `json:"for"` // such as 15m; "0" lifts the block
	Reason string `json:"reason,omitempty"`
}

// Override gives a key another limit in the place of a named one, or removes the override.
type Override struct {
	Subject
	Override string `json:"override,omitempty"` // the notation of the limit; absent if Remove
	Remove   bool   `json:"remove,omitempty"`
	For      string `json:"for,omitempty"` // such as 1h; absent: until the override is removed
	Reason   string `json:"reason,omitempty"`

	Prefix bool       `json:"-"` // for all keys that begin with Key; only set by a program that has opened the store
	Until  *time.Time `json:"-"` // instead of For; only set by a program that has opened the store
}

// Changed is the effect of a change of the catalog.
type Changed struct {
	Version int64        `json:"version"` // the version that the change made; the newest if nothing was changed
	Changes []ItemChange `json:"changes"`
}

// Observe reports the response of a provider to a request that was charged to a key.
type Observe struct {
	Subject
	Status int `json:"status"` // of the response
	// Headers has the response's headers; several values of one are separated by commas. Only those that ask for a
	// pause, such as Retry-After, count.
	Headers map[string]string `json:"headers"`
}

// Observed answers an Observe.
type Observed struct {
	BlockedForMS int64  `json:"blocked_for_ms"`  // 0 if the response does not ask for a pause
	Field        string `json:"field,omitempty"` // the header that asks for the pause
}

// Reset answers a reset.
type Reset struct {
	Existed bool `json:"existed"`
}

// Status is the state of a key. Times are microseconds since the epoch, null if there is none.
type Status struct {
	Limit        string      `json:"limit"`
	Key          string      `json:"key"`
	Exists       bool        `json:"exists"`
	Rule         string      `json:"rule,omitempty"`    // the notation of the limit in force
	Applied      string      `json:"applied,omitempty"` // the override or plan that replaces the limit
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

// Cells lists keys with their states.
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

// Health answers a health check of a healthy server.
type Health struct {
	Status string `json:"status"`           // ok
	Config string `json:"config,omitempty"` // what is wrong with the config, or with its files; absent: nothing
	Limits []Keys `json:"limits,omitempty"` // limits that have (nearly) as many keys as the store keeps, fullest first
}

// Keys counts the keys of a limit.
type Keys struct {
	Limit string `json:"limit,omitempty"` // absent: all limits of the store together
	Keys  int64  `json:"keys"`
	Max   int64  `json:"max"` // the most keys that the store keeps
}

// The types of problems that a program may want to distinguish from others of the same status.
const (
	Unavailable    = "urn:headgate:unavailable"     // the store cannot be reached; nothing was charged
	Busy           = "urn:headgate:busy"            // too many requests wait for the store; nothing was charged
	Full           = "urn:headgate:full"            // the store has no room for the key; nothing was charged
	OutcomeUnknown = "urn:headgate:outcome-unknown" // the request may have been charged
	IDReused       = "urn:headgate:id-reused"       // the id was admitted with other charges
	IDSettled      = "urn:headgate:id-settled"      // the id was already settled differently, or cancelled
	IDUnknown      = "urn:headgate:id-unknown"      // nothing was admitted under the id, or its life is over
)

// Problem is an error in the format of RFC 9457.
type Problem struct {
	Type   string `json:"type,omitempty"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	Field  string `json:"field,omitempty"` // the field of the request that is wrong, if known
}

// Error implements error, for clients.
func (p *Problem) Error() string { return p.Detail }
