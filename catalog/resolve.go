package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// The limit of a key is that of the first of these that exists.
//
//	an override of the key
//	the override of the longest prefix of the key
//	the plan of the key; if it does not name the limit, the limit itself
//	the plan of the longest prefix of the key, likewise
//	the limit itself
//
// An item with an end holds until then, by the store's clock. After it holds what would hold without the item.

type planLimit struct {
	limit headgate.Limit
	err   error // why this program cannot read it; nil: it can
}

// prefixItems are the items for all keys that begin with a prefix.
type prefixItems struct {
	lengths []int             // the lengths of the prefixes, the longest first
	items   map[string]*entry // by prefix
}

func (p *prefixItems) add(i *store.Item) {
	if p.items == nil {
		p.items = map[string]*entry{}
	}
	p.items[i.Key] = &entry{exists: true, text: i.Text, until: i.Until}
	if !slices.Contains(p.lengths, len(i.Key)) {
		p.lengths = append(p.lengths, len(i.Key))
		slices.SortFunc(p.lengths, func(a, b int) int { return b - a })
	}
}

// each calls f for the items of a key, the longest prefix first, until f returns false.
func (p *prefixItems) each(key string, f func(prefix string, e *entry) bool) {
	for _, n := range p.lengths {
		if n > len(key) {
			continue
		}
		if e := p.items[key[:n]]; e != nil && !f(key[:n], e) {
			return
		}
	}
}

// readPlans fills the maps of plans and prefix items from the snapshot's items.
func (s *snapshot) readPlans() {
	s.plans, s.prefixOverrides = map[string]map[string]planLimit{}, map[string]prefixItems{}
	s.prefixPlans = prefixItems{}
	for _, i := range s.items {
		switch i.Kind {
		case store.KindPlan:
			if s.plans[i.Name] == nil {
				s.plans[i.Name] = map[string]planLimit{}
			}
			var p planLimit
			if base, ok := s.limits[i.Key]; ok {
				p.limit, p.err = parseInPlaceOf(base.Limit, i.Text, appliedPlan(i.Name, ""))
			}
			s.plans[i.Name][i.Key] = p
		case store.KindPrefixOverride:
			p := s.prefixOverrides[i.Name]
			p.add(&i)
			s.prefixOverrides[i.Name] = p
		case store.KindPrefixAssignment:
			s.prefixPlans.add(&i)
		}
	}
}

// candidate is a limit that may hold for a key, until a time; 0: without an end.
type candidate struct {
	limit headgate.Limit
	until int64
}

// maxSkew is how far, in microseconds, this process's estimate of the store's clock may be off. An item remains a
// candidate until this long after its end.
const maxSkew = int64(time.Minute / time.Microsecond)

// lastEnd is the last time that package law can represent, in the year 2255. A later end counts as none.
const lastEnd = 1<<53 - 1

// candidates lists a key's candidates in order of precedence.
type candidates struct {
	list []candidate
	now  int64
	err  error // why this program cannot read a candidate; nil: it can read all
}

// add adds a candidate, unless it ended long ago. It reports whether the candidate is the last: it has no end, or this
// program cannot read it.
func (c *candidates) add(l headgate.Limit, until int64, err error) (last bool) {
	if until > lastEnd {
		until = 0
	}
	switch {
	case until != 0 && until+maxSkew < c.now:
		return false
	case err != nil:
		c.err = err
		return true
	}
	c.list = append(c.list, candidate{l, until})
	return until == 0
}

// resolve returns the limit for a key; get returns the items of single keys.
func (s *snapshot) resolve(base headgate.Limit, key string, get func(id) *entry) (l headgate.Limit, err error) {
	c := candidates{now: s.clock()}
	if !s.addOverrides(&c, base, key, get) {
		s.addPlans(&c, base, key, get)
	}
	if c.err != nil {
		return l, c.err
	}
	l = base
	for _, candidate := range slices.Backward(c.list) {
		if candidate.until == 0 {
			l = candidate.limit
		} else if l, err = candidate.limit.Until(time.UnixMicro(candidate.until), l); err != nil {
			return l, err
		}
	}
	return l, nil
}

// addOverrides adds the overrides of a key, and reports whether no plan can follow them.
func (s *snapshot) addOverrides(c *candidates, base headgate.Limit, key string, get func(id) *entry) (last bool) {
	add := func(e *entry, applied string) bool {
		l, err := e.override(base, applied)
		return c.add(l, e.until, err)
	}
	if e := get(id{store.KindOverride, base.Name(), key}); e.exists && add(e, appliedOverride("")) {
		return true
	}
	p := s.prefixOverrides[base.Name()]
	p.each(key, func(prefix string, e *entry) bool {
		last = add(e, appliedOverride(ofPrefix(prefix)))
		return !last
	})
	return last
}

