package postgres

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headgate/headgate/store"
)

// Migrate implements store.Migrator. It is one transaction, under a lock on the row of
// version 0, so that any number of processes may migrate at once. It locks a row because
// not every PostgreSQL derivative locks tables.
//
// It makes missing tables, and installs the functions of this binary if they are newer than
// the functions in the database, or differ at the same revision. If the functions in the
// database are newer it changes nothing.
func (s *Store) Migrate(ctx context.Context) (report []string, err error) {
	if s.closed.Load() {
		return nil, store.ErrClosed
	}
	if s.pool == nil {
		return nil, fmt.Errorf("postgres: migrate: %w: not inside a transaction of the caller", store.ErrInvalid)
	}
	version, err := checkServer(ctx, s.db)
	if err != nil {
		return nil, err
	}
	d := s.def.forServer(version)
	err = s.retry(ctx, func() error {
		report = nil
		return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			m := &migrator{d, tx, s.cfg.Articles, &report}
			return m.migrate(ctx)
		})
	})
	switch {
	case errors.Is(err, store.ErrSchemaNewer), errors.Is(err, store.ErrSetup):
		return nil, err
	case err != nil:
		return nil, classify("migrate", err)
	}
	return report, nil
}

// migrator applies a definition.
type migrator struct {
	*definition
	tx       pgx.Tx
	articles string // the schema for the functions of the articles; empty: none
	report   *[]string
}

// addLine adds a line to the report.
func (m *migrator) addLine(format string, args ...any) {
	*m.report = append(*m.report, fmt.Sprintf(format, args...))
}

// migrate makes or updates the schema inside m.tx.
func (m *migrator) migrate(ctx context.Context) error {
	if _, err := m.tx.Exec(ctx, "set local search_path = "+safePath); err != nil {
		return err
	}
	if err := m.checkMayCreate(ctx); err != nil {
		return err
	}
	// Two sessions that create one schema collide even with "if not exists": asConflict makes
	// such an error a conflict, which is retried.
	if _, err := m.tx.Exec(ctx, `
		do $$ begin if to_regnamespace('headgate') is null then create schema headgate; end if; end $$;
		create table if not exists headgate.schema_version (version int primary key, applied_at timestamptz not null default now());
		insert into headgate.schema_version (version) values (0) on conflict do nothing;
		select from headgate.schema_version where version = 0 for update`); err != nil {
		return asConflict(err)
	}
	var installed bool
	if err := m.tx.QueryRow(ctx, `select to_regclass('headgate.installed') is not null`).Scan(&installed); err != nil {
		return err
	}
	var have installation
	if installed {
		var err error
		if have, err = readInstalled(ctx, m.tx); err != nil {
			return err
		}
	}
	switch {
	case have.state > m.state:
		return have.newerError(m.definition)
	case have.state > 0 && have.state < firstState:
		return have.olderError()
	case have.revision > m.revision:
		m.addLine("the functions in schema headgate have revision %d, those of this binary %d: nothing to do",
			have.revision, m.revision)
		return nil
	}
	if err := m.makeTables(ctx, have.tables); err != nil {
		return err
	}
	if err := m.installFunctions(ctx, &have); err != nil {
		return err
	}
	if err := m.makeArticles(ctx, have.revision < m.revision); err != nil {
		return err
	}
	if _, err := m.tx.Exec(ctx, m.rights.sql); err != nil {
		return fmt.Errorf("%s: %w", m.rights.name, err)
	}
	if len(*m.report) == 0 {
		m.addLine("schema headgate has all %d tables' migrations and the functions of revision %d, nothing to do",
			len(m.tables), m.revision)
	}
	return nil
}

// checkMayCreate returns an error if this user may not create missing schemas.
func (m *migrator) checkMayCreate(ctx context.Context) error {
	var missing []string
	var may bool
	var user, database string
	err := m.tx.QueryRow(ctx, `select array(select n from unnest('{headgate,headgate_internal}'::text[]) n where to_regnamespace(n) is null),
		has_database_privilege(current_database(), 'create'), quote_ident(current_user),
		quote_ident(current_database())`).Scan(&missing, &may, &user, &database)
	if err != nil || may || len(missing) == 0 {
		return err
	}
	var remedy strings.Builder
	for _, schema := range missing {
		fmt.Fprintf(&remedy, "; create schema %s authorization %s", schema, user)
	}
	return fmt.Errorf("postgres: %w: user %s may not create schemas in database %s: let its owner execute: %s",
		store.ErrSetup, user, database, strings.TrimPrefix(remedy.String(), "; "))
}

// asConflict turns an error about an object that another session has created meanwhile into a
// conflict, which is retried.
func asConflict(err error) error {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok &&
		slices.Contains([]string{"23505", "42P06", "42P07"}, pg.Code) {
		return &pgconn.PgError{Code: "40001", Message: pg.Message}
	}
	return err
}

// makeTables applies the migrations that are missing.
func (m *migrator) makeTables(ctx context.Context, have int) error {
	for i, t := range m.tables {
		if i < have {
			continue
		}
		if _, err := m.tx.Exec(ctx, t.sql); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		if _, err := m.tx.Exec(ctx, `insert into headgate.schema_version (version) values ($1) on conflict do nothing`,
			i+1); err != nil {
			return err
		}
		m.addLine("applied %s", t.name)
	}
	return nil
}

