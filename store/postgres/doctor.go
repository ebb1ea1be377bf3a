package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/store"
)

// oldestVersion is the oldest server_version_num that the store accepts.
const oldestVersion = 130000

// Examine implements store.Doctor.
func (s *Store) Examine(ctx context.Context) ([]store.Finding, error) {
	if s.pool == nil {
		return nil, fmt.Errorf("postgres: %w: a store inside a transaction is not examined", store.ErrUnsupported)
	}
	var f store.Findings
	for _, examine := range []func(context.Context, *store.Findings) error{
		s.examineServer, s.examineClock, s.examineDurability, s.examineSessions, s.examineSchema,
	} {
		if err := examine(ctx, &f); err != nil {
			return f, classifyRead("examine", err)
		}
	}
	installed, err := readInstalled(ctx, s.db)
	if errors.Is(err, store.ErrSetup) || err == nil && installed.layout == 0 {
		return f, nil // examineSchema has reported it
	}
	if err != nil {
		return f, err
	}
	for _, examine := range []func(context.Context, *store.Findings) error{
		s.examineRights, s.examineTables, s.examinePlan, s.examineSweeper,
	} {
		if err := examine(ctx, &f); err != nil {
			return f, classifyRead("examine", err)
		}
	}
	return f, nil
}

// settings reads settings of this session by their names.
func (s *Store) settings(ctx context.Context, names ...string) (map[string]string, error) {
	rows, err := s.db.Query(ctx, "select name, setting from pg_catalog.pg_settings where name = any($1)", names)
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	var name, value string
	_, err = pgx.ForEachRow(rows, []any{&name, &value}, func() error { values[name] = value; return nil })
	return values, err
}

// examineServer checks the version of the server, and that it is no standby.
func (s *Store) examineServer(ctx context.Context, f *store.Findings) error {
	var version string
	var number int
	var isStandby bool
	err := s.db.QueryRow(ctx, `select version(), current_setting('server_version_num')::int, pg_is_in_recovery()`).
		Scan(&version, &number, &isStandby)
	if err != nil {
		return err
	}
	name, _, _ := strings.Cut(version, " on ")
	f.Expect(number >= oldestVersion, "version", name, store.Wrong, name,
		"use PostgreSQL 13 or later: older ones are not tested")
	f.Expect(!isStandby, "primary", "this server takes writes", store.Wrong,
		"this server is a standby, which takes no writes",
		"name the primary in the URL, or all hosts and target_session_attrs=primary")
	return nil
}

// examineClock compares the clock of the server with the clock of this process.
func (s *Store) examineClock(ctx context.Context, f *store.Findings) error {
	return f.Clock("the clock of the server", func() (us int64, err error) {
		err = s.db.QueryRow(ctx, "select (extract(epoch from clock_timestamp()) * 1000000)::bigint").Scan(&us)
		return us, err
	})
}

// examineDurability checks whether charges survive a crash of the server or its machine.
func (s *Store) examineDurability(ctx context.Context, f *store.Findings) error {
	settings, err := s.settings(ctx, "fsync", "full_page_writes", "synchronous_commit", "synchronous_standby_names")
	if err != nil {
		return err
	}
	for _, name := range []string{"fsync", "full_page_writes"} {
		if settings[name] == "off" {
			f.Add(store.Wrong, "durability", name+" is off: a crash of the machine can damage all data",
				"set "+name+" = on in postgresql.conf and restart")
		}
	}
	if settings["synchronous_commit"] == "off" {
		f.Add(store.Wrong, "durability",
			"synchronous_commit is off: a crash forgets what was admitted in the last second or so",
			"alter system set synchronous_commit = on; select pg_reload_conf(); or alter role ... reset "+
				"synchronous_commit")
	} else if settings["fsync"] != "off" {
		f.OK("durability", "commits are on the disk before they are answered (synchronous_commit = %s)",
			settings["synchronous_commit"])
	}
	if settings["synchronous_standby_names"] == "" {
		return nil
	}
	var standbys int
	if err := s.db.QueryRow(ctx, `select count(*) from pg_catalog.pg_stat_replication
		where sync_state in ('sync', 'quorum')`).Scan(&standbys); err != nil {
		return err
	}
	f.Expect(standbys > 0, "standby", fmt.Sprintf("%d synchronous standbys are connected", standbys), store.Wrong,
		"synchronous_standby_names is set and no such standby is connected: every commit waits",
		"start the standby, or alter system reset synchronous_standby_names; select pg_reload_conf()")
	return nil
}

// examineSessions checks for causes that make requests wait for others.
func (s *Store) examineSessions(ctx context.Context, f *store.Findings) error {
	return s.examineSessionsIdle(ctx, f, time.Minute)
}

