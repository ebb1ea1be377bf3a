package api

import (
	"fmt"
	"strings"
	"time"
)

// Me describes the authenticated caller and its permissions.
type Me struct {
	Name    string   `json:"name,omitempty"` // absent: the server knows no callers, or the caller came by a Unix socket
	Role    string   `json:"role"`           // read or admin
	Tokens  bool     `json:"tokens"`         // the server knows its callers by tokens or certificates
	Limits  []string `json:"limits,omitempty"`
	Actions bool     `json:"actions"` // admin actions are served at this address
	Away    *Away    `json:"away,omitempty"`
}

// Away is an outage of the store of a server.
type Away struct {
	Store  string `json:"store"` // its URL, without a password
	Since  int64  `json:"since"` // microseconds since the epoch
	Reason string `json:"reason"`
	Text   string `json:"text"` // all of that in a sentence, with what happens to requests meanwhile
}

// NewAway describes a store that has been away since a time, with the reason in one line.
func NewAway(store string, since time.Time, reason error) *Away {
	why := strings.Join(strings.Fields(reason.Error()), " ")
	for _, class := range []string{"store unavailable: ", "store is full: "} { // drop the operation in front of them
		if _, cause, ok := strings.Cut(why, class); ok {
			why = cause
		}
	}
	why = strings.TrimRight(why, ".")
	return &Away{
		Store: store, Since: since.UnixMicro(), Reason: why,
		Text: fmt.Sprintf("The store %s is away since %s UTC (%s): %s. Meanwhile requests are answered 503; limits "+
			"with away allow or away share are decided without it.", store, since.UTC().Format(time.TimeOnly),
			time.Since(since).Round(time.Second), why),
	}
}

// Audit lists admin actions and changes of the catalog, newest first.
type Audit struct {
	Entries []AuditEntry `json:"entries"`
}

// AuditEntry is an admin action on a key, or a change of the catalog.
type AuditEntry struct {
	At      int64    `json:"at"`           // microseconds since the epoch
	Verb    string   `json:"verb"`         // block, unblock, reset, refund or change
	By      string   `json:"by,omitempty"` // absent: a caller without a name
	Reason  string   `json:"reason,omitempty"`
	Limit   string   `json:"limit,omitempty"` // absent for a change
	Key     *string  `json:"key,omitempty"`   // null for a change
	ForMS   int64    `json:"for_ms,omitempty"`
	Version int64    `json:"version,omitempty"` // version of the catalog that the change made
	Changes []string `json:"changes,omitempty"` // one line each
	More    int      `json:"more,omitempty"`    // number of further changes that Changes leaves out
}

// AuditQuery selects the entries that GET /v1/audit lists.
type AuditQuery struct {
	Limit  string `query:"limit"` // empty: all limits
	Key    string `query:"key"`
	HasKey bool   // only entries of Key
	Max    int    `query:"max" range:"1-1000"` // entries; 0: 100
}
