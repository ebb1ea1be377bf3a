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

// Examine implements store.Doctor. Of a cluster, all nodes are examined; a node that cannot be asked is a finding
// then, unless it is so with all of them.
func (s *Store) Examine(ctx context.Context) ([]store.Finding, error) {
	if s.tx != nil || s.nodes[0].db == nil {
		return nil, fmt.Errorf("mysql: %w: a store inside a transaction, or without a database, is not examined",
			store.ErrUnsupported)
	}
	var f store.Findings
	writes := false // one of them does
	for _, n := range s.nodes {
		one, err := s.examineNode(ctx, n, &f)
		if err = f.Away(ctx, n.name, len(s.nodes), err); err != nil {
			return f, err
		}
		writes = writes || one
	}
	if len(s.nodes) > 1 && !writes {
		f.Add(store.Wrong, "primary", "no node takes writes",
			"name one that does in the URL, or SET GLOBAL read_only = OFF")
	}
	return f, s.anywhere(func(db querier) error { return s.examineSchema(ctx, db, &f) })
}

// status reads a figure of the server.
func status(ctx context.Context, db querier, name string) (value string, err error) {
	err = db.QueryRowContext(ctx, "SHOW GLOBAL STATUS WHERE Variable_name = '"+name+"'").Scan(&name, &value)
	return value, classifyRead("read the server's status", err)
}

// answersWithin is how long a node may take for all that is asked of it.
const answersWithin = 10 * time.Second

// examineNode looks at one server, and reports whether that takes writes.
func (s *Store) examineNode(ctx context.Context, n *node, f *store.Findings) (writes bool, err error) {
	ctx, cancel := sched.WithTimeout(ctx, answersWithin)
	defer cancel()
	of := "the server"
	if len(s.nodes) > 1 {
		of = n.name
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
		f.Add(store.Wrong, "version", of+": "+err.Error(),
			"see docs/stores.md for versions and settings of connections")
	} else {
		f.OK("version", "%s has version %s", of, v["version"])
	}
	writes = v["read_only"] != "ON" && v["read_only"] != "1"
	severity := store.Wrong
	if len(s.nodes) > 1 { // it may be a secondary
		severity = store.Note
	}
	f.Expect(writes, "primary", of+" takes writes", severity, of+" is read-only",
		"name a node that takes writes in the URL, before this one, or SET GLOBAL read_only = OFF")
	readsClock := func() (us int64, err error) { return clock(ctx, n.db) }
	if strings.Contains(v["version"], "TiDB") { // what follows is about InnoDB
		return writes, f.Clock("the clock of "+of, readsClock)
	}
	examineDurability(f, of, v)
	if seconds, _ := strconv.Atoi(v["innodb_lock_wait_timeout"]); seconds > 60 {
		f.Add(store.Note, "timeouts", fmt.Sprintf("%s waits %d s for a lock of somebody else's", of, seconds),
			"SET GLOBAL innodb_lock_wait_timeout = 50, or less: callers from SQL wait that long")
	}
	if v["wsrep_on"] == "ON" {
		if err := examineGalera(ctx, n.db, f, of, v["wsrep_sst_method"]); err != nil {
			return false, err
		}
	}
	if v["group_replication_group_name"] != "" {
		if err := examineGroup(ctx, n.db, f, of); err != nil {
			return false, err
		}
	}
	if err := s.examineSessions(ctx, n, f, of, v["max_connections"]); err != nil {
		return false, err
	}
	return writes, f.Clock("the clock of "+of, readsClock)
}

// examineGalera looks at when a cluster takes no charges. copies is how a node of it gets all data when it joins.
func examineGalera(ctx context.Context, db querier, f *store.Findings, of, copies string) error {
	size, err := status(ctx, db, "wsrep_cluster_size")
	if err != nil {
		return err
	}
	examineSize(f, of, size, "add a third node or an arbiter, or start the one that is away")
	f.Expect(copies != "rsync" && copies != "mysqldump", "copies",
		fmt.Sprintf("%s copies all data by %s when a node needs it", of, copies), store.Note,
		fmt.Sprintf("%s has wsrep_sst_method = %s: when a node needs a copy of all data, the node that gives it takes "+
			"no charges meanwhile", of, copies), "set wsrep_sst_method = mariabackup and wsrep_sst_auth on all nodes")
	return nil
}

// examineSize looks at how many nodes a cluster has, of which more than half must be there.
func examineSize(f *store.Findings, of, size, remedy string) {
	f.Expect(size != "2", "cluster", of+" is one of "+size+" nodes", store.Wrong,
		of+" is one of two nodes: without the other one it takes no writes", remedy)
}

