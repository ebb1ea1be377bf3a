package api

import "encoding/json"

// Usage says how much a key has used of its limits.
type Usage struct {
	Key    string       `json:"key"`
	Limits []LimitUsage `json:"limits"`
	// Refusals has the last refusals of the key by this server, newest first. Null if a program read the store without
	// a server, since stores keep no refusals.
	Refusals []Refusal `json:"refusals"`
}

// LimitUsage says how much a key has used of a limit, and what can be done about it.
type LimitUsage struct {
	Status
	// RetryAfterMS is for a cost of 1, or less if the capacity is below 1; rounded up; 0: now, null: never.
	RetryAfterMS *int64 `json:"retry_after_ms"`
	ResetAfterMS int64  `json:"reset_after_ms"`       // until nothing is in use and no block holds; rounded up
	BlockedBy    string `json:"blocked_by,omitempty"` // ByOperator or ByLimit; absent: not blocked
	// The end of Applied in microseconds, absent if it has none; the reason for it; and its author, if requested and
	// known.
	AppliedUntil  *int64 `json:"applied_until,omitempty"`
	AppliedReason string `json:"applied_reason,omitempty"`
	AppliedBy     string `json:"applied_by,omitempty"`
	Hint          string `json:"hint,omitempty"` // what to do to pass; absent: a cost of 1 can pass now
}

// The values of LimitUsage.BlockedBy.
const (
	ByOperator = "operator"
	ByLimit    = "limit" // the limit blocks keys that it refuses; or an operator who gave no reason
)

// Refusal is a charge that was refused.
type Refusal struct {
	At           int64       `json:"at"` // the store's decision time, microseconds since the epoch
	Limit        string      `json:"limit"`
	Cost         json.Number `json:"cost"`
	Keep         string      `json:"keep,omitempty"` // the headroom of the charge
	RetryAfterMS *int64      `json:"retry_after_ms"` // at the time of the refusal, rounded up; null: never
}

// UsageQuery selects the key and the limits of GET /v1/usage.
type UsageQuery struct {
	Key    string   `query:"key"`
	NoKey  bool     // key is missing
	Limits []string `query:"limit"` // names, or notations where these are accepted; none: all limits of the key
	// Authors requests the authors of the overrides and plans in force, for which the newest versions of the catalog
	// are read.
	Authors bool `query:"authors"`
}

// CellsQuery selects the keys that GET /v1/cells lists.
type CellsQuery struct {
	Limit      string `query:"limit"`               // empty: all limits
	Blocked    bool   `query:"blocked"`             // only blocked keys
	Max        int    `query:"max" range:"1-10000"` // keys of a page; 0: the server's default
	AfterLimit string `query:"after_limit"`         // with AfterKey the end of the previous page; empty: the first page
	AfterKey   string `query:"after_key"`
}
