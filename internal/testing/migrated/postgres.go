// Package migrated gives tests databases in which Headgate's schema is installed already. Installing it takes half a
// second on PostgreSQL and a second on MariaDB, and some 500 tests need it.
package migrated

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/store/postgres"
)

var postgresPool = &pool{create: newPostgres, empty: emptyPostgres}

func newPostgres(tb testing.TB) (*database, error) {
	d := &database{}
	d.dsn, d.drop = dbtest.KeptPostgres(tb)
	s, err := postgres.Open(context.Background(), d.dsn, &postgres.Config{Articles: "public"})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if _, err = s.Migrate(context.Background()); err != nil {
		return nil, err
	}
	return d, withConn(d.dsn, func(conn *pgx.Conn) error {
		return conn.QueryRow(context.Background(), postgresStructure).Scan(&d.structure)
	})
}

// Postgres returns the DSN of a database with the schema and the articles' functions, and without rows. The test may
// change it: afterwards it is emptied for another test, or dropped if its schema has changed. Emptying takes 30 ms.
func Postgres(tb testing.TB) string {
	tb.Helper()
	return postgresPool.take(tb)
}

func withConn(dsn string, do func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(context.Background(), dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	return do(conn)
}

// postgresStructure returns a fingerprint of all that a database has except the rows that tests make. If a statement
// changes a row of the system catalogs, its xmin changes. pg_class is compared by columns, since emptying and vacuum
// change its rows.
const postgresStructure = `select md5(string_agg(x, ';' order by x)) from (
select 'proc'||oid||' '||xmin from pg_proc where oid >= 16384
union all select 'namespace'||oid||' '||xmin from pg_namespace where nspname not like 'pg\_%'
union all select 'attribute'||attrelid||' '||attnum||' '||xmin from pg_attribute where attrelid >= 16384
union all select 'trigger'||oid||' '||xmin from pg_trigger
union all select 'constraint'||oid||' '||xmin from pg_constraint where oid >= 16384
union all select 'default'||oid||' '||xmin from pg_attrdef
union all select 'type'||oid||' '||xmin from pg_type where oid >= 16384
union all select 'operator'||oid from pg_operator where oid >= 16384
union all select 'extension'||oid||' '||xmin from pg_extension
union all select 'acl'||oid||' '||xmin from pg_default_acl
union all select concat_ws(' ', 'class', oid, relname, relowner, relnamespace, relacl, reloptions, relhastriggers,
  relpersistence) from pg_class where oid >= 16384 and relnamespace <> 'pg_toast'::regnamespace
  and relpersistence <> 't'
union all select concat_ws(' ', 'database', datacl, datdba) from pg_database where datname = current_database()
union all select concat_ws(' ', 'setting', setrole, setconfig) from pg_db_role_setting
  where setdatabase = (select oid from pg_database where datname = current_database())
union all select 'version '||v::text from headgate.schema_version v
union all select 'installed '||i::text from headgate.installed i) s(x)`

// postgresDeletes removes all rows that tests make, and their statistics.
const postgresDeletes = `do $$ declare used text; begin
  set local session_replication_role = replica;
  select string_agg(oid::regclass::text, ', ') into used from pg_class
    where relnamespace = 'headgate'::regnamespace and relkind = 'r' and pg_relation_size(oid) > 0
    and relname not in ('schema_version', 'installed', 'catalog_version');
  if used is not null then
    execute 'truncate ' || used;
  end if;
  update headgate.catalog_version set version = 0 where version <> 0;
  perform setval(seqrelid::regclass, seqstart, false) from pg_sequence where seqrelid >= 16384;
  delete from pg_statistic where starelid >= 16384;
  perform pg_stat_reset();
end $$`

// emptyPostgres removes all rows of a database that a test has used. It is not reusable while another connection is
// open, or if the test has changed more than rows.
func emptyPostgres(d *database) (reusable bool, err error) {
	ctx := context.Background()
	err = withConn(d.dsn, func(conn *pgx.Conn) error {
		// A connection that the test has closed ends a little later.
		for tries := 0; ; tries++ {
			var otherConns int
			err := conn.QueryRow(ctx, "select count(*) from pg_stat_activity where datname = current_database() "+
				"and pid <> pg_backend_pid()").Scan(&otherConns)
			if err != nil || otherConns > 0 && tries == 50 {
				return err
			}
			if otherConns == 0 {
				break
			}
			time.Sleep(2 * time.Millisecond)
		}
		var structure string
		err := conn.QueryRow(ctx, postgresStructure).Scan(&structure)
		if err != nil || structure != d.structure {
			return err
		}
		_, err = conn.Exec(ctx, postgresDeletes)
		reusable = err == nil
		return err
	})
	return reusable, err
}