// examineGroup looks at the members of a Group Replication.
func examineGroup(ctx context.Context, db querier, f *store.Findings, of string) error {
	var members, online string
	var own sql.NullString
	err := db.QueryRowContext(ctx, `SELECT COUNT(*), COALESCE(SUM(MEMBER_STATE = 'ONLINE'), 0),
		MAX(IF(MEMBER_ID = @@GLOBAL.server_uuid, MEMBER_STATE, NULL))
		FROM performance_schema.replication_group_members`).Scan(&members, &online, &own)
	switch err := classifyRead("examine", err); {
	case errors.Is(err, store.ErrSetup):
		f.Add(store.Note, "cluster", "this user may not see the group of "+of,
			"GRANT SELECT ON performance_schema.replication_group_members TO this user")
		return nil
	case err != nil:
		return err
	}
	switch {
	case own.String != "ONLINE":
		f.Add(store.Wrong, "cluster", fmt.Sprintf("%s is %s in its group: the others do not know what it is charged",
			of, cmp.Or(own.String, "no member")),
			"START GROUP_REPLICATION, and set super_read_only = ON in the configuration: then it takes no charges "+
				"before it has joined")
	case online != members:
		f.Add(store.Wrong, "cluster", fmt.Sprintf("%s sees %s of %s members online", of, online, members),
			"have the others join again, or wait until the group has expelled them")
	default:
		examineSize(f, of, members, "add a third member, or start the one that is away")
	}
	return nil
}

// examineDurability looks at what becomes of charges that were admitted when the server or its machine crashes.
func examineDurability(f *store.Findings, of string, v map[string]string) {
	safe := true
	if flush := v["innodb_flush_log_at_trx_commit"]; flush != "1" {
		safe = false
		f.Add(store.Wrong, "durability",
			fmt.Sprintf("%s has innodb_flush_log_at_trx_commit = %s: a crash forgets what was admitted "+
				"in the last second or so", of, flush),
			"SET GLOBAL innodb_flush_log_at_trx_commit = 1, and in the configuration")
	}
	if (v["log_bin"] == "ON" || v["log_bin"] == "1") && v["sync_binlog"] != "1" {
		safe = false
		f.Add(store.Note, "binlog",
			fmt.Sprintf("%s has sync_binlog = %s: a replica that takes over after a crash may lack charges",
				of, v["sync_binlog"]), "SET GLOBAL sync_binlog = 1, and in the configuration")
	}
	if double := v["innodb_doublewrite"]; double == "OFF" || double == "0" {
		safe = false
		f.Add(store.Wrong, "durability", of+" has innodb_doublewrite off: a crash of the machine can damage pages",
			"set innodb_doublewrite = ON in the configuration and restart")
	}
	if safe {
		f.OK("durability", "%s has commits on its disk before they are answered", of)
	}
}

// examineSessions looks at what makes requests wait for others.
func (s *Store) examineSessions(ctx context.Context, n *node, f *store.Findings, of, most string) error {
	var id, seconds int64
	err := n.db.QueryRowContext(ctx, `SELECT COALESCE(MAX(trx_mysql_thread_id), 0),
		COALESCE(MAX(TIMESTAMPDIFF(SECOND, trx_started, NOW())), 0) FROM information_schema.innodb_trx
		WHERE trx_started < NOW() - INTERVAL `+strconv.FormatInt(int64(cmp.Or(s.old, time.Minute)/time.Second), 10)+
		` SECOND AND trx_mysql_thread_id <> CONNECTION_ID()`).Scan(&id, &seconds)
	switch err := classifyRead("examine", err); {
	case errors.Is(err, store.ErrSetup):
		f.Add(store.Note, "transactions", "this user may not see the transactions of "+of,
			"GRANT PROCESS ON *.* TO this user")
	case err != nil:
		return err
	case id > 0:
		f.Add(store.Wrong, "transactions", fmt.Sprintf("%s has a transaction that is %d s old: it may hold rows",
			of, seconds),
			fmt.Sprintf("KILL %d, or find the program that forgot to commit", id))
	default:
		f.OK("transactions", "none of %s is older than a minute", of)
	}
	text, err := status(ctx, n.db, "Threads_connected")
	if err != nil {
		return err
	}
	used, _ := strconv.Atoi(text)
	all, _ := strconv.Atoi(most)
	found := fmt.Sprintf("%d of %s of %s are in use", used, most, of)
	f.Expect(all <= 0 || used*10 <= all*9, "connections", found, store.Wrong, found,
		"raise max_connections, or lower conns= in the URLs of the programs")
	return nil
}

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

func (s *Store) examineSweeper(ctx context.Context, db querier, f *store.Findings) error {
	now, err := clock(ctx, db)
	if err != nil {
		return err
	}
	past := strconv.FormatInt(now-600_000_000, 10)
	var unswept int
	if err := db.QueryRowContext(ctx, fmt.Sprintf("SELECT COUNT(*) FROM (SELECT 1 FROM headgate_cells c WHERE %s LIMIT %d) x",
		isDead("c", past), store.MostUnswept+1)).Scan(&unswept); err != nil {
		return classifyRead("count the keys that count for nothing", err)
	}
	f.Sweeper(unswept)
	return nil
}
