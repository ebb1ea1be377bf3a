package mysql_test

import (
	"context"
	"database/sql"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/mysql"
	"github.com/headgate/headgate/store/storetest"
)

// seqNumbers is the rest of a statement that selects seq from 1 to 10001.
var seqNumbers = func() string {
	const digits = "(SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL " +
		"SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)"
	return " FROM (SELECT 1 + a.n + 10 * b.n + 100 * c.n + 1000 * d.n + 10000 * e.n AS seq FROM " + digits + " a, " + digits +
		" b, " + digits + " c, " + digits + " d, (SELECT 0 AS n UNION ALL SELECT 1) e) s WHERE seq <= 10001"
}()

// findsWhatIsWrong plants problems of a server, one after the other, that Examine must find.
func findsWhatIsWrong(t *testing.T, server string) {
	url := dbtest.MariaDBAt(t, server)[0]
	s, err := mysql.Open(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	storetest.Finds(t, s, store.Wrong, "schema", "run headgate migrate")
	if _, err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	db := plainDB(t, url)
	exec := func(statement string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	setGlobal(t, db, "innodb_flush_log_at_trx_commit", "1")
	setGlobal(t, db, "sync_binlog", "1")
	storetest.FindsNothing(t, s)
	idsRemembered := `INSERT INTO headgate_cells (limit_name, cell_key, law, unit, step, empty_at)
		SELECT 'ids', seq, 1, 1, 1, 1 ` + seqNumbers
	exec(`INSERT INTO headgate_admissions (limit_name, cell_key, id, print, rule, cost, outcome, settled, keep_until)
		SELECT 'ids', seq, 'x', 1, '', 1, '', -1, 9007199254740991 ` + seqNumbers)
	for _, tt := range []struct {
		severity      store.Severity
		check, remedy string
		plant, mend   string
	}{
		{
			store.Wrong, "durability", "innodb_flush_log_at_trx_commit = 1",
			"SET GLOBAL innodb_flush_log_at_trx_commit = 2", "SET GLOBAL innodb_flush_log_at_trx_commit = 1",
		},
		{ // a sweep leaves these alone, since ids are remembered in them
			store.Fine, "sweeper", "", idsRemembered, "DELETE FROM headgate_cells WHERE limit_name = 'ids'",
		},
		{store.Note, "binlog", "sync_binlog = 1", "SET GLOBAL sync_binlog = 0", "SET GLOBAL sync_binlog = 1"},
		{
			store.Note, "timeouts", "innodb_lock_wait_timeout = 50",
			"SET GLOBAL innodb_lock_wait_timeout = 600", "SET GLOBAL innodb_lock_wait_timeout = 50",
		},
		{
			store.Wrong, "indexes", "DROP INDEX",
			"CREATE INDEX extra ON headgate_cells (empty_at)", "DROP INDEX extra ON headgate_cells",
		},
		{
			store.Wrong, "sweeper", "headgate sweep", `INSERT INTO headgate_cells (limit_name, cell_key, law, unit, step, empty_at)
				SELECT 'dead', seq, 1, 1, 1, 1 ` + seqNumbers, "DELETE FROM headgate_cells WHERE limit_name = 'dead'",
		},
		{
			store.Wrong, "engine", "ENGINE = InnoDB",
			"ALTER TABLE headgate_cells ENGINE = MyISAM", "ALTER TABLE headgate_cells ENGINE = InnoDB",
		},
		{store.Wrong, "primary", "read_only = OFF", "SET GLOBAL read_only = ON", "SET GLOBAL read_only = OFF"},
	} {
		exec(tt.plant)
		storetest.Finds(t, s, tt.severity, tt.check, tt.remedy)
		exec(tt.mend)
	}
	storetest.FindsNothing(t, s)
	forgotten, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = forgotten.Rollback() }()
	const held = "INSERT INTO headgate_cells (limit_name, cell_key, law, unit, step, empty_at) VALUES ('x', 'y', 1, 1, 1, 1)"
	if _, err := forgotten.ExecContext(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	storetest.Finds(t, s, store.Fine, "transactions", "")
	mysql.OldTransactions(s, -time.Hour)
	last := serverClock(t, db)
	await.Until(t, "the server to refresh its list of transactions, which it does when nobody has asked for 100 ms", func() bool {
		return serverClock(t, db) > last+200_000
	})
	storetest.Finds(t, s, store.Wrong, "transactions", "KILL")
	if err := forgotten.Rollback(); err != nil {
		t.Fatal(err)
	}
	mysql.OldTransactions(s, 0)
	newUser(t, db, "limited", "")
	exec("GRANT ALL ON *.* TO limited")
	exec("REVOKE PROCESS ON *.* FROM limited")
	limited := openAt(t, strings.Replace(url, "root@", "limited@", 1))
	storetest.Finds(t, limited, store.Note, "transactions", "GRANT PROCESS")
	_, database, _ := strings.Cut(strings.TrimPrefix(url, "mysql://"), "/")
	newUser(t, db, "nobody", "")
	exec("GRANT CREATE ON " + database + ".* TO nobody")
	nobody, err := mysql.Open(t.Context(), strings.Replace(url, "root@", "nobody@", 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer nobody.Close()
	storetest.Finds(t, nobody, store.Wrong, "rights", "as the owner")
	var many []*sql.Conn
	for range 91 {
		c, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		many = append(many, c)
	}
	storetest.Finds(t, s, store.Wrong, "connections", "raise max_connections")
	for _, c := range many {
		c.Close()
	}
	silent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	for _, gone := range []string{"127.0.0.1:1", silent.Addr().String()} {
		both := openAt(t, oneURL([]string{url, "mysql://root@" + gone + "/"}))
		storetest.Finds(t, both, store.Wrong, "node", "remove it from the URL")
		storetest.FindsNothing(t, both, "node") // and the other one is examined
	}
}

// TestGaleraDoctor plants problems of a cluster.
func TestGaleraDoctor(t *testing.T) {
	dbtest.NeedEngine(t, dbtest.GaleraEngine)
	g, err := dbtest.StartGalera(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Stop)
	urls := dbtest.MariaDBAt(t, g.Servers()...)
	all, rest := openAt(t, oneURL(urls)), openAt(t, oneURL(urls[1:]))
	storetest.Finds(t, all, store.Note, "copies", "wsrep_sst_method = mariabackup")
	for _, u := range urls {
		db := plainDB(t, u)
		for _, set := range []string{"wsrep_sst_method = 'mariabackup'", "innodb_flush_log_at_trx_commit = 1"} {
			if _, err := db.ExecContext(t.Context(), "SET GLOBAL "+set); err != nil {
				t.Fatalf("%s: %v", set, err)
			}
		}
	}
	storetest.FindsNothing(t, all)
	storetest.Finds(t, all, store.Fine, "copies", "")
	g.Kill(0)
	storetest.Finds(t, all, store.Wrong, "node", "have it join the others")
	// The others take it for a member at first.
	await.Until(t, "a cluster of two", func() bool {
		n, err := dbtest.MariaDBCount(g.Servers()[1], "SHOW GLOBAL STATUS LIKE 'wsrep_cluster_size'")
		return err == nil && n == 2
	})
	storetest.Finds(t, rest, store.Wrong, "cluster", "a third node")
}

// TestGroupReplicationDoctor lets one node leave its group, and another one die.
func TestGroupReplicationDoctor(t *testing.T) {
	g := dbtest.StartMySQLGroup(t, nil, true)
	urls := dbtest.MariaDBAt(t, g.Servers()...)
	all := openAt(t, oneURL(urls))
	inStep(t, urls)
	// The servers of the tests flush less.
	storetest.FindsNothing(t, all, "durability")
	storetest.Finds(t, all, store.Note, "primary", "before this one")
	secondaries := openAt(t, oneURL(urls[1:]))
	storetest.Finds(t, secondaries, store.Wrong, "primary", "name one that does")
	member := plainDB(t, urls[2])
	for _, tt := range []struct {
		do, remedy string
		severity   store.Severity
	}{
		{"STOP GROUP_REPLICATION", "START GROUP_REPLICATION", store.Wrong},
		{"START GROUP_REPLICATION", "", store.Fine},
	} {
		if _, err := member.ExecContext(t.Context(), tt.do); err != nil {
			t.Fatalf("%s: %v", tt.do, err)
		}
		storetest.Finds(t, all, tt.severity, "cluster", tt.remedy)
	}
	storetest.FindsNothing(t, all, "durability")
	g.Kill(1)
	storetest.Finds(t, all, store.Wrong, "node", "have it join the others")
	await.Until(t, "a group of two", func() bool {
		n, err := dbtest.MariaDBCount(g.Servers()[0], "SELECT 'members', COUNT(*) FROM performance_schema.replication_group_members")
		return err == nil && n == 2
	})
	storetest.Finds(t, openAt(t, oneURL([]string{urls[0], urls[2]})), store.Wrong, "cluster", "a third member")
}
