package postgres

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/store"
)

// ReadCatalog implements store.Catalog.
func (s *Store) ReadCatalog(ctx context.Context, since int64) (c store.CatalogChanges, err error) {
	if err := s.ready(ctx); err != nil {
		return c, err
	}
	rows, err := query(ctx, s, "read the catalog", func(row pgx.CollectableRow) (item store.Item, err error) {
		var kind, name, key *string
		var text []byte
		err = row.Scan(&c.Version, &c.At, &c.SinceAt, &c.Clock, &kind, &name, &key, &text)
		if err != nil || kind == nil {
			return item, err
		}
		if text == nil {
			return store.Item{Kind: store.Kind(*kind), Name: *name, Key: *key, Removed: true}, nil
		}
		err = json.Unmarshal(text, &item)
		return item, err
	}, s.def.statement("select version, at, since_at, clock, kind, name, key, item from "+
		"headgate_internal.read_catalog_N($1)"), since)
	if err != nil {
		return c, err
	}
	if len(rows) == 1 && rows[0].Kind == "" { // there is only the version
		rows = nil
	}
	c.Items = rows
	return c, nil
}

// Items implements store.Catalog. It is one statement, so all items are of one version.
func (s *Store) Items(ctx context.Context, wanted []store.Item) (version int64, found []store.Item, err error) {
	if err := s.ready(ctx); err != nil {
		return 0, nil, err
	}
	kinds, names, keys := make([]string, len(wanted)), make([]string, len(wanted)), make([]string, len(wanted))
	for i, item := range wanted {
		kinds[i], names[i], keys[i] = string(item.Kind), item.Name, item.Key
	}
	found, err = query(ctx, s, "read items of the catalog", func(row pgx.CollectableRow) (item store.Item, err error) {
		var text []byte
		if err := row.Scan(&version, &text); err != nil || text == nil {
			return item, err
		}
		err = json.Unmarshal(text, &item)
		return item, err
	}, s.def.statement("select version, item from headgate_internal.items_N($1, $2, $3)"), kinds, names, keys)
	if len(found) == 1 && found[0].Kind == "" { // there is only the version
		found = nil
	}
	return version, found, err
}

// ItemsAfter implements store.Catalog.
func (s *Store) ItemsAfter(ctx context.Context, kind store.Kind, after store.Item, n int) ([]store.Item, error) {
	if err := s.ready(ctx); err != nil || n <= 0 {
		return nil, err
	}
	return query(ctx, s, "read items of the catalog", func(row pgx.CollectableRow) (item store.Item, err error) {
		var text []byte
		if err := row.Scan(&text); err != nil {
			return item, err
		}
		err = json.Unmarshal(text, &item)
		return item, err
	}, s.def.statement("select * from headgate_internal.items_after_N($1, $2, $3, $4)"), string(kind), after.Name,
		after.Key, n)
}

// WriteCatalog implements store.Catalog. It adds the database's user to the author. The error is store.ErrInvalid for a
// limit that the server cannot use, for lack of a time zone, say.
func (s *Store) WriteCatalog(ctx context.Context, e store.Edit) (version int64, err error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	if err := e.Valid(); err != nil {
		return 0, err
	}
	items, err := json.Marshal(e.Items)
	if err != nil {
		return 0, err
	}
	err = s.retry(ctx, func() error {
		return s.db.QueryRow(ctx, s.def.statement("select headgate_internal.write_catalog_N($1, $2, $3, $4)"), e.Base,
			e.Author, e.Reason, string(items)).Scan(&version)
	})
	switch {
	case err != nil:
		return 0, classify("write the catalog", err)
	case version < 0:
		return -1 - version, fmt.Errorf("postgres: write the catalog: %w", store.ErrVersion)
	}
	return version, nil
}

// CatalogVersions implements store.Catalog.
func (s *Store) CatalogVersions(ctx context.Context, before int64, n int) (versions []store.Version, err error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	type row struct {
		version       store.Version
		before, after []byte // the item in JSON
	}
	rows, err := query(ctx, s, "read the catalog's versions", func(r pgx.CollectableRow) (c row, err error) {
		v := &c.version
		err = r.Scan(&v.Number, &v.At, &v.Author, &v.Reason, &c.before, &c.after)
		return c, err
	}, s.def.statement("select version, at, author, reason, before, after from headgate_internal.versions_N($1, $2)"),
		before, n)
	if err != nil {
		return nil, err
	}
	for _, r := range rows { // one row for each change
		if versions, err = store.AppendChange(versions, r.version, r.before, r.after); err != nil {
			return nil, classifyRead("read the catalog's versions", err)
		}
	}
	return versions, nil
}

// RecordAction implements store.Catalog. It repeats nothing, not even a conflict.
func (s *Store) RecordAction(ctx context.Context, a store.Action) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	if err := a.Valid(); err != nil {
		return err
	}
	_, err := s.db.Exec(ctx, s.def.statement("select headgate_internal.record_action_N($1, $2, $3, $4, $5, $6)"),
		a.Verb, a.Limit, a.Key, a.For, a.Author, a.Reason)
	if err != nil {
		return classify("record an action", err)
	}
	return nil
}

// Actions implements store.Catalog.
func (s *Store) Actions(ctx context.Context, before int64, n int) ([]store.Action, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	return query(ctx, s, "read actions", func(r pgx.CollectableRow) (a store.Action, err error) {
		err = r.Scan(&a.Number, &a.At, &a.Verb, &a.Limit, &a.Key, &a.For, &a.Author, &a.Reason)
		return a, err
	}, s.def.statement("select number, at, verb, limit_name, key, lasts, author, reason from "+
		"headgate_internal.actions_N($1, $2)"),
		before, max(n, 0))
}
