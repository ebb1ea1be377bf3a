package envoy

import (
	"errors"
	"fmt"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/strict"
)

// Bounds on a configuration, which catch an error in a program that generates it.
const (
	MaxFile  = 16 << 20 // bytes of a file
	maxDepth = 64       // of descriptors
)

// File is a configuration in the format of envoyproxy/ratelimit.
type File struct {
	Name string // for messages
	Text []byte
}

// Parse reads files. A domain may be in only one file, unless merge is true: then the descriptors of its files are
// joined in the order of the files, which must have the same algorithm and all_or_nothing. Errors are
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
		"domain":         readText(&d.domain),
		"algorithm":      readText(&d.algorithm),
		"all_or_nothing": readBool(&d.allOrNothing),
		"descriptors": func(v strict.Value) (err error) {
			d.descriptors, err = readDescriptors(v, 1)
			return err
		},
	})
	return d, err
}

// readText returns a function that reads a text into to.
func readText(to *string) func(strict.Value) error {
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

// readBool returns a function that reads a boolean into to.
func readBool(to *bool) func(strict.Value) error {
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

// readNumber returns a function that reads a whole number of 32 bits, not below a minimum, into to.
func readNumber(to *uint32, minimum uint64) func(strict.Value) error {
	return func(v strict.Value) error {
		n, err := strconv.ParseUint(v.Value, 10, 32)
		if err != nil && v.Kind == yaml.ScalarNode { // 1_000 or 0x10
			err = v.Decode(&n)
		}
		if v.Kind != yaml.ScalarNode || err != nil || n < minimum || n > 1<<32-1 {
			return v.At.Wrong("must be a whole number from %d to %d", minimum, uint32(1<<32-1))
		}
		*to = uint32(n)
		return nil
	}
}

func readDescriptors(v strict.Value, depth int) (list []descriptor, err error) {
	if depth > maxDepth {
		return nil, v.At.Wrong("descriptors are nested more than %d deep", maxDepth)
	}
	err = v.Each(func(v strict.Value) error {
		d, err := readDescriptor(v, depth)
		list = append(list, d)
		return err
	})
	return list, err
}

func readDescriptor(v strict.Value, depth int) (d descriptor, err error) {
	d.at = v.At
	err = v.Fields(strict.Keys{
		"key": readText(&d.key), "value": readText(&d.value),
		"shadow_mode": readBool(&d.shadow), "quota_mode": readBool(&d.quota), "share_threshold": readBool(&d.share),
		"refunds": readBool(&d.refunds),
		// Settings of metrics, which are not counted by value.
		"detailed_metric": readBool(new(bool)), "value_to_metric": readBool(new(bool)),
		"metadata": func(strict.Value) error { return nil },
		"charge": func(v strict.Value) error {
			c, ok := chargeModes[v.Value]
			if !ok || v.Kind != yaml.ScalarNode {
				return v.At.Wrong("%.100q is neither when_allowed nor always", v.Value)
			}
			d.charge = c
			return nil
		},
		"rate_limit": func(v strict.Value) (err error) {
			if !v.Null() {
				d.limit, err = readPolicy(v)
			}
			return err
		},
		"descriptors": func(v strict.Value) (err error) {
			d.children, err = readDescriptors(v, depth+1)
			return err
		},
	})
	return d, err
}

func readPolicy(v strict.Value) (*policy, error) {
	p := &policy{at: v.At}
	return p, v.Fields(strict.Keys{
		"unit": readText(&p.unit), "requests_per_unit": readNumber(&p.requests, 0),
		"unit_multiplier": readNumber(&p.multiplier, 1), "unlimited": readBool(&p.unlimited), "name": readText(&p.name),
		"headgate": readText(&p.notation), "algorithm": readText(&p.algorithm),
		"replaces": func(v strict.Value) error {
			return v.Each(func(v strict.Value) error {
				name := ""
				err := v.Fields(strict.Keys{"name": readText(&name)})
				p.replaces = append(p.replaces, name)
				return err
			})
		},
	})
}

// validate returns an error if fields of a policy exclude each other, or if a name in replaces is wrong.
func (p *policy) validate() error {
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

// problemOf returns the problem of an error, without the field.
func problemOf(err error) string {
	if wrong, ok := errors.AsType[*headgate.InvalidError](err); ok {
		return wrong.Problem
	}
	return err.Error()
}
