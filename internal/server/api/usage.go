package api

import "encoding/json"

// Usage is the use of its limits by a key.
type Usage struct {
	Key    string       `json:"key"`
	Limits []LimitUsage `json:"limits"`
	// The last refusals of the key, newest first, that the server which answers has decided and still
	// remembers. Null if a store was asked without a server: it keeps none.
	Refusals []Refusal `json:"refusals"`
}

// LimitUsage is the use of a limit by a key, and what can be done about it.
type LimitUsage struct {
	Status
	// of a cost of 1, or the smallest of a limit that lets less pass at once; rounded up; 0: now, null: never
	RetryAfterMS *int64 `json:"retry_after_ms"`
	ResetAfterMS int64  `json:"reset_after_ms"`       // rounded up; until nothing is in use and no block holds
	BlockedBy    string `json:"blocked_by,omitempty"` // ByOperator or ByLimit; absent: it is not blocked
	// Of what is applied: when it ends, in microseconds, absent if it does not; why it was made; and who
	// has made it, where that was requested and is known.
	AppliedUntil  *int64 `json:"applied_until,omitempty"`
	AppliedReason string `json:"applied_reason,omitempty"`
	AppliedBy     string `json:"applied_by,omitempty"`
	Hint          string `json:"hint,omitempty"` // what to do; absent: nothing is in the way
}

// The values of LimitUsage.BlockedBy.
const (
	ByOperator = "operator"
	ByLimit    = "limit" // which blocks whom it refuses; or an operator who gave no reason
)

// Refusal is a charge that was refused.
type Refusal struct {
	At           int64       `json:"at"` // the store's decision time, microseconds since the epoch
	Limit        string      `json:"limit"`
	Cost         json.Number `json:"cost"`
	Keep         string      `json:"keep,omitempty"` // the headroom that it was to leave
	RetryAfterMS *int64      `json:"retry_after_ms"` // as of then, rounded up; null is never
}

// UsageQuery selects the key and the limits of GET /v1/usage.
type UsageQuery struct {
	Key    string   `query:"key"`
	NoKey  bool     // there is no key in it
	Limits []string `query:"limit"` // names, or notations where these are accepted; none: all limits of the key
	// Authors asks who has made the overrides and plans that are in force, which reads the newest
	// versions of the catalog.
	Authors bool `query:"authors"`
}

// CellsQuery says which keys GET /v1/cells lists.
type CellsQuery struct {
	Limit      string `query:"limit"`               // empty: of all limits
	Blocked    bool   `query:"blocked"`             // only those that are blocked
	Max        int    `query:"max" range:"1-10000"` // of a page; 0: as many as the server lists
	AfterLimit string `query:"after_limit"`         // with AfterKey the last key of the page before; empty: the first page
	AfterKey   string `query:"after_key"`
}
