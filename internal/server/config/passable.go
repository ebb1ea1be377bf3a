package config

import (
	"context"
	"fmt"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/rules"
)

// Impossible returns what in the file can never work, a line each with its place: a rule that takes a limit that is
// acquired, constant costs or a keep with which no request of a rule would ever pass, by a limit or by a plan in its
// place, one key that a rule with an id or a settlement charges twice, and a plan of another kind than the limit. What
// a limit or plan of 0 refuses is on purpose. The modes shadow and advise make no difference: they
// are there to find this out.
//
// A server starts with such a file, since the rest of it decides, and says what is wrong. The limiter is one over an
// empty store, where each request is the first.
func (c *Config) Impossible(empty *headgate.Limiter) (list []error) {
	for i := range c.rules.Rules {
		r := &c.rules.Rules[i]
		for j := range r.Limits {
			list = append(list, c.neverPasses(empty, r.Name.Value, &r.Limits[j])...)
		}
		if len(list) == 0 {
			list = append(list, c.neverTogether(empty, r)...)
		}
	}
	for _, p := range c.Plans {
		for _, instead := range p.Limits {
			if l, ok := c.find(instead.Name()); ok && l.Params().Leased != instead.Params().Leased {
				list = append(list, headgate.Invalid("plans."+p.Name+"."+l.Name(), "%s cannot be in the place of %s: "+
					"one is acquired and released, the other is taken", instead, l))
			}
		}
	}
	return list
}

// Warnings returns what may be a mistake in the file, a line each with its place: those of [rules.Rules], constant
// costs that are finer than their limit counts, and plans of limits that the file does not define.
func (c *Config) Warnings() []string {
	list := c.Rules.Warnings()
	for _, p := range c.Plans {
		for _, instead := range p.Limits {
			if _, ok := c.find(instead.Name()); !ok {
				list = append(list, fmt.Sprintf("plans.%s.%s: no limit of that name is in the file; the catalog has "+
					"to have one", p.Name, instead.Name()))
			}
		}
	}
	for i := range c.rules.Rules {
		r := &c.rules.Rules[i]
		for j := range r.Limits {
			d := &r.Limits[j]
			cost, constant := constantCost(d)
			l, ok := c.find(d.Limit.Value)
			if !ok || !constant || d.Cost.Value == "" && d.CostMissing.Value == "" {
				continue
			}
			if charged := l.Charged(cost); charged != cost {
				list = append(list, fmt.Sprintf("%s: rules.%s.%s: a cost of %s is finer than %s counts: %s is charged",
					d.Cost.At, r.Name.Value, l.Name(), cost, l, charged))
			}
		}
	}
	return list
}

const never = "no request can ever pass: "

// neverPasses returns why no request passes a charge of a rule.
func (c *Config) neverPasses(empty *headgate.Limiter, rule string, d *rules.Charge) (list []error) {
	base, ok := c.find(d.Limit.Value)
	cost, constant := constantCost(d)
	if !ok || !constant || d.CostMissing.Value != "" { // a request may say another cost
		return nil
	}
	charge := headgate.Charge{Key: "k", Cost: cost}
	if d.Keep.Value != "" {
		charge.Keep, _ = headgate.ParseHeadroom(d.Keep.Value) // it was read before
	}
	at := d.Limit.At
	if d.Cost.Value != "" {
		at = d.Cost.At
	}
	problem := func(with, format string, args ...any) {
		list = append(list, headgate.Invalid(at, "rules.%s.%s: %s%s", rule, base.Name(), fmt.Sprintf(format, args...),
			with))
	}
	try := func(l headgate.Limit, with string) {
		p := l.Params()
		if charge.Limit = l; closed(l) {
			return
		}
		if p.Leased {
			problem(with, "%s is acquired and released; rules take", l)
			return
		}
		d, err := empty.Check(context.Background(), charge)
		switch {
		case err != nil:
			problem(with, "each request is an error: %v", err)
		case !d.Allowed && d.RetryAfter == headgate.Never && charge.Keep != (headgate.Headroom{}):
			problem(with, never+"the cost and what is kept free are more than %s lets pass at once", l)
		case !d.Allowed && d.RetryAfter == headgate.Never:
			problem(with, never+"the cost is more than %s lets pass at once", l)
		}
	}
	try(base, "")
	for _, p := range c.Plans {
		for _, l := range p.Limits {
			if l.Name() == base.Name() && l.Params().Leased == base.Params().Leased {
				try(l, ", with the plan "+p.Name)
			}
		}
	}
	return list
}

// closed reports whether a limit is 0: what it refuses is on purpose.
func closed(l headgate.Limit) bool {
	_, is := l.Algorithm().(headgate.Closed)
	return is
}

// neverTogether returns why no request passes all charges of a rule, if it charges one key of a limit several times.
func (c *Config) neverTogether(empty *headgate.Limiter, r *rules.Definition) []error {
	var charges []headgate.Charge
	times := map[string]int{}
	twice, once := "", r.ID.Value != ""
	for j := range r.Limits {
		d := &r.Limits[j]
		once = once || d.Settle.Value != ""
		base, ok := c.find(d.Limit.Value)
		cost, constant := constantCost(d)
		if !ok || closed(base) {
			continue
		}
		key := ""
		for _, k := range d.Key {
			key += "|" + k.Value
		}
		id := d.Limit.Value + key
		if times[id]++; times[id] == 2 {
			twice = d.Limit.At
		}
		if !constant || d.CostMissing.Value != "" {
			cost = headgate.MustCost("0.000000001") // it may be as little
		}
		charges = append(charges, headgate.Charge{Limit: base, Key: key, Cost: cost})
	}
	switch {
	case twice == "":
		return nil
	case once:
		return []error{headgate.Invalid(twice, "rules.%s: it charges one key of a limit twice, which is an error of "+
			"each request that has an id or is settled; charge it once, with the costs added up", r.Name.Value)}
	}
	d, err := empty.Check(context.Background(), charges...)
	if err == nil && !d.Allowed && d.RetryAfter == headgate.Never {
		return []error{headgate.Invalid(twice, "rules.%s: %swhat it charges to one key is more than %s lets pass at "+
			"once", r.Name.Value, never, d.LimitName)}
	}
	return nil
}

// constantCost returns the cost of a charge, or of a request that does not say it.
func constantCost(d *rules.Charge) (cost headgate.Cost, constant bool) {
	text := d.Cost.Value
	if text == "size" || strings.Contains(text, ":") {
		text = d.CostMissing.Value
		if text == "" {
			return cost, false
		}
	}
	if text == "" {
		return cost, true
	}
	cost, err := headgate.ParseCost(text)
	return cost, err == nil
}
