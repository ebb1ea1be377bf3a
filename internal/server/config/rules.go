package config

import (
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/headgate/headgate/internal/server/rules"
)

// compileRules makes c.Rules of what the files say. Where they say nothing of limits, those of the
// catalog count, which nobody knows here.
func (c *Config) compileRules() (err error) {
	if len(c.rules.Rules)+len(c.rules.Allow)+len(c.rules.Block) == 0 {
		return nil
	}
	d := c.rules
	if c.Limits != nil {
		d.Known = func(name string) bool {
			_, ok := c.find(name)
			return ok
		}
	}
	c.Rules, err = rules.New(&d)
	return err
}

// ruleList reads the list of rules.
func (c *Config) ruleList(n *yaml.Node) error {
	return c.items(n, "rules", func(item *yaml.Node) error {
		d := rules.Definition{At: c.at(item)}
		field := "rules"
		if name := member(item, "name"); name != nil {
			field = "rules." + name.Value
		}
		err := c.fields(item, field, map[string]func(*yaml.Node) error{
			"name":       c.said1(field+".name", &d.Name),
			"method":     c.saidAll(field+".method", &d.Methods),
			"host":       c.saidAll(field+".host", &d.Hosts),
			"path":       c.said1(field+".path", &d.Path),
			"header":     c.conditions(field+".header", &d.Headers),
			"allow":      c.saidAll(field+".allow", &d.Allow),
			"block":      c.saidAll(field+".block", &d.Block),
			"mode":       c.said1(field+".mode", &d.Mode),
			"missing":    c.said1(field+".missing", &d.Missing),
			"id":         c.said1(field+".id", &d.ID),
			"id_life":    c.said1(field+".id_life", &d.IDLife),
			"id_replays": c.trueOrFalse(field+".id_replays", &d.IDReplays),

			"encoded_slash": c.trueOrFalse(field+".encoded_slash", &d.EncodedSlash),
			"limits": func(n *yaml.Node) error {
				return c.items(n, field+".limits", func(item *yaml.Node) error {
					charge, err := c.charge(item, field+".limits")
					d.Limits = append(d.Limits, charge)
					return err
				})
			},
		})
		if err == nil && len(d.Limits)+len(d.Allow)+len(d.Block) == 0 && member(item, "limits") == nil {
			err = fail(c.File, item, field, "has no limits; limits: [] is a rule that charges nothing")
		}
		c.rules.Rules = append(c.rules.Rules, d)
		return err
	})
}

// charge reads a limit of a rule.
func (c *Config) charge(n *yaml.Node, field string) (rules.Charge, error) {
	d := rules.Charge{At: c.at(n)}
	return d, c.fields(n, field, map[string]func(*yaml.Node) error{
		"limit":        c.said1(field+".limit", &d.Limit),
		"key":          c.saidAll(field+".key", &d.Key),
		"cost":         c.said1(field+".cost", &d.Cost),
		"cost_missing": c.said1(field+".cost_missing", &d.CostMissing),
		"keep":         c.said1(field+".keep", &d.Keep),
		"settle":       c.said1(field+".settle", &d.Settle),
	})
}

// said1 reads a text with its place. What is empty is not the default by mistake.
func (c *Config) said1(field string, to *rules.Text) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		err := c.text(field, &to.Value)(n)
		if err == nil && to.Value == "" {
			err = fail(c.File, n, field, "is empty; leave it out for the default")
		}
		to.At = c.at(n)
		return err
	}
}

// saidAll reads a text, or a list of texts.
func (c *Config) saidAll(field string, to *[]rules.Text) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		items := []*yaml.Node{n}
		if n.Kind == yaml.SequenceNode {
			items = n.Content
		}
		if len(items) == 0 {
			return fail(c.File, n, field, "is empty; leave it out for the default")
		}
		for _, item := range items {
			var text rules.Text
			if err := c.said1(field, &text)(resolved(item)); err != nil {
				return err
			}
			*to = append(*to, text)
		}
		return nil
	}
}

// conditions reads a mapping of names to what their values have to be.
func (c *Config) conditions(field string, to *[]rules.Condition) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		return c.members(n, field, field+".", "values", func(key, value *yaml.Node) error {
			one := rules.Condition{Name: rules.Text{Value: key.Value, At: c.at(key)}}
			one.Value.At = c.at(value)
			err := c.text(field+"."+key.Value, &one.Value.Value)(value)
			*to = append(*to, one)
			return err
		})
	}
}

func (c *Config) trueOrFalse(field string, to *bool) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		if err := n.Decode(to); err != nil || n.Tag != "!!bool" {
			return fail(c.File, n, field, "must be true or false")
		}
		return nil
	}
}

// items reads a list of something.
func (c *Config) items(n *yaml.Node, field string, read func(*yaml.Node) error) error {
	if n.Tag == "!!null" {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		return fail(c.File, n, field, "must be a list")
	}
	for _, item := range n.Content {
		if err := read(resolved(item)); err != nil {
			return err
		}
	}
	return nil
}

// resolved returns what an alias stands for.
func resolved(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// member returns the value of a member of a mapping; nil: there is none.
func member(n *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(n.Content) && n.Kind == yaml.MappingNode; i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	return nil
}

// at is the place of a node, which begins messages.
func (c *Config) at(n *yaml.Node) string { return place(c.File, n) }

// place is a place of a file.
func place(path string, n *yaml.Node) string { return fmt.Sprintf("%s:%d:%d", path, n.Line, n.Column) }
