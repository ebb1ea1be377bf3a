package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// limitName matches what headgate_find takes for a name.
var limitName = regexp.MustCompile(`\A[a-z][a-z0-9_.-]{0,63}\z`)

// WriteCatalog implements store.Catalog. The database's user is added to the author. A limit that
// the server cannot use, for lack of its time zone tables say, is store.ErrInvalid. Inside a
// transaction of the caller's it is not to be had.
func (s *Store) WriteCatalog(ctx context.Context, e store.Edit) (version int64, err error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	if err := e.Valid(); err != nil {
		return 0, err
	}
	if s.tx != nil {
		return 0, fmt.Errorf("mysql: write the catalog: %w: not inside a transaction of the caller", store.ErrInvalid)
	}
	for i := range e.Items {
		item := &e.Items[i]
		if item.Kind == store.KindLimit && !item.Removed && (item.Key != "" || !limitName.MatchString(item.Name)) {
			return 0, law.Invalid("name", "%.100q is not one of a limit, such as login or api.v2: a-z first, "+
				"then a-z, 0-9, _, . and -, at most 64 bytes", item.Name)
		}
	}
	w := &writer{s, e, make(map[string]bool)}
	err = s.retry(ctx, s.pick(0), func(n *node) error {
		version, err = w.write(ctx, n)
		return err
	})
	if errors.Is(err, store.ErrInvalid) || errors.Is(err, store.ErrVersion) {
		return version, fmt.Errorf("mysql: write the catalog: %w", err)
	}
	return version, classify("write the catalog", err)
}

// writer makes an edit of the catalog.
type writer struct {
	*Store
	edit store.Edit
	good map[string]bool // notations that the server can use
}

// write makes the edit by way of one node.
func (w *writer) write(ctx context.Context, n *node) (version int64, err error) {
	conn, err := n.db.Conn(ctx)
	if err != nil {
		return 0, notSent.of(err)
	}
	defer conn.Close()
	if !w.own {
		if _, err := conn.ExecContext(ctx, guard); err != nil {
			return 0, nothingDone(w.because(ctx, conn, err))
		}
	}
	version, changed, err := w.change(ctx, conn)
	if changed && err == nil {
		err = ctx.Err()
	}
	if changed && err == nil {
		within, cancel := context.WithTimeout(ctx, patience)
		_, err = conn.ExecContext(within, "COMMIT") // an error may leave in doubt what was done
		cancel()
	} else {
		err = nothingDone(err)
	}
	// A connection on which @hg_catalog stays set must not go back to the pool: changes by hand would make no
	// versions there.
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if each(within, conn, "ROLLBACK", "SET @hg_catalog = NULL") != nil {
		_ = conn.Raw(func(any) error { return errBadConn })
	}
	return version, err
}

// check refuses notations that the server cannot use.
func (w *writer) check(ctx context.Context, db querier, changes []store.Change) error {
	compile := w.def.numbered("headgate_compile_N")
	for i := range changes {
		item := &changes[i].After
		if table := cmp.Or(keptIn[changes[i].Before.Origin], keptIn[item.Origin]); table != "" {
			return fmt.Errorf("%w: limit %q is kept by %s: change that", store.ErrInvalid, item.Name, table)
		}
		switch item.Kind {
		case store.KindLimit, store.KindPlan, store.KindOverride, store.KindPrefixOverride:
		default:
			continue
		}
		if item.Removed || w.good[item.Text] {
			continue
		}
		problem, err := read(ctx, db, compile, quotedText(item.Text)+", @hg_name")
		switch {
		case err != nil:
			return err
		case problem != "":
			return fmt.Errorf("%w: %s %s: %s", store.ErrInvalid, item.Kind, item.Name, problem)
		}
		w.good[item.Text] = true
	}
	return nil
}

// keptIn are the tables that define limits in the place of the catalog, by the origins of these.
var keptIn = map[string]string{"zone": "headgate_zones", "bucket": "headgate_buckets"}

// change makes the edit in a transaction, which it leaves open, and returns the version that
// there is now.
func (w *writer) change(ctx context.Context, conn *sql.Conn) (version int64, changed bool, err error) {
	if err := each(ctx, conn, "SET @hg_catalog = 1", "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
		"START TRANSACTION"); err != nil {
		return 0, false, err
	}
	err = conn.QueryRowContext(ctx, "SELECT version FROM headgate_catalog_version WHERE only_one = 1 FOR UPDATE").Scan(
		&version)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return 0, false, fmt.Errorf("%w: headgate_catalog_version has no row", store.ErrSetup)
	case err != nil:
		return 0, false, err
	case version != w.edit.Base:
		return version, false, store.ErrVersion
	}
	_, now, err := readItems(ctx, conn, w.edit.Items)
	if err != nil {
		return 0, false, err
	}
	changes := w.edit.Changes(now)
	if len(changes) == 0 {
		return version, false, nil
	}
	if err := w.check(ctx, conn, changes); err != nil {
		return 0, false, err
	}
	if err := writeItems(ctx, conn, changes); err != nil {
		return 0, false, err
	}
	version++
	if err := w.note(ctx, conn, version, changes); err != nil {
		return 0, false, err
	}
	return version, true, countKinds(ctx, conn, changes)
}

// kinds are those of the items that hold for a key in the place of a limit: their bits in
// headgate_catalog_version are 1, 2, 4 and 8.
var kinds = []store.Kind{store.KindOverride, store.KindPrefixOverride, store.KindAssignment, store.KindPrefixAssignment}

