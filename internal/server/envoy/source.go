package envoy

import (
	"slices"

	"github.com/headgate/headgate/internal/server/strict"
)

// document defines a domain, in a file or a resource of an xDS server.
type document struct {
	at           strict.Place
	domain       string
	algorithm    string // of limits that name none; empty: DefaultAlgorithm
	allOrNothing bool
	descriptors  []descriptor
}

// mergeDomains joins the documents of each domain to one.
func mergeDomains(list []document) (merged []document, err error) {
	index := map[string]int{} // of each domain in merged
	for _, d := range list {
		i, exists := index[d.domain]
		if !exists {
			index[d.domain] = len(merged)
			merged = append(merged, d)
			continue
		}
		first := &merged[i]
		switch {
		case d.algorithm != first.algorithm:
			return nil, d.at.Wrong("algorithm: %.100q differs from %.100q in %s, which has the same domain",
				d.algorithm, first.algorithm, first.at.File)
		case d.allOrNothing != first.allOrNothing:
			return nil, d.at.Wrong("all_or_nothing: differs from %s, which has the same domain", first.at.File)
		}
		first.descriptors = slices.Concat(first.descriptors, d.descriptors)
	}
	return merged, nil
}

// descriptor is a descriptor of a document, with the descriptors nested in it.
type descriptor struct {
	at         strict.Place
	key, value string // an empty value matches any
	limit      *policy
	shadow     bool
	quota      bool
	share      bool // values that match a wildcard share one limit
	charge     chargeMode
	refunds    bool
	children   []descriptor
}

// policy is a rate_limit.
type policy struct {
	at         strict.Place
	unit       string // empty: not set
	requests   uint32
	multiplier uint32 // 0: not set
	unlimited  bool
	name       string
	replaces   []string
	notation   string // the whole limit; empty: unit, requests and multiplier define it
	algorithm  string // empty: the document's
}

// chargeMode says when the hits of a descriptor are charged.
type chargeMode uint8

const (
	chargeByHits      chargeMode = iota // one hit when allowed, several always
	chargeWhenAllowed                   // a request over the limit charges nothing
	chargeAlways                        // whatever the level, since the work is already done
)

var chargeModes = map[string]chargeMode{"when_allowed": chargeWhenAllowed, "always": chargeAlways}
