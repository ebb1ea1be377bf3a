// Package rules finds the charges of an HTTP request by the rules of a config file; docs/rules.md describes each field.
//
// In the order of the file, the first rule that matches a request decides alone. If none matches, nothing is charged.
package rules

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
)

// Bounds on a file, which catch an error in a program that generates it.
const (
	MaxRules   = 1000 // in a file
	MaxCharges = 64   // of a rule, or of a request by it; parts of a key
)

// Request is an HTTP request to match. Rules do not change it.
type Request struct {
	Method string
	Host   string // as it was sent, perhaps with a port
	Path   string // of a Target; rules compare it without dot segments and double slashes
	Query  string // as it was sent, without the question mark
	Header http.Header
	Client netip.Addr // address of the end user; it is not read from Header
}

// Match is the result of the rules for a request. Zero: no rule matches, so the request passes and nothing is charged.
type Match struct {
	Rule    string            // name; empty: no rule matches, or a list for all requests decides
	Charges []headgate.Charge // admitted all or none; empty: the request passes
	Mode    Mode
	Listed  Listed

	// ID makes the request idempotent for Life; zero: headgate.DefaultLife. The ID depends on the keys of the charges.
	// A request with an ID that was admitted before has to be refused, unless Replays is set.
	ID      string
	Life    time.Duration
	Replays bool

	// Problem says what the request lacks for a rule that is not enforced: nothing is charged, and the request passes.
	Problem error

	// Settle says where the response has the actual costs, for callers that see it. For others the charges are final.
	Settle []Settle
}

// Settle says where a response has the actual cost of a charge. Either Header or JSON is set.
type Settle struct {
	Charge int    // index in Match.Charges
	Header string // name of a header with a decimal number
	JSON   string // path of a number in a JSON body, such as usage.total_tokens
}

// Mode is the effect of a refusal.
type Mode int

// The modes.
const (
	Enforce Mode = iota
	Shadow       // charge, let refused requests pass, and report them
	Advise       // charge nothing, and say in headers what is left
)

var modes = [...]string{Enforce: "enforce", Shadow: "shadow", Advise: "advise"}

// String returns the name of a mode in the file.
func (m Mode) String() string { return modes[m] }

// Listed says which list of addresses a client is on.
type Listed int

// The values of Listed.
const (
	NotListed Listed = iota
	Allowed          // the request passes and is not charged
	Blocked          // the request is refused and not charged
)

// String returns the name of the list; empty: none.
func (l Listed) String() string {
	return [...]string{NotListed: "", Allowed: "allow", Blocked: "block"}[l]
}

// Rules has the rules of a file. It is immutable and safe for concurrent use. Nil matches nothing.
type Rules struct {
	list        []*rule // in the order of the file
	lists       lists   // for all requests
	headerRules []int   // indexes of the rules with conditions on headers, ascending
	enforces    bool    // at least one rule is enforced
	warnings    []string
}

// Enforces reports whether any rule is enforced. Otherwise no request is refused.
func (r *Rules) Enforces() bool { return r != nil && r.enforces }

// Len returns the number of rules.
func (r *Rules) Len() int {
	if r == nil {
		return 0
	}
	return len(r.list)
}

// Warnings returns possible mistakes in the file, each as a line that begins with the place.
func (r *Rules) Warnings() []string {
	if r == nil {
		return nil
	}
	return r.warnings
}

// Match returns the result of the rules for a request. An error is a headgate.ErrInvalid: the request lacks what an
// enforced rule needs, or is ambiguous, and has to be refused.
func (r *Rules) Match(q *Request) (Match, error) {
	if r == nil {
		return Match{}, encodedSlashError(q, "")
	}
	a := normalize(q)
	if l := r.lists.lookup(a.client); l != NotListed {
		return Match{Listed: l}, nil
	}
	i := r.firstMatch(&a)
	if err := r.checkEncodedSlash(&a, i); err != nil {
		return Match{}, err
	}
	if err := r.checkDoubleSlash(&a, i); err != nil {
		return Match{}, err
	}
	if rule, name := r.conflictingHeader(&a, i); rule != nil {
		return rule.reject(headgate.Invalid("header:"+name, "is there several times, with values that differ for "+
			"rule %s; send it once", rule.name))
	}
	if i < 0 {
		return Match{}, nil
	}
	return r.list[i].apply(&a)
}

