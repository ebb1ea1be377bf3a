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

// Config are the rules of all domains. It is immutable and safe for concurrent use.
type Config struct {
	domains map[string]*domain
	limits  int
}

// Domains returns how many domains there are.
func (c *Config) Domains() int { return len(c.domains) }

// Limits returns how many descriptors have a limit, the unlimited ones included.
func (c *Config) Limits() int { return c.limits }

// domain are the rules of a domain.
type domain struct {
	name      string
	algorithm string // of limits that a request says
	together  bool
	root      node
}

// node are the descriptors of one level.
type node struct {
	exact    map[entry]*level
	patterns []*level // with wildcards, in the order of the file
	any      map[string]*level
}

type entry struct{ key, value string }

// level has what a request's descriptor can match at one level.
type level struct {
	key, value string // value may be a pattern, of [auth.Match]
	share      bool
	rule       *rule // nil: there is no limit here
	next       *node // nil: there is nothing below
}

// rule is a limit of a descriptor.
type rule struct {
	limit     headgate.Limit
	title     string                           // for people
	current   *rls.RateLimitResponse_RateLimit // of answers, which share it
	name      string
	replaces  []string
	charge    charging
	unlimited bool
	shadow    bool
	quota     bool
	refunds   bool // negative hits may be given back
}

// compile makes rules of documents: all of them, or none. Those of one domain are an error, unless they are merged.
func compile(list []document, merge bool) (c *Config, err error) {
	if merge {
		if list, err = merged(list); err != nil {
			return nil, err
		}
	}
	c = &Config{domains: map[string]*domain{}}
	for i := range list {
		doc := &list[i]
		if doc.domain == "" {
			return nil, doc.at.Wrong("domain: is missing or empty")
		}
		if _, there := c.domains[doc.domain]; there {
			return nil, doc.at.Wrong("domain: %.100q is defined twice; a domain is in one file only, unless "+
				"envoy_merge_domains is set", doc.domain)
		}
		if doc.algorithm != "" && !algorithms[doc.algorithm] {
			return nil, doc.at.Wrong("algorithm: %.100q is not one of %s", doc.algorithm, algorithmNames)
		}
		d := &domain{name: doc.domain, algorithm: cmp.Or(doc.algorithm, DefaultAlgorithm), together: doc.together}
		b := builder{domain: d, config: c}
		if err := b.add(&d.root, doc.descriptors, nil); err != nil {
			return nil, err
		}
		c.domains[doc.domain] = d
	}
	return c, nil
}

// builder builds the rules of a domain.
type builder struct {
	domain *domain
	config *Config
}

// add adds descriptors to a level. path are the keys and values above it.
func (b *builder) add(n *node, list []descriptor, path []string) error {
	n.exact, n.any = map[entry]*level{}, map[string]*level{}
	seen := map[entry]bool{}
	for i := range list {
		d := &list[i]
		if d.key == "" {
			return d.at.Wrong("key: is missing or empty")
		}
		l := &level{key: d.key, value: d.value, share: d.share}
		wildcard := strings.Contains(d.value, "*")
		if d.share && !wildcard {
			return d.at.Wrong("share_threshold: needs a value with a wildcard (*)")
		}
		same := entry{d.key, d.value}
		if seen[same] {
			return d.at.Wrong("%s is there twice on this level", title(same))
		}
		seen[same] = true
		switch {
		case wildcard:
			n.patterns = append(n.patterns, l)
		case d.value == "":
			n.any[d.key] = l
		default:
			n.exact[same] = l
		}
		below := slices.Concat(path, []string{d.key, d.value})
		var err error
		if l.rule, err = b.rule(d, below); err != nil {
			return err
		}
		if len(d.children) == 0 {
			continue
		}
		l.next = &node{}
		if err := b.add(l.next, d.children, below); err != nil {
			return err
		}
	}
	return nil
}

func title(e entry) string {
	if e.value == "" {
		return fmt.Sprintf("%.100q without a value", e.key)
	}
	return fmt.Sprintf("%.100q with the value %.100q", e.key, e.value)
}

// rule makes the rule of a descriptor; nil if it has no limit.
func (b *builder) rule(d *descriptor, path []string) (*rule, error) {
	p := d.limit
	if p == nil {
		switch {
		case d.charge != byHits:
			return nil, d.at.Wrong("charge: needs a rate_limit")
		case d.refunds:
			return nil, d.at.Wrong("refunds: needs a rate_limit")
		}
		return nil, nil
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	if b.domain.together && d.charge == always {
		return nil, d.at.Wrong("charge: always has no meaning where all_or_nothing is set, since it cannot be refused")
	}
	b.config.limits++
	r := &rule{
		name: p.name, replaces: p.replaces, charge: d.charge, unlimited: p.unlimited, shadow: d.shadow, quota: d.quota,
		title: cmp.Or(p.name, slug(path)),
	}
	if b.domain.together && r.charge == byHits {
		r.charge = whenAllowed
	}
	if p.unlimited {
		return r, nil
	}
	notation, at := p.notation, p.at.In("headgate")
	if notation == "" {
		var err error
		if notation, err = p.notationOf(b.domain.algorithm); err != nil {
			return nil, err
		}
		at = p.at
	}
	limit, err := headgate.ParseNamed(limitName(b.domain.name, path), notation)
	if err != nil {
		return nil, at.Wrong("%s", problem(err))
	}
	if limit.Concurrency() {
		return nil, at.Wrong("%s is held until it is released, which Envoy does not do", limit)
	}
	r.use(limit, p)
	if returns := refundable(limit); d.refunds && returns == never {
		return nil, d.at.Wrong("refunds: %s gives back single charges only", limit)
	} else {
		r.refunds = returns == byDefault || d.refunds
	}
	return r, nil
}

// use sets the limit, and what follows from it.
func (r *rule) use(limit headgate.Limit, p *policy) {
	r.limit, r.current = limit, currentOf(limit)
	if p.notation == "" { // as the file says it
		r.current.Unit, r.current.RequestsPerUnit = units[strings.ToLower(p.unit)].unit, p.requests
		r.current.UnitMultiplier = multiplierOf(p.multiplier)
	}
	r.current.Name = r.name
}

// limitName returns the name by which the store knows a limit: the same for as long as the descriptor stands in its
// place, so that a change of its numbers keeps what was used.
func limitName(domain string, path []string) string {
	h := sha256.New()
	for _, part := range append([]string{domain}, path...) {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	words := slug(append([]string{domain}, path...))
	return limitPrefix + words + "." + hex.EncodeToString(h.Sum(nil)[:8])
}

// limitPrefix begins the names of all limits of this package, so that a token can be given to Envoy alone.
const limitPrefix = "envoy."

// maxSlug keeps names within what a limit may have.
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

// How a limit can give back hits that are not known by themselves.
type returning uint8

const (
	byDefault returning = iota // a window: what was charged within it
	ifAsked                    // what drains: what is in use may be another caller's
	never
)

func refundable(l headgate.Limit) returning {
	switch l.Algorithm().(type) {
	case headgate.FixedWindow, headgate.SlidingWindow:
		return byDefault
	case headgate.SlidingLog:
		return never
	default:
		return ifAsked
	}
}
