package config

import (
	"context"
	"fmt"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/rules"
)

// Impossible returns an error with its place for each part of the file that can never work: a rule that takes a
// concurrency limit; a constant cost or keep with which no request of a rule can pass, by a limit or by a plan that
// replaces it; charges of one key that cannot pass together, or that a rule with an id or a settlement makes twice; and
// a plan of another kind than the limit. A limit or plan of 0 is no mistake. The modes shadow and advise make no
// difference, since they are there to find mistakes.
//
// A server starts with such a file and reports the errors. The limiter must be over an empty store.
func (c *Config) Impossible(empty *headgate.Limiter) (list []error) {
	for i := range c.rules.Rules {
		r, before := &c.rules.Rules[i], len(list)
		for j := range r.Limits {
			list = append(list, c.neverPasses(empty, r.Name.Value, &r.Limits[j])...)
		}
		if len(list) == before {
			list = append(list, c.neverTogether(empty, r)...)
		}
	}
	for _, p := range c.Plans {
		for _, replacement := range p.Limits {
			if l, ok := c.find(replacement.Name()); ok && l.Params().Leased != replacement.Params().Leased {
				list = append(list, headgate.Invalid("plans."+p.Name+"."+l.Name(), "%s cannot be in the place of %s: "+
					"one is acquired and released, the other is taken", replacement, l))
			}
		}
	}
	return list
}

// Warnings returns a line with its place for each possible mistake in the file: the warnings of [rules.Rules], constant
// costs that are finer than their limit counts, and plans of limits that the file does not define.
func (c *Config) Warnings() []string {
	list := c.Rules.Warnings()
	for _, p := range c.Plans {
		for _, replacement := range p.Limits {
			if _, ok := c.find(replacement.Name()); !ok {
				list = append(list, fmt.Sprintf("plans.%s.%s: no limit of that name is in the file; the catalog has "+
					"to have one", p.Name, replacement.Name()))
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

const neverText = "no request can ever pass: "

// neverPasses returns the reasons for which no request can pass a constant charge of a rule, by its limit or by a plan.
func (c *Config) neverPasses(empty *headgate.Limiter, rule string, d *rules.Charge) (list []error) {
	base, ok := c.find(d.Limit.Value)
	cost, constant := constantCost(d)
	if !ok || !constant || d.CostMissing.Value != "" { // a request may have another cost
		return nil
	}
	charge := headgate.Charge{Key: "k", Cost: cost}
	if d.Keep.Value != "" {
		charge.Keep, _ = headgate.ParseHeadroom(d.Keep.Value) // always valid: rules.New has parsed it
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
		if charge.Limit = l; isClosed(l) {
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
			problem(with, neverText+"the cost and what is kept free are more than %s lets pass at once", l)
		case !d.Allowed && d.RetryAfter == headgate.Never:
			problem(with, neverText+"the cost is more than %s lets pass at once", l)
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

// isClosed reports whether a limit is 0, and so refuses everything on purpose.
func isClosed(l headgate.Limit) bool {
	_, ok := l.Algorithm().(headgate.Closed)
	return ok
}

// neverTogether returns why no request can pass all charges of a rule that charges one key of a limit several times.
func (c *Config) neverTogether(empty *headgate.Limiter, r *rules.Definition) []error {
	var charges []headgate.Charge
	times := map[string]int{}
	againAt, hasID := "", r.ID.Value != ""
	for j := range r.Limits {
		d := &r.Limits[j]
		hasID = hasID || d.Settle.Value != "" // a settlement needs an id
		base, ok := c.find(d.Limit.Value)
		cost, constant := constantCost(d)
		if !ok || isClosed(base) {
			continue
		}
		key := ""
		for _, k := range d.Key {
			key += "|" + k.Value
		}
		id := d.Limit.Value + key
		if times[id]++; times[id] == 2 {
			againAt = d.Limit.At
		}
		if !constant || d.CostMissing.Value != "" {
			cost = headgate.MustCost("0.000000001") // the smallest possible cost
		}
		charges = append(charges, headgate.Charge{Limit: base, Key: key, Cost: cost})
	}
	switch {
	case againAt == "":
		return nil
	case hasID:
		return []error{headgate.Invalid(againAt, "rules.%s: it charges one key of a limit twice, which is an error of "+
			"each request that has an id or is settled; charge it once, with the costs added up", r.Name.Value)}
	}
	d, err := empty.Check(context.Background(), charges...)
	if err == nil && !d.Allowed && d.RetryAfter == headgate.Never {
		return []error{headgate.Invalid(againAt, "rules.%s: %swhat it charges to one key is more than %s lets pass at "+
			"once", r.Name.Value, neverText, d.LimitName)}
	}
	return nil
}

// constantCost returns the cost of a charge if it is constant, or else cost_missing; zero: 1. constant: there is one.
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
