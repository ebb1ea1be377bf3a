package envoy

import (
	"errors"
	"fmt"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/strict"
)

// Bounds of a configuration, so that an error in a program that writes it is found when it is read.
const (
	MaxFile  = 16 << 20 // bytes of a file
	maxDepth = 64       // of descriptors
)

// File is a configuration in the format of envoyproxy/ratelimit.
type File struct {
	Name string // for messages
	Text []byte
}

// Parse reads files. A domain may be in one of them only, unless they are merged: then their descriptors are joined,
// and they must agree on its algorithm and all_or_nothing; wildcards count in the order of the files. Errors are
// headgate.ErrInvalid and name the file, the line and the path.
func Parse(merge bool, files ...File) (*Config, error) {
	list := make([]document, len(files))
	for i, f := range files {
		var err error
		if list[i], err = parse(f); err != nil {
			return nil, err
		}
	}
	return compile(list, merge)
}

// parse reads one file.
func parse(f File) (d document, err error) {
	at := strict.Place{File: f.Name}
	if len(f.Text) > MaxFile {
		return d, at.Wrong("is longer than %d bytes", MaxFile)
	}
	root, err := strict.Read(f.Name, f.Text)
	switch {
	case err != nil:
		return d, err
	case root.Node == nil:
		return d, at.Wrong("is empty; it needs a domain")
	}
	d.at = root.At
	err = root.Fields(strict.Keys{
		"domain":         text(&d.domain),
		"algorithm":      text(&d.algorithm),
		"all_or_nothing": boolean(&d.together),
		"descriptors": func(v strict.Value) (err error) {
			d.descriptors, err = descriptors(v, 1)
			return err
		},
	})
	return d, err
}

func text(to *string) func(strict.Value) error {
	return func(v strict.Value) error {
		if v.Kind != yaml.ScalarNode {
			return v.At.Wrong("must be a text")
		}
		if !v.Null() {
			*to = v.Value
		}
		return nil
	}
}

func boolean(to *bool) func(strict.Value) error {
	return func(v strict.Value) error {
		if v.Null() {
			return nil
		}
		if v.Kind != yaml.ScalarNode || v.Decode(to) != nil {
			return v.At.Wrong("must be true or false")
		}
		return nil
	}
}

// number reads a whole number of 32 bits that is at least least.
func number(to *uint32, least uint64) func(strict.Value) error {
	return func(v strict.Value) error {
		n, err := strconv.ParseUint(v.Value, 10, 32)
		if err != nil && v.Kind == yaml.ScalarNode { // 1_000 or 0x10
			err = v.Decode(&n)
		}
		if v.Kind != yaml.ScalarNode || err != nil || n < least || n > 1<<32-1 {
			return v.At.Wrong("must be a whole number from %d to %d", least, uint32(1<<32-1))
		}
		*to = uint32(n)
		return nil
	}
}

func descriptors(v strict.Value, depth int) (list []descriptor, err error) {
	if depth > maxDepth {
		return nil, v.At.Wrong("descriptors are nested more than %d deep", maxDepth)
	}
	err = v.Each(func(v strict.Value) error {
		d, err := descriptorOf(v, depth)
		list = append(list, d)
		return err
	})
	return list, err
}

func descriptorOf(v strict.Value, depth int) (d descriptor, err error) {
	d.at = v.At
	err = v.Fields(strict.Keys{
		"key": text(&d.key), "value": text(&d.value),
		"shadow_mode": boolean(&d.shadow), "quota_mode": boolean(&d.quota), "share_threshold": boolean(&d.share),
		"refunds": boolean(&d.refunds),
		// of metrics, which are not kept by value
		"detailed_metric": boolean(new(bool)), "value_to_metric": boolean(new(bool)),
		"metadata": func(strict.Value) error { return nil },
		"charge": func(v strict.Value) error {
			c, ok := chargings[v.Value]
			if !ok || v.Kind != yaml.ScalarNode {
				return v.At.Wrong("%.100q is neither when_allowed nor always", v.Value)
			}
			d.charge = c
			return nil
		},
		"rate_limit": func(v strict.Value) (err error) {
			if !v.Null() {
				d.limit, err = policyOf(v)
			}
			return err
		},
		"descriptors": func(v strict.Value) (err error) {
			d.children, err = descriptors(v, depth+1)
			return err
		},
	})
	return d, err
}

func policyOf(v strict.Value) (*policy, error) {
	p := &policy{at: v.At}
	return p, v.Fields(strict.Keys{
		"unit": text(&p.unit), "requests_per_unit": number(&p.requests, 0), "unit_multiplier": number(&p.multiplier, 1),
		"unlimited": boolean(&p.unlimited), "name": text(&p.name),
		"headgate": text(&p.notation), "algorithm": text(&p.algorithm),
		"replaces": func(v strict.Value) error {
			return v.Each(func(v strict.Value) error {
				name := ""
				err := v.Fields(strict.Keys{"name": text(&name)})
				p.replaces = append(p.replaces, name)
				return err
			})
		},
	})
}

// check returns an error for what no limit can be made of.
func (p *policy) check() error {
	switch {
	case p.unlimited && (p.unit != "" || p.notation != "" || p.multiplier > 0 || p.algorithm != ""):
		return p.at.Wrong("unlimited has neither a unit nor an algorithm")
	case p.notation != "" && (p.unit != "" || p.requests > 0 || p.multiplier > 0 || p.algorithm != ""):
		return p.at.Wrong("headgate says the whole limit; leave unit, requests_per_unit, unit_multiplier and " +
			"algorithm out")
	}
	for i, name := range p.replaces {
		switch name {
		case "":
			return p.at.In(fmt.Sprintf("replaces[%d]", i)).Wrong("has no name")
		case p.name:
			return p.at.In(fmt.Sprintf("replaces[%d]", i)).Wrong("%.100q is the name of the limit itself", name)
		}
	}
	return nil
}

// problem returns what an error says is wrong, without the field.
func problem(err error) string {
	if wrong, ok := errors.AsType[*headgate.InvalidError](err); ok {
		return wrong.Problem
	}
	return err.Error()
}
