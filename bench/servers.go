package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	goredis "github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/stores"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
)

// openStore opens the store of a URL with its schema, behind package front: without a sweeper, which disturbs rounds.
func openStore(ctx context.Context, url string) (store.Store, error) {
	s, err := openDriver(ctx, url, "")
	if err != nil {
		return nil, err
	}
	return front.New(s, &front.Config{SweepEvery: -1}), nil
}

// openDriver opens the store of a URL with its schema, unwrapped, and with the articles' functions if articles is set.
func openDriver(ctx context.Context, url, articles string) (store.Store, error) {
	s, err := stores.Open(ctx, url, stores.Options{Articles: articles})
	if err != nil {
		return nil, err
	}
	if m, ok := s.(store.Migrator); ok {
		if _, err := m.Migrate(ctx); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

// servers has the database servers. Each is started when it is first needed.
type servers struct {
	postgresServer, mariadbServer, redisServer *dbtest.Server // nil: not started

	redisClient *goredis.Client
	facts       [][2]string // names and settings of the servers
}

func (s *servers) close() {
	if s.redisClient != nil {
		_ = s.redisClient.Close()
	}
	for _, server := range []*dbtest.Server{s.postgresServer, s.mariadbServer, s.redisServer} {
		if server != nil {
			server.Stop()
		}
	}
}

// postgres returns the URL of an empty database, on a server that flushes at each commit. Its settings keep checkpoints
// out of the measurements.
func (s *servers) postgres(ctx context.Context) (dsn string, drop func(), err error) {
	if s.postgresServer == nil {
		c := dbtest.Config{Args: []string{"-c", "max_wal_size=8GB", "-c", "checkpoint_timeout=30min"}}
		if s.postgresServer, err = c.Postgres(ctx); err != nil {
			return "", nil, err
		}
		if err := s.addPostgresFacts(ctx); err != nil {
			return "", nil, err
		}
	}
	return s.postgresServer.Database(ctx)
}

func (s *servers) addPostgresFacts(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.postgresServer.DSN)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var settings string
	err = conn.QueryRow(ctx, "select string_agg(name || ' ' || current_setting(name), ', ') from "+
		"unnest(array['server_version', 'fsync', 'synchronous_commit', 'shared_buffers']) name").Scan(&settings)
	s.facts = append(s.facts, [2]string{"PostgreSQL", settings})
	return err
}

func execPostgres(ctx context.Context, dsn string, texts []string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for _, text := range texts {
		if _, err := conn.Exec(ctx, text); err != nil {
			return fmt.Errorf("%.60s: %w", text, err)
		}
	}
	return nil
}

func execMariaDB(ctx context.Context, dsn string, texts []string) error {
	db, err := dbtest.OpenMariaDB(dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	for _, text := range texts {
		if _, err := db.ExecContext(ctx, text); err != nil {
			return fmt.Errorf("%.60s: %w", text, err)
		}
	}
	return nil
}

// mariadb returns the URL of an empty database, on a server that flushes at each commit.
func (s *servers) mariadb(ctx context.Context) (dsn string, drop func(), err error) {
	if s.mariadbServer == nil {
		c := dbtest.Config{Args: []string{
			"--innodb-buffer-pool-size=1G", "--skip-log-bin",
			"--loose-innodb-log-file-size=1G", "--loose-innodb-redo-log-capacity=1G", // for MariaDB, for MySQL
		}}
		if s.mariadbServer, err = c.MariaDB(ctx); err != nil {
			return "", nil, err
		}
		if err := s.addMariaDBFacts(ctx); err != nil {
			return "", nil, err
		}
	}
	return s.mariadbServer.Database(ctx)
}

func (s *servers) addMariaDBFacts(ctx context.Context) error {
	db, err := dbtest.OpenMariaDB(s.mariadbServer.DSN)
	if err != nil {
		return err
	}
	defer db.Close()
	var name, settings string
	err = db.QueryRowContext(ctx, "SELECT IF(VERSION() LIKE '%MariaDB%', 'MariaDB', 'MySQL'), "+
		"CONCAT(VERSION(), ', flush at commit ', @@innodb_flush_log_at_trx_commit)").Scan(&name, &settings)
	s.facts = append(s.facts, [2]string{name, settings})
	return err
}

// redis returns the client of a server that keeps nothing on disk.
func (s *servers) redis(ctx context.Context) (*goredis.Client, error) {
	if s.redisClient != nil {
		return s.redisClient, nil
	}
	server, err := new(dbtest.Config).Redis(ctx)
	if err != nil {
		return nil, err
	}
	s.redisServer = server
	o, err := goredis.ParseURL(server.DSN)
	if err != nil {
		return nil, err
	}
	client := goredis.NewClient(o)
	info, err := client.Info(ctx, "server").Result()
	if err != nil {
		return nil, err
	}
	_, version, _ := strings.Cut(info, "redis_version:")
	version, _, _ = strings.Cut(version, "\r\n")
	s.facts = append(s.facts, [2]string{"Redis", version + ", nothing on disk"})
	s.redisClient = client
	return client, nil
}