// examineSessionsIdle examines sessions, and reports a session that is idle in a transaction older than maxIdle.
func (s *Store) examineSessionsIdle(ctx context.Context, f *store.Findings, maxIdle time.Duration) error {
	settings, err := s.settings(ctx, "default_transaction_isolation", "idle_in_transaction_session_timeout")
	if err != nil {
		return err
	}
	level := settings["default_transaction_isolation"]
	f.Expect(level == "read committed", "isolation", level, store.Note,
		level+" is the default here: callers of one key conflict and try again",
		"alter role ... set default_transaction_isolation = 'read committed': limits are exact there")
	var pid, connections, maxConnections int
	var since string
	err = s.db.QueryRow(ctx, `select pid, date_trunc('second', now() - xact_start)::text from pg_catalog.pg_stat_activity
		where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
		and state like 'idle in transaction%' and xact_start < now() - make_interval(secs => $1)
		order by xact_start limit 1`, maxIdle.Seconds()).
		Scan(&pid, &since)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		f.OK("transactions", "none has been idle for a minute")
	case err != nil:
		return err
	default:
		f.Add(store.Wrong, "transactions",
			fmt.Sprintf("the session with pid %d is idle in a transaction that is %s old: it may "+
				"hold rows, and dead rows pile up behind it", pid, since),
			fmt.Sprintf("select pg_terminate_backend(%d), and set idle_in_transaction_session_timeout", pid))
	}
	f.Expect(settings["idle_in_transaction_session_timeout"] != "0", "timeouts", "a transaction that is forgotten ends",
		store.Note, "idle_in_transaction_session_timeout is 0: a program that forgets a transaction holds its rows",
		"alter system set idle_in_transaction_session_timeout = '1min'; select pg_reload_conf()")
	err = s.db.QueryRow(ctx, `select count(*), current_setting('max_connections')::int
		- current_setting('superuser_reserved_connections')::int from pg_catalog.pg_stat_activity
		where backend_type = 'client backend'`).Scan(&connections, &maxConnections)
	if err != nil {
		return err
	}
	usage := fmt.Sprintf("%d of %d are in use", connections, maxConnections)
	f.Expect(connections*10 <= maxConnections*9, "connections", usage, store.Wrong, usage,
		"raise max_connections, or put a pooler before the database")
	return nil
}

// examineSchema checks that the schema fits this binary, and that nobody has changed its functions.
func (s *Store) examineSchema(ctx context.Context, f *store.Findings) error {
	installed, err := readInstalled(ctx, s.db)
	if err != nil {
		if errors.Is(err, store.ErrSetup) {
			f.Add(store.Wrong, "rights", "this user may not read the tables of schema headgate",
				"run headgate migrate --role service --user USER as the owner")
			return nil
		}
		return err
	}
	if !f.Schema(installed.check(s.def), installed.revision < s.def.revision,
		fmt.Sprintf("state %d, layout %d, revision %d", installed.state, installed.layout, installed.revision)) {
		return nil
	}
	var digest *string
	err = pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "set local search_path = "+safePath); err != nil { // as in Migrate
			return err
		}
		return tx.QueryRow(ctx, "select "+digestExpr+" from headgate.installed i").Scan(&digest)
	})
	if err != nil {
		return err
	}
	f.Expect(digest != nil && *digest == installed.digest, "functions", "they are as headgate migrate has made them",
		store.Wrong, "somebody has changed functions of schema headgate", "run headgate migrate, which repairs them")
	return nil
}

// examineRights checks that the user has the rights that it needs, and not too many.
func (s *Store) examineRights(ctx context.Context, f *store.Findings) error {
	var user string
	var isSuperuser, mayWrite, publicCreate bool
	err := s.db.QueryRow(ctx, `select current_user::text, r.rolsuper,
		has_table_privilege('headgate.cells', 'select') and has_table_privilege('headgate.cells', 'insert')
		and has_table_privilege('headgate.cells', 'update') and has_table_privilege('headgate.cells', 'delete'),
		exists (select from pg_catalog.pg_namespace n, aclexplode(n.nspacl) a
			where n.nspname in ('headgate', 'headgate_internal') and a.grantee = 0 and a.privilege_type = 'CREATE')
		from pg_catalog.pg_roles r where r.rolname = current_user`).Scan(&user, &isSuperuser, &mayWrite, &publicCreate)
	if err != nil {
		return err
	}
	switch {
	case !mayWrite:
		f.Add(store.Wrong, "rights", fmt.Sprintf("user %s may not read and write the tables of schema headgate", user),
			fmt.Sprintf("run headgate migrate --role service --user %s as the owner", user))
	case isSuperuser:
		f.Add(store.Note, "rights", fmt.Sprintf("user %s is a superuser", user),
			"use an ordinary role: headgate migrate --role service --user USER gives it the rights")
	default:
		f.OK("rights", "user %s may do what a server needs", user)
	}
	if publicCreate {
		f.Add(store.Wrong, "schema rights", "everybody may create objects in schema headgate or headgate_internal",
			"revoke create on schema headgate, headgate_internal from public")
	}
	return nil
}

// A table is bloated if it has more dead rows than bloatRows, and more than bloatRatio dead rows for each live one.
const bloatRows, bloatRatio = 20_000, 1

