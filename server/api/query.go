package api

import (
	"net/url"
	"strconv"
)

// UsageQuery says of which key and of which limits GET /v1/usage tells.
type UsageQuery struct {
	Key    string
	Limits []string // names, or notations where these are accepted; none: all limits of the key
	// Authors asks who has made the overrides and plans that are in force, which reads the newest
	// versions of the catalogue.
	Authors bool
}

// Values are the parameters of the query.
func (q UsageQuery) Values() url.Values {
	v := url.Values{"key": {q.Key}}
	if len(q.Limits) > 0 {
		v["limit"] = q.Limits
	}
	if q.Authors {
		v.Set("authors", "true")
	}
	return v
}

// CellsQuery says which keys GET /v1/cells lists.
type CellsQuery struct {
	Limit      string // empty: of all limits
	Blocked    bool   // only those that are blocked
	Max        int    // of a page; 0: as many as the server lists
	AfterLimit string // with AfterKey the last key of the page before; empty: the first page
	AfterKey   string
}

// Values are the parameters of the query.
func (q CellsQuery) Values() url.Values {
	v := url.Values{}
	for name, text := range map[string]string{"limit": q.Limit, "after_limit": q.AfterLimit, "after_key": q.AfterKey} {
		if text != "" {
			v.Set(name, text)
		}
	}
	if q.Blocked {
		v.Set("blocked", "true")
	}
	if q.Max != 0 {
		v.Set("max", strconv.Itoa(q.Max))
	}
	return v
}
