package chaos_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/chaos"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
	"github.com/headgate/headgate/store/mysql"
	"github.com/headgate/headgate/store/postgres"
	"github.com/headgate/headgate/store/redis"
)

// stack returns a limiter over what front puts before a store.
func stack(s store.Store) *chaos.Stack {
	f := front.New(s, &front.Config{Logger: slog.New(slog.DiscardHandler), SweepEvery: time.Second})
	return &chaos.Stack{Limiter: headgate.New(f, nil), Close: func() { _ = f.Close() }}
}

func openPostgres(ctx context.Context, url string) (*chaos.Stack, error) {
	s, err := postgres.Open(ctx, url, nil)
	if err == nil {
		_, err = s.Migrate(ctx)
	}
	if err != nil {
		return nil, err
	}
	return stack(s), nil
}

func openMySQL(ctx context.Context, url string) (*chaos.Stack, error) {
	s, err := mysql.Open(ctx, url, nil)
	if err == nil {
		_, err = s.Migrate(ctx)
	}
	if err != nil {
		return nil, err
	}
	return stack(s), nil
}

func openRedis(ctx context.Context, url string) (*chaos.Stack, error) {
	s, err := redis.Open(ctx, url, nil)
	if err != nil {
		return nil, err
	}
	return stack(s), nil
}

// host returns the host and port of a URL.
func host(t *testing.T, of string) string {
	t.Helper()
	u, err := url.Parse(of)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// own starts a server of a test.
func own(t *testing.T, start func(context.Context) (*dbtest.Server, error)) *dbtest.Server {
	t.Helper()
	s, err := start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// faults returns the faults of every server. end ends all other sessions, and cancel what they do.
func faults(s *dbtest.Server, end, cancel func(context.Context) error) []chaos.Fault {
	list := []chaos.Fault{
		{Name: "killed", Weight: 2, Do: func(ctx context.Context, rng *rand.Rand) error {
			s.Crash()
			chaos.Pause(rng, 500*time.Millisecond)
			return s.Restart(ctx)
		}},
		{Name: "stopped", Weight: 2, Do: func(_ context.Context, rng *rand.Rand) error {
			s.Pause()
			chaos.Pause(rng, 2*time.Second)
			s.Resume()
			return nil
		}},
		{Name: "disk slow", Weight: 2, Do: func(_ context.Context, rng *rand.Rand) error {
			s.SlowDisk(300 * time.Millisecond)
			chaos.Pause(rng, 2*time.Second)
			s.SlowDisk(0)
			return nil
		}},
		{Name: "clock moved", Weight: 1, Shift: s.ShiftClock},
		{Name: "sessions ended", Weight: 2, Do: func(ctx context.Context, _ *rand.Rand) error { return maybe(end(ctx)) }},
	}
	if cancel != nil {
		often := func(ctx context.Context, rng *rand.Rand) error {
			for range 20 {
				if err := cancel(ctx); err != nil {
					return maybe(err)
				}
				chaos.Pause(rng, 20*time.Millisecond)
			}
			return nil
		}
		list = append(list, chaos.Fault{Name: "statements cancelled", Weight: 2, Do: often})
	}
	return list
}

// maybe says that a statement of an administrator, which the fault before may disturb, did nothing.
func maybe(err error) error {
	if err != nil {
		return errors.Join(chaos.ErrNothing, err)
	}
	return nil
}

// postgresDo returns a function that has a server run a statement for each other session.
func postgresDo(url, function string) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(ctx) }()
		_, err = conn.Exec(ctx, "select "+function+`(pid) from pg_stat_activity
			where datname = current_database() and pid <> pg_backend_pid()`)
		return err
	}
}

// mysqlDo returns a function that has a server run a statement for each other session.
func mysqlDo(host, database, statement string) func(context.Context) error {
	return func(ctx context.Context) error {
		db, err := sql.Open("mysql", "root@tcp("+host+")/"+database)
		if err != nil {
			return err
		}
		defer db.Close()
		rows, err := db.QueryContext(ctx,
			"SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()")
		if err != nil {
			return err
		}
		defer rows.Close()
		var list []int64
		for rows.Next() {
			var id int64
			if err := rows.Scan(&id); err != nil {
				return err
			}
			list = append(list, id)
		}
		for _, id := range list {
			_, _ = db.ExecContext(ctx, fmt.Sprint(statement, " ", id)) // it may have ended
		}
		return rows.Err()
	}
}

// endRedis ends all sessions of clients on a server.
func endRedis(ctx context.Context, host string) error {
	c, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{host}, ForceSingleClient: true, DisableCache: true, DisableRetry: true,
	})
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Do(ctx, c.B().ClientKill().TypeNormal().SkipmeYes().Build()).Error()
}

// onPostgres returns how a PostgreSQL is started, with parameters of the URL.
func onPostgres(parameters string) func(*testing.T) *chaos.System {
	return func(t *testing.T) *chaos.System {
		t.Helper()
		s := own(t, (&dbtest.Config{Faults: true}).Postgres)
		url := dbtest.PostgresAt(t, s.DSN) + parameters
		return &chaos.System{
			URL: url, Hosts: []string{host(t, url)}, Open: openPostgres,
			Faults: faults(s, postgresDo(url, "pg_terminate_backend"), postgresDo(url, "pg_cancel_backend")),
		}
	}
}

// onMySQL returns how a server of MySQL's protocol is started; engine names one that is not the distribution's own.
func onMySQL(engine string) func(*testing.T) *chaos.System {
	return func(t *testing.T) *chaos.System {
		t.Helper()
		choose(t, engine)
		s := own(t, (&dbtest.Config{Faults: true, Args: []string{"--innodb-flush-log-at-trx-commit=1"}}).MariaDB)
		url := dbtest.MariaDBAt(t, s.DSN)[0]
		at, database := host(t, url), url[strings.LastIndexByte(url, '/')+1:]
		return &chaos.System{
			URL: url, Hosts: []string{at}, Open: openMySQL,
			Faults: faults(s, mysqlDo(at, database, "KILL"), mysqlDo(at, database, "KILL QUERY")),
		}
	}
}

// onRedis returns how a server of Redis's protocol is started, with options that say what it keeps.
func onRedis(engine string, options ...string) func(*testing.T) *chaos.System {
	return func(t *testing.T) *chaos.System {
		t.Helper()
		choose(t, engine)
		s := own(t, (&dbtest.Config{Faults: true, Args: options}).Redis)
		at := host(t, s.DSN)
		return &chaos.System{
			URL: s.DSN, Hosts: []string{at}, Open: openRedis,
			Faults: faults(s, func(ctx context.Context) error { return endRedis(ctx, at) }, nil),
		}
	}
}

// choose says which server of its kind the test has.
func choose(t *testing.T, engine string) {
	t.Helper()
	if engine != "" {
		t.Setenv(dbtest.Engine, engine)
	}
}
