package postgres

import (
	"slices"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store/internal/wire"
)

// opLayout is the order of the numbers of an op that headgate_internal.apply takes. A change of
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
	// What headgate_internal.compile_amount returns, and law.Terms.
	rate := []string{"unit", "capacity", "step", "drain"}
	terms := slices.Concat([]string{"kind", "anchor"}, rate)
	// A row of headgate.cells, and what headgate_internal.apply keeps of an op to go back to.
	cell := []string{"law", "level", "prev", "at", "unit", "empty_at", "blocked_until", "step"}
	// An op that settles a charge that was extended has the numbers of the last extension. Those of the
	// first charge are in places that it does not need.
	settle := opLayout.Names()
	for i, name := range settle {
		if other := firstCharge[name]; other != "" {
			settle[i] = other
		}
	}
	undo := slices.Concat([]string{"op", "cell", "first"}, cell, prefixed("base_", cell),
		[]string{"moved", "clear", "carry", "now"})
	return wire.Names{
		"op":     opLayout.Names(),
		"settle": settle,
		// What headgate.admissions has in outcomes and in extensions.
		"kept":      {"granted", "level", "prev", "at", "empty_at", "blocked_until", "used", "entry", "start_at"},
		"extension": {"cost", "level", "at", "prev"},
		"out":       law.NumberNames[:],
		"cell":      cell,
		"undo":      undo,
		"rate":      rate,
		"terms":     terms,
		"limit":     slices.Concat(terms, []string{"block", "history"}), // the params of type headgate.compiled
	}
}()

// firstCharge are the names of those places, by what other ops have there. last_cost is 0 of a charge that
// was not extended.
var firstCharge = map[string]string{
	"block": "last_cost", "history": "first_level", "ceiling": "first_at", "ttl": "first_returned",
}

func prefixed(prefix string, names []string) []string {
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = prefix + name
	}
	return list
}