// examineTables checks headgate.cells for what makes decisions slower over time, and that a crash does not empty it.
func (s *Store) examineTables(ctx context.Context, f *store.Findings) error {
	settings, err := s.settings(ctx, "autovacuum", "track_counts")
	if err != nil {
		return err
	}
	var isOff bool
	var kind string
	err = s.db.QueryRow(ctx, `select coalesce('autovacuum_enabled=false' = any(c.reloptions)
		or 'autovacuum_enabled=off' = any(c.reloptions), false), c.relpersistence::text
		from pg_catalog.pg_class c where c.oid = 'headgate.cells'::regclass`).Scan(&isOff, &kind)
	if err != nil {
		return err
	}
	switch {
	case settings["autovacuum"] == "off" || settings["track_counts"] == "off":
		f.Add(store.Wrong, "vacuum", "autovacuum is off: tables grow with each decision",
			"alter system set autovacuum = on; alter system set track_counts = on; select pg_reload_conf()")
	case isOff:
		f.Add(store.Wrong, "vacuum", "autovacuum is off for headgate.cells: it grows with each decision",
			"alter table headgate.cells reset (autovacuum_enabled)")
	default:
		f.OK("vacuum", "autovacuum is on")
	}
	if kind == "u" {
		f.Add(store.Wrong, "durability", "headgate.cells is unlogged: a crash of the server forgets every charge",
			"alter table headgate.cells set logged")
	}
	var liveRows, deadRows, updates, hotUpdates int64
	err = s.db.QueryRow(ctx, `select n_live_tup, n_dead_tup, n_tup_upd, n_tup_hot_upd from pg_catalog.pg_stat_all_tables
		where relid = 'headgate.cells'::regclass`).Scan(&liveRows, &deadRows, &updates, &hotUpdates)
	if err != nil {
		return err
	}
	f.Expect(deadRows <= bloatRows || deadRows <= bloatRatio*liveRows, "bloat",
		fmt.Sprintf("headgate.cells has about %d rows and %d dead ones", liveRows, deadRows), store.Wrong,
		fmt.Sprintf("headgate.cells has %d dead rows beside %d", deadRows, liveRows),
		"vacuum headgate.cells; see transactions above, and pg_replication_slots, for what keeps them")
	if updates > bloatRows && hotUpdates*10 < updates*8 {
		f.Add(store.Note, "updates", fmt.Sprintf("only %d of 100 updates of headgate.cells stay in their page",
			hotUpdates*100/updates),
			"end long transactions; alter table headgate.cells set (fillfactor = 66) and vacuum full it in a "+
				"quiet hour")
	}
	rows, err := s.db.Query(ctx, `select i.indexrelid::regclass::text from pg_catalog.pg_index i
		where i.indrelid = 'headgate.cells'::regclass and (not i.indisprimary or not i.indisvalid) order by 1`)
	if err != nil {
		return err
	}
	extraIndexes, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	names := strings.Join(extraIndexes, ", ")
	f.Expect(len(extraIndexes) == 0, "indexes", "headgate.cells has its primary key alone", store.Wrong,
		"headgate.cells has more indexes than its primary key, or one that is invalid: "+names+
			". Each decision writes to all of them", "drop index "+names)
	return nil
}

// examinePlan checks that a cell is found by its primary key. Like the functions, it sets enable_seqscan = off, so that
// the plan does not depend on statistics.
func (s *Store) examinePlan(ctx context.Context, f *store.Findings) error {
	var plan string
	err := pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "set local enable_seqscan = off"); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, "explain select * from headgate.cells where limit_name = 'a' and key = 'b'",
			pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			return err
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		plan = strings.Join(lines, "\n")
		return err
	})
	if err != nil {
		return err
	}
	firstLine, _, _ := strings.Cut(plan, "\n")
	f.Expect(strings.Contains(plan, "Index Cond"), "plan", "a cell is found by its primary key", store.Wrong,
		"a cell is not found by its primary key: "+firstLine,
		"reindex table headgate.cells, and reset enable_indexscan and enable_bitmapscan for this role")
	return nil
}

// examineSweeper reports dead cells that no sweep has removed, and limits with many keys.
func (s *Store) examineSweeper(ctx context.Context, f *store.Findings) error {
	var deadCells int
	err := s.db.QueryRow(ctx, `select count(*) from (select from headgate.cells c,
		(select ((extract(epoch from clock_timestamp()) - 600) * 1000000)::bigint as past) t
		where c.empty_at <= t.past and c.blocked_until <= t.past and c.ids_until <= t.past
		and not exists (
			select from headgate.entries e where e.limit_name = c.limit_name and e.key = c.key)
		limit $1) x`, // the condition of headgate_internal.sweep_from, ten minutes ago
		store.MostUnswept+1).Scan(&deadCells)
	if err != nil {
		return err
	}
	f.Sweeper(deadCells)
	counts, err := s.countKeys(ctx)
	if err == nil {
		f.Keys(counts)
	}
	return err
}
