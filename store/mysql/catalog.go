package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"

	"github.com/headgate/headgate/store"
)

// itemChunk is the number of items that one statement handles at most.
const itemChunk = 500

// The columns of an item: of a limit l, and of an item c of any other kind. limitItems selects the limits as items;
// x'6c696d6974' is limit.
const (
	limitColumns = "l.rule AS item_text, l.description AS note, l.origin AS origin, " +
		"0 AS item_until, l.retired AS retired"
	otherColumns = "c.`text` AS item_text, c.note AS note, c.origin AS origin, " +
		"c.`until` AS item_until, c.retired AS retired"
	limitItems = "SELECT x'6c696d6974' AS kind, CAST(l.name AS BINARY) AS name, x'' AS item_key, 1 AS there, " +
		limitColumns + " FROM headgate_limits l"
)

// ReadCatalog implements store.Catalog. It reads all in one statement, and so as of one moment.
func (s *Store) ReadCatalog(ctx context.Context, since int64) (c store.CatalogChanges, err error) {
	selected := selectAllItems
	if since > 0 {
		selected = fmt.Sprintf(selectChangedItems, since)
	}
	err = s.readOnAnyNode(ctx, "read the catalog", func(db querier) error {
		c, err = readCatalog(ctx, db, since, selected)
		return err
	})
	return c, err
}

// selectAllItems selects all items except those of kinds that have a row for each key.
const selectAllItems = "(" + limitItems + " UNION ALL SELECT c.kind, c.name, c.item_key, 1, " + otherColumns + `
		FROM headgate_catalog c WHERE c.kind NOT IN ('override', 'assignment')) w ON 1 = 1`

// selectChangedItems selects the items that versions after %d have written.
const selectChangedItems = `(SELECT h.kind, h.name, h.item_key, l.name IS NOT NULL OR c.name IS NOT NULL AS there,
			COALESCE(l.rule, c.` + "`text`" + `) AS item_text, COALESCE(l.description, c.note) AS note,
			COALESCE(l.origin, c.origin) AS origin,
			c.` + "`until`" + ` AS item_until, COALESCE(l.retired, c.retired) AS retired
		FROM (SELECT DISTINCT kind, name, item_key FROM headgate_changes WHERE version > %d) h
		LEFT JOIN headgate_limits l
			ON h.kind = 'limit' AND l.name = CONVERT(h.name USING utf8mb4) COLLATE utf8mb4_bin
		LEFT JOIN headgate_catalog c ON c.kind = h.kind AND c.name = h.name AND c.item_key = h.item_key) w ON 1 = 1`

// readCatalog reads the version, its time, the time of version since, and the selected items, in one statement.
func readCatalog(ctx context.Context, db querier, since int64, selected string) (c store.CatalogChanges, err error) {
	err = eachRow(ctx, db, `SELECT v.version,
			COALESCE(o.at, 0), COALESCE(p.at, 0), `+readClock+`, w.kind IS NOT NULL,
			COALESCE(w.kind, ''), COALESCE(w.name, ''), COALESCE(w.item_key, ''), COALESCE(w.there, 0),
			COALESCE(w.item_text, ''), COALESCE(w.note, ''), COALESCE(w.origin, ''),
			COALESCE(w.item_until, 0), COALESCE(w.retired, 0)
		FROM headgate_catalog_version v
		LEFT JOIN headgate_versions o ON o.version = v.version
		LEFT JOIN headgate_versions p ON p.version = `+strconv.FormatInt(since, 10)+`
		LEFT JOIN `+selected, func(r *sql.Rows) error {
		var i store.Item
		var hasItem, exists bool
		if err := r.Scan(&c.Version, &c.At, &c.SinceAt, &c.Clock, &hasItem, &i.Kind, &i.Name, &i.Key, &exists,
			&i.Text, &i.Note, &i.Origin, &i.Until, &i.Retired); err != nil {
			return err
		}
		if i.Removed = !exists; hasItem {
			c.Items = append(c.Items, i)
		}
		return nil
	})
	return c, err
}

// Items implements store.Catalog. One statement reads up to itemChunk items.
func (s *Store) Items(ctx context.Context, list []store.Item) (version int64, found []store.Item, err error) {
	err = s.readOnAnyNode(ctx, "read the catalog", func(db querier) error {
		version, found, err = readItems(ctx, db, list)
		return err
	})
	return version, found, err
}

// readItems returns the items of list that exist, and the version of the catalog at the oldest read.
func readItems(ctx context.Context, db querier, list []store.Item) (version int64, found []store.Item, err error) {
	for from := 0; from == 0 || from < len(list); from += itemChunk {
		c, err := readCatalog(ctx, db, 0, selectItems(list[from:min(len(list), from+itemChunk)]))
		if err != nil {
			return 0, nil, err
		}
		if found = append(found, c.Items...); from == 0 || c.Version < version {
			version = c.Version
		}
	}
	return version, found, nil
}

