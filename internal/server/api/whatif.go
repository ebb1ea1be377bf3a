package api

// WhatIfLog is a log that was read, and is kept for a while so that limits can be replayed against it.
type WhatIfLog struct {
	ID        string   `json:"id"`
	Name      string   `json:"name"`   // of the log
	Format    string   `json:"format"` // given or detected
	Field     string   `json:"field"`  // fields of the log that are the key
	Lines     int64    `json:"lines"`
	Requests  int64    `json:"requests"`
	Keys      int      `json:"keys"`
	Unparsed  int64    `json:"unparsed"`           // lines that could not be read
	Skipped   int64    `json:"skipped"`            // lines that are no requests
	Filtered  int64    `json:"filtered"`           // lines that where, since and until leave out
	First     int64    `json:"first"`              // time of the first request, microseconds since the epoch
	Last      int64    `json:"last"`               // time of the last request, microseconds since the epoch
	Notes     []string `json:"notes,omitempty"`    // remarks on the log, for people
	Problems  []string `json:"problems,omitempty"` // why lines could not be read, with the first line of each reason
	KeptUntil int64    `json:"kept_until"`         // later if the log is used again, earlier if others need the room
}
