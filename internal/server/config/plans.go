package config

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
)

// plans reads the mapping of names to plans: each is a mapping of names of limits to notations.
func (c *Config) plans(n *yaml.Node) error {
	return c.pairs(n, "plans", "plans", func(key, value *yaml.Node) error {
		plan := catalog.Plan{Name: key.Value}
		field := "plans." + plan.Name
		err := c.pairs(value, field, "limits", func(key, value *yaml.Node) error {
			var notation string
			if err := c.text(field+"."+key.Value, &notation)(value); err != nil {
				return err
			}
			l, err := c.limit(value, field+"."+key.Value, key.Value, notation)
			plan.Limits = append(plan.Limits, l)
			return err
		})
		if err != nil {
			return err
		}
		if len(plan.Limits) == 0 {
			return fail(c.File, value, field, "has no limits")
		}
		slices.SortFunc(plan.Limits, func(a, b headgate.Limit) int { return strings.Compare(a.Name(), b.Name()) })
		c.Plans = append(c.Plans, plan)
		return nil
	})
}

// pairs reads a mapping of names to something, or nothing.
func (c *Config) pairs(n *yaml.Node, field, of string, read func(key, value *yaml.Node) error) error {
	if n.Tag == "!!null" {
		return nil
	}
	return c.members(n, field, field+".", of, func(key, value *yaml.Node) error {
		if err := headgate.ValidName(key.Value); err != nil {
			return fail(c.File, key, field, err.Error())
		}
		return read(key, value)
	})
}
