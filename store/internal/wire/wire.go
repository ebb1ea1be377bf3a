// Package wire says how ops and outcomes are laid out as lists of numbers, for the stores that decide in a server: by
// functions in SQL or scripts in Lua.
//
// A [Layout] is the order of the numbers of an op. A store writes it down once, by the names of the numbers. The store
// encodes ops by [Layout.Append]. Its texts in SQL or Lua name the numbers in placeholders, which [Names.Expand]
// replaces. The order of the numbers of an outcome is that of [law.NumberNames].
package wire

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/law"
)

// fieldNames names the numbers that an op may have. A layout takes some of them, in an order of its own. values lists
// the numbers in the order of fieldNames, line by line. From and Until are called since and lapse: from is a
// keyword of SQL, until one of Lua.
var fieldNames = strings.Fields(`
	verb group alternative cell
	kind anchor unit capacity step drain heal block history
	cost count partial deferred how
	ceiling ttl now
	window0 window1 window2 window3
	since lapse
	at level returned entry`)

// values returns all numbers of an op, in the order of fieldNames.
func values(op *law.Op) [31]int64 {
	p, partial, deferred := &op.Params, oneIf(op.Partial), oneIf(op.Deferred)
	return [...]int64{
		int64(op.Verb), 0, int64(op.Alternative), 0, // group and cell depend on the batch: the store sets them
		// drain is a divisor under every law; heal is how far the cell's time may be ahead of the clock
		int64(p.Kind), int64(p.Anchor), p.Unit, p.Capacity, p.Step, max(p.Drain, 1), p.HealAfter(), p.Block, p.History,
		op.Cost, op.Count, partial, deferred, partial + 2*deferred, // no op is both
		op.Ceiling, op.TTL, op.Now,
		op.Window[0], op.Window[1], op.Window[2], op.Window[3],
		op.From, op.Until,
		op.At, op.Level, op.Returned, op.EntryNumber,
	}
}

// oneIf returns 1 for true, and 0 for false.
func oneIf(condition bool) int64 {
	if condition {
		return 1
	}
	return 0
}

// Layout is an order of some numbers of an op: indexes of fieldNames.
type Layout []uint8

// NewLayout returns the layout of fields by their names, with spaces between. Unknown names and names twice panic.
func NewLayout(names string) Layout {
	var l Layout
	for _, name := range strings.Fields(names) {
		i := slices.Index(fieldNames, name)
		if i < 0 || slices.Contains(l, uint8(i)) {
			panic(fmt.Sprintf("wire: the field %s is unknown, or occurs twice", name))
		}
		l = append(l, uint8(i))
	}
	return l
}

// Append appends the numbers of an op to dst.
func (l Layout) Append(dst []int64, op *law.Op) []int64 {
	v := values(op)
	for _, field := range l {
		dst = append(dst, v[field])
	}
	return dst
}

// Names returns the names of the fields in order.
func (l Layout) Names() []string {
	names := make([]string, len(l))
	for i, field := range l {
		names[i] = fieldNames[field]
	}
	return names
}

// Place returns the place of a field, from 0. It panics if the layout does not have the field.
func (l Layout) Place(name string) int {
	i := slices.Index(l.Names(), name)
	if i < 0 {
		panic("wire: the layout has no field " + name)
	}
	return i
}
