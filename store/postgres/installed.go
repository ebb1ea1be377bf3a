package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headgate/headgate/store"
)

// installation describes the schema that a database has; it is zero without a schema.
type installation struct {
	state, layout, revision int
	tables                  int // how many migrations of tables were applied
	fingerprint, digest     string
	names                   []string // the functions that were installed, with their schemas and arguments
}

// readInstalled reads the installation of a database; zero if the schema is not there.
func readInstalled(ctx context.Context, db querier) (i installation, err error) {
	err = db.QueryRow(ctx, `select i.state, i.layout, i.revision, i.fingerprint, i.digest, i.names,
		(select coalesce(pg_catalog.max(v.version), 0) from headgate.schema_version v) from headgate.installed i`).
		Scan(&i.state, &i.layout, &i.revision, &i.fingerprint, &i.digest, &i.names, &i.tables)
	pg, _ := errors.AsType[*pgconn.PgError](err)
	switch {
	case pg != nil && (pg.Code == "42P01" || pg.Code == "3F000"), errors.Is(err, pgx.ErrNoRows):
		return installation{}, nil
	case err != nil:
		return i, classifyRead("read what is installed", err)
	}
	return i, nil
}

// ownSchemas selects the oids of the schemas that Migrate makes.
const ownSchemas = `select s.oid from pg_catalog.pg_namespace s where s.nspname in ('headgate', 'headgate_internal')`

// digestExpr computes the md5 of the functions that row i of headgate.installed lists, as they are in the server now.
const digestExpr = `(select md5(string_agg(pg_get_functiondef(p.oid), '' order by p.oid::regprocedure::text)) from pg_proc p
	where p.pronamespace in (` + ownSchemas + `) and p.oid::regprocedure::text = any(i.names))`

// recordInstalled writes headgate.installed. Its parameters are state, layout, revision, fingerprint, and the names of
// the functions without their arguments.
const recordInstalled = `insert into headgate.installed (state, layout, revision, fingerprint, names, digest)
	select $1, $2, $3, $4, array_agg(p.oid::regprocedure::text),
		md5(string_agg(pg_get_functiondef(p.oid), '' order by p.oid::regprocedure::text))
	from pg_proc p
	where p.pronamespace in (` + ownSchemas + `) and p.pronamespace::regnamespace || '.' || p.proname = any($5::text[])
	on conflict (only_one) do update set state = excluded.state, layout = excluded.layout, revision = excluded.revision,
		fingerprint = excluded.fingerprint, names = excluded.names, digest = excluded.digest, installed_at = now()`

// check returns why a binary with this definition cannot use the database, or nil. The functions of one newer layout
// do: a migration to it keeps those of this layout, see keepsFunction.
func (i *installation) check(d *definition) error {
	switch {
	case i.state > d.state || i.layout > d.layout+1:
		return i.newerError(d)
	case i.state == d.state && i.layout >= d.layout && i.tables >= len(d.tables):
		return nil
	case i.state > 0 && i.state < firstState:
		return i.olderError()
	case i.layout == 0:
		return fmt.Errorf("postgres: %w: there is no schema headgate: run headgate migrate", store.ErrSetup)
	}
	return fmt.Errorf("postgres: %w: schema headgate has %d tables' migrations and functions of layout %d; this "+
		"binary needs %d and %d: run headgate migrate",
		store.ErrSetup, i.tables, i.layout, len(d.tables), d.layout)
}

// olderError returns the error about a schema from before the first release.
func (i *installation) olderError() error {
	return fmt.Errorf("postgres: %w: schema headgate has state %d, from before the first release: remove it with "+
		"headgate migrate --remove, then migrate again", store.ErrSetup, i.state)
}

// newerError returns the error about a schema that is too new for this binary.
func (i *installation) newerError(d *definition) error {
	return fmt.Errorf("postgres: %w: schema headgate has state %d and functions of layout %d, this binary knows %d "+
		"and %d",
		store.ErrSchemaNewer, i.state, i.layout, d.state, d.layout)
}
