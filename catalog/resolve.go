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

// The limit of a key is the first of these that exists.
//
//	an override of the key
//	the override of the longest prefix of the key
//	the limit in the plan of the key
//	the limit in the plan of the longest prefix of the key
//	the limit itself
//
// An item with an end holds until then, by the store's clock, and then the next in the list.

// planned is a limit in a plan.
type planned struct {
	limit headgate.Limit
	err   error // this program cannot read it
}

// prefixes are items for all keys that begin with a text.
type prefixes struct {
	lengths []int // of the texts, the longest first
	items   map[string]*entry
}

func (p *prefixes) add(i *store.Item) {
	if p.items == nil {
		p.items = map[string]*entry{}
	}
	p.items[i.Key] = &entry{exists: true, text: i.Text, until: i.Until}
	if !slices.Contains(p.lengths, len(i.Key)) {
		p.lengths = append(p.lengths, len(i.Key))
		slices.SortFunc(p.lengths, func(a, b int) int { return b - a })
	}
}

// of calls f for the items of a key, the longest prefix first, until it returns false.
func (p *prefixes) of(key string, f func(prefix string, e *entry) bool) {
	for _, n := range p.lengths {
		if n > len(key) {
			continue
		}
		if e := p.items[key[:n]]; e != nil && !f(key[:n], e) {
			return
		}
	}
}

// readPlans reads plans and prefix items.
func (s *snapshot) readPlans() {
	s.plans, s.prefixes, s.assigned = map[string]map[string]planned{}, map[string]prefixes{}, prefixes{}
	for _, i := range s.items {
		switch i.Kind {
		case store.KindPlan:
			if s.plans[i.Name] == nil {
				s.plans[i.Name] = map[string]planned{}
			}
			var p planned
			if base, ok := s.limits[i.Key]; ok {
				p.limit, p.err = instead(base.Limit, i.Text, appliedPlan(i.Name, ""))
			}
			s.plans[i.Name][i.Key] = p
		case store.KindPrefixOverride:
			p := s.prefixes[i.Name]
			p.add(&i)
			s.prefixes[i.Name] = p
		case store.KindPrefixAssignment:
			s.assigned.add(&i)
		}
	}
}

// candidate is a limit that may hold for a key, until a time; 0: without an end.
type candidate struct {
	limit headgate.Limit
	until int64
}

// skew is how far, in microseconds, this process's idea of the store's clock may be off. An item is considered
// until this long after its end.
const skew = int64(time.Minute / time.Microsecond)

// lastEnd is the last time in laws, in the year 2255. A later end is none.
const lastEnd = 1<<53 - 1

// candidates has a key's candidates in order of precedence.
type candidates struct {
	list []candidate
	now  int64
	err  error // of one that this program cannot read
}

// add adds one, and reports whether it is the last: it has no end, or
// cannot be read.
func (c *candidates) add(l headgate.Limit, until int64, err error) (last bool) {
	if until > lastEnd {
		until = 0
	}
	switch {
	case until != 0 && until+skew < c.now:
		return false
	case err != nil:
		c.err = err
		return true
	}
	c.list = append(c.list, candidate{l, until})
	return until == 0
}

