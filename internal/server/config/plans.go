package config

import (
	"slices"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/server/strict"
)

// plans reads the mapping of names to plans: each is a mapping of names of limits to notations.
func (c *Config) plans(v strict.Value) error {
	return pairs(v, func(name string, v strict.Value) error {
		plan := catalog.Plan{Name: name}
		err := pairs(v, func(name string, v strict.Value) error {
			var notation string
			if err := text(&notation)(v); err != nil {
				return err
			}
			l, err := limit(v, name, notation)
			plan.Limits = append(plan.Limits, l)
			return err
		})
		if err != nil {
			return err
		}
		if len(plan.Limits) == 0 {
			return v.At.Wrong("has no limits")
		}
		slices.SortFunc(plan.Limits, func(a, b headgate.Limit) int { return strings.Compare(a.Name(), b.Name()) })
		c.Plans = append(c.Plans, plan)
		return nil
	})
}

// pairs reads a mapping of names to something, or nothing.
func pairs(v strict.Value, read func(name string, v strict.Value) error) error {
	if v.Null() {
		return nil
	}
	return v.Members(func(key, value strict.Value) error {
		if err := headgate.ValidName(key.Value); err != nil {
			return key.At.Wrong("%v", err)
		}
		return read(key.Value, value)
	})
}
