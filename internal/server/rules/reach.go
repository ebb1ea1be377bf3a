package rules

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// covers reports whether a rule matches each request of a method and a host that the next rule matches. An empty method
// or host is any. The result may be false if the coverage is hard to prove.
func (r *rule) covers(next *rule, method, host string) bool {
	switch {
	case !r.anyPath && (next.anyPath || !r.path.covers(next.path)),
		len(r.methods) > 0 && (method == "" || !r.matchesMethod(method)),
		len(r.hosts) > 0 && (host == "" || !r.hostCovers(host)):
		return false
	}
	return implies(next.headers, r.headers)
}

// hostCovers reports whether a rule matches all hosts that a pattern matches.
func (r *rule) hostCovers(pattern string) bool {
	suffix, wildcard := strings.CutPrefix(pattern, "*")
	if !wildcard {
		return r.matchesHost(pattern)
	}
	return slices.ContainsFunc(r.hosts, func(h string) bool {
		ruleSuffix, ruleWildcard := strings.CutPrefix(h, "*")
		return ruleWildcard && strings.HasSuffix(suffix, ruleSuffix)
	})
}

// implies reports whether all of the conclusions hold if all of the premises hold.
func implies(premises, conclusions []headerCondition) bool {
	for _, c := range conclusions {
		if !slices.ContainsFunc(premises, func(other headerCondition) bool {
			return other.name == c.name && (other == c || c.prefix && strings.HasPrefix(other.value, c.value))
		}) {
			return false
		}
	}
	return true
}

// exclusive reports whether a condition and one of the others are on the same header, and no value fulfils both. A
// request with several lines of the header that fulfil one each is refused.
func exclusive(conditions, others []headerCondition) bool {
	for _, c := range conditions {
		for _, o := range others {
			if c.name == o.name && !c.holds(o.value) && !o.holds(c.value) {
				return true
			}
		}
	}
	return false
}

// listOrAny returns a list, or if it is empty, a list of the empty text, which covers takes for any.
func listOrAny(list []string) []string {
	if len(list) == 0 {
		return []string{""}
	}
	return list
}

// checkReachable returns an error if earlier rules match all requests that the next rule matches.
func (r *Rules) checkReachable(next *rule) error {
	var cover *rule
	for _, method := range listOrAny(next.methods) {
		for _, host := range listOrAny(next.hosts) {
			i := slices.IndexFunc(r.list, func(earlier *rule) bool { return earlier.covers(next, method, host) })
			if i < 0 {
				return nil
			}
			cover = r.list[i]
		}
	}
	return errorAt(next.at, "rules."+next.name, "can never match: rule %s at %s, which stands before it, matches the "+
		"same requests; put the more special rule first", cover.name, cover.at)
}

// warnOverlaps warns of earlier rules whose paths overlap with the next rule's paths, while neither covers the other:
// then only the order in the file says which rule decides.
func (r *Rules) warnOverlaps(next *rule) {
	if next.anyPath {
		return
	}
	for _, earlier := range r.list {
		if earlier.anyPath || !earlier.path.overlaps(next.path) || earlier.path.covers(next.path) ||
			next.path.covers(earlier.path) || !shareMethod(earlier, next) || !shareHost(earlier, next) ||
			exclusive(earlier.headers, next.headers) {
			continue
		}
		r.warnings = append(r.warnings, fmt.Sprintf("%s: rules.%s: some paths match rule %s at %s too, which stands "+
			"before it and decides about them", next.at, next.name, earlier.name, earlier.at))
	}
}

func shareMethod(a, b *rule) bool {
	return len(a.methods) == 0 || len(b.methods) == 0 || slices.ContainsFunc(a.methods, b.matchesMethod) ||
		slices.ContainsFunc(b.methods, a.matchesMethod) ||
		a.matchesMethod(http.MethodHead) && b.matchesMethod(http.MethodHead)
}

func shareHost(a, b *rule) bool {
	return len(a.hosts) == 0 || len(b.hosts) == 0 || slices.ContainsFunc(a.hosts, b.hostCovers) ||
		slices.ContainsFunc(b.hosts, a.hostCovers)
}
