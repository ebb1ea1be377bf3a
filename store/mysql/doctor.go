package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/store"
)

// Examine implements store.Doctor. It examines all nodes of a cluster, where a node that it cannot reach is a finding.
// It examines the schema on one node; if it can reach none for that, it returns the error.
func (s *Store) Examine(ctx context.Context) ([]store.Finding, error) {
	if s.tx != nil || s.nodes[0].db == nil {
		return nil, fmt.Errorf("mysql: %w: a store inside a transaction, or without a database, is not examined",
			store.ErrUnsupported)
	}
	var f store.Findings
	anyWrites := false
	for _, n := range s.nodes {
		nodeWrites, err := s.examineNode(ctx, n, &f)
		if err = f.Away(ctx, n.name, len(s.nodes), err); err != nil {
			return f, err
		}
		anyWrites = anyWrites || nodeWrites
	}
	if len(s.nodes) > 1 && !anyWrites {
		f.Add(store.Wrong, "primary", "no node takes writes",
			"name one that does in the URL, or SET GLOBAL read_only = OFF")
	}
	return f, s.onAnyNode(func(db querier) error { return s.examineSchema(ctx, db, &f) })
}

// status reads a status variable of the server.
func status(ctx context.Context, db querier, name string) (value string, err error) {
	err = db.QueryRowContext(ctx, "SHOW GLOBAL STATUS WHERE Variable_name = '"+name+"'").Scan(&name, &value)
	return value, classifyRead("read the server's status", err)
}

// examineTimeout is how long examineNode may take.
const examineTimeout = 10 * time.Second

// examineNode examines one server, for examineTimeout at most, and reports whether it takes writes.
func (s *Store) examineNode(ctx context.Context, n *node, f *store.Findings) (writes bool, err error) {
	ctx, cancel := sched.WithTimeout(ctx, examineTimeout)
	defer cancel()
	nodeName := "the server"
	if len(s.nodes) > 1 {
		nodeName = n.name
	}
	v, err := variables(ctx, n.db, "GLOBAL", "version", "innodb_flush_log_at_trx_commit", "sync_binlog", "log_bin",
		"read_only", "innodb_doublewrite", "innodb_lock_wait_timeout", "max_connections", "wsrep_on",
		"wsrep_sst_method", "group_replication_group_name")
	if err != nil {
		return false, classifyRead("read the server's variables", err)
	}
	if err := checkServer(ctx, n.db); err != nil {
		if !errors.Is(err, store.ErrSetup) {
			return false, err
		}
		f.Add(store.Wrong, "version", nodeName+": "+err.Error(),
			"see docs/stores.md for versions and settings of connections")
	} else {
		f.OK("version", "%s has version %s", nodeName, v["version"])
	}
	writes = v["read_only"] != "ON" && v["read_only"] != "1"
	severity := store.Wrong
	if len(s.nodes) > 1 { // it may be a secondary
		severity = store.Note
	}
	f.Expect(writes, "primary", nodeName+" takes writes", severity, nodeName+" is read-only",
		"name a node that takes writes in the URL, before this one, or SET GLOBAL read_only = OFF")
	readServerClock := func() (us int64, err error) { return clock(ctx, n.db) }
	if strings.Contains(v["version"], "TiDB") { // the other checks are about InnoDB
		return writes, f.Clock("the clock of "+nodeName, readServerClock)
	}
	examineDurability(f, nodeName, v)
	if seconds, _ := strconv.Atoi(v["innodb_lock_wait_timeout"]); seconds > 60 {
		f.Add(store.Note, "timeouts", fmt.Sprintf("%s waits %d s for a lock of somebody else's", nodeName, seconds),
			"SET GLOBAL innodb_lock_wait_timeout = 50, or less: callers from SQL wait that long")
	}
	if v["wsrep_on"] == "ON" {
		if err := examineGalera(ctx, n.db, f, nodeName, v["wsrep_sst_method"]); err != nil {
			return false, err
		}
	}
	if v["group_replication_group_name"] != "" {
		if err := examineGroup(ctx, n.db, f, nodeName); err != nil {
			return false, err
		}
	}
	if err := s.examineSessions(ctx, n, f, nodeName, v["max_connections"]); err != nil {
		return false, err
	}
	return writes, f.Clock("the clock of "+nodeName, readServerClock)
}

