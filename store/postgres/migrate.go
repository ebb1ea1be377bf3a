package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headgate/headgate/store"
)

//go:embed sql/*.sql
var files embed.FS

// sweepYugabyte takes the place of the text of headgate.sweep_from on YugabyteDB.
//
//go:embed yugabyte/sweep.sql
var sweepYugabyte string

// migration is one numbered file. It can be applied any number of times.
type migration struct {
	number   int
	name     string
	sql      string
	articles bool // makes functions in schema public
}

// migrations returns the files in order.
var migrations = sync.OnceValue(func() []migration {
	entries, err := files.ReadDir("sql")
	if err != nil {
		panic(err) // they are embedded
	}
	var list []migration
	for _, e := range entries {
		text, err := files.ReadFile("sql/" + e.Name())
		if err != nil {
			panic(err)
		}
		prefix, _, _ := strings.Cut(e.Name(), "_")
		number, err := strconv.Atoi(prefix)
		if err != nil {
			panic("sql/" + e.Name() + " has no number")
		}
		list = append(list, migration{number, e.Name(), string(text), strings.Contains(e.Name(), "articles")})
	}
	slices.SortFunc(list, func(a, b migration) int { return a.number - b.number })
	return list
})

// Schema returns the whole schema as SQL, for people with a migration tool of
// their own.
func Schema() string {
	var b strings.Builder
	b.WriteString(schemaHead)
	for _, m := range migrations() {
		fmt.Fprintf(&b, "-- %s\n\n%s\n", m.name, m.sql)
	}
	last := migrations()[len(migrations())-1].number
	fmt.Fprintf(&b, "insert into headgate.schema_version (version) select generate_series(1, %d) on conflict do nothing;\n", last)
	b.WriteString(schemaTail)
	return b.String()
}

// safePath is the search_path under which the schema is made, and the one of its
// functions: nothing that others have made is found.
const safePath = "pg_catalog, pg_temp"

// The printed schema sets the search_path and gives the reader's own back.
const (
	schemaHead = `-- Nothing that others have made, in schema public above all, may be taken for an
-- operator, a function or a type of this text.
do $$ begin
    perform pg_catalog.set_config('headgate.search_path', pg_catalog.current_setting('search_path'), false);
end $$;
set search_path = ` + safePath + `;

`
	schemaTail = `
do $$ begin
    perform pg_catalog.set_config('search_path', pg_catalog.current_setting('headgate.search_path'), false);
end $$;
`
)

// sharding is what YugabyteDB wants otherwise: rows spread by a hash of what
// they are looked up by, so that no range of them is hot, none of the settings of
// PostgreSQL's heap, and no ctid.
var sharding = []struct{ postgres, yugabyte string }{
	{"    primary key (limit_name, key)\n) with (fillfactor = 66, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);", "    primary key ((limit_name, key) hash)\n);"},
	{"    number     bigint generated always as identity primary key,\n", "    number     bigint generated always as identity,\n"},
	{"    granted    boolean not null\n);", "    granted    boolean not null,\n    primary key (number hash)\n);"},
	{"on headgate.entries (limit_name, key, expires_at) include", "on headgate.entries ((limit_name, key) hash, expires_at asc) include"},
	{"    primary key (limit_name, key, id)\n", "    primary key ((limit_name, key) hash, id)\n"},
	{"    tids tid[];\n", ""},
	{"tids := array(select (select e.ctid from", "perform array(select (select e.key from"},
	{"unnest(tids, p_anchor", "unnest(p_limits, p_keys, p_anchor"},
	{"x(row, anchor", "x(l, k, anchor"},
	{"where c.ctid = u.row and", "where c.limit_name = any (array[u.l]) and c.key = u.k and"},
}

// SchemaYugabyte returns the whole schema as YugabyteDB wants it, for a release
// that is compatible with PostgreSQL 15.
func SchemaYugabyte() string {
	text := Schema()
	for _, s := range sharding {
		if strings.Count(text, s.postgres) != 1 {
			panic("sharding: the schema does not say once: " + s.postgres) // both are ours
		}
		text = strings.Replace(text, s.postgres, s.yugabyte, 1)
	}
	begin, rest, _ := strings.Cut(text, "-- headgate.sweep_from removes")
	_, end, found := strings.Cut(rest, "-- headgate.sweep is that for people")
	if !found {
		panic("sharding: the schema has no headgate.sweep_from") // it is ours
	}
	return begin + sweepYugabyte + "-- headgate.sweep is that for people" + end
}

