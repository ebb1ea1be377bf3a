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

// Migrate implements store.Migrator. It is one transaction, under a lock on the row of version 0, so that any number of
// processes may migrate at once. It locks a row because not every PostgreSQL derivative locks tables.
//
// It makes missing tables, and installs the functions of this binary if they are newer than the functions in the
// database, or differ at the same revision. If the functions in the database are newer it changes nothing.
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
	// Two sessions that create one schema collide even with "if not exists": asConflict has that retried.
	if _, err := m.tx.Exec(ctx, `
		do $$ begin if to_regnamespace('headgate') is null then create schema headgate; end if; end $$;
		create table if not exists headgate.schema_version (version int primary key, applied_at timestamptz not null default now());
		insert into headgate.schema_version (version) values (0) on conflict do nothing;
		select from headgate.schema_version where version = 0 for update`); err != nil {
		return asConflict(err)
	}
	var hasTable bool // headgate.installed
	if err := m.tx.QueryRow(ctx, `select to_regclass('headgate.installed') is not null`).Scan(&hasTable); err != nil {
		return err
	}
	var installed installation
	if hasTable {
		var err error
		if installed, err = readInstalled(ctx, m.tx); err != nil {
			return err
		}
	}
	switch {
	case installed.state > m.state:
		return installed.newerError(m.definition)
	case installed.state > 0 && installed.state < firstState:
		return installed.olderError()
	case installed.revision > m.revision:
		m.addLine("the functions in schema headgate have revision %d, those of this binary %d: nothing to do",
			installed.revision, m.revision)
		return nil
	}
	if err := m.makeTables(ctx, installed.tables); err != nil {
		return err
	}
	if err := m.installFunctions(ctx, &installed); err != nil {
		return err
	}
	if err := m.makeArticles(ctx, installed.revision < m.revision); err != nil {
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
	var mayCreate bool
	var user, database string
	err := m.tx.QueryRow(ctx, `select array(select n from unnest('{headgate,headgate_internal}'::text[]) n where to_regnamespace(n) is null),
		has_database_privilege(current_database(), 'create'), quote_ident(current_user),
		quote_ident(current_database())`).Scan(&missing, &mayCreate, &user, &database)
	if err != nil || mayCreate || len(missing) == 0 {
		return err
	}
	var remedy strings.Builder
	for _, schema := range missing {
		fmt.Fprintf(&remedy, "; create schema %s authorization %s", schema, user)
	}
	return fmt.Errorf("postgres: %w: user %s may not create schemas in database %s: let its owner execute: %s",
		store.ErrSetup, user, database, strings.TrimPrefix(remedy.String(), "; "))
}

// asConflict turns an error about an object that another session has just created into a conflict, which is retried.
func asConflict(err error) error {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok &&
		slices.Contains([]string{"23505", "42P06", "42P07"}, pg.Code) {
		return &pgconn.PgError{Code: "40001", Message: pg.Message}
	}
	return err
}

