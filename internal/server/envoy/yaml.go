package envoy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/headgate/headgate"
)

// Bounds of a configuration, so that an error in a program that writes it, or a file of aliases that name
// each other, is found when it is read.
const (
	MaxFile  = 16 << 20 // bytes of a file
	maxNodes = 500_000  // values of a file, those of an alias counted each time
	maxDepth = 64       // of descriptors
)

// File is a configuration in the format of envoyproxy/ratelimit.
type File struct {
	Name string // for messages
	Text []byte
}

// Parse reads files. A domain may be in one of them only. Errors are headgate.ErrInvalid and name the file,
// the line and the path.
func Parse(files ...File) (*Config, error) { return read(files, compile) }

// Merge is Parse, but several files may have the same domain, which has the descriptors of them all. They must
// agree on its algorithm and all_or_nothing. Wildcards count in the order of the files.
func Merge(files ...File) (*Config, error) { return read(files, compileMerged) }

func read(files []File, compile func([]document) (*Config, error)) (*Config, error) {
	list := make([]document, len(files))
	for i, f := range files {
		var err error
		if list[i], err = parse(f); err != nil {
			return nil, err
		}
	}
	return compile(list)
}

// parse reads one file.
func parse(f File) (d document, err error) {
	at := place{file: f.Name}
	if len(f.Text) > MaxFile {
		return d, at.wrong("is longer than %d bytes", MaxFile)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(f.Text))
	var root yaml.Node
	switch err := decoder.Decode(&root); {
	case errors.Is(err, io.EOF):
		return d, at.wrong("is empty; it needs a domain")
	case err != nil:
		return d, at.wrong("%s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return d, at.wrong("has more than one document; write one domain a file")
	}
	r := reader{file: f.Name}
	return d, r.document(root.Content[0], &d)
}

// reader reads the nodes of a file.
type reader struct {
	file  string
	nodes int
}

// value is a node with its place.
type value struct {
	*yaml.Node
	at place
}

// at returns a node, or what it is an alias of.
func (r *reader) at(n *yaml.Node, path place) (value, error) {
	p := path
	p.file, p.line, p.col = r.file, n.Line, n.Column
	if r.nodes++; r.nodes > maxNodes {
		return value{n, p}, p.wrong("the file says more than %d values", maxNodes)
	}
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return value{n, p}, nil
}

// keys are what a mapping may say.
type keys map[string]func(value) error

// mapping reads a mapping, in which each key may stand once. What is merged (<<) counts unless the mapping
// says it itself.
func (r *reader) mapping(n *yaml.Node, at place, known keys) error {
	v, err := r.at(n, at)
	if err != nil {
		return err
	}
	return r.fields(v, known, map[string]bool{}, 0)
}

func (r *reader) fields(v value, known keys, said map[string]bool, merged int) error {
	if v.Kind != yaml.MappingNode {
		return v.at.wrong("must be a mapping, of keys with values")
	}
	if merged > maxDepth {
		return v.at.wrong("merges more than %d mappings into each other", maxDepth)
	}
	var merges []*yaml.Node
	own := map[string]bool{}
	for i := 0; i < len(v.Content); i += 2 {
		k, content := v.Content[i], v.Content[i+1]
		if k.Tag == "!!merge" {
			merges = append(merges, content)
			continue
		}
		read, ok := known[k.Value]
		at := v.at.in(k.Value)
		at.line, at.col = k.Line, k.Column
		switch {
		case k.Kind != yaml.ScalarNode || !ok:
			return at.wrong("the key is not known here")
		case own[k.Value]:
			return at.wrong("stands there twice")
		case said[k.Value]: // the mapping that is merged into says it
			continue
		}
		own[k.Value] = true
		c, err := r.at(content, at)
		if err == nil {
			err = read(c)
		}
		if err != nil {
			return err
		}
	}
	for k := range own {
		said[k] = true
	}
	for _, m := range merges {
		if err := r.merge(m, v.at, known, said, merged); err != nil {
			return err
		}
	}
	return nil
}

// merge reads what a mapping merges: one mapping, or a list of them.
func (r *reader) merge(n *yaml.Node, at place, known keys, said map[string]bool, merged int) error {
	v, err := r.at(n, at)
	if err != nil {
		return err
	}
	if v.Kind != yaml.SequenceNode {
		return r.fields(v, known, said, merged+1)
	}
	for _, one := range v.Content {
		v, err := r.at(one, at)
		if err == nil {
			err = r.fields(v, known, said, merged+1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// list reads the mappings of a list; null is an empty one.
func (r *reader) list(v value, each func(n *yaml.Node, at place) error) error {
	if v.Tag == "!!null" {
		return nil
	}
	if v.Kind != yaml.SequenceNode {
		return v.at.wrong("must be a list")
	}
	for i, n := range v.Content {
		if err := each(n, v.at.in(fmt.Sprintf("[%d]", i))); err != nil {
			return err
		}
	}
	return nil
}

func text(to *string) func(value) error {
	return func(v value) error {
		if v.Kind != yaml.ScalarNode {
			return v.at.wrong("must be a text")
		}
		if v.Tag != "!!null" {
			*to = v.Value
		}
		return nil
	}
}

func boolean(to *bool) func(value) error {
	return func(v value) error {
		if v.Tag == "!!null" {
			return nil
		}
		if v.Kind != yaml.ScalarNode || v.Decode(to) != nil {
			return v.at.wrong("must be true or false")
		}
		return nil
	}
}

// number reads a whole number of 32 bits that is at least least.
func number(to *uint32, least uint64) func(value) error {
	return func(v value) error {
		n, err := strconv.ParseUint(v.Value, 10, 32)
		if err != nil && v.Kind == yaml.ScalarNode { // 1_000 or 0x10
			err = v.Decode(&n)
		}
		if v.Kind != yaml.ScalarNode || err != nil || n < least || n > 1<<32-1 {
			return v.at.wrong("must be a whole number from %d to %d", least, uint32(1<<32-1))
		}
		*to = uint32(n)
		return nil
	}
}

func ignored(value) error { return nil }

// document reads the root of a file.
func (r *reader) document(n *yaml.Node, d *document) error {
	d.at = place{file: r.file}
	err := r.mapping(n, d.at, keys{
		"domain":         text(&d.domain),
		"algorithm":      text(&d.algorithm),
		"all_or_nothing": boolean(&d.together),
		"descriptors": func(v value) (err error) {
			d.descriptors, err = r.descriptors(v, 1)
			return err
		},
	})
	d.at.line, d.at.col = n.Line, n.Column
	return err
}

func (r *reader) descriptors(v value, depth int) (list []descriptor, err error) {
	if depth > maxDepth {
		return nil, v.at.wrong("descriptors are nested more than %d deep", maxDepth)
	}
	err = r.list(v, func(n *yaml.Node, at place) error {
		d, err := r.descriptor(n, at, depth)
		list = append(list, d)
		return err
	})
	return list, err
}

func (r *reader) descriptor(n *yaml.Node, at place, depth int) (d descriptor, err error) {
	d.at = at
	d.at.file, d.at.line, d.at.col = r.file, n.Line, n.Column
	err = r.mapping(n, at, keys{
		"key": text(&d.key), "value": text(&d.value),
		"shadow_mode": boolean(&d.shadow), "quota_mode": boolean(&d.quota), "share_threshold": boolean(&d.share),
		"refunds": boolean(&d.refunds),
		// of metrics, which are not kept by value
		"detailed_metric": boolean(new(bool)), "value_to_metric": boolean(new(bool)),
		"metadata": ignored,
		"charge": func(v value) (err error) {
			d.charge, err = chargingOf(v)
			return err
		},
		"rate_limit": func(v value) (err error) {
			if v.Tag != "!!null" {
				d.limit, err = r.policy(v)
			}
			return err
		},
		"descriptors": func(v value) (err error) {
			d.children, err = r.descriptors(v, depth+1)
			return err
		},
	})
	return d, err
}

func chargingOf(v value) (charging, error) {
	if c, ok := chargings[v.Value]; ok && v.Kind == yaml.ScalarNode {
		return c, nil
	}
	return byHits, v.at.wrong("%.100q is neither when_allowed nor always", v.Value)
}

func (r *reader) policy(v value) (*policy, error) {
	p := &policy{at: v.at}
	err := r.fields(v, keys{
		"unit": text(&p.unit), "requests_per_unit": number(&p.requests, 0), "unit_multiplier": number(&p.multiplier, 1),
		"unlimited": boolean(&p.unlimited), "name": text(&p.name),
		"headgate": text(&p.notation), "algorithm": text(&p.algorithm),
		"replaces": func(v value) error {
			return r.list(v, func(n *yaml.Node, at place) error {
				name := ""
				err := r.mapping(n, at, keys{"name": text(&name)})
				p.replaces = append(p.replaces, name)
				return err
			})
		},
	}, map[string]bool{}, 0)
	return p, err
}

// check is an error for what no limit can be made of.
func (p *policy) check() error {
	switch {
	case p.unlimited && (p.unit != "" || p.notation != "" || p.multiplier > 0 || p.algorithm != ""):
		return p.at.wrong("unlimited has neither a unit nor an algorithm")
	case p.notation != "" && (p.unit != "" || p.requests > 0 || p.multiplier > 0 || p.algorithm != ""):
		return p.at.wrong("headgate says the whole limit; leave unit, requests_per_unit, unit_multiplier and " +
			"algorithm out")
	}
	for i, name := range p.replaces {
		switch name {
		case "":
			return p.at.in(fmt.Sprintf("replaces[%d]", i)).wrong("has no name")
		case p.name:
			return p.at.in(fmt.Sprintf("replaces[%d]", i)).wrong("%.100q is the name of the limit itself", name)
		}
	}
	return nil
}

// problem is what an error says is wrong, without the field.
func problem(err error) string {
	if wrong, ok := errors.AsType[*headgate.InvalidError](err); ok {
		return wrong.Problem
	}
	return err.Error()
}
