package envoy

import (
	"slices"

	"github.com/headgate/headgate/internal/server/strict"
)

// document defines a domain, in a file or a resource of an xDS server.
type document struct {
	at          strict.Place
	domain      string
	algorithm   string // of the limits that name none; empty: DefaultAlgorithm
	together    bool   // all_or_nothing
	descriptors []descriptor
}

// merged makes one document of those of each domain.
func merged(list []document) (merged []document, err error) {
	of := map[string]int{} // by the domain
	for _, d := range list {
		i, there := of[d.domain]
		if !there {
			of[d.domain] = len(merged)
			merged = append(merged, d)
			continue
		}
		first := &merged[i]
		switch {
		case d.algorithm != first.algorithm:
			return nil, d.at.Wrong("algorithm: %.100q differs from %.100q in %s, which has the same domain",
				d.algorithm, first.algorithm, first.at.File)
		case d.together != first.together:
			return nil, d.at.Wrong("all_or_nothing: differs from %s, which has the same domain", first.at.File)
		}
		first.descriptors = slices.Concat(first.descriptors, d.descriptors)
	}
	return merged, nil
}

// descriptor is a level of a rule.
type descriptor struct {
	at         strict.Place
	key, value string // an empty value stands for any
	limit      *policy
	shadow     bool
	quota      bool
	share      bool // values that match a wildcard share one limit
	charge     charging
	refunds    bool
	children   []descriptor
}

// policy is a rate_limit.
type policy struct {
	at         strict.Place
	unit       string // empty: none is said
	requests   uint32
	multiplier uint32 // 0: none is said
	unlimited  bool
	name       string
	replaces   []string
	notation   string // empty: the unit and the requests say the limit
	algorithm  string // empty: that of the document
}

// charging says when the hits of a descriptor are charged.
type charging uint8

const (
	byHits      charging = iota // up to one hit when allowed, more always
	whenAllowed                 // a request over the limit charges nothing
	always                      // whatever the level: the work is done already
)

var chargings = map[string]charging{"when_allowed": whenAllowed, "always": always}