// countKinds writes down which kinds of items there are, for calls from SQL. The transaction is
// READ COMMITTED and holds the number of the version, so it sees all that others have committed. A
// transaction whose row it does not see yet adds the kind of that row once it has the number.
func countKinds(ctx context.Context, db querier, changes []store.Change) error {
	if !slices.ContainsFunc(changes, func(c store.Change) bool { return slices.Contains(kinds, c.After.Kind) }) {
		return nil
	}
	query := "SELECT 0"
	for i, kind := range kinds {
		query += fmt.Sprintf(" + %d * EXISTS (SELECT 1 FROM headgate_catalog WHERE kind = %s)", 1<<i,
			quoted(string(kind)))
	}
	var found int
	if err := db.QueryRowContext(ctx, query).Scan(&found); err != nil {
		return err
	}
	_, err := db.ExecContext(ctx,
		fmt.Sprintf("UPDATE headgate_catalog_version SET kinds = %d WHERE only_one = 1", found))
	return err
}

// note writes down what a version has changed.
func (w *writer) note(ctx context.Context, conn *sql.Conn, version int64, changes []store.Change) error {
	number := strconv.FormatInt(version, 10)
	author := "USER()"
	if w.edit.Author != "" {
		author = "CONCAT(" + quotedText(w.edit.Author+" as ") + ", USER())"
	}
	if err := each(ctx, conn, "UPDATE headgate_catalog_version SET version = "+number+" WHERE only_one = 1",
		"INSERT INTO headgate_versions (version, at, author, reason) VALUES ("+number+", "+readClock+", "+author+", "+
			quotedText(w.edit.Reason)+")"); err != nil {
		return err
	}
	list := parts{
		head:    "INSERT INTO headgate_changes (version, kind, name, item_key, before_item, after_item) VALUES ",
		between: ", ",
	}
	for i := range changes {
		c := &changes[i]
		before, err := json.Marshal(&c.Before)
		if err != nil {
			return err
		}
		after, err := json.Marshal(&c.After)
		if err != nil {
			return err
		}
		list.add("(" + number + ", " + namesOf(&c.After) + ", " + quotedText(string(before)) + ", " +
			quotedText(string(after)) + ")")
	}
	return list.execute(ctx, conn)
}

// namesOf returns the literals of what says which an item is.
func namesOf(i *store.Item) string {
	return quoted(string(i.Kind)) + ", " + quoted(i.Name) + ", " + quoted(i.Key)
}

// writeItems writes what items have become.
func writeItems(ctx context.Context, db querier, changes []store.Change) error {
	const alike = "origin = VALUES(origin), retired = VALUES(retired)"
	goneLimits := parts{head: "DELETE FROM headgate_limits WHERE name IN (", between: ", ", tail: ")"}
	goneOthers := parts{
		head: "DELETE c FROM (", between: " UNION ALL ",
		tail: ") o STRAIGHT_JOIN headgate_catalog c FORCE INDEX (PRIMARY)" + onID,
	}
	limits := parts{
		head:    "INSERT INTO headgate_limits (name, rule, description, origin, retired) VALUES ",
		between: ", ",
		tail:    " ON DUPLICATE KEY UPDATE rule = VALUES(rule), description = VALUES(description), " + alike,
	}
	others := parts{
		head: "INSERT INTO headgate_catalog (kind, name, item_key, `text`, note, origin, retired, `until`) " +
			"VALUES ",
		between: ", ",
		tail: " ON DUPLICATE KEY UPDATE `text` = VALUES(`text`), note = VALUES(note), `until` = VALUES(`until`), " +
			alike,
	}
	for i := range changes {
		item := &changes[i].After
		isLimit := item.Kind == store.KindLimit
		row := fmt.Sprintf("%s, %s, %s, %t", quotedText(item.Text), quotedText(item.Note), quotedText(item.Origin),
			item.Retired)
		switch {
		case item.Removed && isLimit:
			goneLimits.add(quotedText(item.Name))
		case item.Removed:
			goneOthers.add(selectID(item))
		case isLimit:
			limits.add("(" + quotedText(item.Name) + ", " + row + ")")
		default:
			others.add(fmt.Sprintf("(%s, %s, %d)", namesOf(item), row, item.Until))
		}
	}
	for _, p := range []*parts{&goneLimits, &goneOthers, &limits, &others} {
		if err := p.execute(ctx, db); err != nil {
			return err
		}
	}
	return nil
}

// parts splits a statement that is too long to be sent at once.
type parts struct {
	head, between, tail string
	list                []string
}

func (p *parts) add(part string) { p.list = append(p.list, part) }

// partBytes is how long a text becomes before another one is begun. A packet may be as short
// as 1 MB by the server's settings.
const partBytes = 256 << 10

// execute executes the statement as often as it takes.
func (p *parts) execute(ctx context.Context, db querier) error {
	for from := 0; from < len(p.list); {
		to, size := from, 0
		for to < len(p.list) && to-from < itemChunk && (to == from || size+len(p.list[to]) < partBytes) {
			size += len(p.list[to])
			to++
		}
		if _, err := db.ExecContext(ctx, p.head+strings.Join(p.list[from:to], p.between)+p.tail); err != nil {
			return err
		}
		from = to
	}
	return nil
}