// examineGalera looks for reasons why a cluster may take no charges. sstMethod is how a new node gets all data.
func examineGalera(ctx context.Context, db querier, f *store.Findings, nodeName, sstMethod string) error {
	size, err := status(ctx, db, "wsrep_cluster_size")
	if err != nil {
		return err
	}
	examineSize(f, nodeName, size, "add a third node or an arbiter, or start the one that is away")
	f.Expect(sstMethod != "rsync" && sstMethod != "mysqldump", "copies",
		fmt.Sprintf("%s copies all data by %s when a node needs it", nodeName, sstMethod), store.Note,
		fmt.Sprintf("%s has wsrep_sst_method = %s: when a node needs a copy of all data, the node that gives it takes "+
			"no charges meanwhile", nodeName, sstMethod),
		"set wsrep_sst_method = mariabackup and wsrep_sst_auth on all nodes")
	return nil
}

// examineSize looks for a cluster of two nodes: it takes writes only while more than half of its nodes are up.
func examineSize(f *store.Findings, nodeName, size, remedy string) {
	f.Expect(size != "2", "cluster", nodeName+" is one of "+size+" nodes", store.Wrong,
		nodeName+" is one of two nodes: without the other one it takes no writes", remedy)
}

// examineGroup looks at the members of a Group Replication.
func examineGroup(ctx context.Context, db querier, f *store.Findings, nodeName string) error {
	var members, online string
	var ownState sql.NullString
	err := db.QueryRowContext(ctx, `SELECT COUNT(*), COALESCE(SUM(MEMBER_STATE = 'ONLINE'), 0),
		MAX(IF(MEMBER_ID = @@GLOBAL.server_uuid, MEMBER_STATE, NULL))
		FROM performance_schema.replication_group_members`).Scan(&members, &online, &ownState)
	switch err := classifyRead("examine", err); {
	case errors.Is(err, store.ErrSetup):
		f.Add(store.Note, "cluster", "this user may not see the group of "+nodeName,
			"GRANT SELECT ON performance_schema.replication_group_members TO this user")
		return nil
	case err != nil:
		return err
	}
	switch {
	case ownState.String != "ONLINE":
		f.Add(store.Wrong, "cluster", fmt.Sprintf("%s is %s in its group: the others do not know what it is charged",
			nodeName, cmp.Or(ownState.String, "no member")),
			"START GROUP_REPLICATION, and set super_read_only = ON in the configuration: then it takes no charges "+
				"before it has joined")
	case online != members:
		f.Add(store.Wrong, "cluster", fmt.Sprintf("%s sees %s of %s members online", nodeName, online, members),
			"have the others join again, or wait until the group has expelled them")
	default:
		examineSize(f, nodeName, members, "add a third member, or start the one that is away")
	}
	return nil
}

// examineDurability looks for settings with which a crash of the server or its machine loses admitted charges.
func examineDurability(f *store.Findings, nodeName string, v map[string]string) {
	before := len(*f)
	if flush := v["innodb_flush_log_at_trx_commit"]; flush != "1" {
		f.Add(store.Wrong, "durability",
			fmt.Sprintf("%s has innodb_flush_log_at_trx_commit = %s: a crash forgets what was admitted "+
				"in the last second or so", nodeName, flush),
			"SET GLOBAL innodb_flush_log_at_trx_commit = 1, and in the configuration")
	}
	if (v["log_bin"] == "ON" || v["log_bin"] == "1") && v["sync_binlog"] != "1" {
		f.Add(store.Note, "binlog",
			fmt.Sprintf("%s has sync_binlog = %s: a replica that takes over after a crash may lack charges",
				nodeName, v["sync_binlog"]), "SET GLOBAL sync_binlog = 1, and in the configuration")
	}
	if doublewrite := v["innodb_doublewrite"]; doublewrite == "OFF" || doublewrite == "0" {
		f.Add(store.Wrong, "durability",
			nodeName+" has innodb_doublewrite off: a crash of the machine can damage pages",
			"set innodb_doublewrite = ON in the configuration and restart")
	}
	if len(*f) == before {
		f.OK("durability", "%s has commits on its disk before they are answered", nodeName)
	}
}

