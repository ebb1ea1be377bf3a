package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// detect sets the facts about the server. The error is ErrSetup for a TiDB whose settings this package cannot use.
func (s *transport) detect(ctx context.Context, db querier) error {
	values, err := variables(ctx, db, "SESSION", "version", "wsrep_on", "group_replication_group_name",
		"innodb_snapshot_isolation", "tidb_txn_mode", "tidb_constraint_check_in_place_pessimistic")
	if err != nil {
		return classifyRead("read the server's variables", err)
	}
	// An optimistic transaction of TiDB locks nothing before its COMMIT, and a transaction that looks for duplicates
	// only at its COMMIT can have no savepoint.
	for name, want := range map[string]string{
		"tidb_txn_mode": "pessimistic", "tidb_constraint_check_in_place_pessimistic": "ON",
	} {
		if value, ok := values[name]; ok && value != want {
			return fmt.Errorf("mysql: %w: %s is %q: SET GLOBAL %s = '%s', and connect again", store.ErrSetup, name,
				value, name, want)
		}
	}
	s.galera.Store(values["wsrep_on"] == "ON")
	s.groupRepl.Store(values["group_replication_group_name"] != "")
	s.snapshotIsolation.Store(values["innodb_snapshot_isolation"] != "")
	s.hasReturning.Store(strings.Contains(values["version"], "MariaDB"))
	if _, tidb := values["tidb_txn_mode"]; tidb {
		s.noDirectCall.Store(true) // it has no procedures
	}
	return nil
}

// variables returns the values of those of some variables that the server has. scope is GLOBAL or SESSION.
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

// checkServer returns why this package cannot use the server or its connections, or nil.
func checkServer(ctx context.Context, db querier) error {
	var version string
	var slept, sysdateMoves int
	var s session
	if err := db.QueryRowContext(ctx, "SELECT VERSION(), "+sessionColumns+", SLEEP(0.001), SYSDATE(6) <> NOW(6)").Scan(
		&version, &s.mode, &s.client, &s.connection, &s.results, &slept, &sysdateMoves); err != nil {
		return classifyRead("read the server's version", err)
	}
	if err := checkVersion(version); err != nil {
		return err
	}
	if err := s.check(); err != nil {
		return fmt.Errorf("mysql: %w", err)
	}
	if sysdateMoves == 0 {
		return fmt.Errorf("mysql: %w: SYSDATE() does not move while a statement waits: start the server without "+
			"sysdate-is-now", store.ErrSetup)
	}
	_, err := db.ExecContext(ctx, "SELECT 0; SELECT 0")
	if number, _ := numberOf(err); number == 1064 { // every server accepts each of the two statements alone
		return fmt.Errorf("mysql: %w: the connections do not take several statements at once: open them with "+
			"multiStatements=true (%w)", store.ErrSetup, err)
	}
	return classifyRead("send several statements at once", err)
}

// checkVersion returns an error for a server that is too old.
func checkVersion(version string) error {
	var major, minor int
	// MariaDB may put 5.5.5- before its version. A version that cannot be read stays 0, which is too old.
	_, _ = fmt.Sscanf(strings.TrimPrefix(version, "5.5.5-"), "%d.%d", &major, &minor)
	minVersion, name := 800, "MySQL 8.0" // 100 * major + minor
	switch {
	case strings.Contains(version, "TiDB"):
		return nil // its version is that of a compatible MySQL
	case strings.Contains(version, "MariaDB"):
		minVersion, name = 1006, "MariaDB 10.6"
	}
	if major*100+minor < minVersion {
		return fmt.Errorf("mysql: %w: the server has version %s; %s or later is needed", store.ErrSetup, version, name)
	}
	return nil
}

// clock reads the server's clock, in microseconds since the Unix epoch.
func clock(ctx context.Context, db querier) (now int64, err error) {
	err = db.QueryRowContext(ctx, "SELECT "+readClock).Scan(&now)
	return now, classifyRead("read the clock", err)
}

// usable returns why the store cannot be used at all, or nil.
func (s *Store) usable() error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	if s.nodes[0].db == nil {
		return fmt.Errorf("mysql: %w", law.Invalid("db", "is missing"))
	}
	return nil
}

// ready returns why the store cannot be used, or nil. It checks the server and the version of the schema, and sets the
// facts about the server, until that succeeds once.
func (s *Store) ready(ctx context.Context) error {
	if err := s.usable(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.checked.Load() {
		return nil
	}
	err := s.onAnyNode(func(db querier) error {
		if err := checkServer(ctx, db); err != nil {
			return err
		}
		installed, err := readInstalled(ctx, db)
		if err != nil {
			return err
		}
		if err := installed.check(s.def); err != nil {
			return err
		}
		if installed.revision < s.def.revision {
			s.log.Warn("the procedures in the database are older than this binary: run headgate migrate", "revision",
				installed.revision, "binary", s.def.revision)
		}
		return s.detect(ctx, db)
	})
	if err == nil {
		s.checked.Store(true)
	}
	return err
}