// resolve returns the limit for a key; at returns the items of single keys.
func (s *snapshot) resolve(base headgate.Limit, key string, at func(id) *entry) (l headgate.Limit, err error) {
	c := candidates{now: s.clock()}
	if !s.addOverrides(&c, base, key, at) {
		s.addPlans(&c, base, key, at)
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

// addOverrides adds the overrides of a key, and reports whether nothing follows them.
func (s *snapshot) addOverrides(c *candidates, base headgate.Limit, key string, at func(id) *entry) (last bool) {
	add := func(e *entry, applied string) bool {
		l, err := e.override(base, applied)
		return c.add(l, e.until, err)
	}
	if e := at(id{store.KindOverride, base.Name(), key}); e.exists && add(e, appliedOverride("")) {
		return true
	}
	p := s.prefixes[base.Name()]
	p.of(key, func(prefix string, e *entry) bool {
		last = add(e, appliedOverride(ofPrefix(prefix)))
		return !last
	})
	return last
}

// addPlans adds the limit in the plans of a key.
func (s *snapshot) addPlans(c *candidates, base headgate.Limit, key string, at func(id) *entry) {
	add := func(e *entry, of string) (last bool) {
		limits, ok := s.plans[e.text]
		if !ok { // it was removed
			return false
		}
		p, ok := limits[base.Name()]
		switch {
		case !ok:
			p.limit = base
		case of != "" && p.err == nil:
			p.limit = p.limit.Because(appliedPlan(e.text, of))
		}
		return c.add(p.limit, e.until, p.err)
	}
	if e := at(id{store.KindAssignment, "", key}); e.exists && add(e, "") {
		return
	}
	s.assigned.of(key, func(prefix string, e *entry) bool { return !add(e, ofPrefix(prefix)) })
}

// maxReads is how often a key's items are read at most, while the catalog keeps changing.
const maxReads = 10

// Find implements headgate.Names, by the version that was read last. It reads a key's items from
// the store once, with those of other callers, for as long as the context lasts, and caches them.
// Until a version is read, the error is store.ErrUnavailable.
func (c *Catalog) Find(ctx context.Context, name, key string) (headgate.Limit, error) {
	if s := c.now.Load(); s != nil && s.alike() {
		return s.find(name)
	}
	var l headgate.Limit
	err := c.findAll(ctx, 1, func(int) (string, string) { return name, key },
		func(_ int, found headgate.Limit) { l = found })
	return l, err
}

// Known returns the limit of a name for a key from the cache. It returns false if the cache does not
// say which limit holds, or if none can be used.
func (c *Catalog) Known(name, key string) (headgate.Limit, bool) {
	s := c.now.Load()
	if s == nil {
		return headgate.Limit{}, false
	}
	known := true
	base, err := s.find(name)
	if err != nil {
		return headgate.Limit{}, false
	}
	l, err := s.limitOf(base, key, func(i id) *entry {
		e, ok := c.keys.cache.GetIfPresent(i)
		if !ok {
			known = false
			return absent
		}
		return e
	})
	return l, known && err == nil && c.now.Load().version == s.version
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

// findAll finds n limits, by name and key; it skips empty names.
func (c *Catalog) findAll(ctx context.Context, n int, of func(int) (name, key string),
	set func(int, headgate.Limit),
) error {
	var read *lookup
	for range maxReads {
		s := c.now.Load()
		if s == nil {
			if failed := c.Err(); failed != nil {
				return failed
			}
		}
		var missing []id
		at := func(i id) *entry {
			if read != nil && read.version == s.version {
				if e := read.found[i]; e != nil {
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
			name, key := of(i)
			if name == "" {
				continue
			}
			base, err := s.find(name)
			if err != nil {
				return err
			}
			if limits[i], err = s.limitOf(base, key, at); err != nil && missing == nil {
				return err // final: no missing item can take precedence
			}
		}
		if missing == nil && c.now.Load().version == s.version {
			for i, l := range limits {
				if !l.IsZero() {
					set(i, l)
				}
			}
			return nil
		}
		if missing != nil {
			var err error
			if read, err = c.ask(ctx, missing); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("%w: the catalog of limits changes faster than it can be read", store.ErrUnavailable)
}

// alike reports whether each limit is the same for all keys.
func (s *snapshot) alike() bool { return !s.overrides && len(s.prefixes) == 0 && len(s.plans) == 0 }

// limitOf resolves, and skips items that no key has.
func (s *snapshot) limitOf(base headgate.Limit, key string, at func(id) *entry) (headgate.Limit, error) {
	if s.alike() {
		return base, nil
	}
	seen := func(i id) *entry {
		if i.kind == store.KindOverride && !s.overrides ||
			i.kind == store.KindAssignment && (!s.assignments || len(s.plans) == 0) {
			return absent
		}
		return at(i)
	}
	return s.resolve(base, key, seen)
}
