package store

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/headgate/headgate/law"
)

// Catalog is a Store that keeps the catalog: the limits, plans and overrides of all who use the store. Package catalog
// gives it its meaning; a driver keeps items, and numbers the versions. Safe for concurrent use.
type Catalog interface {
	// ReadCatalog returns the items that versions after since have written, as they are now, all read at one moment. If
	// since is 0 it returns all items, except those of kinds that have a row for each key: Items reads these.
	ReadCatalog(ctx context.Context, since int64) (CatalogChanges, error)
	// Items looks items up by Kind, Name and Key. It returns those that exist, in any order, and the version of the
	// catalog at which it read them. If many items take several reads, that is the version of the oldest read.
	Items(ctx context.Context, list []Item) (version int64, found []Item, err error)
	// ItemsAfter returns the first n items of a kind that come after another item, ordered by Name and Key, byte by
	// byte. Only Name and Key of after matter; the zero Item comes before all others. If n is 0 or less it returns
	// none.
	ItemsAfter(ctx context.Context, kind Kind, after Item, n int) ([]Item, error)
	// WriteCatalog makes an edit, all of it or nothing, and returns the catalog's version after it. An edit that
	// changes nothing makes no new version. If the catalog has another version than Base, the error is ErrVersion and
	// nothing was changed.
	WriteCatalog(ctx context.Context, e Edit) (version int64, err error)
	// CatalogVersions returns the newest n versions with numbers below before, newest first; before 0: of all.
	CatalogVersions(ctx context.Context, before int64, n int) ([]Version, error)
	// RecordAction stores an action, with a number and the store's time in place of its own. It makes no new version of
	// the catalog. The store keeps at least the newest [KeptActions].
	RecordAction(ctx context.Context, a Action) error
	// Actions returns the newest n actions with numbers below before, newest first; if before is 0, of all actions.
	Actions(ctx context.Context, before int64, n int) ([]Action, error)
}

// KeptActions is how many actions a store keeps at least.
const KeptActions = 10_000

// Action is a change of a key by hand, not by a limit's definition.
type Action struct {
	Number int64 // increases from action to action, perhaps with gaps
	At     int64 // when it was recorded, by the store's clock in microseconds

	Verb   string // block, unblock, reset or refund
	Limit  string
	Key    string
	For    int64 // how long a block lasts, in microseconds
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
	return cmp.Or((law.Cell{Limit: a.Limit, Key: a.Key}).ValidText(), validAuthorReason(a.Author, a.Reason))
}

// validAuthorReason returns what is wrong with an author and a reason, or nil.
func validAuthorReason(author, reason string) error {
	return cmp.Or(law.ValidText("author", author, MaxNote), law.ValidText("reason", reason, MaxNote))
}

// KindFinder is a Catalog whose ItemsAfter reads more items than it returns. Safe for concurrent use.
type KindFinder interface {
	// MayHave reports for each of some kinds, which have a row for each key, whether the catalog may have items of that
	// kind. It reads a bounded number of items, so a true may be wrong. If the catalog has no item of any of the kinds,
	// all reports are false.
	MayHave(ctx context.Context, kinds ...Kind) ([]bool, error)
}

// CatalogChanges is the result of ReadCatalog.
type CatalogChanges struct {
	Version int64 // the newest version; 0: nothing was ever written
	// At is when Version was written, and SinceAt when version since was: by the store's clock, in microseconds; 0 if
	// the store has no such version, or no longer knows. If the time of a version is not what an earlier read returned,
	// the store was emptied or restored meanwhile.
	At, SinceAt int64
	Clock       int64 // the store's clock, in microseconds
	Items       []Item
}

// Kind is a kind of items.
type Kind string

// The kinds. Package catalog says what an item of each means.
const (
	KindLimit      Kind = "limit"
	KindPlan       Kind = "plan"
	KindOverride   Kind = "override"   // changes a limit for one key
	KindAssignment Kind = "assignment" // gives a plan to one key
	KindFile       Kind = "file"       // a file of limits that was applied

	KindPrefixOverride   Kind = "prefix-override"   // changes a limit for all keys with a prefix
	KindPrefixAssignment Kind = "prefix-assignment" // gives a plan to all keys with a prefix
)