// checkEncodedSlash returns an error for a path with an encoded slash, if any rule is enforced, and if none decides, or
// an enforced one that does not allow it, or if a server that decodes it would serve a path of another rule.
func (r *Rules) checkEncodedSlash(a *normalRequest, ruleIndex int) error {
	if !strings.Contains(a.Path, EncodedSlash) || !r.enforces {
		return nil
	}
	if ruleIndex < 0 || r.list[ruleIndex].mode == Enforce && !r.list[ruleIndex].encodedSlash {
		return encodedSlashError(a.Request, "; a rule with encoded_slash: true allows it")
	}
	if i := r.bypassedRule(a, strings.ReplaceAll(a.Path, EncodedSlash, "/"), ruleIndex); i >= 0 {
		return encodedSlashError(a.Request, ", and decoded it is a path of rule "+r.list[i].name)
	}
	return nil
}

// checkDoubleSlash returns an error for a path that begins with two slashes if a server that takes the first segment
// for a host, as Node's URL does, would serve a path of another rule.
func (r *Rules) checkDoubleSlash(a *normalRequest, ruleIndex int) error {
	path := a.Path
	for strings.HasPrefix(path, "//") {
		_, rest, _ := strings.Cut(strings.TrimLeft(path, "/"), "/")
		path = "/" + rest
		if i := r.bypassedRule(a, path, ruleIndex); i >= 0 {
			return headgate.Invalid("path", "%.100q begins with two slashes; with a host behind them it is a path of "+
				"rule %s", a.Path, r.list[i].name)
		}
	}
	return nil
}

// bypassedRule returns the index of another rule that would decide a request if a server read its path as another path,
// or -1. A rule that is not enforced cannot be bypassed. Nor can a later rule that also matches the path as it is,
// since the order of the file says that it does not decide.
func (r *Rules) bypassedRule(a *normalRequest, path string, ruleIndex int) int {
	otherRequest := *a.Request
	otherRequest.Path = path
	other := normalize(&otherRequest)
	i := r.firstMatch(&other)
	if i < 0 || i == ruleIndex || r.list[i].mode != Enforce || ruleIndex >= 0 && i > ruleIndex && r.list[i].matches(a) {
		return -1
	}
	return i
}

// firstMatch returns the index of the rule that decides, or -1. It tries one rule after the other: 500 take 8 µs, and
// took 0.5 µs with a tree of paths.
func (r *Rules) firstMatch(a *normalRequest) int {
	return slices.IndexFunc(r.list, func(candidate *rule) bool { return candidate.matches(a) })
}

// encodedSlashError returns the error of a path with an encoded slash, or nil if it has none.
func encodedSlashError(q *Request, hint string) error {
	if !strings.Contains(q.Path, EncodedSlash) {
		return nil
	}
	return headgate.Invalid("path", "%.100q has an encoded slash, which servers interpret differently%s",
		strings.ReplaceAll(q.Path, EncodedSlash, "%2F"), hint)
}

// conflictingHeader returns the first rule, up to the rule that decides, with a condition that one line of a header
// fulfils and another line does not, and the name of the header: an application may use the other line. nil: none.
func (r *Rules) conflictingHeader(a *normalRequest, ruleIndex int) (*rule, string) {
	for _, i := range r.headerRules {
		if ruleIndex >= 0 && i > ruleIndex {
			break
		}
		rule := r.list[i]
		for j := range rule.headers {
			c := &rule.headers[j]
			lines := a.Header[c.name]
			fails := func(line string) bool { return !c.holds(line) }
			if slices.ContainsFunc(lines, c.holds) && slices.ContainsFunc(lines, fails) && rule.matchesTarget(a) {
				return rule, c.name
			}
		}
	}
	return nil, ""
}
