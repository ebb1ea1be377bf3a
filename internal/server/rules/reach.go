package rules

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// covers reports whether a rule matches each request of a method and a host that another one matches.
// An empty method or host is any. It may be false where that would be hard to see.
func (r *rule) covers(next *rule, method, host string) bool {
	switch {
	case !r.anyPath && (next.anyPath || !r.path.covers(next.path)),
		len(r.methods) > 0 && (method == "" || !r.method(method)),
		len(r.hosts) > 0 && (host == "" || !r.hostCovers(host)):
		return false
	}
	return implied(r.headers, next.headers)
}

// hostCovers reports whether a rule is for all hosts that a pattern stands for.
func (r *rule) hostCovers(pattern string) bool {
	suffix, many := strings.CutPrefix(pattern, "*")
	if !many {
		return r.host(pattern)
	}
	return slices.ContainsFunc(r.hosts, func(h string) bool {
		mine, any := strings.CutPrefix(h, "*")
		return any && strings.HasSuffix(suffix, mine)
	})
}

// implied reports whether some conditions hold wherever others do.
func implied(conditions, by []comparison) bool {
	for _, c := range conditions {
		if !slices.ContainsFunc(by, func(other comparison) bool {
			return other.name == c.name && (other == c || c.prefix && strings.HasPrefix(other.value, c.value))
		}) {
			return false
		}
	}
	return true
}

// exclude reports whether no value of a header can fulfil one of some conditions and one of others. A request whose
// lines of a header fulfil one each is torn, and refused.
func exclude(conditions, others []comparison) bool {
	for _, c := range conditions {
		for _, o := range others {
			if c.name == o.name && !c.holds(o.value) && !o.holds(c.value) {
				return true
			}
		}
	}
	return false
}

// orAny returns what a rule lists, or one that stands for all.
func orAny(list []string) []string {
	if len(list) == 0 {
		return []string{""}
	}
	return list
}

// reachable returns an error if the rules before the next one leave nothing to it.
func (r *Rules) reachable(next *rule) error {
	var by *rule
	for _, method := range orAny(next.methods) {
		for _, host := range orAny(next.hosts) {
			i := slices.IndexFunc(r.list, func(earlier *rule) bool { return earlier.covers(next, method, host) })
			if i < 0 {
				return nil
			}
			by = r.list[i]
		}
	}
	return wrong(next.at, "rules."+next.name, "can never match: rule %s at %s, which stands before it, matches the "+
		"same requests; put the more special rule first", by.name, by.at)
}

// crossing warns of earlier rules whose paths overlap with those of the next one while neither contains
// the other: then only the order of the file says which decides.
func (r *Rules) crossing(next *rule) {
	if next.anyPath {
		return
	}
	for _, earlier := range r.list {
		if earlier.anyPath || !earlier.path.meets(next.path) || earlier.path.covers(next.path) ||
			next.path.covers(earlier.path) || !shareMethod(earlier, next) || !shareHost(earlier, next) ||
			exclude(earlier.headers, next.headers) {
			continue
		}
		r.warnings = append(r.warnings, fmt.Sprintf("%s: rules.%s: some paths match rule %s at %s too, which stands "+
			"before it and decides about them", next.at, next.name, earlier.name, earlier.at))
	}
}

func shareMethod(a, b *rule) bool {
	return len(a.methods) == 0 || len(b.methods) == 0 || slices.ContainsFunc(a.methods, b.method) ||
		slices.ContainsFunc(b.methods, a.method) || a.method(http.MethodHead) && b.method(http.MethodHead)
}

func shareHost(a, b *rule) bool {
	return len(a.hosts) == 0 || len(b.hosts) == 0 || slices.ContainsFunc(a.hosts, b.hostCovers) ||
		slices.ContainsFunc(b.hosts, a.hostCovers)
}
