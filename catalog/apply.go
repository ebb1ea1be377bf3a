package catalog

import (
	"cmp"
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
	// If one has none (0), or both have the same, the file that was applied later, or was not applied yet, is newer.
	Revision int64
	// Order is the Difference.Order of the file when it was applied last, if the caller has seen that; else 0. With it
	// Apply recognizes a file that was in force before the store lost its catalog.
	Order int64
}

// items returns the items that a file defines in an empty catalog, in an order that does not depend on the file.
func (f *File) items() []store.Item {
	items := []store.Item{}
	for _, d := range f.Limits {
		d.Origin, d.Retired = fromFile, false
		items = append(items, d.item())
		if d.RenamedTo != "" {
			items = append(items, aliasItem(d.RenamedTo, d.Name()))
		}
	}
	for _, p := range f.Plans {
		p.Origin, p.Retired = fromFile, false
		items = append(items, p.items()...)
	}
	slices.SortFunc(items, compareIDs)
	return items
}

// hash returns a hash that is the same for files that define the same items, and only for these.
func (f *File) hash() (string, error) {
	text, err := json.Marshal(f.items())
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// The origins of items that nobody wrote by hand: they come from a file, or in SQL from the zones of check_velocity or
// the buckets of request_token.
const (
	fromFile   = "file"
	fromZone   = "zone"
	fromBucket = "bucket"
)

// followsTable reports whether an item is a copy of a row of a table in SQL, and changes only with that row.
func followsTable(i *store.Item) bool { return i.Origin == fromZone || i.Origin == fromBucket }

// Difference is what applying a file would change.
type Difference struct {
	Changes  []store.Change // to limits, ordered by name, and then to plans; Describe says what they are
	Standing Standing       // of the file
	// Order is the file's place among the applied files, of which the newest has the greatest: the store's time when it
	// was applied. A FileNew has the place that it would get now. 0: a FileOlder that was never applied.
	Order int64

	// record is the item that says that the file was applied; its Until is the order that the file would get.
	record store.Item
	// refused says why the file may not be applied: see definitionItems. A file that is not to be applied, at the start
	// of a server say, may have what is refused.
	refused error
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

// Standing says how a file stands to the files that were applied, of which the last is in force.
type Standing int

const (
	FileNew    Standing = iota // newer than the file in force: never applied, or with a greater revision
	FileNewest                 // in force: the file that was applied last, or one that defines the same
	FileOlder                  // the file in force is newer: it was applied later, or has a greater revision
	FileLost                   // File.Order is above all in the store, which was emptied or put back
)

// ApplyMode says what Apply does with a FileNewest or FileOlder. A FileNew or FileLost is always applied.
type ApplyMode int

const (
	// ApplyOnce leaves limits and plans as they are, so that a server that starts with an old file does not undo the
	// newer file of another server.
	ApplyOnce ApplyMode = iota
	// ApplyAgain applies a FileOlder: somebody has changed the file back. With a FileNewest limits and plans stay as
	// they are, with the changes that were made by hand since.
	ApplyAgain
	// ApplyAnyway applies both. With a FileNewest this undoes changes of its limits and plans by hand.
	ApplyAnyway
)

// itemIfRevisionGrew returns what to write for a FileNewest that is not applied: its item, if its revision grew.
func (d *Difference) itemIfRevisionGrew(current *snapshot) []store.Item {
	oldItem := current.items[d.record.ID()]
	if item := d.record; revisionOf(&item) > revisionOf(&oldItem) {
		return []store.Item{item}
	}
	return nil
}

// Compare reads the catalog, and returns what Apply would change if it applied the file, with its errors. It checks
// overrides, and plans that the file lacks, only for a FileNew or FileLost.
func (c *Catalog) Compare(ctx context.Context, f File) (Difference, error) {
	if err := c.Refresh(ctx); err != nil {
		return Difference{}, err
	}
	current := c.current.Load()
	d, err := current.compare(&f)
	if err == nil && (d.Standing == FileNew || d.Standing == FileLost) {
		err = cmp.Or(d.refused, c.checkAcquisition(ctx, current, d.items()))
	}
	return d, err
}

// items returns the items that Apply writes if it applies the file.
func (d *Difference) items() []store.Item {
	return append([]store.Item{d.record}, changedItems(d.Changes)...)
}

// compare returns what applying a file to s would change.
func (s *snapshot) compare(f *File) (d Difference, err error) {
	items, refused, err := s.itemsForFile(f)
	if d.refused = refused; err != nil {
		return d, err
	}
	d.Changes = (&store.Edit{Items: items}).Changes(slices.Collect(maps.Values(s.items)))
	sortChanges(d.Changes)
	hash, err := f.hash()
	if err == nil {
		s.setStanding(&d, f, hash)
	}
	return d, err
}

// itemsForFile returns the items that a file defines, and those that it makes obsolete: as removed the limits that its
// plans no longer have, as retired the limits and plans that only earlier files defined. refused says why the file may
// not be applied.
func (s *snapshot) itemsForFile(f *File) (items []store.Item, refused, err error) {
	definitions := slices.Clone(f.Limits)
	for i := range definitions {
		definitions[i].Origin, definitions[i].Retired = fromFile, false
	}
	items, names, refused, err := s.definitionItems(definitions)
	if err != nil {
		return nil, nil, err
	}
	limits, plans := map[string]headgate.Limit{}, map[string]bool{}
	for _, d := range definitions {
		l := names.limit(d.Limit)
		limits[l.Name()] = l
	}
	for _, p := range f.Plans {
		if plans[p.Name] {
			return nil, nil, headgate.Invalid("plans."+p.Name, "is there twice")
		}
		plans[p.Name] = true
		p = names.plan(p)
		p.Origin, p.Retired = fromFile, false
		if err := s.checkPlan(&p, limits); err != nil {
			return nil, nil, err
		}
		items = append(append(items, p.items()...), s.droppedLimits(&p)...)
	}
	for _, i := range s.items {
		_, defined := limits[s.aliases.cells(i.Name)]
		_, readable := s.limits[i.Name]
		// A limit that this program cannot read stays: a newer program may have written it.
		isDropped := i.Kind == store.KindLimit && !defined && readable || i.Kind == store.KindPlan && !plans[i.Name]
		if isDropped && i.Origin == fromFile && !i.Retired {
			i.Retired = true
			items = append(items, i)
		}
	}
	return items, refused, nil
}

// setStanding sets d.Standing, d.Order and d.record of a file with this hash.
func (s *snapshot) setStanding(d *Difference, f *File, hash string) {
	newest := s.newestFile()
	d.record = store.Item{Kind: store.KindFile, Name: hash, Note: shortenPath(f.Path)}
	if f.Revision > 0 {
		d.record.Text = strconv.FormatInt(f.Revision, 10)
	}
	applied, exists := s.items[d.record.ID()]
	lastOrder := max(applied.Until, f.Order) // 0: it was never applied
	switch {
	case lastOrder > newest.Until:
		d.Standing = FileLost
	case lastOrder == 0:
		d.Standing = FileNew
	case exists && lastOrder == newest.Until:
		d.Standing = FileNewest
	default:
		d.Standing = FileOlder
	}
	// Between a FileNew and a FileOlder the revisions decide, if both files have one, and not the order.
	switch revision := revisionOf(&newest); {
	case f.Revision == 0 || revision == 0 || d.Standing == FileNewest || d.Standing == FileLost:
	case f.Revision > revision:
		d.Standing = FileNew
	case f.Revision < revision:
		d.Standing = FileOlder
	}
	d.Order, d.record.Until = lastOrder, lastOrder // a FileNewest or FileLost keeps its place
	if d.Standing == FileNew || d.Standing == FileOlder {
		d.record.Until = max(newest.Until+1, s.clock())
	}
	if d.Standing == FileNew {
		d.Order = d.record.Until
	}
}

// revisionOf returns the revision of a file that was applied; 0: it has none.
func revisionOf(i *store.Item) int64 {
	n, _ := strconv.ParseInt(i.Text, 10, 64)
	return n
}

// newestFile returns the item of the file that was applied last; zero: none was. Its Until is the store's time then. So
// a file that is applied after the store has lost its catalog comes after all files that servers remember.
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

// Status compares a file with the catalog as it was read last; until the first read the error is store.ErrUnavailable.
func (c *Catalog) Status(f File) (Difference, error) {
	s := c.current.Load()
	if s == nil {
		return Difference{}, errUnread
	}
	return s.compare(&f)
}

// Apply makes a file's limits and plans the catalog's: it defines what the file says, and retires what only earlier
// files defined. What was defined by hand and is not in the file stays. mode says whether it does so for a file that is
// FileNewest or FileOlder. In any case it returns how the file differed, and the catalog's version afterwards.
//
// The error is headgate.ErrInvalid, and nothing is changed, if the catalog cannot keep a limit or plan, or if a limit
// would be acquired while a plan or an override in its place is taken, or vice versa, or has the former name of a limit
// that was renamed. It is headgate.ErrUnknownLimit if a plan has a limit that neither the file nor the catalog has.
func (c *Catalog) Apply(ctx context.Context, by By, f File, mode ApplyMode) (d Difference, version int64, err error) {
	version, err = c.write(ctx, by, func(current *snapshot) ([]store.Item, error) {
		if d, err = current.compare(&f); err != nil {
			return nil, err
		}
		switch d.Standing {
		case FileNew, FileLost:
		case FileOlder:
			if mode == ApplyOnce {
				return nil, nil
			}
		case FileNewest:
			if mode != ApplyAnyway || d.Empty() {
				return d.itemIfRevisionGrew(current), nil
			}
		}
		d.Order = d.record.Until
		return d.items(), d.refused
	})
	standing := d.Standing
	if standing == FileLost || standing == FileOlder && mode != ApplyOnce {
		standing = FileNew // it is in force again
	}
	c.observer.Applied(Application{Path: f.Path, Standing: standing, Version: version, Err: err})
	return d, version, err
}
