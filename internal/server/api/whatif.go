package api

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
