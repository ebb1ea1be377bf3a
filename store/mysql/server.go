package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// detect finds out whether the server is a node of a Galera cluster or a member of a Group Replication, and what it
// knows: innodb_snapshot_isolation, INSERT .. RETURNING. A TiDB with settings that will not do is ErrSetup.
func (s *transport) detect(ctx context.Context, db querier) error {
	values, err := variables(ctx, db, "SESSION", "version", "wsrep_on", "group_replication_group_name",
		"innodb_snapshot_isolation", "tidb_txn_mode", "tidb_constraint_check_in_place_pessimistic")
	if err != nil {
		return classify("read the server's variables", err)
	}
	// An optimistic transaction of TiDB locks nothing before its COMMIT, and there is no savepoint in one that looks
	// for duplicates as late as that.
	for name, want := range map[string]string{
		"tidb_txn_mode": "pessimistic", "tidb_constraint_check_in_place_pessimistic": "ON",
	} {
		if value, known := values[name]; known && value != want {
			return fmt.Errorf("mysql: %w: %s is %q: SET GLOBAL %s = '%s', and connect again", store.ErrSetup, name,
				value, name, want)
		}
	}
	s.galera.Store(values["wsrep_on"] == "ON")
	s.group.Store(values["group_replication_group_name"] != "")
	s.snapshots.Store(values["innodb_snapshot_isolation"] != "")
	s.returning.Store(strings.Contains(values["version"], "MariaDB"))
	if _, tidb := values["tidb_txn_mode"]; tidb {
		s.uncalled.Store(true) // it has no procedures
	}
	return nil
}

// variables reads variables that the server has; scope is GLOBAL or SESSION.
func variables(ctx context.Context, db querier, scope string, names ...string) (map[string]string, error) {
	values := make(map[string]string)
	err := eachRow(ctx, db, "SHOW "+scope+" VARIABLES WHERE Variable_name IN ('"+strings.Join(names, "', '")+"')",
		func(r *sql.Rows) error {
			var name, value string
			err := r.Scan(&name, &value)
			values[name] = value
			return err
		})
	return values, err
}

// checkServer returns why the server, or the way to it, cannot be used.
func checkServer(ctx context.Context, db querier) error {
	var version string
	var slept, moves int
	var s session
	if err := db.QueryRowContext(ctx, "SELECT VERSION(), "+sessionColumns+", SLEEP(0.001), SYSDATE(6) <> NOW(6)").Scan(
		&version, &s.mode, &s.client, &s.connection, &s.results, &slept, &moves); err != nil {
		return classify("read the server's version", err)
	}
	if err := checkVersion(version); err != nil {
		return err
	}
	if err := s.check(); err != nil {
		return fmt.Errorf("mysql: %w", err)
	}
	if moves == 0 {
		return fmt.Errorf("mysql: %w: SYSDATE() does not move while a statement waits: start the server without "+
			"sysdate-is-now", store.ErrSetup)
	}
	_, err := db.ExecContext(ctx, "SELECT 0; SELECT 0")
	if number, _ := numberOf(err); number == 1064 { // each of the two by itself is known everywhere
		return fmt.Errorf("mysql: %w: the connections do not take several statements at once: open them with "+
			"multiStatements=true (%w)", store.ErrSetup, err)
	}
	return classify("send several statements at once", err)
}

// checkVersion refuses a version that will not do.
func checkVersion(version string) error {
	var major, minor int
	_, _ = fmt.Sscanf(strings.TrimPrefix(version, "5.5.5-"), "%d.%d", &major, &minor) // 0 is too old
	least, name := 800, "MySQL 8.0"
	switch {
	case strings.Contains(version, "TiDB"):
		return nil // it names a MySQL version that it is compatible with
	case strings.Contains(version, "MariaDB"):
		least, name = 1006, "MariaDB 10.6"
	}
	if major*100+minor < least {
		return fmt.Errorf("mysql: %w: the server has version %s; %s or later is needed", store.ErrSetup, version, name)
	}
	return nil
}

// clock reads the server's clock.
func clock(ctx context.Context, db querier) (now int64, err error) {
	err = db.QueryRowContext(ctx, "SELECT "+readClock).Scan(&now)
	return now, classify("read the clock", err)
}

// ready returns why the store cannot be used, or nil. It looks at the server and
// the version of the schema once.
func (s *Store) ready(ctx context.Context) error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.checked.Load() {
		return nil
	}
	if s.nodes[0].db == nil {
		return fmt.Errorf("mysql: %w", law.Invalid("db", "is missing"))
	}
	err := s.anywhere(func(db querier) error {
		if err := checkServer(ctx, db); err != nil {
			return err
		}
		have, err := readInstalled(ctx, db)
		if err != nil {
			return err
		}
		if err := have.check(s.def); err != nil {
			return err
		}
		if have.revision < s.def.revision {
			s.log.Warn("the procedures in the database are older than this binary: run headgate migrate", "revision",
				have.revision, "binary", s.def.revision)
		}
		return s.detect(ctx, db)
	})
	if err == nil {
		s.checked.Store(true)
	}
	return err
}