// installFunctions installs the functions, unless the database has exactly the same ones.
func (m *migrator) installFunctions(ctx context.Context, have *installation) error {
	var digest *string
	if err := m.tx.QueryRow(ctx, `select `+digestOf+` from headgate.installed i`).Scan(&digest); err != nil &&
		!errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	repaired := have.revision == m.revision
	if repaired && have.fingerprint == m.fingerprint() && digest != nil && *digest == have.digest {
		return nil
	}
	before, err := m.functionVersions(ctx)
	if err != nil {
		return err
	}
	for _, t := range append(slices.Clone(m.functions), m.adapter) {
		if err := m.install(ctx, t); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
	}
	after, err := m.functionVersions(ctx)
	if err != nil {
		return err
	}
	for _, name := range have.names {
		if before[name] == "" || after[name] != before[name] || m.keepsFunction(name, have.state) {
			continue // dropped, installed just now, or called by processes of the previous layout
		}
		if _, err := m.tx.Exec(ctx, `drop function if exists `+name); err != nil {
			return fmt.Errorf("drop %s, which this revision does not have: %w", name, err)
		}
	}
	if _, err := m.tx.Exec(ctx, recordInstalled, m.state, m.layout, m.revision, m.fingerprint(),
		m.functionNames()); err != nil {
		return err
	}
	if repaired {
		m.addLine("repaired the functions of revision %d: they were others", m.revision)
	} else {
		m.addLine("installed the functions of revision %d", m.revision)
	}
	return nil
}

// keepsFunction reports whether a function that this binary lacks has to stay: it is of the
// previous layout, and binaries that are not replaced yet still call it. They do not if the
// rows have another meaning now.
func (m *migrator) keepsFunction(name string, state int) bool {
	bare, _, _ := strings.Cut(name, "(")
	return state == m.state && strings.HasSuffix(bare, fmt.Sprintf("_%d", m.layout-1))
}

// functionVersions returns the row version of each of Headgate's functions, which changes
// if the function is replaced.
func (m *migrator) functionVersions(ctx context.Context) (map[string]string, error) {
	rows, err := m.tx.Query(ctx, `select p.oid::regprocedure::text, p.xmin::text || p.ctid::text from pg_proc p
		where p.pronamespace in (`+schemas+`) and p.prokind = 'f'`)
	if err != nil {
		return nil, err
	}
	list := make(map[string]string)
	var name, at string
	_, err = pgx.ForEachRow(rows, []any{&name, &at}, func() error {
		list[name] = at
		return nil
	})
	return list, err
}

// install executes a text. If "create or replace" cannot replace a function because its
// columns or argument names differ, or a view because its columns differ, install first drops
// the functions and views of the text that have plain names.
func (m *migrator) install(ctx context.Context, t text) error {
	run := func() error {
		return pgx.BeginFunc(ctx, m.tx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, t.sql)
			return err
		})
	}
	err := run()
	if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != "42P13" && pg.Code != "42P16" {
		return err
	}
	for _, found := range plainNames.FindAllStringSubmatch(t.sql, -1) {
		if _, err := m.tx.Exec(ctx, `select pg_catalog.set_config('headgate.dropped', $1, true)`,
			found[1]); err != nil {
			return err
		}
		if _, err := m.tx.Exec(ctx, dropPlain); err != nil {
			return err
		}
	}
	return run()
}

// plainNames matches the functions and views that a text makes under a plain name.
var plainNames = regexp.MustCompile(`(?m)^create or replace (?:function|view) headgate\.(\w*[a-z])\b`)

// dropPlain drops the view, or all functions, of a name.
const dropPlain = `do $$ declare it record; name text := current_setting('headgate.dropped'); begin
	for it in select p.oid::regprocedure::text as signature from pg_proc p
		where p.pronamespace in (` + schemas + `) and p.proname = name loop
		execute 'drop function ' || it.signature;
	end loop;
	if to_regclass(format('headgate.%I', name)) is not null then
		execute format('drop view headgate.%I', name);
	end if;
end $$`

// makeArticles makes the articles' functions in the configured schema. If newer is set it makes them again
// in all schemas where an earlier migration made them, because they call functions of Headgate.
func (m *migrator) makeArticles(ctx context.Context, newer bool) error {
	rows, err := m.tx.Query(ctx, `select distinct n.nspname::text
		from pg_proc p join pg_namespace n on n.oid = p.pronamespace
		where p.proname = any($1) and obj_description(p.oid, 'pg_proc') like 'made by headgate%'
		and p.proowner = (select o.proowner from pg_proc o
			where o.pronamespace = 'headgate'::regnamespace and o.proname = 'take')`,
		articleNames)
	if err != nil {
		return err
	}
	made, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, schema := range made {
		if schema != m.articles && newer {
			if err := m.makeArticlesIn(ctx, schema); err != nil {
				m.addLine("did not make the articles' functions anew: %v", err)
			}
		}
	}
	if m.articles == "" || slices.Contains(made, m.articles) && !newer {
		return nil
	}
	if err := m.makeArticlesIn(ctx, m.articles); err != nil {
		return fmt.Errorf("postgres: %w: %w", store.ErrSetup, err)
	}
	return nil
}

// makeArticlesIn makes the articles' functions in a schema, or returns why it cannot.
func (m *migrator) makeArticlesIn(ctx context.Context, schema string) error {
	err := pgx.BeginFunc(ctx, m.tx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, m.articlesIn(schema))
		return err
	})
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "55000" {
		return errors.New(pg.Message)
	}
	if err == nil {
		m.addLine("installed the articles' functions in schema %s", schema)
	}
	return err
}
