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

// newStack returns a stack of a store with its wrappers and a limiter.
func newStack(s store.Store) *chaos.Stack {
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
	return newStack(s), nil
}

func openMySQL(ctx context.Context, url string) (*chaos.Stack, error) {
	s, err := mysql.Open(ctx, url, nil)
	if err == nil {
		_, err = s.Migrate(ctx)
	}
	if err != nil {
		return nil, err
	}
	return newStack(s), nil
}

func openRedis(ctx context.Context, url string) (*chaos.Stack, error) {
	s, err := redis.Open(ctx, url, nil)
	if err != nil {
		return nil, err
	}
	return newStack(s), nil
}

// host returns the host and port of a URL.
func host(t *testing.T, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// startServer starts a server that ends with the test.
func startServer(t *testing.T, start func(context.Context) (*dbtest.Server, error)) *dbtest.Server {
	t.Helper()
	s, err := start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// faults returns the faults of a server. endSessions ends all other sessions, and cancel their statements; cancel may
// be nil.
func faults(s *dbtest.Server, endSessions, cancel func(context.Context) error) []chaos.Fault {
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
		{Name: "sessions ended", Weight: 2, Do: func(ctx context.Context, _ *rand.Rand) error {
			return asErrNothingBroken(endSessions(ctx))
		}},
	}
	if cancel != nil {
		cancelOften := func(ctx context.Context, rng *rand.Rand) error {
			for range 20 {
				if err := cancel(ctx); err != nil {
					return asErrNothingBroken(err)
				}
				chaos.Pause(rng, 20*time.Millisecond)
			}
			return nil
		}
		list = append(list, chaos.Fault{Name: "statements cancelled", Weight: 2, Do: cancelOften})
	}
	return list
}

// asErrNothingBroken adds ErrNothingBroken to the error of an administrator's statement: an earlier fault may cause it.
func asErrNothingBroken(err error) error {
	if err != nil {
		return errors.Join(chaos.ErrNothingBroken, err)
	}
	return nil
}

// eachPostgresSession returns a function that calls an SQL function for each other session of a database.
func eachPostgresSession(url, function string) func(context.Context) error {
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

// eachMySQLSession returns a function that runs a statement for each other session of a database.
func eachMySQLSession(host, database, statement string) func(context.Context) error {
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
		var ids []int64
		for rows.Next() {
			var id int64
			if err := rows.Scan(&id); err != nil {
				return err
			}
			ids = append(ids, id)
		}
		for _, id := range ids {
			_, _ = db.ExecContext(ctx, fmt.Sprint(statement, " ", id)) // the session may have ended
		}
		return rows.Err()
	}
}

// endRedisSessions ends all other sessions of clients on a server.
func endRedisSessions(ctx context.Context, host string) error {
	c, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{host}, ForceSingleClient: true, DisableCache: true, DisableRetry: true,
	})
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Do(ctx, c.B().ClientKill().TypeNormal().SkipmeYes().Build()).Error()
}

// postgresStarter returns a function that starts a PostgreSQL, with parameters for the URL.
func postgresStarter(parameters string) func(*testing.T) *chaos.System {
	return func(t *testing.T) *chaos.System {
		t.Helper()
		s := startServer(t, (&dbtest.Config{Faults: true}).Postgres)
		url := dbtest.PostgresAt(t, s.DSN) + parameters
		return &chaos.System{
			URL: url, Hosts: []string{host(t, url)}, Open: openPostgres,
			Faults: faults(s, eachPostgresSession(url, "pg_terminate_backend"),
				eachPostgresSession(url, "pg_cancel_backend")),
		}
	}
}

// mysqlStarter returns a function that starts a server with MySQL's protocol; engine "" is the distribution's server.
func mysqlStarter(engine string) func(*testing.T) *chaos.System {
	return func(t *testing.T) *chaos.System {
		t.Helper()
		useEngine(t, engine)
		config := &dbtest.Config{Faults: true, Args: []string{"--innodb-flush-log-at-trx-commit=1"}}
		s := startServer(t, config.MariaDB)
		url := dbtest.MariaDBAt(t, s.DSN)[0]
		addr, database := host(t, url), url[strings.LastIndexByte(url, '/')+1:]
		return &chaos.System{
			URL: url, Hosts: []string{addr}, Open: openMySQL,
			Faults: faults(s, eachMySQLSession(addr, database, "KILL"), eachMySQLSession(addr, database, "KILL QUERY")),
		}
	}
}

// redisStarter returns a function that starts a server with Redis's protocol and options for its persistence.
func redisStarter(engine string, options ...string) func(*testing.T) *chaos.System {
	return func(t *testing.T) *chaos.System {
		t.Helper()
		useEngine(t, engine)
		s := startServer(t, (&dbtest.Config{Faults: true, Args: options}).Redis)
		addr := host(t, s.DSN)
		return &chaos.System{
			URL: s.DSN, Hosts: []string{addr}, Open: openRedis,
			Faults: faults(s, func(ctx context.Context) error { return endRedisSessions(ctx, addr) }, nil),
		}
	}
}

// useEngine makes a test use an engine instead of the distribution's server, unless it is "".
func useEngine(t *testing.T, engine string) {
	t.Helper()
	if engine != "" {
		t.Setenv(dbtest.EngineEnv, engine)
	}
}
