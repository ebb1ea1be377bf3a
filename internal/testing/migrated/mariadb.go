package migrated

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/store/mysql"
)

var mariadbPool = &pool{create: newMariaDB, empty: emptyMariaDB}

// MariaDB returns the URL of a database with the schema and the articles' procedures, and without rows. Another test
// uses it afterwards: a test that changes the schema must take a database of [dbtest.MariaDB] instead.
func MariaDB(tb testing.TB) string {
	tb.Helper()
	return mariadbPool.take(tb)
}

func newMariaDB(tb testing.TB) (*database, error) {
	d := &database{dsn: dbtest.KeptMariaDB(tb)}
	s, err := mysql.Open(context.Background(), d.dsn,
		&mysql.Config{Articles: d.dsn[strings.LastIndex(d.dsn, "/")+1:]})
	if err != nil {
		return nil, err
	}
	_, err = s.Migrate(context.Background())
	s.Close()
	if err == nil {
		_, err = emptyMariaDB(d) // sets d.structure
	}
	return d, err
}

// mariadbStructure returns a fingerprint of the columns, routines, triggers and events of the present database. It
// reads only what the statements that made them have set: statistics and cached values would change by themselves.
const mariadbStructure = `select coalesce(sum(crc32(x)), 0) from (
select concat_ws('|', table_name, column_name, column_type, is_nullable, column_key) x
from information_schema.columns where table_schema = database()
union all select concat_ws('|', routine_name, crc32(routine_definition), definer) from information_schema.routines
where routine_schema = database()
union all select concat_ws('|', trigger_name, crc32(action_statement)) from information_schema.triggers
where trigger_schema = database()
union all select concat_ws('|', event_name, status) from information_schema.events where event_schema = database()) s`

// mariadbDeletes removes all rows that tests make. Triggers of the first tables write to the later ones.
var mariadbDeletes = []string{
	"delete from headgate_zones", "delete from headgate_buckets", "delete from headgate_limits",
	"delete from headgate_catalog", "delete from headgate_versions", "delete from headgate_changes",
	"update headgate_catalog_version set version = 0, kinds = 0", "delete from headgate_cells",
	"delete from headgate_entries", "alter table headgate_entries auto_increment = 1",
	"delete from headgate_admissions", "delete from headgate_roles",
	"delete from headgate_actions", "alter table headgate_actions auto_increment = 1",
}

// emptyMariaDB removes the rows of a database that a test used. It sets d.structure at first, and later returns an
// error if the test has changed it. The database is not reusable on MySQL, nor while another connection is open.
func emptyMariaDB(d *database) (reusable bool, err error) {
	ctx := context.Background()
	db, err := dbtest.OpenMariaDB(d.dsn)
	if err != nil {
		return false, err
	}
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	// On MySQL 9.7 the structure of a database differed after a test that had not changed it, for an unknown reason. So
	// on MySQL, which only make engines tests, each test gets a new database.
	var mariadb bool
	err = conn.QueryRowContext(ctx, "select version() like '%MariaDB%'").Scan(&mariadb)
	if err != nil || !mariadb {
		return false, err
	}
	// A connection that the test has closed ends a little later.
	for otherConns, tries := 1, 0; otherConns > 0; tries++ {
		if err := conn.QueryRowContext(ctx, "select count(*), sleep(if(count(*) > 0, 0.002, 0)) "+
			"from information_schema.processlist where db = database() and id <> connection_id()").Scan(&otherConns,
			new(int)); err != nil || tries == 500 {
			return false, err
		}
	}
	var structure string
	if err := conn.QueryRowContext(ctx, mariadbStructure).Scan(&structure); err != nil {
		return false, err
	}
	if d.structure = cmp.Or(d.structure, structure); d.structure != structure {
		return false, errors.New("the test has changed the schema: it needs a database of dbtest.MariaDB")
	}
	_, err = conn.ExecContext(ctx, strings.Join(mariadbDeletes, "; "))
	return err == nil, err
}