// makeTables applies the migrations that follow the first appliedCount ones.
func (m *migrator) makeTables(ctx context.Context, appliedCount int) error {
	for i, t := range m.tables {
		if i < appliedCount {
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

// installFunctions installs the functions, unless the database has exactly the same ones. It drops those that this
// revision does not have, except by keepsFunction, and records what is installed.
func (m *migrator) installFunctions(ctx context.Context, installed *installation) error {
	var digest *string
	if err := m.tx.QueryRow(ctx, `select `+digestExpr+` from headgate.installed i`).Scan(&digest); err != nil &&
		!errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	isRepair := installed.revision == m.revision
	if isRepair && installed.fingerprint == m.fingerprint() && digest != nil && *digest == installed.digest {
		return nil
	}
	versionsBefore, err := m.functionVersions(ctx)
	if err != nil {
		return err
	}
	for _, t := range append(slices.Clone(m.functions), m.adapter) {
		if err := m.install(ctx, t); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
	}
	versionsAfter, err := m.functionVersions(ctx)
	if err != nil {
		return err
	}
	for _, name := range installed.names {
		isDropped, isReplaced := versionsBefore[name] == "", versionsAfter[name] != versionsBefore[name]
		if isDropped || isReplaced || m.keepsFunction(name, installed.state) {
			continue
		}
		if _, err := m.tx.Exec(ctx, `drop function if exists `+name); err != nil {
			return fmt.Errorf("drop %s, which this revision does not have: %w", name, err)
		}
	}
	if _, err := m.tx.Exec(ctx, recordInstalled, m.state, m.layout, m.revision, m.fingerprint(),
		m.functionNames()); err != nil {
		return err
	}
	if isRepair {
		m.addLine("repaired the functions of revision %d: they were others", m.revision)
	} else {
		m.addLine("installed the functions of revision %d", m.revision)
	}
	return nil
}

// keepsFunction reports whether a migration from a state keeps a function that this binary lacks. Older binaries still
// call the functions of the previous layout, unless the state changes: then they refuse the schema.
func (m *migrator) keepsFunction(name string, state int) bool {
	function, _, _ := strings.Cut(name, "(")
	return state == m.state && strings.HasSuffix(function, fmt.Sprintf("_%d", m.layout-1))
}

// functionVersions returns the row version of each function in Headgate's schemas. A replacement of it changes that.
func (m *migrator) functionVersions(ctx context.Context) (map[string]string, error) {
	rows, err := m.tx.Query(ctx, `select p.oid::regprocedure::text, p.xmin::text || p.ctid::text from pg_proc p
		where p.pronamespace in (`+ownSchemas+`) and p.prokind = 'f'`)
	if err != nil {
		return nil, err
	}
	versions := make(map[string]string)
	var name, version string
	_, err = pgx.ForEachRow(rows, []any{&name, &version}, func() error {
		versions[name] = version
		return nil
	})
	return versions, err
}

// install executes a text. "create or replace" cannot replace a function if its columns or argument names differ, or a
// view if its columns differ. Then install drops all that the text makes under plain names, and executes it again.
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
	for _, match := range plainNames.FindAllStringSubmatch(t.sql, -1) {
		if _, err := m.tx.Exec(ctx, `select pg_catalog.set_config('headgate.dropped', $1, true)`,
			match[1]); err != nil {
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

// dropPlain drops all functions, and the view, of the name in the setting headgate.dropped.
const dropPlain = `do $$ declare it record; name text := current_setting('headgate.dropped'); begin
	for it in select p.oid::regprocedure::text as signature from pg_proc p
		where p.pronamespace in (` + ownSchemas + `) and p.proname = name loop
		execute 'drop function ' || it.signature;
	end loop;
	if to_regclass(format('headgate.%I', name)) is not null then
		execute format('drop view headgate.%I', name);
	end if;
end $$`

// makeArticles makes the articles' functions in the configured schema. With remake it also makes them again in each
// schema of an earlier migration: they call functions of Headgate, which have changed.
func (m *migrator) makeArticles(ctx context.Context, remake bool) error {
	rows, err := m.tx.Query(ctx, `select distinct n.nspname::text
		from pg_proc p join pg_namespace n on n.oid = p.pronamespace
		where p.proname = any($1) and obj_description(p.oid, 'pg_proc') like 'made by headgate%'
		and p.proowner = (select o.proowner from pg_proc o
			where o.pronamespace = 'headgate'::regnamespace and o.proname = 'take')`,
		articleNames)
	if err != nil {
		return err
	}
	articleSchemas, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, schema := range articleSchemas {
		if schema != m.articles && remake {
			if err := m.makeArticlesIn(ctx, schema); err != nil {
				m.addLine("did not update the articles' functions: %v", err)
			}
		}
	}
	if m.articles == "" || slices.Contains(articleSchemas, m.articles) && !remake {
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
