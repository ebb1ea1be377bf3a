package envoy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/headgate/headgate"
)

// Config has the rules of all domains. It is immutable and safe for concurrent use.
type Config struct {
	domains map[string]*domain
	limits  int
}

// Domains returns how many domains there are.
func (c *Config) Domains() int { return len(c.domains) }

// Limits returns how many descriptors have a limit, the unlimited ones included.
func (c *Config) Limits() int { return c.limits }

type domain struct {
	name         string
	algorithm    string // of limits in requests
	allOrNothing bool
	root         node
}

// node has the descriptors that are nested in one descriptor, or the outermost ones.
type node struct {
	exact    map[entry]*branch
	patterns []*branch          // values with wildcards, in the order of the file
	byKey    map[string]*branch // descriptors without a value
}

type entry struct{ key, value string }

// branch is a configured descriptor, which an entry of a request's descriptor can match.
type branch struct {
	key, value string // value may be a pattern, of [auth.Match]
	share      bool   // all values that match the pattern share a key
	rule       *rule  // nil: no limit
	next       *node  // nil: no nested descriptors
}

type rule struct {
	limit     headgate.Limit
	title     string                           // for people
	current   *rls.RateLimitResponse_RateLimit // CurrentLimit of all answers; read-only
	name      string
	replaces  []string
	charge    chargeMode
	unlimited bool
	shadow    bool
	quota     bool
	refunds   bool // negative hits are allowed
}

// compile makes the rules of documents. Two documents of the same domain are an error, unless merge is true.
func compile(list []document, merge bool) (c *Config, err error) {
	if merge {
		if list, err = mergeDomains(list); err != nil {
			return nil, err
		}
	}
	c = &Config{domains: map[string]*domain{}}
	for i := range list {
		doc := &list[i]
		if doc.domain == "" {
			return nil, doc.at.Wrong("domain: is missing or empty")
		}
		if _, exists := c.domains[doc.domain]; exists {
			return nil, doc.at.Wrong("domain: %.100q is defined twice; a domain is in one file only, unless "+
				"envoy_merge_domains is set", doc.domain)
		}
		if doc.algorithm != "" && !algorithms[doc.algorithm] {
			return nil, doc.at.Wrong("algorithm: %.100q is not one of %s", doc.algorithm, algorithmNames)
		}
		d := &domain{name: doc.domain, algorithm: cmp.Or(doc.algorithm, DefaultAlgorithm)}
		d.allOrNothing = doc.allOrNothing
		b := builder{domain: d, config: c}
		if err := b.add(&d.root, doc.descriptors, nil); err != nil {
			return nil, err
		}
		c.domains[doc.domain] = d
	}
	return c, nil
}

type builder struct {
	domain *domain
	config *Config
}

// add adds descriptors to a node. path has the keys and values above it.
func (b *builder) add(n *node, list []descriptor, path []string) error {
	n.exact, n.byKey = map[entry]*branch{}, map[string]*branch{}
	seen := map[entry]bool{}
	for i := range list {
		d := &list[i]
		if d.key == "" {
			return d.at.Wrong("key: is missing or empty")
		}
		l := &branch{key: d.key, value: d.value, share: d.share}
		wildcard := strings.Contains(d.value, "*")
		if d.share && !wildcard {
			return d.at.Wrong("share_threshold: needs a value with a wildcard (*)")
		}
		e := entry{d.key, d.value}
		if seen[e] {
			return d.at.Wrong("%s is there twice on this level", title(e))
		}
		seen[e] = true
		switch {
		case wildcard:
			n.patterns = append(n.patterns, l)
		case d.value == "":
			n.byKey[d.key] = l
		default:
			n.exact[e] = l
		}
		childPath := slices.Concat(path, []string{d.key, d.value})
		var err error
		if l.rule, err = b.makeRule(d, childPath); err != nil {
			return err
		}
		if len(d.children) == 0 {
			continue
		}
		l.next = &node{}
		if err := b.add(l.next, d.children, childPath); err != nil {
			return err
		}
	}
	return nil
}

// title describes an entry in messages.
func title(e entry) string {
	if e.value == "" {
		return fmt.Sprintf("%.100q without a value", e.key)
	}
	return fmt.Sprintf("%.100q with the value %.100q", e.key, e.value)
}

