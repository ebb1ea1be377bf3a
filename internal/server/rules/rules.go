// Package rules says which charges an HTTP request carries. Rules stand in the config file; docs/rules.md
// describes each field.
//
// The first rule that matches a request decides alone, in the order of the file. If none matches,
// nothing is charged.
package rules

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
)

// The most that a file may have, so that an error in a program that writes it is found when it is read.
const (
	MaxRules   = 1000 // in a file
	MaxCharges = 64   // in a rule
)

// Request is matched by rules, which do not change it.
type Request struct {
	Method string
	Host   string // as it was sent, perhaps with a port
	Path   string // as of a Target; dot segments and double slashes count as they do in a file system
	Query  string // as it was sent, without the question mark
	Header http.Header
	Client netip.Addr // of the end user; no header says it here
}

// Match is what applies to a request. The zero Match is that no rule does: the request passes and
// nothing is charged.
type Match struct {
	Rule    string            // its name; empty: none applies, or a list for all requests does
	Charges []headgate.Charge // all are admitted, or none; none: the request passes
	Mode    Mode
	Listed  Listed

	// ID makes it a request that is charged once; Life is for how long, zero:
	// headgate.DefaultLife. It contains the keys of the charges. A request with an ID that was
	// admitted before is to be refused unless Replays says otherwise.
	ID      string
	Life    time.Duration
	Replays bool

	// Problem says what the request lacks, in a rule that is not enforced: nothing is charged then, and
	// the request passes.
	Problem error

	// Settle says where the response states the costs, for callers that see it. For others the charges
	// are final.
	Settle []Settle
}

// Settle finds the actual cost of a charge in a response. One of the fields is set.
type Settle struct {
	Charge int    // its place in Charges
	Header string // the name of a header with a decimal number
	JSON   string // the path of a number in a JSON body, as usage.total_tokens
}

// Mode is the effect of a refusal.
type Mode int

// The modes.
const (
	Enforce Mode = iota
	Shadow       // charge, and report what would have been refused, which passes
	Advise       // only say in headers what is left; nothing is charged
)

var modes = [...]string{Enforce: "enforce", Shadow: "shadow", Advise: "advise"}

// String returns the name of a mode in the file.
func (m Mode) String() string { return modes[m] }

// Listed is the list of addresses that has a client.
type Listed int

// What lists say.
const (
	NotListed Listed = iota
	Allowed          // it passes and is not charged
	Blocked          // it is refused and not charged
)

// String returns the name of the list; empty: none.
func (l Listed) String() string {
	return [...]string{NotListed: "", Allowed: "allow", Blocked: "block"}[l]
}

// Rules are the rules of a file. They are immutable and safe for concurrent use. Nil Rules match nothing.
type Rules struct {
	list     []*rule // in the order of the file
	lists    lists   // for all requests
	compares []int   // rules that compare headers, ascending
	enforces bool    // a rule is enforced
	warnings []string
}

// Enforces reports whether a rule is enforced. Else no request is refused.
func (r *Rules) Enforces() bool { return r != nil && r.enforces }

// Len returns the number of rules.
func (r *Rules) Len() int {
	if r == nil {
		return 0
	}
	return len(r.list)
}

// Warnings returns what may be a mistake in the file, a line each with its place.
func (r *Rules) Warnings() []string {
	if r == nil {
		return nil
	}
	return r.warnings
}

// Match returns what applies to a request. Errors are headgate.ErrInvalid: the request has not what a
// rule that is enforced needs. It may not be let through then.
func (r *Rules) Match(q *Request) (Match, error) {
	if r == nil {
		return Match{}, slashAllowed(q, "")
	}
	a := normalize(q)
	if l := r.lists.find(a.client); l != NotListed {
		return Match{Listed: l}, nil
	}
	i := r.first(&a)
	if err := r.encodedSlash(&a, i); err != nil {
		return Match{}, err
	}
	if err := r.authority(&a, i); err != nil {
		return Match{}, err
	}
	if torn, name := r.torn(&a, i); torn >= 0 {
		return r.list[torn].wrong(headgate.Invalid("header:"+name, "is there several times, with values that differ for "+
			"rule %s; send it once", r.list[torn].name))
	}
	if i < 0 {
		return Match{}, nil
	}
	return r.list[i].apply(&a)
}

// encodedSlash says why a path with an encoded slash may not be let through: the rule that decides does not allow it,
// or a server that decodes it would serve a path of another rule.
func (r *Rules) encodedSlash(a *normalized, decides int) error {
	if !strings.Contains(a.Path, EncodedSlash) || !r.enforces {
		return nil
	}
	if decides < 0 || r.list[decides].mode == Enforce && !r.list[decides].encodedSlash {
		return slashAllowed(a.Request, "; a rule with encoded_slash: true allows it")
	}
	if i := r.bypassed(a, strings.ReplaceAll(a.Path, EncodedSlash, "/"), decides); i >= 0 {
		return slashAllowed(a.Request, ", and decoded it is a path of rule "+r.list[i].name)
	}
	return nil
}

// authority says why a path that begins with two slashes may not be let through: a server that takes its first segment
// for a host, as Node's URL does, would serve a path of another rule.
func (r *Rules) authority(a *normalized, decides int) error {
	path := a.Path
	for strings.HasPrefix(path, "//") {
		_, rest, _ := strings.Cut(strings.TrimLeft(path, "/"), "/")
		path = "/" + rest
		if i := r.bypassed(a, path, decides); i >= 0 {
			return headgate.Invalid("path", "%.100q begins with two slashes; with a host behind them it is a path of "+
				"rule %s", a.Path, r.list[i].name)
		}
	}
	return nil
}

// bypassed returns the rule that would decide about a request if its path were another one, as some servers read it,
// and does not: -1 if there is none. A rule that is not enforced refuses nothing, so nobody gets round it. Nor is it
// where both match the path as it is: the file says which of them decides then.
func (r *Rules) bypassed(a *normalized, path string, decides int) int {
	read := *a.Request
	read.Path = path
	other := normalize(&read)
	i := r.first(&other)
	if i < 0 || i == decides || r.list[i].mode != Enforce || decides >= 0 && i > decides && r.list[i].matches(a) {
		return -1
	}
	return i
}

// first returns the index of the rule that decides, or -1. It looks at one rule after the other:
// 500 take 8 µs, where a tree of paths took 0.5.
func (r *Rules) first(a *normalized) int {
	return slices.IndexFunc(r.list, func(one *rule) bool { return one.matches(a) })
}

// slashAllowed returns the error of a path with an encoded slash.
func slashAllowed(q *Request, hint string) error {
	if !strings.Contains(q.Path, EncodedSlash) {
		return nil
	}
	return headgate.Invalid("path", "%.100q has an encoded slash, which servers interpret differently%s",
		strings.ReplaceAll(q.Path, EncodedSlash, "%2F"), hint)
}

// torn returns the first rule, up to the one that decides, that one line of a header fulfils and another line of the
// same header does not, and the name of the header: an application may go by the other line. -1: there is none.
func (r *Rules) torn(a *normalized, decides int) (int, string) {
	for _, i := range r.compares {
		if decides >= 0 && i > decides {
			break
		}
		one := r.list[i]
		for j := range one.headers {
			c := &one.headers[j]
			lines := a.Header[c.name]
			other := func(line string) bool { return !c.holds(line) }
			if slices.ContainsFunc(lines, c.holds) && slices.ContainsFunc(lines, other) &&
				one.aims(a) {
				return i, c.name
			}
		}
	}
	return -1, ""
}