// schemaVersion returns the highest migration that was applied, 0 if none was.
func schemaVersion(ctx context.Context, db querier) (version int, err error) {
	err = db.QueryRow(ctx, `select coalesce(pg_catalog.max(version), 0) from headgate.schema_version`).Scan(&version)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && (pg.Code == "42P01" || pg.Code == "3F000") {
		return 0, nil
	}
	if err != nil {
		return 0, classifyRead("read the schema's version", err)
	}
	return version, nil
}

func newer(version, latest int) error {
	return fmt.Errorf("postgres: %w: schema headgate has version %d, this binary knows %d", store.ErrSchemaNewer, version, latest)
}

// Migrate implements store.Migrator: one transaction, under a lock on the row
// of version 0, so that any number of processes may do it at once. Not every
// relative of PostgreSQL locks tables.
func (s *Store) Migrate(ctx context.Context) (report []string, err error) {
	if s.closed.Load() {
		return nil, store.ErrClosed
	}
	if s.pool == nil {
		return nil, fmt.Errorf("postgres: migrate: %w: not inside a transaction of the caller", store.ErrInvalid)
	}
	if err := checkServer(ctx, s.db); err != nil {
		return nil, err
	}
	err = s.retry(ctx, func() error {
		report = nil
		return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error { return s.migrate(ctx, tx, &report) })
	})
	switch {
	case errors.Is(err, store.ErrSchemaNewer):
		return nil, err
	case err != nil:
		return nil, classify("migrate", err)
	}
	return report, nil
}

func (s *Store) migrate(ctx context.Context, tx pgx.Tx, report *[]string) error {
	all := migrations()
	latest := all[len(all)-1].number
	// Two sessions that create one schema collide even with "if not exists";
	// that is a conflict, and retried.
	if _, err := tx.Exec(ctx, `set local search_path = `+safePath+`;
		do $$ begin if to_regnamespace('headgate') is null then create schema headgate; end if; end $$;
		create table if not exists headgate.schema_version (version int primary key, applied_at timestamptz not null default now());
		insert into headgate.schema_version (version) values (0) on conflict do nothing;
		select from headgate.schema_version where version = 0 for update`); err != nil {
		var pg *pgconn.PgError
		if errors.As(err, &pg) && (pg.Code == "23505" || pg.Code == "42P06" || pg.Code == "42P07") {
			return &pgconn.PgError{Code: "40001", Message: pg.Message}
		}
		return err
	}
	have, err := schemaVersion(ctx, tx)
	if err != nil {
		return err
	}
	if have > latest {
		return newer(have, latest)
	}
	for _, m := range all {
		if m.articles {
			if err := s.articles(ctx, tx, m, have, report); err != nil {
				return err
			}
		} else if m.number > have {
			if _, err := tx.Exec(ctx, m.sql); err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
			*report = append(*report, "applied "+m.name)
		}
		if _, err := tx.Exec(ctx, `insert into headgate.schema_version (version) values ($1) on conflict do nothing`, m.number); err != nil {
			return err
		}
	}
	if len(*report) == 0 {
		*report = append(*report, fmt.Sprintf("schema headgate is at version %d, nothing to do", latest))
	}
	return nil
}

// articles makes the functions named after the articles, unless something of
// somebody else's has one of their names: the file looks at that itself.
func (s *Store) articles(ctx context.Context, tx pgx.Tx, m migration, have int, report *[]string) error {
	if s.cfg.SkipArticles {
		*report = append(*report, "left schema public alone, as asked")
		return nil
	}
	if _, err := tx.Exec(ctx, m.sql); err != nil {
		return fmt.Errorf("%s: %w", m.name, err)
	}
	var obstacle *string
	if err := tx.QueryRow(ctx, `select headgate.articles_obstacle()`).Scan(&obstacle); err != nil {
		return err
	}
	switch {
	case obstacle != nil:
		*report = append(*report, fmt.Sprintf("did not make the articles' functions: %s; "+
			"change that and migrate again, or say --skip-articles", *obstacle))
	case m.number > have:
		*report = append(*report, "applied "+m.name)
	}
	return nil
}
