package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/headgate/headgate/store"
)

// itemColumns has the columns of an item i that do not identify it.
const itemColumns = "i.text, i.note, i.origin, i.until, i.retired"

// ReadCatalog implements store.Catalog.
func (s *Store) ReadCatalog(ctx context.Context, since int64) (c store.CatalogChanges, err error) {
	db, done, err := s.reader(ctx)
	if err != nil {
		return c, err
	}
	defer done()
	wanted := "select kind, name, key from catalog_items where kind not in ('override', 'assignment')"
	if since > 0 {
		wanted = "select distinct kind, name, key from catalog_changes where version > ?1"
	}
	rows, err := db.QueryContext(ctx, `select v.version, coalesce(o.at, 0), coalesce(p.at, 0),
			w.kind, w.name, w.key, i.kind is null, `+itemColumns+`
		from (select coalesce(max(version), 0) as version from catalog_versions) v
		left join catalog_versions o on o.version = v.version
		left join catalog_versions p on p.version = ?1
		left join (`+wanted+`) w
		left join catalog_items i on i.kind = w.kind and i.name = w.name and i.key = w.key`, since)
	if err != nil {
		return c, classify("read the catalog", err)
	}
	defer rows.Close()
	c.Clock = s.clock()
	for rows.Next() {
		var kind, name, key, text, note, origin sql.NullString
		var until sql.NullInt64
		var removed, retired sql.NullBool
		if err := rows.Scan(&c.Version, &c.At, &c.SinceAt, &kind, &name, &key, &removed, &text, &note, &origin,
			&until, &retired); err != nil {
			return c, classify("read the catalog", err)
		}
		if kind.Valid {
			c.Items = append(c.Items, store.Item{
				Kind: store.Kind(kind.String), Name: name.String, Key: key.String, Text: text.String, Note: note.String,
				Origin: origin.String, Until: until.Int64, Retired: retired.Bool, Removed: removed.Bool,
			})
		}
	}
	if err := rows.Err(); err != nil {
		return c, classify("read the catalog", err)
	}
	return c, nil
}

// Items implements store.Catalog.
func (s *Store) Items(ctx context.Context, list []store.Item) (version int64, found []store.Item, err error) {
	db, done, err := s.reader(ctx)
	if err != nil {
		return 0, nil, err
	}
	defer done()
	for after := int64(-1); after != version; { // until nothing was written meanwhile
		if err = db.QueryRowContext(ctx, newestVersion).Scan(&version); err == nil {
			found, err = items(ctx, db, list)
		}
		if err == nil {
			err = db.QueryRowContext(ctx, newestVersion).Scan(&after)
		}
		if err != nil {
			return 0, nil, classify("read the catalog", err)
		}
	}
	return version, found, nil
}

const newestVersion = "select coalesce(max(version), 0) from catalog_versions"

// ItemsAfter implements store.Catalog.
func (s *Store) ItemsAfter(ctx context.Context, kind store.Kind, after store.Item, n int) ([]store.Item, error) {
	db, done, err := s.reader(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if n <= 0 {
		return nil, nil
	}
	found, err := scanItems(db.QueryContext(ctx, `select i.kind, i.name, i.key, `+itemColumns+`
		from catalog_items i where i.kind = ?1 and (i.name, i.key) > (?2, ?3) order by i.name, i.key limit ?4`,
		kind, after.Name, after.Key, n))
	if err != nil {
		return nil, classify("read the catalog", err)
	}
	return found, nil
}

func items(ctx context.Context, db queryer, list []store.Item) (found []store.Item, err error) {
	wanted, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	return scanItems(db.QueryContext(ctx, `select i.kind, i.name, i.key, `+itemColumns+`
		from json_each(?1) w join catalog_items i on i.kind = w.value->>'kind' and i.name = w.value->>'name'
		and i.key = w.value->>'key'`, string(wanted)))
}

func scanItems(rows *sql.Rows, err error) (found []store.Item, _ error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var i store.Item
		if err := rows.Scan(&i.Kind, &i.Name, &i.Key, &i.Text, &i.Note, &i.Origin, &i.Until,
			&i.Retired); err != nil {
			return nil, err
		}
		found = append(found, i)
	}
	return found, rows.Err()
}