// addPlans adds the limit as the plans of a key, and of its prefixes, have it.
func (s *snapshot) addPlans(c *candidates, base headgate.Limit, key string, get func(id) *entry) {
	add := func(e *entry, suffix string) (last bool) {
		limits, ok := s.plans[e.text]
		if !ok { // the plan was removed
			return false
		}
		p, ok := limits[base.Name()]
		switch {
		case !ok: // the plan does not name the limit
			p.limit = base
		case suffix != "" && p.err == nil:
			p.limit = p.limit.Because(appliedPlan(e.text, suffix))
		}
		return c.add(p.limit, e.until, p.err)
	}
	if e := get(id{store.KindAssignment, "", key}); e.exists && add(e, "") {
		return
	}
	s.prefixPlans.each(key, func(prefix string, e *entry) bool { return !add(e, ofPrefix(prefix)) })
}

// maxFindTries is how many times findAll tries, while the catalog keeps changing.
const maxFindTries = 10

// Find implements headgate.Names, by the version that was read last. It caches a key's items. If they
// are not cached it reads them from the store, in one batch with the items of other callers, for as
// long as the context lasts. Until a version is read, the error is that of Err.
func (c *Catalog) Find(ctx context.Context, name, key string) (headgate.Limit, error) {
	if s := c.current.Load(); s != nil && s.sameForAllKeys() {
		return s.find(name)
	}
	var l headgate.Limit
	err := c.findAll(ctx, 1, func(int) (string, string) { return name, key },
		func(_ int, found headgate.Limit) { l = found })
	return l, err
}

// Known returns the limit of a name for a key without a call of the store. It returns false if the cache does not say
// which limit holds, or if none can be used.
func (c *Catalog) Known(name, key string) (headgate.Limit, bool) {
	s := c.current.Load()
	if s == nil {
		return headgate.Limit{}, false
	}
	allCached := true
	base, err := s.find(name)
	if err != nil {
		return headgate.Limit{}, false
	}
	l, err := s.limitOf(base, key, func(i id) *entry {
		e, ok := c.keys.cache.GetIfPresent(i)
		if !ok {
			allCached = false
			return absent
		}
		return e
	})
	return l, allCached && err == nil && c.current.Load().version == s.version
}

// FindAll implements headgate.Names.
func (c *Catalog) FindAll(ctx context.Context, charges []headgate.Charge) error {
	return c.findAll(ctx, len(charges), func(i int) (string, string) {
		if !charges[i].Limit.OnlyName() {
			return "", ""
		}
		return charges[i].Limit.Name(), charges[i].Key
	}, func(i int, l headgate.Limit) { charges[i].Limit = l })
}

// findAll finds n limits, all of one version, and then calls setLimit for each. nameAndKey returns what to find; an
// empty name is skipped.
func (c *Catalog) findAll(ctx context.Context, n int, nameAndKey func(int) (name, key string),
	setLimit func(int, headgate.Limit),
) error {
	var result *lookup
	for range maxFindTries {
		s := c.current.Load()
		if s == nil {
			if failed := c.Err(); failed != nil {
				return failed
			}
		}
		var missing []id
		get := func(i id) *entry {
			if result != nil && result.version == s.version {
				if e := result.found[i]; e != nil {
					return e
				}
			}
			e, ok := c.keys.cache.GetIfPresent(i)
			if !ok {
				i.key = strings.Clone(i.key) // it may alias a shorter-lived request
				missing = append(missing, i)
				return absent
			}
			return e
		}
		limits := make([]headgate.Limit, n)
		for i := range n {
			name, key := nameAndKey(i)
			if name == "" {
				continue
			}
			base, err := s.find(name)
			if err != nil {
				return err
			}
			if limits[i], err = s.limitOf(base, key, get); err != nil && missing == nil {
				return err // no item that is not cached can take precedence
			}
		}
		if missing == nil && c.current.Load().version == s.version {
			for i, l := range limits {
				if !l.IsZero() {
					setLimit(i, l)
				}
			}
			return nil
		}
		if missing != nil {
			var err error
			if result, err = c.lookUp(ctx, missing); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("%w: the catalog of limits changes faster than it can be read", store.ErrUnavailable)
}

// sameForAllKeys reports whether certainly no key has an override, and there are no plans.
func (s *snapshot) sameForAllKeys() bool {
	return !s.hasKeyOverrides && len(s.prefixOverrides) == 0 && len(s.plans) == 0
}

// limitOf returns the limit for a key. It calls get only for items that some key may have.
func (s *snapshot) limitOf(base headgate.Limit, key string, get func(id) *entry) (headgate.Limit, error) {
	if s.sameForAllKeys() {
		return base, nil
	}
	getIfAny := func(i id) *entry {
		if i.kind == store.KindOverride && !s.hasKeyOverrides ||
			i.kind == store.KindAssignment && (!s.hasKeyPlans || len(s.plans) == 0) {
			return absent
		}
		return get(i)
	}
	return s.resolve(base, key, getIfAny)
}
