// Package wire says how ops and outcomes are laid out as lists of numbers, for the
// stores that decide in a server: by functions in SQL or scripts in Lua.
//
// A [Layout] is the order of the numbers of an op. The store that uses it writes it
// down once, by name. It encodes ops with Append, and its texts in SQL or Lua name the
// numbers in placeholders, which [Names] expands. The order of the numbers of an
// outcome is that of [law.NumberNames].
package wire

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/law"
)

// field is a number that an op may have.
type field struct {
	name string
	of   func(*law.Op) int64
}

// fields are those of which a layout takes some. Their order means nothing.
var fields = []field{
	{"verb", func(op *law.Op) int64 { return int64(op.Verb) }},

	// These depend on the batch. The store sets them.
	{"group", func(*law.Op) int64 { return 0 }},
	{"cell", func(*law.Op) int64 { return 0 }},

	{"kind", func(op *law.Op) int64 { return int64(op.Params.Kind) }},
	{"anchor", func(op *law.Op) int64 { return int64(op.Params.Anchor) }},
	{"unit", func(op *law.Op) int64 { return op.Params.Unit }},
	{"capacity", func(op *law.Op) int64 { return op.Params.Capacity }},
	{"step", func(op *law.Op) int64 { return op.Params.Step }},
	{"drain", func(op *law.Op) int64 { return max(op.Params.Drain, 1) }}, // a divisor under every law
	{"heal", func(op *law.Op) int64 { return op.Params.HealAfter() }},    // how far the cell may be ahead of the clock
	{"block", func(op *law.Op) int64 { return op.Params.Block }},
	{"history", func(op *law.Op) int64 { return op.Params.History }},
	{"cost", func(op *law.Op) int64 { return op.Cost }},
	{"count", func(op *law.Op) int64 { return op.Count }},
	{"partial", func(op *law.Op) int64 { return one(op.Partial) }},
	{"deferred", func(op *law.Op) int64 { return one(op.Deferred) }},
	{"how", func(op *law.Op) int64 { return one(op.Partial) + 2*one(op.Deferred) }}, // none is both
	{"ceiling", func(op *law.Op) int64 { return op.Ceiling }},
	{"ttl", func(op *law.Op) int64 { return op.TTL }},
	{"now", func(op *law.Op) int64 { return op.Now }},
	{"window0", func(op *law.Op) int64 { return op.Window[0] }},
	{"window1", func(op *law.Op) int64 { return op.Window[1] }},
	{"window2", func(op *law.Op) int64 { return op.Window[2] }},
	{"window3", func(op *law.Op) int64 { return op.Window[3] }},
	{"since", func(op *law.Op) int64 { return op.From }}, // From and Until are words of Lua or SQL
	{"lapse", func(op *law.Op) int64 { return op.Until }},
	{"at", func(op *law.Op) int64 { return op.At }},
	{"level", func(op *law.Op) int64 { return op.Level }},
	{"returned", func(op *law.Op) int64 { return op.Returned }},
	{"entry", func(op *law.Op) int64 { return op.EntryNumber }},
}

// one returns 1 for true.
func one(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

// A Layout is an order of fields.
type Layout []uint8

// Order returns the layout of the named fields, which are separated by spaces. It
// panics if there is no field of that name, or if a name occurs twice.
func Order(names string) Layout {
	var l Layout
	for _, name := range strings.Fields(names) {
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
		if i < 0 || slices.Contains(l, uint8(i)) {
			panic(fmt.Sprintf("wire: the field %s is unknown, or occurs twice", name))
		}
		l = append(l, uint8(i))
	}
	return l
}

// Append appends the numbers of an op.
func (l Layout) Append(to []int64, op *law.Op) []int64 {
	for _, i := range l {
		to = append(to, fields[i].of(op))
	}
	return to
}

// Names returns the names of the fields in order.
func (l Layout) Names() []string {
	names := make([]string, len(l))
	for i, of := range l {
		names[i] = fields[of].name
	}
	return names
}

// Place returns the place of a field, from 0. It panics if the layout has none of that
// name.
func (l Layout) Place(name string) int {
	i := slices.Index(l.Names(), name)
	if i < 0 {
		panic("wire: the layout has no field " + name)
	}
	return i
}