// Less reports whether an item comes before another one of its kind: by Name, then by Key, byte by byte.
func (i Item) Less(other Item) bool {
	return i.Name < other.Name || i.Name == other.Name && i.Key < other.Key
}

// PerKey reports whether a kind may have a row for each key, which is too many to read at once.
func (k Kind) PerKey() bool { return k == KindOverride || k == KindAssignment }

// Item is a row of the catalog, identified by Kind, Name and Key.
type Item struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"` // the name of the limit or plan; for a file, its hash
	Key  string `json:"key"`  // the key or prefix of an override or assignment; in a plan, the limit; else empty
	Text string `json:"text"` // the notation of the limit, or RenamedFrom; for an assignment, the name of the plan

	Note    string `json:"note,omitempty"`    // a description, or a reason
	Origin  string `json:"origin,omitempty"`  // "file" if a file wrote the item; empty: a person
	Until   int64  `json:"until,omitempty"`   // its end by the store's clock, in us; 0: none. Of a file: its order
	Retired bool   `json:"retired,omitempty"` // the file that wrote the item no longer has it
	Removed bool   `json:"removed,omitempty"` // the item does not exist; all but Kind, Name and Key is empty
}

// RenamedFrom begins the Text of a limit that is another name of a limit, whose name follows: of the one whose name the
// cells have.
const RenamedFrom = "renamed from "

// RenamedFrom returns the name of the limit that the item is another name of; empty: it is none.
func (i *Item) RenamedFrom() string {
	name, ok := strings.CutPrefix(i.Text, RenamedFrom)
	if i.Kind != KindLimit || !ok {
		return ""
	}
	return name
}

// ID returns an item with only Kind, Name and Key, which identify it.
func (i Item) ID() Item { return Item{Kind: i.Kind, Name: i.Name, Key: i.Key} }

// FirstItems sorts a list of items of one kind by Name and Key, in place, and returns the first n. It is for drivers.
func FirstItems(list []Item, n int) []Item {
	slices.SortFunc(list, func(a, b Item) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Key, b.Key)) })
	return list[:min(len(list), max(n, 0))]
}

// Edit is a change to be written.
type Edit struct {
	Base   int64  // the version that the author has seen
	Author string // as far as the caller knows; a database adds its user
	Reason string
	Items  []Item // each replaces the item with its ID; one that is Removed removes it
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
	if err := validAuthorReason(e.Author, e.Reason); err != nil {
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

// valid returns what is wrong with an item, or nil.
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
		maxBytes   int
	}{
		{"name", i.Name, law.MaxName},
		{"key", i.Key, law.MaxKey},
		{"text", i.Text, law.MaxName},
		{"note", i.Note, MaxNote},
		{"origin", i.Origin, law.MaxName},
	} {
		if err := law.ValidText(field.name, field.text, field.maxBytes); err != nil {
			return err
		}
	}
	return nil
}

// Changes returns the changes that an edit makes to the current items; none for an item that stays as it is.
func (e *Edit) Changes(current []Item) []Change {
	byID := make(map[Item]Item, len(current))
	for _, item := range current {
		byID[item.ID()] = item
	}
	var list []Change
	for _, after := range e.Items {
		before, exists := byID[after.ID()]
		if !exists {
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
	At      int64    `json:"at"` // when it was written, by the store's clock in microseconds
	Author  string   `json:"author"`
	Reason  string   `json:"reason"`
	Changes []Change `json:"changes"`
}

// Change is the change of one item. Before is Removed if the edit created the item, After if it removed it.
type Change struct {
	Before Item `json:"before"`
	After  Item `json:"after"`
}

// AppendChange appends a change, whose items are in JSON, to the changes of the last version in list. If that is not v,
// it appends v first. It is for drivers.
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
