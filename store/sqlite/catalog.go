package sqlite

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/headgate/headgate/store"
)

// itemColumns are the columns of an item i for itemFields. They are empty if the item does not exist.
const itemColumns = "coalesce(i.kind, ''), coalesce(i.name, ''), coalesce(i.key, ''), coalesce(i.text, ''), " +
	"coalesce(i.note, ''), coalesce(i.origin, ''), coalesce(i.until, 0), coalesce(i.retired, 0)"

// itemFields returns the targets of itemColumns.
func itemFields(i *store.Item) []any {
	return []any{&i.Kind, &i.Name, &i.Key, &i.Text, &i.Note, &i.Origin, &i.Until, &i.Retired}
}

// ReadCatalog implements store.Catalog.
func (s *Store) ReadCatalog(ctx context.Context, since int64) (c store.CatalogChanges, err error) {
	type row struct {
		id, item store.Item
	}
	c.Clock = s.clock()
	wanted := "select kind, name, key from catalog_items where kind not in ('override', 'assignment')"
	if since > 0 {
		wanted = "select distinct kind, name, key from catalog_changes where version > ?1"
	}
	rows, err := readShared(ctx, s, "read the catalog", func(r *row) []any {
		return append([]any{&c.Version, &c.At, &c.SinceAt, &r.id.Kind, &r.id.Name, &r.id.Key}, itemFields(&r.item)...)
	}, `select v.version, coalesce(o.at, 0), coalesce(p.at, 0),
			coalesce(w.kind, ''), coalesce(w.name, ''), coalesce(w.key, ''), `+itemColumns+`
		from (select coalesce(max(version), 0) as version from catalog_versions) v
		left join catalog_versions o on o.version = v.version
		left join catalog_versions p on p.version = ?1
		left join (`+wanted+`) w
		left join catalog_items i on i.kind = w.kind and i.name = w.name and i.key = w.key`, since)
	for _, r := range rows {
		switch {
		case r.item.Kind != "":
			c.Items = append(c.Items, r.item)
		case r.id.Kind != "":
			r.id.Removed = true
			c.Items = append(c.Items, r.id)
		}
	}
	return c, err
}

// Items implements store.Catalog.
func (s *Store) Items(ctx context.Context, list []store.Item) (version int64, found []store.Item, err error) {
	db, release, err := s.acquireReader(ctx)
	if err != nil {
		return 0, nil, err
	}
	defer release()
	version, found, err = lookupItems(ctx, db, list)
	return version, found, classify("read the catalog", err)
}

// lookupItems returns the newest version, and the items of a list that exist, by one statement: all of one moment.
func lookupItems(ctx context.Context, db queryer, list []store.Item) (version int64, found []store.Item, err error) {
	wanted, err := json.Marshal(list)
	if err != nil {
		return 0, nil, err
	}
	found, err = readAll(ctx, db, func(i *store.Item) []any {
		return append([]any{&version}, itemFields(i)...)
	}, `select v.version, `+itemColumns+`
		from (select coalesce(max(version), 0) as version from catalog_versions) v
		left join json_each(?1) w
		left join catalog_items i on i.kind = w.value->>'kind' and i.name = w.value->>'name'
		and i.key = w.value->>'key'`, string(wanted))
	return version, slices.DeleteFunc(found, func(i store.Item) bool { return i.Kind == "" }), err
}

// ItemsAfter implements store.Catalog.
func (s *Store) ItemsAfter(ctx context.Context, kind store.Kind, after store.Item, n int) ([]store.Item, error) {
	return readShared(ctx, s, "read the catalog", itemFields, `select `+itemColumns+` from catalog_items i
		where i.kind = ?1 and (i.name, i.key) > (?2, ?3) order by i.name, i.key limit ?4`,
		kind, after.Name, after.Key, max(n, 0))
}

// WriteCatalog implements store.Catalog.
func (s *Store) WriteCatalog(ctx context.Context, e store.Edit) (version int64, err error) {
	if err := e.Valid(); err != nil {
		return 0, err
	}
	err = s.transact(ctx, "write the catalog", func(ctx context.Context) error {
		newest, now, err := lookupItems(ctx, s.conn, e.Items)
		if err != nil {
			return err
		}
		if version = newest; version != e.Base {
			return store.ErrVersion
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
			if err := s.applyChange(ctx, version, &changes[i]); err != nil {
				return err
			}
		}
		return nil
	})
	return version, err
}

// applyChange makes one change of a version, and records it.
func (s *Store) applyChange(ctx context.Context, version int64, c *store.Change) error {
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
	const action = "read the catalog's versions"
	type row struct {
		store.Version
		before, after []byte
	}
	rows, err := readShared(ctx, s, action, func(r *row) []any {
		return []any{&r.Number, &r.At, &r.Author, &r.Reason, &r.before, &r.after}
	}, `select v.version, v.at, v.author, v.reason, c.before, c.after
		from (select * from catalog_versions where ?1 = 0 or version < ?1 order by version desc limit ?2) v
		join catalog_changes c on c.version = v.version order by v.version desc, c.kind, c.name, c.key`,
		before, max(n, 0))
	for _, r := range rows {
		if list, err = store.AppendChange(list, r.Version, r.before, r.after); err != nil {
			return nil, classify(action, err)
		}
	}
	return list, err
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
func (s *Store) Actions(ctx context.Context, before int64, n int) ([]store.Action, error) {
	return readShared(ctx, s, "read actions", func(a *store.Action) []any {
		return []any{&a.Number, &a.At, &a.Verb, &a.Limit, &a.Key, &a.For, &a.Author, &a.Reason}
	}, "select number, at, verb, limit_name, key, lasts, author, reason from actions "+
		"where ?1 = 0 or number < ?1 order by number desc limit ?2", before, max(n, 0))
}
