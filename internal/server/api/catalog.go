package api

import "time"

// Catalog is the limits and plans that the store keeps, as one version of it has them.
type Catalog struct {
	Version int64          `json:"version"` // the newest that was read
	Limits  []CatalogLimit `json:"limits"`
	Plans   []CatalogPlan  `json:"plans"`
}

// CatalogLimit is a named limit of the catalog.
type CatalogLimit struct {
	Name        string `json:"name"`
	Limit       string `json:"limit"` // the one-line notation
	Description string `json:"description,omitempty"`
	Bound       string `json:"bound"`             // the most that can pass, in words
	Explain     string `json:"explain"`           // what it means, in lines of a name and a text
	Origin      string `json:"origin,omitempty"`  // file: a file defines it; absent: somebody has set it
	Retired     bool   `json:"retired,omitempty"` // its file defines it no more; it decides until it is removed
}

// CatalogPlan is a named set of limits, which stand in the place of those of their names for the keys that have it.
type CatalogPlan struct {
	Name    string  `json:"name"`
	Limits  []Limit `json:"limits"`
	Origin  string  `json:"origin,omitempty"`  // as of a limit
	Retired bool    `json:"retired,omitempty"` // as of a limit
}

// OverridesQuery says which overrides GET /v1/overrides lists.
type OverridesQuery struct {
	Max        int    `query:"max" range:"1-1000"` // of a page
	AfterLimit string `query:"after_limit"`        // with AfterKey the last of the page before; empty: the first page
	AfterKey   string `query:"after_key"`
}

// Overrides are limits that are in force for single keys, or for all that begin with a text.
type Overrides struct {
	Overrides []OverrideInForce `json:"overrides"` // those of prefixes, of the first page, come first
	// The last that the page has looked at, if there may be more.
	NextLimit string `json:"next_limit,omitempty"`
	NextKey   string `json:"next_key,omitempty"`
}

// OverrideInForce is a limit that stands in the place of another one for a key.
type OverrideInForce struct {
	Limit    string `json:"limit"` // the name of that in whose place it stands
	Key      string `json:"key"`
	Prefix   bool   `json:"prefix,omitempty"` // it is for all keys that begin with Key
	Override string `json:"override"`         // in one line
	Bound    string `json:"bound"`
	Until    *int64 `json:"until"` // microseconds since the epoch; null: until it is removed
	Reason   string `json:"reason,omitempty"`
}

// VersionsQuery says which versions of the catalog GET /v1/versions lists.
type VersionsQuery struct {
	Limit  string `query:"limit"`  // only those that have changed it; empty: all
	Before int64  `query:"before"` // only those below it; 0: all
	Max    int    `query:"max" range:"1-500"`
}

// Versions are versions of the catalog, the newest first.
type Versions struct {
	Versions []Version `json:"versions"`
	Next     int64     `json:"next,omitempty"` // ask for those before it, if there may be more
}

// Version is a version of the catalog, with what it has changed.
type Version struct {
	Version int64    `json:"version"`
	At      int64    `json:"at"` // by the store's clock, microseconds since the epoch
	By      string   `json:"by"`
	Reason  string   `json:"reason,omitempty"`
	Changes []string `json:"changes"`        // one line each
	More    int      `json:"more,omitempty"` // how many changes are left out of that
}

// DifferenceQuery says between which versions of the catalog GET /v1/difference tells what was changed.
type DifferenceQuery struct {
	From   int64 `query:"from"`
	NoFrom bool  // it is not said
	To     int64 `query:"to"`
	NoTo   bool  // it is not said
}

// Difference is the difference of two versions of the catalog.
type Difference struct {
	From    int64        `json:"from"`
	To      int64        `json:"to"`
	Changes []ItemChange `json:"changes"`
}

// ItemChange is a change of one thing in the catalog.
type ItemChange struct {
	Kind   string `json:"kind"`          // limit, plan, override or assignment; prefix-override, prefix-assignment
	Name   string `json:"name"`          // of the limit or the plan
	Key    string `json:"key,omitempty"` // or a prefix; of a plan, the limit in it
	Before string `json:"before"`        // what it says; empty: there was none
	After  string `json:"after"`         // empty: there is none
	Text   string `json:"text"`          // the change in one line
}

// Rollback asks to make limits, plans and overrides what they were after a version.
type Rollback struct {
	Version int64    `json:"version"`
	Limits  []string `json:"limits,omitempty"` // only what concerns these; absent: all
	Seen    *int64   `json:"seen,omitempty"`   // the version that was seen; if there is another one nothing is done
	Reason  string   `json:"reason,omitempty"`
	DryRun  bool     `json:"dry_run,omitempty"` // only say what would be changed

	NoVersion bool `json:"-"` // there is no version in it
}

// SetLimit asks to define a limit of the catalog, or to change it, for all its keys.
type SetLimit struct {
	Name        string  `json:"name"`
	Limit       string  `json:"limit"`                 // in one line
	Description *string `json:"description,omitempty"` // absent: what it was
	Seen        *int64  `json:"seen,omitempty"`        // the version that was seen; nothing is done at another
	Reason      string  `json:"reason,omitempty"`
	DryRun      bool    `json:"dry_run,omitempty"` // only say what would be changed
}

// SetPlan asks to give a key a plan, or to take it away.
type SetPlan struct {
	Key    string `json:"key"`
	Plan   string `json:"plan,omitempty"` // absent if it is taken away
	Remove bool   `json:"remove,omitempty"`
	For    string `json:"for,omitempty"` // such as 1h; absent: until it is taken away
	Reason string `json:"reason,omitempty"`

	NoKey  bool       `json:"-"` // there is no key in it
	Prefix bool       `json:"-"` // of all keys that begin with Key; only a program that has the store can say it
	Until  *time.Time `json:"-"` // in the place of For; only a program that has the store can say it
}
