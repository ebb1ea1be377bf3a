package mysql_test

import (
	"context"
	"database/sql"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/mysql"
	"github.com/headgate/headgate/store/storetest"
)

// fromSeq returns a FROM clause whose column seq counts from 1 to last, which is at most 20000. MySQL has no table of
// numbers such as seq_1_to_9.
func fromSeq(last int) string {
	const digits = "(SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL " +
		"SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)"
	return " FROM (SELECT 1 + a.n + 10 * b.n + 100 * c.n + 1000 * d.n + 10000 * e.n AS seq FROM " + digits + " a, " + digits +
		" b, " + digits + " c, " + digits + " d, (SELECT 0 AS n UNION ALL SELECT 1) e) s WHERE seq <= " + strconv.Itoa(last)
}

// expectFindings plants problems in a server, one after the other, and checks that Examine finds each, with its remedy,
// and nothing wrong before the first plant and after the repairs.
func expectFindings(t *testing.T, server string) {
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
	db := openPlainDB(t, url)
	exec := func(statement string) {
		t.Helper()
		mustExec(t, db, statement)
	}
	setGlobal(t, db, "innodb_flush_log_at_trx_commit", "1")
	setGlobal(t, db, "sync_binlog", "1")
	storetest.FindsNothing(t, s)
	insertCellsWithReceipts := `INSERT INTO headgate_cells (limit_name, cell_key, law, unit, step, empty_at)
		SELECT 'ids', seq, 1, 1, 1, 1 ` + fromSeq(10_001)
	exec(`INSERT INTO headgate_admissions (limit_name, cell_key, id, print, rule, cost, outcome, settled, keep_until)
		SELECT 'ids', seq, 'x', 1, '', 1, '', -1, 9007199254740991 ` + fromSeq(10_001))
	for _, tt := range []struct {
		severity      store.Severity
		check, remedy string
		plant, repair string
	}{
		{
			store.Wrong, "durability", "innodb_flush_log_at_trx_commit = 1",
			"SET GLOBAL innodb_flush_log_at_trx_commit = 2", "SET GLOBAL innodb_flush_log_at_trx_commit = 1",
		},
		{ // a sweep leaves cells with receipts alone
			store.Fine, "sweeper", "", insertCellsWithReceipts, "DELETE FROM headgate_cells WHERE limit_name = 'ids'",
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
				SELECT 'dead', seq, 1, 1, 1, 1 ` + fromSeq(10_001), "DELETE FROM headgate_cells WHERE limit_name = 'dead'",
		},
		{
			store.Wrong, "engine", "ENGINE = InnoDB",
			"ALTER TABLE headgate_cells ENGINE = MyISAM", "ALTER TABLE headgate_cells ENGINE = InnoDB",
		},
		{store.Wrong, "primary", "read_only = OFF", "SET GLOBAL read_only = ON", "SET GLOBAL read_only = OFF"},
	} {
		exec(tt.plant)
		storetest.Finds(t, s, tt.severity, tt.check, tt.remedy)
		exec(tt.repair)
	}
	storetest.FindsNothing(t, s)
	oldTx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = oldTx.Rollback() }()
	const insert = "INSERT INTO headgate_cells (limit_name, cell_key, law, unit, step, empty_at) VALUES ('x', 'y', 1, 1, 1, 1)"
	mustExec(t, oldTx, insert)
	storetest.Finds(t, s, store.Fine, "transactions", "")
	mysql.SetOldTransaction(s, -time.Hour) // all transactions are older
	begin := serverClock(t, db)
	await.Until(t, "the server to refresh its list of transactions, which it does when nobody has asked for 100 ms", func() bool {
		return serverClock(t, db) > begin+200_000
	})
	storetest.Finds(t, s, store.Wrong, "transactions", "KILL")
	if err := oldTx.Rollback(); err != nil {
		t.Fatal(err)
	}
	mysql.SetOldTransaction(s, 0)
	createUser(t, db, "limited", "") // all rights but PROCESS
	exec("GRANT ALL ON *.* TO limited")
	exec("REVOKE PROCESS ON *.* FROM limited")
	limitedStore := openAndMigrate(t, strings.Replace(url, "root@", "limited@", 1))
	storetest.Finds(t, limitedStore, store.Note, "transactions", "GRANT PROCESS")
	_, database, _ := strings.Cut(strings.TrimPrefix(url, "mysql://"), "/")
	createUser(t, db, "nobody", "") // may read no table of Headgate
	exec("GRANT CREATE ON " + database + ".* TO nobody")
	nobodyStore, err := mysql.Open(t.Context(), strings.Replace(url, "root@", "nobody@", 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer nobodyStore.Close()
	storetest.Finds(t, nobodyStore, store.Wrong, "rights", "as the owner")
	var conns []*sql.Conn
	for range 91 { // of max_connections = 100
		c, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	storetest.Finds(t, s, store.Wrong, "connections", "raise max_connections")
	for _, c := range conns {
		c.Close()
	}
	silentListener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silentListener.Close() })
	for _, address := range []string{"127.0.0.1:1", silentListener.Addr().String()} {
		s := openAndMigrate(t, joinURLs([]string{url, "mysql://root@" + address + "/"}))
		storetest.Finds(t, s, store.Wrong, "node", "remove it from the URL")
		storetest.FindsNothing(t, s, "node") // Examine goes on with the node that answers
	}
}

// TestGaleraDoctor checks that Examine finds a copy method that blocks, a node that is killed, and a cluster of two.
func TestGaleraDoctor(t *testing.T) {
	dbtest.NeedEngine(t, dbtest.GaleraEngine)
	g, err := dbtest.StartGalera(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Stop)
	urls := dbtest.MariaDBAt(t, g.Servers()...)
	allNodes, lastTwo := openAndMigrate(t, joinURLs(urls)), openAndMigrate(t, joinURLs(urls[1:]))
	storetest.Finds(t, allNodes, store.Note, "copies", "wsrep_sst_method = mariabackup")
	for _, u := range urls {
		db := openPlainDB(t, u)
		for _, setting := range []string{"wsrep_sst_method = 'mariabackup'", "innodb_flush_log_at_trx_commit = 1"} {
			mustExec(t, db, "SET GLOBAL "+setting)
		}
	}
	storetest.FindsNothing(t, allNodes)
	storetest.Finds(t, allNodes, store.Fine, "copies", "")
	g.Kill(0)
	storetest.Finds(t, allNodes, store.Wrong, "node", "have it join the others")
	// The other nodes take the killed one for a member at first.
	await.Until(t, "a cluster of two", func() bool {
		n, err := dbtest.MariaDBCount(g.Servers()[1], "SHOW GLOBAL STATUS LIKE 'wsrep_cluster_size'")
		return err == nil && n == 2
	})
	storetest.Finds(t, lastTwo, store.Wrong, "cluster", "a third node")
}

// TestGroupReplicationDoctor checks that Examine finds secondaries, a URL without the primary, a node that has left its
// group, a node that is killed, and a group of two.
func TestGroupReplicationDoctor(t *testing.T) {
	g := dbtest.StartMySQLGroup(t, nil, true)
	urls := dbtest.MariaDBAt(t, g.Servers()...)
	allNodes := openAndMigrate(t, joinURLs(urls))
	awaitWrites(t, urls)
	// Servers of tests do not flush each COMMIT, which is a finding about durability.
	storetest.FindsNothing(t, allNodes, "durability")
	storetest.Finds(t, allNodes, store.Note, "primary", "before this one")
	secondaries := openAndMigrate(t, joinURLs(urls[1:]))
	storetest.Finds(t, secondaries, store.Wrong, "primary", "name one that does")
	secondary := openPlainDB(t, urls[2])
	for _, tt := range []struct {
		statement, remedy string
		severity          store.Severity
	}{
		{"STOP GROUP_REPLICATION", "START GROUP_REPLICATION", store.Wrong},
		{"START GROUP_REPLICATION", "", store.Fine},
	} {
		if _, err := secondary.ExecContext(t.Context(), tt.statement); err != nil {
			t.Fatalf("%s: %v", tt.statement, err)
		}
		storetest.Finds(t, allNodes, tt.severity, "cluster", tt.remedy)
	}
	storetest.FindsNothing(t, allNodes, "durability")
	g.Kill(1)
	storetest.Finds(t, allNodes, store.Wrong, "node", "have it join the others")
	await.Until(t, "a group of two", func() bool {
		n, err := dbtest.MariaDBCount(g.Servers()[0], "SELECT 'members', COUNT(*) FROM performance_schema.replication_group_members")
		return err == nil && n == 2
	})
	remainingNodes := openAndMigrate(t, joinURLs([]string{urls[0], urls[2]}))
	storetest.Finds(t, remainingNodes, store.Wrong, "cluster", "a third member")
}
