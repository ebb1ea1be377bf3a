package catalog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// File is the limits and plans that a file, or several together, define.
type File struct {
	Path   string // for messages only
	Limits []Definition
	Plans  []Plan
	// Revision says which of two files is newer: the file with the greater number, no matter which was applied first.
	// 0: the file has no revision, and the file that is applied last is the newer one.
	Revision int64
	// Order is the Difference.Order of the file when it was applied last, if the caller has seen that; else 0. With it
	// Apply recognizes a file that was in force before the store lost its catalog.
	Order int64
}

// items returns the items that a file defines, in an order that does not depend on the file.
func (f *File) items() []store.Item {
	items := []store.Item{}
	for _, d := range f.Limits {
		d.Origin, d.Retired = fromFile, false
		items = append(items, d.item())
	}
	for _, p := range f.Plans {
		p.Origin, p.Retired = fromFile, false
		items = append(items, p.items()...)
	}
	slices.SortFunc(items, compareIDs)
	return items
}

// hash returns a hash that is equal for files that define the same items.
func (f *File) hash() (string, error) {
	text, err := json.Marshal(f.items())
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// The origins of limits that nobody defined by a call of Set: a file, and in SQL the zones of check_velocity and the
// buckets of request_token.
const (
	fromFile   = "file"
	fromZone   = "zone"
	fromBucket = "bucket"
)

// followsTable reports whether an item is a copy of a row of a table in SQL, and changes only with that row.
func followsTable(i *store.Item) bool { return i.Origin == fromZone || i.Origin == fromBucket }

// Difference is what applying a file would change.
type Difference struct {
	Changes []store.Change // to limits, ordered by name, and then to plans; Describe says what they are
	Known   Known          // whether these limits and plans were applied before
	Order   int64          // the file's place among the applied ones, or its place to be: the newest has the greatest
	file    store.Item     // the item that records that the file was applied
}

// Lines describes each change in a line.
func (d *Difference) Lines() []string {
	var lines []string
	for _, c := range d.Changes {
		lines = append(lines, Describe(c))
	}
	return lines
}

// Empty reports whether there is nothing to change.
func (d *Difference) Empty() bool { return len(d.Changes) == 0 }

// Known says whether a file was applied before.
type Known int

// A file is New, the Newest that was applied, or Older than the newest. It is Lost if File.Order is later than all
// files that the catalog knows: the store was emptied, or put back to an earlier state.
const (
	New Known = iota
	Newest
	Older
	Lost
)

// Applying says what Apply does with a file that was applied before. A file that is New or Lost is always applied.
type Applying int

const (
	// Once leaves the catalog as it is, so that a server that starts with an old file does not undo the newer file of
	// another server.
	Once Applying = iota
	// Again applies a file also if another one was applied since: somebody has changed the file back. If the file is
	// the newest, the catalog stays as it is, with the changes that were made by hand since.
	Again
	// Anyway applies a file always. If the file is the newest, this undoes the changes that were made by hand since.
	Anyway
)

// revisionItems returns what to write if the file is the newest one already: its item, if the revision is greater now.
func (d *Difference) revisionItems(current *snapshot) []store.Item {
	oldItem := current.items[d.file.ID()]
	if item := d.file; revisionOf(&item) > revisionOf(&oldItem) {
		return []store.Item{item}
	}
	return nil
}

// Compare returns what Apply would change.
func (c *Catalog) Compare(ctx context.Context, f File) (Difference, error) {
	if err := c.Refresh(ctx); err != nil {
		return Difference{}, err
	}
	current := c.current.Load()
	d, err := current.compare(&f)
	if err == nil && (d.Known == New || d.Known == Lost) {
		err = c.checkAcquisition(ctx, current, d.items())
	}
	return d, err
}

// items returns the items that Apply writes.
func (d *Difference) items() []store.Item {
	items := []store.Item{d.file}
	for _, change := range d.Changes {
		items = append(items, change.After)
	}
	return items
}

// compare returns what applying a file to s would change.
func (s *snapshot) compare(f *File) (d Difference, err error) {
	items, err := s.itemsForFile(f)
	if err != nil {
		return d, err
	}
	d.Changes = (&store.Edit{Items: items}).Changes(slices.Collect(maps.Values(s.items)))
	sortChanges(d.Changes)
	hash, err := f.hash()
	if err == nil {
		s.setKnown(&d, f, hash)
	}
	return d, err
}

// itemsForFile returns the items that a file defines, and as retired those that only earlier files defined.
func (s *snapshot) itemsForFile(f *File) ([]store.Item, error) {
	limits, plans := map[string]headgate.Limit{}, map[string]bool{}
	for i := range f.Limits {
		d := &f.Limits[i]
		if err := checkDefinable(d); err != nil {
			return nil, err
		}
		if _, exists := limits[d.Name()]; exists {
			return nil, headgate.Invalid("limits."+d.Name(), "is there twice")
		}
		limits[d.Name()] = d.Limit
	}
	items := f.items()
	for i := range f.Plans {
		p := &f.Plans[i]
		if plans[p.Name] {
			return nil, headgate.Invalid("plans."+p.Name, "is there twice")
		}
		plans[p.Name] = true
		if err := s.checkPlan(p, limits); err != nil {
			return nil, err
		}
		items = append(items, s.droppedLimits(p)...)
	}
	for _, i := range s.items {
		_, defined := limits[i.Name]
		_, readable := s.limits[i.Name]
		isDropped := i.Kind == store.KindLimit && !defined && readable || i.Kind == store.KindPlan && !plans[i.Name]
		if isDropped && i.Origin == fromFile && !i.Retired {
			i.Retired = true
			items = append(items, i)
		}
	}
	return items, nil
}

// setKnown sets d.Known, d.Order and d.file of a file with this hash.
func (s *snapshot) setKnown(d *Difference, f *File, hash string) {
	newest := s.newestFile()
	d.file = store.Item{Kind: store.KindFile, Name: hash, Note: shortenPath(f.Path)}
	if f.Revision > 0 {
		d.file.Text = strconv.FormatInt(f.Revision, 10)
	}
	applied, exists := s.items[d.file.ID()]
	switch d.Order = max(applied.Until, f.Order); {
	case d.Order > newest.Until:
		d.Known = Lost
	case d.Order == 0:
		d.Known = New
	case exists && d.Order == newest.Until:
		d.Known = Newest
	default:
		d.Known = Older
	}
	switch revision := revisionOf(&newest); {
	case f.Revision == 0 || revision == 0 || d.Known == Newest || d.Known == Lost:
	case f.Revision > revision:
		d.Known = New
	case f.Revision < revision:
		d.Known = Older
	}
	if d.Known == New || d.Known == Older { // if it is applied now
		d.Order = max(newest.Until+1, s.clock())
	}
	d.file.Until = d.Order
	if d.Known == Older {
		d.Order = max(applied.Until, f.Order)
	}
}

// revisionOf returns the revision of a file that was applied; 0: it has none.
func revisionOf(i *store.Item) int64 {
	n, _ := strconv.ParseInt(i.Text, 10, 64)
	return n
}

// newestFile returns the file that was applied last. A file's item keeps in Until the store's time of its application.
// So a file that is applied after the store has lost its catalog comes after all files that servers remember.
func (s *snapshot) newestFile() (newest store.Item) {
	for id, item := range s.items {
		if id.Kind == store.KindFile && item.Until > newest.Until {
			newest = item
		}
	}
	return newest
}

// shortenPath keeps as much of the end of a path as fits into a note.
func shortenPath(path string) string {
	if len(path) > store.MaxNote {
		path = path[len(path)-store.MaxNote:]
	}
	return strings.ToValidUTF8(strings.ReplaceAll(path, "\x00", ""), "")
}

// Status compares a file with the catalog as it was read last.
func (c *Catalog) Status(f File) (Difference, error) {
	s := c.current.Load()
	if s == nil {
		return Difference{}, errUnread
	}
	return s.compare(&f)
}

// Apply makes a file's limits and plans the catalog's: it defines what the file says, and retires what only earlier
// files defined. What was defined by hand stays. The error is headgate.ErrInvalid, and nothing is changed, if the store
// cannot use a limit, or if a limit would be acquired while a plan or an override in its place is taken, or vice versa.
//
// how says what to do with a file that was applied before: Difference.Known reports whether it was.
func (c *Catalog) Apply(ctx context.Context, by By, f File, how Applying) (diff Difference, version int64, err error) {
	version, err = c.write(ctx, by, func(current *snapshot) ([]store.Item, error) {
		if diff, err = current.compare(&f); err != nil {
			return nil, err
		}
		switch diff.Known {
		case New, Lost:
		case Older:
			if how == Once {
				return nil, nil
			}
		case Newest:
			if how != Anyway || diff.Empty() {
				return diff.revisionItems(current), nil
			}
		}
		diff.Order = diff.file.Until
		return diff.items(), nil
	})
	known := diff.Known
	if known == Lost || known == Older && how != Once {
		known = New // it is in force again
	}
	c.observer.Applied(Application{Path: f.Path, Known: known, Version: version, Err: err})
	return diff, version, err
}
