package api

import "time"

// Catalog has the limits and plans of the store, in one version.
type Catalog struct {
	Version int64          `json:"version"` // the newest that was read
	Limits  []CatalogLimit `json:"limits"`
	Plans   []CatalogPlan  `json:"plans"`
}

// CatalogLimit is a named limit of the catalog.
type CatalogLimit struct {
	Name        string `json:"name"`                 // by which keys are charged, and which decisions have
	RenamedTo   string `json:"renamed_to,omitempty"` // the name that it was given instead
	Limit       string `json:"limit"`                // the one-line notation
	Description string `json:"description,omitempty"`
	Bound       string `json:"bound"`             // the most that can pass, in words
	Explain     string `json:"explain"`           // what the limit means, in lines of a name and a text
	Origin      string `json:"origin,omitempty"`  // file: a file defines the limit; absent: an administrator does
	Retired     bool   `json:"retired,omitempty"` // the file no longer defines the limit; it is in force until removed
}

// CatalogPlan is a named set of limits. For keys with the plan they replace the limits of the same names.
type CatalogPlan struct {
	Name    string  `json:"name"`
	Limits  []Limit `json:"limits"`
	Origin  string  `json:"origin,omitempty"`  // as in CatalogLimit
	Retired bool    `json:"retired,omitempty"` // as in CatalogLimit
}

// OverridesQuery selects the overrides that GET /v1/overrides lists.
type OverridesQuery struct {
	Max        int    `query:"max" range:"1-1000"` // overrides of a page
	AfterLimit string `query:"after_limit"`        // with AfterKey the end of the previous page; empty: the first page
	AfterKey   string `query:"after_key"`
}

// Overrides lists the overrides that are in force for single keys, or for all keys that begin with a text.
type Overrides struct {
	Overrides []OverrideInForce `json:"overrides"` // the first page begins with all overrides of prefixes
	// AfterLimit and AfterKey of the next page; empty: this is the last page.
	NextLimit string `json:"next_limit,omitempty"`
	NextKey   string `json:"next_key,omitempty"`
}

// OverrideInForce is a limit that replaces another one for a key.
type OverrideInForce struct {
	Limit    string `json:"limit"` // the name of the replaced limit
	Key      string `json:"key"`
	Prefix   bool   `json:"prefix,omitempty"` // for all keys that begin with Key
	Override string `json:"override"`         // the notation of the limit
	Bound    string `json:"bound"`
	Until    *int64 `json:"until"` // microseconds since the epoch; null: until it is removed
	Reason   string `json:"reason,omitempty"`
}

// VersionsQuery selects the versions of the catalog that GET /v1/versions lists.
type VersionsQuery struct {
	Limit  string `query:"limit"`  // only versions that changed this limit; empty: all
	Before int64  `query:"before"` // only versions below this one; 0: all
	Max    int    `query:"max" range:"1-500"`
}

// Versions lists versions of the catalog, newest first.
type Versions struct {
	Versions []Version `json:"versions"`
	Next     int64     `json:"next,omitempty"` // Before of the next page, if there may be one
}

// Version is a version of the catalog, with its changes.
type Version struct {
	Version int64    `json:"version"`
	At      int64    `json:"at"` // by the store's clock, microseconds since the epoch
	By      string   `json:"by"`
	Reason  string   `json:"reason,omitempty"`
	Changes []string `json:"changes"`        // one line each
	More    int      `json:"more,omitempty"` // number of further changes that Changes leaves out
}

// DifferenceQuery selects the versions of the catalog that GET /v1/difference compares.
type DifferenceQuery struct {
	From   int64 `query:"from"`
	NoFrom bool  // from is missing
	To     int64 `query:"to"`
	NoTo   bool  // to is missing
}

// Difference is the difference of two versions of the catalog.
type Difference struct {
	From    int64        `json:"from"`
	To      int64        `json:"to"`
	Changes []ItemChange `json:"changes"`
}

// ItemChange is a change of one item of the catalog.
type ItemChange struct {
	Kind   string `json:"kind"`          // limit, plan, override or assignment; prefix-override, prefix-assignment
	Name   string `json:"name"`          // name of the limit or the plan
	Key    string `json:"key,omitempty"` // key or prefix; if Kind is plan, a limit of the plan
	Before string `json:"before"`        // text of the item before; empty: it did not exist
	After  string `json:"after"`         // text of the item after; empty: it does not exist
	Text   string `json:"text"`          // the change in one line
}

// Rollback restores limits, plans and overrides as they were after a version.
type Rollback struct {
	Version int64    `json:"version"`
	Limits  []string `json:"limits,omitempty"` // only items about these limits; absent: all
	Seen    *int64   `json:"seen,omitempty"`   // fail unless this is the newest version
	Reason  string   `json:"reason,omitempty"`
	DryRun  bool     `json:"dry_run,omitempty"` // only report what would be changed

	NoVersion bool `json:"-"` // Read found no version
}

// SetLimit defines, changes or renames a limit of the catalog, for all its keys.
type SetLimit struct {
	Name        string  `json:"name"`
	RenamedFrom string  `json:"renamed_from,omitempty"` // a name that the limit has; what keys have used stays theirs
	Limit       string  `json:"limit,omitempty"`        // the notation; with renamed_from it may be absent: unchanged
	Description *string `json:"description,omitempty"`  // absent: unchanged
	Seen        *int64  `json:"seen,omitempty"`         // fail unless this is the newest version
	Reason      string  `json:"reason,omitempty"`
	DryRun      bool    `json:"dry_run,omitempty"` // only report what would be changed
}

// SetPlan gives a key a plan, or removes it.
type SetPlan struct {
	Key    string `json:"key"`
	Plan   string `json:"plan,omitempty"` // absent if Remove
	Remove bool   `json:"remove,omitempty"`
	For    string `json:"for,omitempty"` // such as 1h; absent: until the plan is removed
	Reason string `json:"reason,omitempty"`

	NoKey  bool       `json:"-"` // Read found no key
	Prefix bool       `json:"-"` // for all keys that begin with Key; only set by a program that has opened the store
	Until  *time.Time `json:"-"` // instead of For; only set by a program that has opened the store
}
