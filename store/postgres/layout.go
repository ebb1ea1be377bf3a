package postgres

import (
	"slices"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store/internal/wire"
)

// opLayout is the order of the numbers of an op that headgate.apply takes. A change of
// it is a new layout: see schema.go.
var opLayout = wire.Order("verb group cell kind anchor unit capacity step drain block history cost count how " +
	"ceiling ttl now " +
	"window0 window1 window2 window3 since lapse at level returned entry")

// The batch says what these are.
var (
	opWidth = len(opLayout)
	opGroup = opLayout.Place("group")
	opCell  = opLayout.Place("cell")
)

// placeholders are the lists of numbers that the texts name.
var placeholders = func() wire.Names {
	// What headgate.compile_rate returns, and law.Terms.
	rate := []string{"unit", "capacity", "step", "drain"}
	terms := slices.Concat([]string{"kind", "anchor"}, rate)
	// A row of headgate.cells, and what headgate.apply keeps of an op to go back to.
	cell := []string{"law", "level", "prev", "at", "unit", "empty_at", "blocked_until", "step"}
	undo := slices.Concat([]string{"op", "cell", "first"}, cell, prefixed("base_", cell),
		[]string{"moved", "clear", "carry", "now"})
	return wire.Names{
		"op":    opLayout.Names(),
		"out":   law.NumberNames[:],
		"cell":  cell,
		"undo":  undo,
		"rate":  rate,
		"terms": terms,
		"limit": slices.Concat(terms, []string{"block", "history"}), // the params of type headgate.compiled
	}
}()

func prefixed(prefix string, names []string) []string {
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = prefix + name
	}
	return list
}
