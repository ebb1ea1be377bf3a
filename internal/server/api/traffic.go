package api

import "encoding/json"

// Traffic is what the server that answers has decided in the last five minutes. Checks are not counted.
type Traffic struct {
	At     int64          `json:"at"` // of this machine's clock: the end of the last second counted, microseconds
	Limits []LimitTraffic `json:"limits"`
	By     string         `json:"by"` // ByRefused or ByUsed, the order of the keys
	Keys   []KeyTraffic   `json:"keys"`
	// Problem says why the keys have no Now.
	Problem *Problem `json:"problem,omitempty"`
}

// LimitTraffic are the decisions of each second by one limit, the oldest first. They are as many as were requested.
type LimitTraffic struct {
	Limit    string   `json:"limit"` // its name; or (inline), (unknown), (others)
	Admitted []uint32 `json:"admitted"`
	Refused  []uint32 `json:"refused"`
	Failed   []uint32 `json:"failed"` // nothing was decided
}

// KeyTraffic is a key of one limit that has used much, or was often refused. The figures of the five minutes may be
// too low for a key that has come lately among those that are kept, and are never too high.
type KeyTraffic struct {
	Limit   string      `json:"limit"`
	Key     string      `json:"key"`
	Used    json.Number `json:"used"`    // the cost that was admitted in the last five minutes
	Refused json.Number `json:"refused"` // how often it was refused in that time
	// Recent is Used or Refused, whichever the keys are ordered by, in parts of ten seconds, the oldest first.
	Recent []json.Number `json:"recent"`
	// Now is what the key uses now, and when it can go on; absent if that is not known.
	Now *LimitUsage `json:"now,omitempty"`
}

// Values of TrafficQuery.By.
const (
	ByRefused = "refused"
	ByUsed    = "used"
)

// TrafficQuery selects what GET /v1/traffic returns.
type TrafficQuery struct {
	Limit   string `query:"limit"`                 // empty: of all limits
	By      string `query:"by"`                    // the order of the keys; empty: ByRefused
	Top     int    `query:"top" range:"0-100"`     // how many keys; of a client, 0 is 20
	Seconds int    `query:"seconds" range:"1-300"` // how many seconds; 0: 300
}