// selectItems returns the subquery, and its join, that selects the items of list that exist.
func selectItems(list []store.Item) string {
	limitNames, otherIDs := []string{"''"}, []string(nil)
	for i := range list {
		switch item := &list[i]; {
		case item.Kind != store.KindLimit:
			otherIDs = append(otherIDs, selectID(item))
		case item.Key == "":
			limitNames = append(limitNames, textLiteral(item.Name))
		}
	}
	text := "(" + limitItems + " WHERE l.name IN (" + strings.Join(limitNames, ",") + ")"
	if otherIDs != nil {
		text += " UNION ALL SELECT c.kind, c.name, c.item_key, 1, " + otherColumns + " FROM (" +
			strings.Join(otherIDs, " UNION ALL ") + ") o STRAIGHT_JOIN headgate_catalog c FORCE INDEX (PRIMARY)" +
			joinOnID
	}
	return text + ") w ON 1 = 1"
}

// ItemsAfter implements store.Catalog.
func (s *Store) ItemsAfter(ctx context.Context, kind store.Kind, after store.Item, n int) (
	found []store.Item, err error,
) {
	query := fmt.Sprintf("SELECT c.kind, c.name, c.item_key, %s FROM headgate_catalog c WHERE c.kind = %s AND "+
		"(c.name > %s OR c.name = %[3]s AND c.item_key > %[4]s) ORDER BY c.name, c.item_key LIMIT %[5]d",
		otherColumns, hexLiteral(string(kind)), hexLiteral(after.Name), hexLiteral(after.Key), max(n, 0))
	if kind == store.KindLimit {
		query = fmt.Sprintf("SELECT 'limit', l.name, '', %s FROM headgate_limits l WHERE CAST(l.name AS BINARY) > %s "+
			"ORDER BY CAST(l.name AS BINARY) LIMIT %d", limitColumns, hexLiteral(after.Name), max(n, 0))
	}
	err = s.readOnAnyNode(ctx, "read the catalog", func(db querier) error {
		found, err = readList(ctx, db, query, func(i *store.Item) []any {
			return []any{&i.Kind, &i.Name, &i.Key, &i.Text, &i.Note, &i.Origin, &i.Until, &i.Retired}
		})
		return err
	})
	return found, err
}

// joinOnID joins the ids o, which selectID selects, with their rows c.
const joinOnID = " ON c.kind = o.k AND c.name = o.n AND c.item_key = o.i"

// selectID returns the SELECT of the id of an item, as literals.
func selectID(i *store.Item) string {
	return "SELECT " + hexLiteral(string(i.Kind)) + " AS k," + hexLiteral(i.Name) + " AS n," + hexLiteral(i.Key) +
		" AS i"
}

// CatalogVersions implements store.Catalog.
func (s *Store) CatalogVersions(ctx context.Context, before int64, n int) (list []store.Version, err error) {
	where := ""
	if before != 0 {
		where = fmt.Sprintf(" WHERE version < %d", before)
	}
	query := fmt.Sprintf(`SELECT v.version, v.at, v.author, v.reason, c.before_item, c.after_item
		FROM (SELECT version, at, author, reason FROM headgate_versions%s ORDER BY version DESC LIMIT %d) v
		JOIN headgate_changes c ON c.version = v.version
		ORDER BY v.version DESC, c.kind, c.name, c.item_key`, where, max(n, 0))
	err = s.readOnAnyNode(ctx, "read the catalog's versions", func(db querier) error {
		list = nil
		return eachRow(ctx, db, query, func(r *sql.Rows) error {
			var v store.Version
			var beforeItem, afterItem []byte
			if err := r.Scan(&v.Number, &v.At, &v.Author, &v.Reason, &beforeItem, &afterItem); err != nil {
				return err
			}
			list, err = store.AppendChange(list, v, beforeItem, afterItem)
			return err
		})
	})
	return list, err
}

// RecordAction implements store.Catalog.
func (s *Store) RecordAction(ctx context.Context, a store.Action) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	if err := a.Valid(); err != nil {
		return err
	}
	err := s.onAnyNode(func(db querier) error {
		_, err := db.ExecContext(ctx, fmt.Sprintf("INSERT INTO headgate_actions (at, verb, limit_name, cell_key, "+
			"lasts, author, reason) VALUES (%s, %s, %s, %s, %d, %s, %s)", readClock, textLiteral(a.Verb),
			hexLiteral(a.Limit), hexLiteral(a.Key), a.For, textLiteral(a.Author), textLiteral(a.Reason)))
		if err != nil {
			return err
		}
		// The action is recorded. If the deletion fails, the next RecordAction deletes the old actions. Numbers have
		// gaps: on Galera they grow by the number of nodes.
		_, _ = db.ExecContext(ctx, fmt.Sprintf("DELETE FROM headgate_actions WHERE number <= (SELECT number FROM (SELECT "+
			"number FROM headgate_actions ORDER BY number DESC LIMIT 1 OFFSET %d) AS old)", store.KeptActions))
		return nil
	})
	return classify("record an action", err)
}

// Actions implements store.Catalog.
func (s *Store) Actions(ctx context.Context, before int64, n int) (list []store.Action, err error) {
	query := fmt.Sprintf("SELECT number, at, verb, limit_name, cell_key, lasts, author, reason FROM headgate_actions "+
		"WHERE %d = 0 OR number < %[1]d ORDER BY number DESC LIMIT %d", before, max(n, 0))
	err = s.readOnAnyNode(ctx, "read actions", func(db querier) error {
		list, err = readList(ctx, db, query, func(a *store.Action) []any {
			return []any{&a.Number, &a.At, &a.Verb, &a.Limit, &a.Key, &a.For, &a.Author, &a.Reason}
		})
		return err
	})
	return list, err
}