// WriteCatalog implements store.Catalog.
func (s *Store) WriteCatalog(ctx context.Context, e store.Edit) (version int64, err error) {
	if err := e.Valid(); err != nil {
		return 0, err
	}
	err = s.transact(ctx, "write the catalog", func(ctx context.Context) error {
		if err := s.conn.QueryRowContext(ctx, newestVersion).Scan(&version); err != nil {
			return err
		}
		if version != e.Base {
			return store.ErrVersion
		}
		now, err := items(ctx, s.conn, e.Items)
		if err != nil {
			return err
		}
		changes := e.Changes(now)
		if len(changes) == 0 {
			return nil
		}
		version++
		if _, err := s.conn.ExecContext(ctx, "insert into catalog_versions (version, at, author, reason) values (?, ?, ?, ?)",
			version, s.clock(), e.Author, e.Reason); err != nil {
			return err
		}
		for i := range changes {
			if err := s.change(ctx, version, &changes[i]); err != nil {
				return err
			}
		}
		return nil
	})
	return version, err
}

// change makes one change of a version, and notes it.
func (s *Store) change(ctx context.Context, version int64, c *store.Change) error {
	before, err := json.Marshal(c.Before)
	if err != nil {
		return err
	}
	after, err := json.Marshal(c.After)
	if err != nil {
		return err
	}
	i := &c.After
	if _, err := s.conn.ExecContext(ctx, "insert into catalog_changes (version, kind, name, key, before, after) "+
		"values (?, ?, ?, ?, ?, ?)", version, i.Kind, i.Name, i.Key, string(before), string(after)); err != nil {
		return err
	}
	if i.Removed {
		_, err = s.conn.ExecContext(ctx, "delete from catalog_items where kind = ? and name = ? and key = ?",
			i.Kind, i.Name, i.Key)
		return err
	}
	_, err = s.conn.ExecContext(ctx, `insert or replace into catalog_items
		(kind, name, key, text, note, origin, until, retired) values (?, ?, ?, ?, ?, ?, ?, ?)`,
		i.Kind, i.Name, i.Key, i.Text, i.Note, i.Origin, i.Until, i.Retired)
	return err
}

// CatalogVersions implements store.Catalog.
func (s *Store) CatalogVersions(ctx context.Context, before int64, n int) (list []store.Version, err error) {
	db, done, err := s.reader(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	rows, err := db.QueryContext(ctx, `select v.version, v.at, v.author, v.reason, c.before, c.after
		from (select * from catalog_versions where ?1 = 0 or version < ?1 order by version desc limit ?2) v
		join catalog_changes c on c.version = v.version order by v.version desc, c.kind, c.name, c.key`, before, n)
	if err != nil {
		return nil, classify("read the catalog's versions", err)
	}
	defer rows.Close()
	for rows.Next() {
		var v store.Version
		var was, is []byte
		if err := rows.Scan(&v.Number, &v.At, &v.Author, &v.Reason, &was, &is); err != nil {
			return nil, classify("read the catalog's versions", err)
		}
		if list, err = store.AppendChange(list, v, was, is); err != nil {
			return nil, classify("read the catalog's versions", err)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, classify("read the catalog's versions", err)
	}
	return list, nil
}

// RecordAction implements store.Catalog.
func (s *Store) RecordAction(ctx context.Context, a store.Action) error {
	if err := a.Valid(); err != nil {
		return err
	}
	return s.transact(ctx, "record an action", func(ctx context.Context) error {
		done, err := s.conn.ExecContext(ctx, "insert into actions (at, verb, limit_name, key, lasts, author, reason) "+
			"values (?, ?, ?, ?, ?, ?, ?)", s.clock(), a.Verb, a.Limit, a.Key, a.For, a.Author, a.Reason)
		if err != nil {
			return err
		}
		number, err := done.LastInsertId()
		if err != nil {
			return err
		}
		_, err = s.conn.ExecContext(ctx, "delete from actions where number <= ?", number-store.KeptActions)
		return err
	})
}

// Actions implements store.Catalog.
func (s *Store) Actions(ctx context.Context, before int64, n int) (list []store.Action, err error) {
	db, done, err := s.reader(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	rows, err := db.QueryContext(ctx, "select number, at, verb, limit_name, key, lasts, author, reason from actions "+
		"where ?1 = 0 or number < ?1 order by number desc limit ?2", before, max(n, 0))
	if err != nil {
		return nil, classify("read actions", err)
	}
	defer rows.Close()
	for rows.Next() {
		var a store.Action
		if err := rows.Scan(&a.Number, &a.At, &a.Verb, &a.Limit, &a.Key, &a.For, &a.Author, &a.Reason); err != nil {
			return nil, classify("read actions", err)
		}
		list = append(list, a)
	}
	if err := rows.Err(); err != nil {
		return nil, classify("read actions", err)
	}
	return list, nil
}
