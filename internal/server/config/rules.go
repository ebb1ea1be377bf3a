package config

import (
	"go.yaml.in/yaml/v3"

	"github.com/headgate/headgate/internal/server/rules"
	"github.com/headgate/headgate/internal/server/strict"
)

// compileRules makes c.Rules. If the files have no limits, the limits of the catalog count, which are not known here.
func (c *Config) compileRules() (err error) {
	if len(c.rules.Rules)+len(c.rules.Allow)+len(c.rules.Block) == 0 {
		return nil
	}
	d := c.rules
	if c.Limits != nil {
		d.LimitExists = func(name string) bool {
			_, ok := c.find(name)
			return ok
		}
	}
	c.Rules, err = rules.New(&d)
	return err
}

func (c *Config) readRules(v strict.Value) error {
	return v.Each(func(v strict.Value) error {
		d := rules.Definition{At: placeOf(v)}
		v.At.Path = "rules"
		if name := v.Member("name"); name != nil {
			v.At.Path = "rules." + name.Value
		}
		err := readFields(v, strict.Keys{
			"name": readText(&d.Name), "mode": readText(&d.Mode), "missing": readText(&d.Missing),
			"method": readTexts(&d.Methods), "host": readTexts(&d.Hosts), "path": readText(&d.Path),
			"encoded_slash": readBool(&d.EncodedSlash), "header": readConditions(&d.Headers),
			"allow": readTexts(&d.Allow), "block": readTexts(&d.Block),
			"id": readText(&d.ID), "id_life": readText(&d.IDLife), "id_replays": readBool(&d.IDReplays),
			"limits": func(v strict.Value) error {
				return v.Each(func(v strict.Value) error {
					charge, err := readCharge(v)
					d.Limits = append(d.Limits, charge)
					return err
				})
			},
		})
		if err == nil && len(d.Limits)+len(d.Allow)+len(d.Block) == 0 && v.Member("limits") == nil {
			err = v.At.Wrong("has no limits; limits: [] is a rule that charges nothing")
		}
		c.rules.Rules = append(c.rules.Rules, d)
		return err
	})
}

func readCharge(v strict.Value) (rules.Charge, error) {
	d := rules.Charge{At: placeOf(v)}
	err := readFields(v, strict.Keys{
		"limit": readText(&d.Limit), "key": readTexts(&d.Key), "keep": readText(&d.Keep),
		"cost": readText(&d.Cost), "cost_missing": readText(&d.CostMissing), "settle": readText(&d.Settle),
	})
	return d, err
}

// readText returns a function that reads a text with its place, and rejects an empty one, which is not the default.
func readText(to *rules.Text) func(strict.Value) error {
	return func(v strict.Value) error {
		err := readPlain(&to.Value)(v)
		if err == nil && to.Value == "" {
			err = v.At.Wrong("is empty; leave it out for the default")
		}
		to.At = placeOf(v)
		return err
	}
}

// readTexts returns a function that reads a text, or a list of texts.
func readTexts(to *[]rules.Text) func(strict.Value) error {
	return func(v strict.Value) error {
		appendText := func(v strict.Value) error {
			var text rules.Text
			err := readText(&text)(v)
			*to = append(*to, text)
			return err
		}
		switch {
		case v.Kind != yaml.SequenceNode:
			return appendText(v)
		case len(v.Content) == 0:
			return v.At.Wrong("is empty; leave it out for the default")
		}
		return v.Each(appendText)
	}
}

// readConditions returns a function that reads a mapping of names of headers to values.
func readConditions(to *[]rules.Condition) func(strict.Value) error {
	return func(v strict.Value) error {
		return v.Members(func(key, value strict.Value) error {
			condition := rules.Condition{Name: rules.Text{Value: key.Value, At: placeOf(key)}}
			condition.Value.At = placeOf(value)
			err := readPlain(&condition.Value.Value)(value)
			*to = append(*to, condition)
			return err
		})
	}
}

func readBool(to *bool) func(strict.Value) error {
	return func(v strict.Value) error {
		if err := v.Decode(to); err != nil || v.Tag != "!!bool" {
			return v.At.Wrong("must be true or false")
		}
		return nil
	}
}

// placeOf returns the place of a value in the file, which begins messages.
func placeOf(v strict.Value) string {
	p := v.At
	p.Path = ""
	return p.String()
}
