package postgres

import (
	"slices"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store/internal/wire"
)

// opLayout is the order of an op's numbers for headgate_internal.apply. A change of it is a new layout: see schema.go.
var opLayout = wire.NewLayout("verb group cell kind anchor unit capacity step drain block history cost count how " +
	"ceiling ttl now " +
	"window0 window1 window2 window3 since lapse at level returned entry alternative")

// opWidth is how many numbers an op has; opGroup and opCell are the places of its group and its cell.
var (
	opWidth = len(opLayout)
	opGroup = opLayout.Place("group")
	opCell  = opLayout.Place("cell")
)

// placeholders are the lists of numbers that the SQL texts refer to by name.
var placeholders = func() wire.Names {
	// What headgate_internal.compile_amount returns, and law.Terms.
	rate := []string{"unit", "capacity", "step", "drain"}
	terms := slices.Concat([]string{"kind", "anchor"}, rate)
	// A row of headgate.cells. To undo an op, headgate_internal.apply keeps these numbers, of the cell and of its Base.
	cell := []string{"law", "level", "prev", "at", "unit", "empty_at", "blocked_until", "step"}
	// An op that settles an extended charge has the numbers of the last extension. The numbers of the
	// first charge stand in places that a Settle does not need.
	settle := opLayout.Names()
	for i, name := range settle {
		if settleName := settlePlaces[name]; settleName != "" {
			settle[i] = settleName
		}
	}
	undo := slices.Concat([]string{"op", "cell", "first"}, cell, addPrefix("base_", cell),
		[]string{"moved", "clear", "carry", "now"})
	return wire.Names{
		"op":     opLayout.Names(),
		"settle": settle,
		// The numbers in the columns outcomes and extensions of headgate.admissions.
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

// settlePlaces maps the usual name of a place to its name in a Settle. last_cost is 0 if the charge was not extended.
var settlePlaces = map[string]string{
	"block": "last_cost", "history": "first_level", "ceiling": "first_at", "ttl": "first_returned",
}

// addPrefix returns the names with a prefix.
func addPrefix(prefix string, names []string) []string {
	prefixed := make([]string, len(names))
	for i, name := range names {
		prefixed[i] = prefix + name
	}
	return prefixed
}
