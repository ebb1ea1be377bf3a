package store

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/headgate/headgate/law"
)

// Catalog is a Store that keeps the catalog: the limits, plans and overrides of all
// who use the store. Package catalog gives it its meaning; a driver keeps items, and
// numbers the versions. Safe for concurrent use.
type Catalog interface {
	// ReadCatalog returns what versions after since have written, as it stands now, from
	// one moment. Of version 0 it returns all items but those of kinds that have a row
	// for each key, which are read by Items.
	ReadCatalog(ctx context.Context, since int64) (CatalogChanges, error)
	// Items returns those of the items that are there, in any order, and the version that
	// they are of: of many items, which are not read at one moment, the oldest. Only Kind,
	// Name and Key of what it is given matter.
	Items(ctx context.Context, list []Item) (version int64, found []Item, err error)
	// ItemsAfter returns the first n items of a kind after another one, ordered by Name and
	// Key, byte by byte. Only Name and Key of after matter; a zero Item stands before all. Of an n
	// of 0 or less it returns none, and asks nobody.
	ItemsAfter(ctx context.Context, kind Kind, after Item, n int) ([]Item, error)
	// WriteCatalog makes an edit, all of it or nothing, and returns the version that it
	// made: that of an edit which changes nothing is the one before. If the catalog
	// has another version than Base it is ErrVersion, and nothing was changed.
	WriteCatalog(ctx context.Context, e Edit) (version int64, err error)
	// CatalogVersions returns the newest n versions that are below before, newest first;
	// before 0: of all.
	CatalogVersions(ctx context.Context, before int64, n int) ([]Version, error)
	// RecordAction keeps what somebody did to a key, under a number and a time of the store's. It changes no version.
	// Of the newest [KeptActions] none is forgotten.
	RecordAction(ctx context.Context, a Action) error
	// Actions returns the newest n actions whose numbers are below before, newest first; before 0: of all.
	Actions(ctx context.Context, before int64, n int) ([]Action, error)
}

// KeptActions is how many actions a store keeps.
const KeptActions = 10_000

// Action is a change of a key by hand, not by a limit's definition.
type Action struct {
	Number int64 // of a later one it is greater; there may be gaps
	At     int64 // by the store's clock, in microseconds

	Verb   string // block, unblock, reset or refund
	Limit  string
	Key    string
	For    int64 // microseconds of a block
	Author string
	Reason string
}

// Valid returns what is wrong with an action, or nil. Every Catalog calls it first.
func (a *Action) Valid() error {
	switch a.Verb {
	case "block", "unblock", "reset", "refund":
	default:
		return law.Invalid("verb", "%.100q is not block, unblock, reset or refund", a.Verb)
	}
	if a.For < 0 {
		return law.Invalid("for", "is below 0")
	}
	return cmp.Or((law.Cell{Limit: a.Limit, Key: a.Key}).ValidText(), validBy(a.Author, a.Reason))
}

// validBy returns what is wrong with an author and a reason, or nil.
func validBy(author, reason string) error {
	return cmp.Or(law.ValidText("author", author, MaxNote), law.ValidText("reason", reason, MaxNote))
}

// KindFinder is a Catalog of which ItemsAfter reads more than it returns. Safe for concurrent use.
type KindFinder interface {
	// MayHave reports for each of the kinds, which have a row for each key, whether there may be
	// items of it. It reads a bounded number of items, so it can be wrong in saying that there
	// may be some; where there are none of any kind it knows.
	MayHave(ctx context.Context, kinds ...Kind) ([]bool, error)
}

// CatalogChanges is the result of ReadCatalog.
type CatalogChanges struct {
	Version int64 // the newest; 0: nothing was ever written
	// when Version was written, and the version after which was read: by the store's clock, in microseconds; 0 if the
	// store has no such version, or does not know any more. A version with another time than before is another one:
	// the store was emptied, or put back.
	At, SinceAt int64
	Clock       int64 // the store's, in microseconds
	Items       []Item
}

// Kind is a kind of items.
type Kind string

// The kinds. What an item of each means is said in package catalog.
const (
	KindLimit      Kind = "limit"
	KindPlan       Kind = "plan"
	KindOverride   Kind = "override"   // of one key
	KindAssignment Kind = "assignment" // of a plan, to one key
	KindFile       Kind = "file"       // that was applied

	KindPrefixOverride   Kind = "prefix-override"   // of all keys that begin so
	KindPrefixAssignment Kind = "prefix-assignment" // the same of a plan
)

// Less orders items of a kind by Name and Key, byte by byte.
func (i Item) Less(other Item) bool {
	return i.Name < other.Name || i.Name == other.Name && i.Key < other.Key
}

