package rules

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/httpkey"
)

type rule struct {
	at      string
	name    string
	methods []string
	hosts   []string
	path    pattern
	anyPath bool
	headers []headerCondition
	lists   lists
	mode    Mode
	missing missingAction
	charges []charge
	id      *source
	life    time.Duration
	replays bool

	encodedSlash bool // an encoded slash belongs to its segment
}

// missingAction is what to do with a request that lacks a part of a key or a cost.
type missingAction int

const (
	refuseRequest missingAction = iota // the request is refused as wrong
	skipCharge                         // the limit is not charged
	useEmpty                           // the part is empty, and a cost is 1
)

var missingActions = [...]string{refuseRequest: "refuse", skipCharge: "skip", useEmpty: "empty"}

type charge struct {
	limit    headgate.Limit
	key      []source
	cost     headgate.Cost // the cost, or its default with costFrom; zero: 1, or no default
	costFrom *source       // nil: the cost is constant
	size     bool          // costFrom is the length of the body
	keep     headgate.Headroom
	settle   Settle // zero: none
}

// apply returns the Match of a rule and a request that it matches.
func (r *rule) apply(a *normalRequest) (Match, error) {
	m := Match{Rule: r.name, Mode: r.mode}
	if m.Listed = r.lists.lookup(a.client); m.Listed != NotListed || len(r.charges) == 0 {
		return m, nil
	}
	m.Charges = make([]headgate.Charge, 0, len(r.charges))
	for i := range r.charges {
		c := &r.charges[i]
		keys, charge, err := c.evaluate(r, a)
		if err != nil {
			return r.reject(err)
		}
		for _, key := range keys {
			charge.Key = key
			if s := c.settle; s != (Settle{}) {
				s.Charge = len(m.Charges)
				m.Settle = append(m.Settle, s)
			}
			m.Charges = append(m.Charges, charge)
		}
	}
	if len(m.Charges) > MaxCharges {
		return r.reject(headgate.Invalid("Cookie", "makes %d charges in rule %s; %d are the most", len(m.Charges),
			r.name, MaxCharges))
	}
	if r.id != nil && len(m.Charges) > 0 {
		id, err := r.id.single(a, r.path)
		if err != nil {
			return r.reject(err)
		}
		if id != "" {
			m.ID, m.Life, m.Replays = r.storeID(id, m.Charges), r.life, r.replays
		}
	}
	return m, nil
}

// reject returns the match of a request that lacks what the rule needs: an error if the rule is enforced.
func (r *rule) reject(err error) (Match, error) {
	if r.mode != Enforce {
		return Match{Rule: r.name, Mode: r.mode, Problem: err}, nil
	}
	return Match{Rule: r.name}, err
}

// evaluate returns a charge without its key, and its keys: none if nothing is charged, several for several cookies.
func (c *charge) evaluate(r *rule, a *normalRequest) (keys []string, out headgate.Charge, err error) {
	var room [4]string            // for the parts of most keys without an allocation
	lists := [][]string{room[:0]} // the parts of each key
	for _, s := range c.key {
		values, err := s.values(a, r.path)
		if err != nil {
			return nil, out, err
		}
		if len(values) == 0 && s.from != fromPath {
			switch {
			case s.from == fromIP: // always refused, since all requests without a client would share a key
				return nil, out, headgate.Invalid("client",
					"rule %s needs the address of the client, which is not known", r.name)
			case r.missing == refuseRequest:
				return nil, out, headgate.Invalid(s.String(), "is missing; rule %s makes a key of it", r.name)
			case r.missing == skipCharge:
				return nil, out, nil
			}
		}
		if len(values) == 0 {
			values = []string{""}
		}
		if len(lists)*len(values) > maxCookies {
			return nil, out, headgate.Invalid(s.String(), "makes %d keys with the other cookies; rule %s charges at "+
				"most %d", len(lists)*len(values), r.name, maxCookies)
		}
		lists = appendEach(lists, values)
	}
	out = headgate.Charge{Limit: c.limit, Cost: c.cost, Keep: c.keep}
	if c.costFrom != nil {
		var ok bool
		if out.Cost, ok, err = c.costOf(r, a); err != nil || !ok {
			return nil, out, err
		}
	}
	for _, parts := range lists {
		keys = append(keys, httpkey.Join(parts...))
	}
	return keys, out, nil
}

// appendEach returns each list with each value appended to it.
func appendEach(lists [][]string, values []string) [][]string {
	if len(lists) == 1 && len(values) == 1 { // the usual case
		lists[0] = append(lists[0], values[0])
		return lists
	}
	var all [][]string
	for _, parts := range lists {
		for _, v := range values {
			all = append(all, append(slices.Clip(parts), v))
		}
	}
	return all
}

// costOf returns the cost that costFrom reads from a request; ok is false if nothing is charged.
func (c *charge) costOf(r *rule, a *normalRequest) (cost headgate.Cost, ok bool, err error) {
	text, err := c.costFrom.single(a, r.path)
	switch {
	case err != nil:
		return cost, false, err
	case text == "" && !c.cost.IsZero():
		return c.cost, true, nil
	case text == "" && (r.missing == skipCharge || c.size && slices.Contains(bodiless, a.Method)):
		return cost, false, nil
	case text == "" && r.missing == useEmpty:
		return cost, true, nil
	case text == "":
		return cost, false, headgate.Invalid(c.costFrom.String(), "is missing; rule %s makes a cost of it", r.name)
	case c.size && strings.Trim(text, "0") == "":
		return cost, false, nil
	}
	cost, err = headgate.ParseCostUp(text)
	if cost == headgate.Units(0) {
		err = headgate.Invalid("cost", "is 0; it must be above 0")
	}
	if err != nil {
		return cost, false, headgate.Invalid(c.costFrom.String(), "%v; rule %s makes a cost of it", err, r.name)
	}
	return cost, true, nil
}

// bodiless lists the methods whose requests usually have no body. If the length is missing, they count as empty.
var bodiless = []string{http.MethodGet, http.MethodHead, http.MethodOptions}

// storeID returns the id of a request for the store. It hashes the client's id with the name of the rule and all limits
// and keys, so that no client can replay the request of another.
func (r *rule) storeID(clientID string, charges []headgate.Charge) string {
	h := sha256.New()
	write := func(text string) { fmt.Fprintf(h, "%d:%s", len(text), text) }
	write(r.name)
	write(clientID)
	for i := range charges {
		write(charges[i].Limit.Name())
		write(charges[i].Key)
	}
	return "rule:" + base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}
