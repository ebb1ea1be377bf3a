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

// namePattern matches the texts that headgate_find takes for names, and not for notations.
var namePattern = regexp.MustCompile(`\A[a-z][a-z0-9_.-]{0,63}\z`)

// WriteCatalog implements store.Catalog. It adds the database's user to the author. The error is store.ErrInvalid for a
// limit that the server cannot use, for example for lack of time zone tables, and inside a transaction of the caller.
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
		if item.Kind == store.KindLimit && !item.Removed && (item.Key != "" || !namePattern.MatchString(item.Name)) {
			return 0, law.Invalid("name", "%.100q is not one of a limit, such as login or api.v2: a-z first, "+
				"then a-z, 0-9, _, . and -, at most 64 bytes", item.Name)
		}
	}
	w := &catalogWriter{s, e, make(map[string]bool)}
	err = s.retry(ctx, s.pick(0), func(n *node) error {
		version, err = w.write(ctx, n)
		return err
	})
	if errors.Is(err, store.ErrInvalid) || errors.Is(err, store.ErrVersion) {
		return version, fmt.Errorf("mysql: write the catalog: %w", err)
	}
	return version, classify("write the catalog", err)
}

// catalogWriter makes an edit of the catalog.
type catalogWriter struct {
	*Store
	edit           store.Edit
	validNotations map[string]bool // notations that the server can use
}

// write makes the edit on one node, and commits it. version is that of the catalog then, even with ErrVersion.
func (w *catalogWriter) write(ctx context.Context, n *node) (version int64, err error) {
	conn, err := n.db.Conn(ctx)
	if err != nil {
		return 0, notSent.wrap(err)
	}
	defer conn.Close()
	if !w.ownPools {
		if _, err := conn.ExecContext(ctx, guard); err != nil {
			return 0, markNothingDone(w.explain(ctx, conn, err))
		}
	}
	version, changed, err := w.makeEdit(ctx, conn)
	if changed && err == nil {
		err = ctx.Err()
	}
	if changed && err == nil {
		commitCtx, cancel := context.WithTimeout(ctx, answerTimeout)
		_, err = conn.ExecContext(commitCtx, "COMMIT") // after an error, the outcome may be unknown
		cancel()
	} else {
		err = markNothingDone(err)
	}
	// A connection on which @hg_catalog stays set must not go back to the pool: changes by hand on it would make no
	// versions.
	resetCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
	defer cancel()
	if execEach(resetCtx, conn, "ROLLBACK", "SET @hg_catalog = NULL") != nil {
		_ = conn.Raw(func(any) error { return errBadConn })
	}
	return version, err
}

// check returns an error if the server cannot use a notation, or if another table than the catalog defines a limit.
func (w *catalogWriter) check(ctx context.Context, db querier, changes []store.Change) error {
	compile := w.def.withRevision("headgate_compile_N")
	for i := range changes {
		item := &changes[i].After
		if table := cmp.Or(tableOfOrigin[changes[i].Before.Origin], tableOfOrigin[item.Origin]); table != "" {
			return fmt.Errorf("%w: limit %q is kept by %s: change that", store.ErrInvalid, item.Name, table)
		}
		switch item.Kind {
		case store.KindLimit, store.KindPlan, store.KindOverride, store.KindPrefixOverride:
		default:
			continue
		}
		if item.Removed || item.RenamedFrom() != "" || w.validNotations[item.Text] {
			continue
		}
		problem, err := checkLimit(ctx, db, compile, textLiteral(item.Text)+", @hg_name")
		switch {
		case err != nil:
			return err
		case problem != "":
			return fmt.Errorf("%w: %s %s: %s", store.ErrInvalid, item.Kind, item.Name, problem)
		}
		w.validNotations[item.Text] = true
	}
	return nil
}

// tableOfOrigin has the tables, other than the catalog, that define limits, by the origin of these limits.
var tableOfOrigin = map[string]string{"zone": "headgate_zones", "bucket": "headgate_buckets"}