// makeRule makes the rule of a descriptor; nil if it has no limit.
func (b *builder) makeRule(d *descriptor, path []string) (*rule, error) {
	p := d.limit
	if p == nil {
		switch {
		case d.charge != chargeByHits:
			return nil, d.at.Wrong("charge: needs a rate_limit")
		case d.refunds:
			return nil, d.at.Wrong("refunds: needs a rate_limit")
		}
		return nil, nil
	}
	if err := p.validate(); err != nil {
		return nil, err
	}
	if b.domain.allOrNothing && d.charge == chargeAlways {
		return nil, d.at.Wrong("charge: always has no meaning where all_or_nothing is set, since it cannot be refused")
	}
	b.config.limits++
	r := &rule{
		name: p.name, replaces: p.replaces, charge: d.charge, unlimited: p.unlimited, shadow: d.shadow, quota: d.quota,
		title: cmp.Or(p.name, slug(path)),
	}
	if b.domain.allOrNothing && r.charge == chargeByHits {
		r.charge = chargeWhenAllowed
	}
	if p.unlimited {
		return r, nil
	}
	notation, at := p.notation, p.at.In("headgate")
	if notation == "" {
		var err error
		if notation, err = p.toNotation(b.domain.algorithm); err != nil {
			return nil, err
		}
		at = p.at
	}
	limit, err := headgate.ParseNamed(limitName(b.domain.name, path), notation)
	if err != nil {
		return nil, at.Wrong("%s", problemOf(err))
	}
	if limit.Concurrency() {
		return nil, at.Wrong("%s is held until it is released, which Envoy does not do", limit)
	}
	r.setLimit(limit, p)
	if mode := refundModeOf(limit); d.refunds && mode == refundsNever {
		return nil, d.at.Wrong("refunds: %s gives back single charges only", limit)
	} else {
		r.refunds = mode == refundsByDefault || d.refunds
	}
	return r, nil
}

// setLimit sets the limit of a policy, and the description of it in answers.
func (r *rule) setLimit(limit headgate.Limit, p *policy) {
	r.limit, r.current = limit, currentLimitOf(limit)
	if p.notation == "" { // describe it by the unit and the number of the policy
		r.current.Unit, r.current.RequestsPerUnit = units[strings.ToLower(p.unit)].enum, p.requests
		r.current.UnitMultiplier = multiplierOf(p.multiplier)
	}
	r.current.Name = r.name
}

// limitName returns the name of a limit in the store. It depends only on the descriptor's path, so that a change of the
// limit's numbers keeps what was used.
func limitName(domain string, path []string) string {
	h := sha256.New()
	for _, part := range append([]string{domain}, path...) {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	words := slug(append([]string{domain}, path...))
	return limitPrefix + words + "." + hex.EncodeToString(h.Sum(nil)[:8])
}

// limitPrefix begins the names of all limits of this package, so that a token can be restricted to Envoy's limits.
const limitPrefix = "envoy."

// maxSlug bounds a slug, so that a limit's name has 63 bytes at most.
const maxSlug = 40

// slug writes words as a part of a name.
func slug(parts []string) string {
	var b strings.Builder
	for _, part := range parts {
		if part == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		for i := range len(part) {
			c := part[i]
			if c >= 'A' && c <= 'Z' {
				c |= 0x20
			}
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '-' {
				c = '-'
			}
			b.WriteByte(c)
			if b.Len() >= maxSlug {
				return b.String()
			}
		}
	}
	return b.String()
}

// refundMode says whether a limit accepts negative hits, which do not name the hits that they give back.
type refundMode uint8

const (
	refundsByDefault refundMode = iota // windows: gives back what was charged within the window
	refundsOnRequest                   // limits that drain: a refund may give back another caller's hits
	refundsNever
)

func refundModeOf(l headgate.Limit) refundMode {
	switch l.Algorithm().(type) {
	case headgate.FixedWindow, headgate.SlidingWindow:
		return refundsByDefault
	case headgate.SlidingLog:
		return refundsNever
	default:
		return refundsOnRequest
	}
}
