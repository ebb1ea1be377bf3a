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

// The fields are the numbers that an op may have. A layout takes some of them. Their
// order here means nothing.
const (
	verb = iota
	group
	cell
	kind
	anchor
	unit
	capacity
	step
	drain
	heal
	block
	history
	cost
	count
	partial
	deferred
	how
	ceiling
	ttl
	now
	window0
	window1
	window2
	window3
	from
	until
	at
	level
	returned
	entry
	fields
)

var fieldNames = [fields]string{
	verb: "verb",

	// These depend on the batch. The store sets them.
	group: "group", cell: "cell",

	kind: "kind", anchor: "anchor", unit: "unit", capacity: "capacity", step: "step", drain: "drain",
	heal:  "heal", // how far the cell's time may be ahead of the clock
	block: "block", history: "history",
	cost: "cost", count: "count", partial: "partial", deferred: "deferred",
	how:     "how", // 1 for a partial op, 2 for a deferred one; none is both
	ceiling: "ceiling", ttl: "ttl", now: "now",
	window0: "window0", window1: "window1", window2: "window2", window3: "window3",
	from: "since", until: "lapse", // From and Until; these are words of Lua or SQL
	at: "at", level: "level", returned: "returned", entry: "entry",
}

// values returns all fields of an op.
func values(op *law.Op) [fields]int64 {
	p := &op.Params
	v := [fields]int64{
		verb: int64(op.Verb),
		kind: int64(p.Kind), anchor: int64(p.Anchor), unit: p.Unit, capacity: p.Capacity, step: p.Step,
		drain: max(p.Drain, 1), // a divisor under every law
		heal:  p.HealAfter(),
		block: p.Block, history: p.History,
		cost: op.Cost, count: op.Count, ceiling: op.Ceiling, ttl: op.TTL, now: op.Now,
		window0: op.Window[0], window1: op.Window[1], window2: op.Window[2], window3: op.Window[3],
		from: op.From, until: op.Until,
		at: op.At, level: op.Level, returned: op.Returned, entry: op.EntryNumber,
	}
	if op.Deferred {
		v[deferred], v[how] = 1, 2
	}
	if op.Partial {
		v[partial], v[how] = 1, 1
	}
	return v
}

// A Layout is an order of fields.
type Layout []uint8

// Order returns the layout of the named fields, which are separated by spaces. It
// panics if there is no field of that name, or if a name occurs twice.
func Order(names string) Layout {
	var l Layout
	for _, name := range strings.Fields(names) {
		i := slices.Index(fieldNames[:], name)
		if i < 0 || slices.Contains(l, uint8(i)) {
			panic(fmt.Sprintf("wire: the field %s is unknown, or occurs twice", name))
		}
		l = append(l, uint8(i))
	}
	return l
}

// Append appends the numbers of an op.
func (l Layout) Append(to []int64, op *law.Op) []int64 {
	v := values(op)
	for _, field := range l {
		to = append(to, v[field])
	}
	return to
}

// Names returns the names of the fields in order.
func (l Layout) Names() []string {
	names := make([]string, len(l))
	for i, field := range l {
		names[i] = fieldNames[field]
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