// makeEdit makes the edit in a transaction, which it leaves open, and returns the version of the catalog after it. For
// an edit that changes nothing, changed is false.
func (w *catalogWriter) makeEdit(ctx context.Context, conn *sql.Conn) (version int64, changed bool, err error) {
	if err := execEach(ctx, conn, "SET @hg_catalog = 1", "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
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
	_, current, err := readItems(ctx, conn, w.edit.Items)
	if err != nil {
		return 0, false, err
	}
	changes := w.edit.Changes(current)
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
	if err := w.recordVersion(ctx, conn, version, changes); err != nil {
		return 0, false, err
	}
	return version, true, updateKinds(ctx, conn, changes)
}

// keyKinds are the kinds of items for keys. Their bits in headgate_catalog_version are 1, 2, 4 and 8.
var keyKinds = []store.Kind{
	store.KindOverride, store.KindPrefixOverride, store.KindAssignment, store.KindPrefixAssignment,
}

// updateKinds records which of keyKinds exist, for calls from SQL. The transaction is READ COMMITTED and has locked the
// version, so it sees all rows that were committed before. A transaction with a row that is not committed yet adds the
// kind of its row when it has locked the version.
func updateKinds(ctx context.Context, db querier, changes []store.Change) error {
	if !slices.ContainsFunc(changes, func(c store.Change) bool { return slices.Contains(keyKinds, c.After.Kind) }) {
		return nil
	}
	query := "SELECT 0"
	for i, kind := range keyKinds {
		query += fmt.Sprintf(" + %d * EXISTS (SELECT 1 FROM headgate_catalog WHERE kind = %s)", 1<<i,
			hexLiteral(string(kind)))
	}
	var bits int
	if err := db.QueryRowContext(ctx, query).Scan(&bits); err != nil {
		return err
	}
	_, err := db.ExecContext(ctx,
		fmt.Sprintf("UPDATE headgate_catalog_version SET kinds = %d WHERE only_one = 1", bits))
	return err
}

// recordVersion records a version and its changes.
func (w *catalogWriter) recordVersion(ctx context.Context, conn *sql.Conn, version int64,
	changes []store.Change,
) error {
	number := strconv.FormatInt(version, 10)
	author := "USER()"
	if w.edit.Author != "" {
		author = "CONCAT(" + textLiteral(w.edit.Author+" as ") + ", USER())"
	}
	if err := execEach(ctx, conn, "UPDATE headgate_catalog_version SET version = "+number+" WHERE only_one = 1",
		"INSERT INTO headgate_versions (version, at, author, reason) VALUES ("+number+", "+readClock+", "+author+", "+
			textLiteral(w.edit.Reason)+")"); err != nil {
		return err
	}
	list := listStatement{
		head:      "INSERT INTO headgate_changes (version, kind, name, item_key, before_item, after_item) VALUES ",
		separator: ", ",
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
		list.add("(" + number + ", " + idLiterals(&c.After) + ", " + textLiteral(string(before)) + ", " +
			textLiteral(string(after)) + ")")
	}
	return list.execute(ctx, conn)
}

// idLiterals returns the kind, name and key of an item as literals.
func idLiterals(i *store.Item) string {
	return hexLiteral(string(i.Kind)) + ", " + hexLiteral(i.Name) + ", " + hexLiteral(i.Key)
}

// writeItems writes the items as they are after changes, and deletes the removed ones.
func writeItems(ctx context.Context, db querier, changes []store.Change) error {
	const updateCommon = "origin = VALUES(origin), retired = VALUES(retired)"
	removedLimits := listStatement{head: "DELETE FROM headgate_limits WHERE name IN (", separator: ", ", tail: ")"}
	removedOthers := listStatement{
		head: "DELETE c FROM (", separator: " UNION ALL ",
		tail: ") o STRAIGHT_JOIN headgate_catalog c FORCE INDEX (PRIMARY)" + joinOnID,
	}
	limits := listStatement{
		head:      "INSERT INTO headgate_limits (name, rule, description, origin, retired) VALUES ",
		separator: ", ",
		tail: " ON DUPLICATE KEY UPDATE rule = VALUES(rule), description = VALUES(description), " +
			updateCommon,
	}
	others := listStatement{
		head: "INSERT INTO headgate_catalog (kind, name, item_key, `text`, note, origin, retired, `until`) " +
			"VALUES ",
		separator: ", ",
		tail: " ON DUPLICATE KEY UPDATE `text` = VALUES(`text`), note = VALUES(note), `until` = VALUES(`until`), " +
			updateCommon,
	}
	for i := range changes {
		item := &changes[i].After
		isLimit := item.Kind == store.KindLimit
		row := fmt.Sprintf("%s, %s, %s, %t", textLiteral(item.Text), textLiteral(item.Note), textLiteral(item.Origin),
			item.Retired)
		switch {
		case item.Removed && isLimit:
			removedLimits.add(textLiteral(item.Name))
		case item.Removed:
			removedOthers.add(selectID(item))
		case isLimit:
			limits.add("(" + textLiteral(item.Name) + ", " + row + ")")
		default:
			others.add(fmt.Sprintf("(%s, %s, %d)", idLiterals(item), row, item.Until))
		}
	}
	for _, p := range []*listStatement{&removedLimits, &removedOthers, &limits, &others} {
		if err := p.execute(ctx, db); err != nil {
			return err
		}
	}
	return nil
}

// listStatement is a statement with a list that may be too long to send at once.
type listStatement struct {
	head, separator, tail string
	list                  []string
}

func (p *listStatement) add(part string) { p.list = append(p.list, part) }

// listBytes is how long a list may be in one statement. The server's settings may limit a packet to 1 MB.
const listBytes = 256 << 10

// execute sends the list in as many statements as it takes.
func (p *listStatement) execute(ctx context.Context, db querier) error {
	for from := 0; from < len(p.list); {
		to, bytes := from, 0
		for to < len(p.list) && to-from < itemChunk && (to == from || bytes+len(p.list[to]) < listBytes) {
			bytes += len(p.list[to])
			to++
		}
		if _, err := db.ExecContext(ctx, p.head+strings.Join(p.list[from:to], p.separator)+p.tail); err != nil {
			return err
		}
		from = to
	}
	return nil
}
