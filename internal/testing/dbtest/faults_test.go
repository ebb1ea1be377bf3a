package dbtest

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/internal/testing/tier"
)

// faultEngines has the servers that support Config.Faults. start starts one. open connects to it, and returns functions
// that read its clock and commit a change.
var faultEngines = map[string]struct {
	start func(*Config) (*Server, error)
	open  func(t *testing.T, dsn string) (clock func() (micros int64), commit func())
}{
	"PostgreSQL": {
		func(c *Config) (*Server, error) { return c.Postgres(context.Background()) },
		func(t *testing.T, dsn string) (func() int64, func()) {
			conn, err := pgx.Connect(t.Context(), dsn)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close(context.Background()) })
			return func() (micros int64) {
					const clock = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint"
					if err := conn.QueryRow(t.Context(), clock).Scan(&micros); err != nil {
						t.Fatal(err)
					}
					return micros
				}, func() {
					if _, err := conn.Exec(t.Context(), "select pg_logical_emit_message(true, 'a', 'b')"); err != nil {
						t.Fatal(err)
					}
				}
		},
	},
	"MariaDB": {
		func(c *Config) (*Server, error) { return c.MariaDB(context.Background()) },
		func(t *testing.T, dsn string) (func() int64, func()) {
			db, err := OpenMariaDB(dsn)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { db.Close() })
			exec := func(statement string) {
				if _, err := db.ExecContext(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}
			exec("create database d; create table d.t (n int) engine=innodb")
			return func() (micros int64) { return readMySQLClock(t, db) }, func() { exec("insert into d.t values (1)") }
		},
	},
	"Redis": {
		func(c *Config) (*Server, error) {
			c.Args = []string{"--appendonly", "yes", "--appendfsync", "always"}
			return c.Redis(context.Background())
		},
		func(t *testing.T, dsn string) (func() int64, func()) {
			call := func(words ...string) string {
				answer, err := callRedis(hostOf(t, dsn), words...)
				if err != nil {
					t.Fatal(err)
				}
				return answer
			}
			return func() (micros int64) {
				const clock = "local t = redis.call('TIME') return t[1] * 1000000 + t[2]"
				if _, err := fmt.Sscan(call("EVAL", clock, "0"), &micros); err != nil {
					t.Fatal(err)
				}
				return micros
			}, func() { call("INCR", "n") }
		},
	},
}

func readMySQLClock(t *testing.T, db *sql.DB) (micros int64) {
	t.Helper()
	const clock = "select cast(unix_timestamp(now(6)) * 1000000 as signed)"
	if err := db.QueryRowContext(t.Context(), clock).Scan(&micros); err != nil {
		t.Fatal(err)
	}
	return micros
}

func TestShiftClockAndSlowDisk(t *testing.T) {
	tier.Nightly(t) // only package chaos needs these faults, mostly nightly
	for name, engine := range faultEngines {
		t.Run(name, func(t *testing.T) {
			s, err := engine.start(&Config{Faults: true})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(s.Stop)
			clock, commit := engine.open(t, s.DSN)
			for _, ahead := range []time.Duration{0, time.Hour, -time.Hour, 1500 * time.Microsecond, 0} {
				s.ShiftClock(ahead)
				before := time.Now().Add(ahead).UnixMicro()
				got := clock()
				if after := time.Now().Add(ahead).UnixMicro(); got < before || got > after {
					t.Errorf("shifted by %s: the clock is %d, want one from %d to %d", ahead, got, before, after)
				}
			}
			commitTime := func() time.Duration {
				begin := time.Now()
				commit()
				return time.Since(begin)
			}
			const delay = 400 * time.Millisecond
			requireFastCommit := func() {
				t.Helper()
				for try := 0; ; try++ { // a busy machine may need several attempts
					if d := commitTime(); d < delay {
						t.Logf("quick: %s", d)
						return
					} else if try == 20 {
						t.Fatalf("a commit takes %s, want less than %s", d, delay)
					}
				}
			}
			requireFastCommit()
			s.SlowDisk(delay)
			if d := commitTime(); d < delay {
				t.Errorf("on a slow disk a commit takes %s, want at least %s", d, delay)
			} else {
				t.Logf("slow: %s", d)
			}
			s.SlowDisk(0)
			requireFastCommit()
		})
	}
}

func TestSlowDiskNeedsConfigFaults(t *testing.T) {
	s, err := new(Config).Redis(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	defer func() {
		if text := fmt.Sprint(recover()); !strings.Contains(text, "Config.Faults") {
			t.Errorf("got panic %q, want one about Config.Faults", text)
		}
	}()
	s.SlowDisk(time.Second)
}
