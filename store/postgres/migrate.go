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

// Migrate implements store.Migrator: one transaction, under a lock on the row
// of version 0, so that any number of processes may do it at once. Not every
// relative of PostgreSQL locks tables.
//
// It makes the tables that are missing, and installs the functions of this binary if
// they are newer than those in the database, or others of the same revision. Where the
// functions in the database are newer it changes nothing.
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
	d := s.def.on(version)
	err = s.retry(ctx, func() error {
		report = nil
		return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			m := &migrator{d, tx, s.cfg.SkipArticles, &report}
			return m.migrate(ctx)
		})
	})
	switch {
	case errors.Is(err, store.ErrSchemaNewer):
		return nil, err
	case err != nil:
		return nil, classify("migrate", err)
	}
	return report, nil
}

// migrator makes a definition in a database.
type migrator struct {
	*definition
	tx           pgx.Tx
	skipArticles bool
	report       *[]string
}

func (m *migrator) say(format string, args ...any) {
	*m.report = append(*m.report, fmt.Sprintf(format, args...))
}

func (m *migrator) migrate(ctx context.Context) error {
	// Two sessions that create one schema collide even with "if not exists";
	// that is a conflict, and retried.
	if _, err := m.tx.Exec(ctx, `set local search_path = `+safePath+`;
		do $$ begin if to_regnamespace('headgate') is null then create schema headgate; end if; end $$;
		create table if not exists headgate.schema_version (version int primary key, applied_at timestamptz not null default now());
		insert into headgate.schema_version (version) values (0) on conflict do nothing;
		select from headgate.schema_version where version = 0 for update`); err != nil {
		return collided(err)
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
		return have.newer(m.definition)
	case have.revision > m.revision:
		m.say("the functions in schema headgate have revision %d, those of this binary %d: nothing to do",
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
		m.say("schema headgate has all %d tables' migrations and the functions of revision %d, nothing to do",
			len(m.tables), m.revision)
	}
	return nil
}

// collided makes a conflict, which is retried, of an error over something that another
// session has made meanwhile.
func collided(err error) error {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok &&
		slices.Contains([]string{"23505", "42P06", "42P07"}, pg.Code) {
		return &pgconn.PgError{Code: "40001", Message: pg.Message}
	}
	return err
}

// makeTables applies the migrations after the first have.
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
		m.say("applied %s", t.name)
	}
	return nil
}

// installFunctions installs the functions, unless those in the database are just these.
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
	before, err := m.routines(ctx)
	if err != nil {
		return err
	}
	for _, t := range append(slices.Clone(m.functions), m.adapter) {
		if err := m.install(ctx, t); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
	}
	after, err := m.routines(ctx)
	if err != nil {
		return err
	}
	for _, name := range have.names {
		if before[name] == "" || after[name] != before[name] || m.keeps(name, have.state) {
			continue // it is gone, or was installed now, or processes of the layout before call it
		}
		if _, err := m.tx.Exec(ctx, `drop function if exists `+name); err != nil {
			return fmt.Errorf("drop %s, which this revision does not have: %w", name, err)
		}
	}
	if _, err := m.tx.Exec(ctx, recordInstalled, m.state, m.layout, m.revision, m.fingerprint(),
		m.names()); err != nil {
		return err
	}
	if repaired {
		m.say("repaired the functions of revision %d: they were others", m.revision)
	} else {
		m.say("installed the functions of revision %d", m.revision)
	}
	return nil
}

// keeps reports whether a function that this binary does not have is of the layout
// before, which is there for binaries that are not replaced yet, unless the rows mean
// something else to them.
func (m *migrator) keeps(name string, state int) bool {
	bare, _, _ := strings.Cut(name, "(")
	return state == m.state && strings.HasSuffix(bare, fmt.Sprintf("_%d", m.layout-1))
}

// routines returns the functions in schema headgate, with what changes when one is
// replaced.
func (m *migrator) routines(ctx context.Context) (map[string]string, error) {
	rows, err := m.tx.Query(ctx, `select p.oid::regprocedure::text, p.xmin::text || p.ctid::text from pg_proc p
		where p.pronamespace = 'headgate'::regnamespace and p.prokind = 'f'`)
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

// install executes a text. Where a function has other columns or names of arguments
// than the one that it is to replace, or a view others, the text's functions and views
// with plain names are dropped first: "create or replace" cannot do that.
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
	for _, found := range replaceable.FindAllStringSubmatch(t.sql, -1) {
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

// replaceable finds what a text makes under a plain name.
var replaceable = regexp.MustCompile(`(?m)^create or replace (?:function|view) headgate\.(\w*[a-z])\b`)

// dropPlain drops the view, or all functions, of a name.
const dropPlain = `do $$ declare it record; name text := current_setting('headgate.dropped'); begin
	for it in select p.oid::regprocedure::text as signature from pg_proc p where p.pronamespace = 'headgate'::regnamespace and p.proname = name loop
		execute 'drop function ' || it.signature;
	end loop;
	if to_regclass(format('headgate.%I', name)) is not null then
		execute format('drop view headgate.%I', name);
	end if;
end $$`

// makeArticles makes the functions named after the articles, unless something of
// somebody else's has one of their names: the file looks at that itself, each time.
func (m *migrator) makeArticles(ctx context.Context, newer bool) error {
	if m.skipArticles {
		m.say("left schema public alone, as asked")
		return nil
	}
	if _, err := m.tx.Exec(ctx, m.articles.sql); err != nil {
		return fmt.Errorf("%s: %w", m.articles.name, err)
	}
	var obstacle *string
	if err := m.tx.QueryRow(ctx, m.numbered(`select headgate.articles_obstacle_N()`)).Scan(&obstacle); err != nil {
		return err
	}
	switch {
	case obstacle != nil:
		m.say("did not make the articles' functions: %s; change that and migrate again, or say --skip-articles",
			*obstacle)
	case newer:
		m.say("installed %s", m.articles.name)
	}
	return nil
}
