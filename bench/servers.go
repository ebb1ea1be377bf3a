package main

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync/atomic"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate/bench/rivals"
	"github.com/headgate/headgate/internal/dbtest"
)

// servers are the databases that are measured on. Each is started when it is
// first needed.
type servers struct {
	pg, maria, red *dbtest.Server
	facts          [][2]string
	databases      atomic.Int64
	calls          bool // count the statements of PostgreSQL
}

func (s *servers) close() {
	for _, server := range []*dbtest.Server{s.pg, s.maria, s.red} {
		if server != nil {
			server.Stop()
		}
	}
}

// postgres returns the URL of an empty database, on a server that writes to
// disk what it has answered.
func (s *servers) postgres(ctx context.Context) (dsn string, drop func(), err error) {
	if s.pg == nil {
		server, err := dbtest.StartPostgres(ctx)
		if err != nil {
			return "", nil, err
		}
		s.pg = server
		if err := s.settlePostgres(ctx); err != nil {
			return "", nil, err
		}
	}
	return s.pg.Database(ctx)
}

// settlePostgres keeps checkpoints out of the measurements where the server is
// ours, and writes down what it runs with.
func (s *servers) settlePostgres(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.pg.DSN)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	if os.Getenv(dbtest.PostgresDSN) == "" {
		for _, text := range []string{
			"alter system set max_wal_size = '8GB'", "alter system set checkpoint_timeout = '30min'",
			"select pg_reload_conf()",
		} {
			if _, err := conn.Exec(ctx, text); err != nil {
				return err
			}
		}
		if s.calls {
			if conn, err = s.countCalls(ctx, conn); err != nil {
				return err
			}
		}
	}
	settings := make([]string, 0, 5)
	for _, name := range []string{"server_version", "fsync", "synchronous_commit", "shared_buffers"} {
		var value string
		if err := conn.QueryRow(ctx, "select current_setting($1)", name).Scan(&value); err != nil {
			return err
		}
		if name == "fsync" && value != "on" {
			return fmt.Errorf("PostgreSQL runs with fsync %s", value)
		}
		settings = append(settings, name+" "+value)
	}
	s.facts = append(s.facts, [2]string{"PostgreSQL", strings.Join(settings, ", ")})
	return nil
}

// countCalls starts the server again, with pg_stat_statements.
func (s *servers) countCalls(ctx context.Context, conn *pgx.Conn) (*pgx.Conn, error) {
	if _, err := conn.Exec(ctx, "alter system set shared_preload_libraries = 'pg_stat_statements'"); err != nil {
		return conn, err
	}
	_ = conn.Close(ctx)
	s.pg.Crash() // nothing of worth is in it yet
	if err := s.pg.Restart(ctx); err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, s.pg.DSN)
	if err != nil {
		return nil, err
	}
	_, err = conn.Exec(ctx, "create extension pg_stat_statements")
	return conn, err
}

// pool opens so many connections to a database, each with a level of isolation.
func pool(ctx context.Context, dsn string, conns int, isolation string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = int32(conns)
	cfg.ConnConfig.RuntimeParams["default_transaction_isolation"] = isolation
	return pgxpool.NewWithConfig(ctx, cfg)
}

// barePool is pool for bare statements.
func barePool(ctx context.Context, dsn string, conns int) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns, cfg.AfterConnect = int32(conns), indexed
	return pgxpool.NewWithConfig(ctx, cfg)
}

// mariadb returns the URL of an empty database, on a server that flushes at
// each commit.
func (s *servers) mariadb(ctx context.Context) (dsn string, drop func(), err error) {
	if s.maria == nil {
		if s.maria, err = dbtest.StartMariaDB(ctx, "--innodb-buffer-pool-size=1G", "--innodb-log-file-size=1G",
			"--skip-log-bin"); err != nil {
			return "", nil, err
		}
	}
	admin, err := mariaPool(s.maria.DSN, "", 1)
	if err != nil {
		return "", nil, err
	}
	name := fmt.Sprintf("bench_%d_%d", os.Getpid(), s.databases.Add(1))
	if name == fmt.Sprintf("bench_%d_1", os.Getpid()) {
		var version, flush string
		if err := admin.QueryRowContext(ctx, "SELECT VERSION(), @@innodb_flush_log_at_trx_commit").Scan(&version,
			&flush); err != nil {
			return "", nil, err
		}
		s.facts = append(s.facts, [2]string{"MariaDB", version + ", flush at commit " + flush})
	}
	if _, err := admin.ExecContext(ctx, "CREATE DATABASE "+name); err != nil {
		admin.Close()
		return "", nil, err
	}
	drop = func() {
		_, _ = admin.ExecContext(context.WithoutCancel(ctx), "SET lock_wait_timeout = 5")
		_, _ = admin.ExecContext(context.WithoutCancel(ctx), "DROP DATABASE "+name)
		admin.Close()
	}
	return strings.TrimSuffix(s.maria.DSN, "/") + "/" + name, drop, nil
}

// mariaPool opens so many connections to the database of a mysql:// URL. What
// is asked goes in one round trip.
func mariaPool(raw, options string, conns int) (*sql.DB, error) {
	cfg, err := mariaConfig(raw, options)
	if err != nil {
		return nil, err
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db, nil
}

func mariaConfig(raw, options string) (*mysql.Config, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, err
	}
	cfg, err := mysql.ParseDSN("tcp(" + u.Host + ")" + "/" + strings.TrimPrefix(u.Path, "/") +
		"?interpolateParams=true" + options)
	if err != nil {
		return nil, err
	}
	cfg.User = u.User.Username()
	cfg.Passwd, _ = u.User.Password()
	return cfg, nil
}

// redis returns the URL of a server that keeps nothing on disk, and is empty.
func (s *servers) redis(ctx context.Context) (string, error) {
	first := s.red == nil
	if first {
		server, err := dbtest.StartRedis(ctx)
		if err != nil {
			return "", err
		}
		s.red = server
	}
	client, err := rivals.Redis(s.red.DSN)
	if err != nil {
		return "", err
	}
	defer func() { _ = client.Close() }()
	if first {
		info, err := client.Info(ctx, "server").Result()
		if err != nil {
			return "", err
		}
		_, version, _ := strings.Cut(info, "redis_version:")
		version, _, _ = strings.Cut(version, "\r\n")
		s.facts = append(s.facts, [2]string{"Redis", version + ", nothing on disk"})
	}
	return s.red.DSN, nil
}