// PerKey reports whether there may be a row for each key, too many to be read at once.
func (k Kind) PerKey() bool { return k == KindOverride || k == KindAssignment }

// Item is a row of the catalog, identified by Kind, Name and Key.
type Item struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"` // of the limit or plan; the hash of a file
	Key  string `json:"key"`  // or a prefix, that an override or an assignment is for; a limit of a plan; else empty
	Text string `json:"text"` // a notation; the name of a plan

	Note    string `json:"note,omitempty"`    // a description, or a reason
	Origin  string `json:"origin,omitempty"`  // "file" if a file wrote it; empty: somebody
	Until   int64  `json:"until,omitempty"`   // the store's time, in microseconds; 0: for good. Of a file: its order
	Retired bool   `json:"retired,omitempty"` // the file that wrote it has it no more
	Removed bool   `json:"removed,omitempty"` // it is not there; the rest is empty
}

// ID returns the item with nothing but what says which it is.
func (i Item) ID() Item { return Item{Kind: i.Kind, Name: i.Name, Key: i.Key} }

// FirstItems returns the first n of a list of items of one kind, ordered. It is for drivers.
func FirstItems(list []Item, n int) []Item {
	slices.SortFunc(list, func(a, b Item) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Key, b.Key)) })
	return list[:min(len(list), max(n, 0))]
}

// Edit is a change to be written.
type Edit struct {
	Base   int64  // the version that the author has seen
	Author string // as far as the caller knows; a database adds its user
	Reason string
	Items  []Item // each takes the place of what is there; those Removed are removed
}

// Bounds of an Edit.
const (
	MaxNote = 1000    // bytes of an author, a reason or a note
	MaxEdit = 100_000 // items
)

// Valid returns what is wrong with an edit, or nil. Every Catalog calls it first.
func (e *Edit) Valid() error {
	if len(e.Items) > MaxEdit {
		return law.Invalid("items", "are %d; one edit may have %d", len(e.Items), MaxEdit)
	}
	if err := validBy(e.Author, e.Reason); err != nil {
		return err
	}
	seen := make(map[Item]bool, len(e.Items))
	for i := range e.Items {
		item := &e.Items[i]
		if err := item.valid(); err != nil {
			return err
		}
		if seen[item.ID()] {
			return law.Invalid(string(item.Kind), "%s %s is there twice", item.Name, item.Key)
		}
		seen[item.ID()] = true
	}
	return nil
}

func (i *Item) valid() error {
	switch i.Kind {
	case KindLimit, KindPlan, KindOverride, KindAssignment, KindFile, KindPrefixOverride, KindPrefixAssignment:
	default:
		return law.Invalid("kind", "%.100q is not known", i.Kind)
	}
	if i.Until < 0 {
		return law.Invalid(string(i.Kind), "%.100s has a number below 0", i.Name)
	}
	for _, field := range []struct {
		name, text string
		most       int
	}{
		{"name", i.Name, law.MaxName},
		{"key", i.Key, law.MaxKey},
		{"text", i.Text, law.MaxName},
		{"note", i.Note, MaxNote},
		{"origin", i.Origin, law.MaxName},
	} {
		if err := law.ValidText(field.name, field.text, field.most); err != nil {
			return err
		}
	}
	return nil
}

// Changes returns what an edit changes of items as they are now: those that it leaves as
// they are are not among them.
func (e *Edit) Changes(now []Item) []Change {
	have := make(map[Item]Item, len(now))
	for _, item := range now {
		have[item.ID()] = item
	}
	var list []Change
	for _, after := range e.Items {
		before, there := have[after.ID()]
		if !there {
			before = after.ID()
			before.Removed = true
		}
		if after.Removed {
			after = after.ID()
			after.Removed = true
		}
		if before != after {
			list = append(list, Change{before, after})
		}
	}
	return list
}

// Version is the result of an edit.
type Version struct {
	Number  int64    `json:"number"`
	At      int64    `json:"at"` // by the store's clock, in microseconds
	Author  string   `json:"author"`
	Reason  string   `json:"reason"`
	Changes []Change `json:"changes"`
}

// Change is what became of one item. Before or After is Removed if there was, or is,
// none.
type Change struct {
	Before Item `json:"before"`
	After  Item `json:"after"`
}

// AppendChange appends a change, its items in JSON, to the versions that were read so far: to
// the last one if that is the same version. It is for drivers.
func AppendChange(list []Version, v Version, before, after []byte) ([]Version, error) {
	var c Change
	if err := json.Unmarshal(before, &c.Before); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(after, &c.After); err != nil {
		return nil, err
	}
	if len(list) == 0 || list[len(list)-1].Number != v.Number {
		list = append(list, v)
	}
	last := &list[len(list)-1]
	last.Changes = append(last.Changes, c)
	return list, nil
}
