package api

import "time"

// WhatIfLog is a log that was read and is kept for a while, to be asked what limits would have done to it.
type WhatIfLog struct {
	ID        string   `json:"id"`
	Name      string   `json:"name"`   // of the log
	Format    string   `json:"format"` // as it was given or found out
	Field     string   `json:"field"`  // what the keys are
	Lines     int64    `json:"lines"`
	Requests  int64    `json:"requests"`
	Keys      int      `json:"keys"`
	Unparsed  int64    `json:"unparsed"`           // lines that could not be read
	Skipped   int64    `json:"skipped"`            // lines that are no requests
	Filtered  int64    `json:"filtered"`           // lines that where, since and until leave out
	First     int64    `json:"first"`              // the time of the first request, microseconds since the epoch
	Last      int64    `json:"last"`               // and of the last
	Notes     []string `json:"notes,omitempty"`    // what else one should know
	Problems  []string `json:"problems,omitempty"` // why lines could not be read, with the first of each
	KeptUntil int64    `json:"kept_until"`         // unless it is asked again, or others need the room
}

// Replayed is what a limit would have done to a log, in the members that headgate replay --json writes. Its times are
// RFC 3339.
type Replayed struct {
	Requests      int64            `json:"requests"`
	Keys          int              `json:"keys"`
	Allowed       int64            `json:"allowed"`
	Denied        int64            `json:"denied"`
	Unparsed      int64            `json:"unparsed"`
	Top           []ReplayedKey    `json:"top"` // the keys that were refused most
	Limit         string           `json:"limit"`
	Bound         string           `json:"bound"`
	Field         string           `json:"field"`
	Logs          []ReplayedLog    `json:"logs"`
	Lines         int64            `json:"lines"`
	Skipped       int64            `json:"skipped"`
	Filtered      int64            `json:"filtered"`
	FirstUnparsed *ReplayedLine    `json:"first_unparsed,omitempty"`
	Reasons       []ReplayedReason `json:"reasons,omitempty"`
	KeysDenied    int              `json:"keys_denied"`
	Cost          float64          `json:"cost"`
	CostAccepted  float64          `json:"cost_accepted"`
	CostUsed      *float64         `json:"cost_used,omitempty"`
	First         time.Time        `json:"first"`
	Last          time.Time        `json:"last"`
	Disorder      ReplayedDisorder `json:"disorder"`
	Notes         []string         `json:"notes,omitempty"`
	BucketSeconds float64          `json:"bucket_seconds"`
	Buckets       []ReplayedBucket `json:"buckets"`
}

// ReplayedAll is what several limits would have done, each by itself.
type ReplayedAll struct {
	Limits []Replayed `json:"limits"`
}

// ReplayedKey is what became of a key.
type ReplayedKey struct {
	Key         string     `json:"key"`
	Requests    int64      `json:"requests"`
	Denied      int64      `json:"denied"`
	FirstDenied *time.Time `json:"first_denied,omitempty"`
}

// ReplayedLog is a log that was read.
type ReplayedLog struct {
	Name   string `json:"name"`
	Format string `json:"format"`
}

// ReplayedLine is a line that could not be read, or is no request.
type ReplayedLine struct {
	Log    string `json:"log"`
	Line   int64  `json:"line"`
	Text   string `json:"text"`
	Reason string `json:"reason"`
}

// ReplayedReason is why a number of lines could not be read, or are no requests.
type ReplayedReason struct {
	Reason   string       `json:"reason"`
	Unparsed bool         `json:"unparsed"`
	Lines    int64        `json:"lines"`
	First    ReplayedLine `json:"first"`
}

// ReplayedDisorder tells of requests that are older than one before them.
type ReplayedDisorder struct {
	Requests int64   `json:"requests"`
	Greatest float64 `json:"greatest_seconds"`
}

// ReplayedBucket is what became of the requests of a stretch of time.
type ReplayedBucket struct {
	Start   time.Time `json:"start"`
	Allowed int64     `json:"allowed"`
	Denied  int64     `json:"denied"`
}
