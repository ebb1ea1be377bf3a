package api

import "encoding/json"

// Traffic has the decisions of one server in the requested seconds, at most the last 300. Checks are not counted.
type Traffic struct {
	At     int64          `json:"at"` // end of the last second counted, by the server's clock, in microseconds
	Limits []LimitTraffic `json:"limits"`
	By     string         `json:"by"` // ByRefused or ByUsed, the order of the keys
	Keys   []KeyTraffic   `json:"keys"`
	// Problem says why keys have no Now.
	Problem *Problem `json:"problem,omitempty"`
}

// LimitTraffic has the number of decisions of a limit in each requested second, oldest first.
type LimitTraffic struct {
	Limit    string   `json:"limit"` // name, or (inline), (unknown), (others)
	Admitted []uint32 `json:"admitted"`
	Refused  []uint32 `json:"refused"`
	Failed   []uint32 `json:"failed"` // requests without a decision
}

// KeyTraffic is a key of a limit that has used much, or was often refused. The figures are never too high. They may be
// too low for a key that only recently became one of the counted keys.
type KeyTraffic struct {
	Limit   string      `json:"limit"`
	Key     string      `json:"key"`
	Used    json.Number `json:"used"`    // cost that was admitted in the last five minutes
	Refused json.Number `json:"refused"` // number of refusals in the last five minutes
	// Recent splits the figure that orders the keys, Used or Refused, into parts of ten seconds, oldest first.
	Recent []json.Number `json:"recent"`
	// Now is the usage of the key now; absent if unknown.
	Now *LimitUsage `json:"now,omitempty"`
}

// Values of TrafficQuery.By.
const (
	ByRefused = "refused"
	ByUsed    = "used"
)

// TrafficQuery selects what GET /v1/traffic returns.
type TrafficQuery struct {
	Limit   string `query:"limit"`                 // empty: all limits
	By      string `query:"by"`                    // the order of the keys; empty: ByRefused
	Top     int    `query:"top" range:"0-100"`     // how many keys; a client's 0 is 20
	Seconds int    `query:"seconds" range:"1-300"` // how many seconds; 0: 300
}
