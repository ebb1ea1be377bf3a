package rules

import (
	"fmt"
	"strings"

	"github.com/headgate/headgate/internal/server/api"
)

// Explanation says which rule decides a request, and what each rule does.
type Explanation struct {
	Match    Match
	Err      error         // error of Rules.Match
	At       string        // place of the rule that decides; empty: none
	Why      string        // reason, as a sentence without a full stop
	Verdicts []api.Verdict // one for each rule, in the order of the file; never nil
}

// Explain explains how rules decide a request. It is too slow for requests that are served.
func (r *Rules) Explain(q *Request) *Explanation {
	e := &Explanation{Verdicts: make([]api.Verdict, r.Len())}
	e.Match, e.Err = r.Match(q)
	if r == nil || len(r.list) == 0 {
		e.Why = "there are no rules"
		if e.Match.Listed == NotListed {
			return e
		}
	}
	a := normalize(q)
	ruleIndex := r.firstMatch(&a)
	if global := r.lists.lookup(a.client); global != NotListed {
		e.Why = fmt.Sprintf("the list %s for all requests has %s", global, a.client)
		ruleIndex = -1
	} else if ruleIndex < 0 {
		e.Why = "no rule matches, so that nothing is charged"
	}
	for i, rule := range r.list {
		v := api.Verdict{Rule: rule.name, At: rule.at, Why: rule.mismatch(&a)}
		v.Matches = v.Why == ""
		switch {
		case i == ruleIndex:
			v.Why = "it is the first that matches"
			e.At, e.Why = rule.at, fmt.Sprintf("rule %s is the first that matches", rule.name)
			if e.Match.Listed != NotListed {
				e.Why += fmt.Sprintf(", and its list %s has %s", e.Match.Listed, a.client)
			}
		case v.Matches && ruleIndex >= 0:
			v.Why = fmt.Sprintf("it matches too, but rule %s stands before it", r.list[ruleIndex].name)
		case v.Matches:
			v.Why = "it matches, but a list for all requests decides"
		}
		e.Verdicts[i] = v
	}
	return e
}

// mismatch describes a condition of a rule that does not hold; empty: all hold.
func (r *rule) mismatch(a *normalRequest) string {
	c := r.unmetCondition(a)
	switch {
	case !r.matchesPath(a):
		return fmt.Sprintf("the path %.100q is not %s", strings.ReplaceAll(a.Path, EncodedSlash, "%2F"), r.path)
	case !r.matchesMethod(a.Method):
		return fmt.Sprintf("the method %.40q is not %s", a.Method, strings.Join(r.methods, " or "))
	case !r.matchesHost(a.host):
		return fmt.Sprintf("the host %.100q is not %s", a.host, strings.Join(r.hosts, " or "))
	case c == nil:
		return ""
	case len(a.Header[c.name]) == 0:
		return "there is no header " + c.name
	}
	return fmt.Sprintf("the header %s is not as the rule wants it", c.name) // the value may be a secret
}

// String returns a pattern in the file's syntax.
func (p pattern) String() string {
	var b strings.Builder
	for _, s := range p {
		switch {
		case s.kind == literal:
			b.WriteString("/" + s.text)
		case s.kind == oneSegment:
			b.WriteString("/{" + s.text + "}")
		case s.text == "":
			b.WriteString("/")
		default:
			b.WriteString("/{" + s.text + "...}")
		}
	}
	if len(p) == 0 {
		return "/{$}"
	}
	return b.String()
}