// examineSessions looks for an old transaction, and whether more than nine tenths of maxConns connections are in use.
func (s *Store) examineSessions(ctx context.Context, n *node, f *store.Findings, nodeName, maxConns string) error {
	var id, seconds int64
	err := n.db.QueryRowContext(ctx, `SELECT COALESCE(MAX(trx_mysql_thread_id), 0),
		COALESCE(MAX(TIMESTAMPDIFF(SECOND, trx_started, NOW())), 0) FROM information_schema.innodb_trx
		WHERE trx_started < NOW() - INTERVAL `+
		strconv.FormatInt(int64(cmp.Or(s.oldTransaction, time.Minute)/time.Second), 10)+
		` SECOND AND trx_mysql_thread_id <> CONNECTION_ID()`).Scan(&id, &seconds)
	switch err := classifyRead("examine", err); {
	case errors.Is(err, store.ErrSetup):
		f.Add(store.Note, "transactions", "this user may not see the transactions of "+nodeName,
			"GRANT PROCESS ON *.* TO this user")
	case err != nil:
		return err
	case id > 0:
		f.Add(store.Wrong, "transactions", fmt.Sprintf("%s has a transaction that is %d s old: it may hold rows",
			nodeName, seconds),
			fmt.Sprintf("KILL %d, or find the program that forgot to commit", id))
	default:
		f.OK("transactions", "none of %s is older than a minute", nodeName)
	}
	text, err := status(ctx, n.db, "Threads_connected")
	if err != nil {
		return err
	}
	used, _ := strconv.Atoi(text)
	limit, _ := strconv.Atoi(maxConns)
	found := fmt.Sprintf("%d of %s of %s are in use", used, maxConns, nodeName)
	f.Expect(limit <= 0 || used*10 <= limit*9, "connections", found, store.Wrong, found,
		"raise max_connections, or lower conns= in the URLs of the programs")
	return nil
}

// examineSchema looks at the version of the schema and at the table of cells.
func (s *Store) examineSchema(ctx context.Context, db querier, f *store.Findings) error {
	installed, err := readInstalled(ctx, db)
	if errors.Is(err, store.ErrSetup) {
		f.Add(store.Wrong, "rights", "this user may not read the tables of headgate: "+err.Error(),
			"run headgate migrate --role service --user USER as the owner")
		return nil
	}
	if err != nil {
		return err
	}
	if !f.Schema(installed.check(s.def), installed.revision < s.def.revision,
		fmt.Sprintf("state %d, revision %d", installed.state, installed.revision)) {
		return nil
	}
	var engine string
	var indexes int
	if err := db.QueryRowContext(ctx, `SELECT COALESCE(MAX(engine), ''), (SELECT COUNT(DISTINCT index_name)
			FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = 'headgate_cells')
		FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'headgate_cells'`).Scan(
		&engine, &indexes); err != nil {
		return classifyRead("read about headgate_cells", err)
	}
	f.Expect(engine == "InnoDB", "engine", "headgate_cells has the engine InnoDB", store.Wrong,
		"headgate_cells has the engine "+engine+", which has no transactions",
		"ALTER TABLE headgate_cells ENGINE = InnoDB")
	f.Expect(indexes <= 1, "indexes", "headgate_cells has its primary key alone", store.Wrong,
		fmt.Sprintf("headgate_cells has %d indexes: each decision writes to those that a change touches", indexes),
		"DROP INDEX all but PRIMARY")
	return s.examineSweeper(ctx, db, f)
}

// examineSweeper counts the keys that a sweep could have removed ten minutes ago, up to one more than MostUnswept.
func (s *Store) examineSweeper(ctx context.Context, db querier, f *store.Findings) error {
	now, err := clock(ctx, db)
	if err != nil {
		return err
	}
	past := strconv.FormatInt(now-600_000_000, 10) // ten minutes ago, in microseconds
	var unswept int
	if err := db.QueryRowContext(ctx, fmt.Sprintf("SELECT COUNT(*) FROM (SELECT 1 FROM headgate_cells c WHERE %s LIMIT %d) x",
		deadCondition("c", past), store.MostUnswept+1)).Scan(&unswept); err != nil {
		return classifyRead("count the keys that count for nothing", err)
	}
	f.Sweeper(unswept)
	return nil
}
