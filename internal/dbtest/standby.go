package dbtest

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// PostgresWithStandby returns the DSN of the database postgres on a primary whose
// commits wait for a synchronous standby, and a function that stops the standby.
// Both are of the distribution's version, which has pg_basebackup, and end with the
// test.
func PostgresWithStandby(tb testing.TB) (dsn string, stopStandby func()) {
	tb.Helper()
	dsn, _, stop := postgresPair(tb)
	return dsn, stop
}

// PostgresPair returns the DSNs of the database postgres on a primary and on its
// synchronous standby, and a function that kills the primary, as a loss of power
// does. To promote the standby is the test's business.
func PostgresPair(tb testing.TB) (primary, standby string, killPrimary func()) {
	tb.Helper()
	primary, standby, _ = postgresPair(tb)
	return primary, standby, func() {
		tb.Helper()
		if err := killPostgres(primary); err != nil {
			tb.Fatalf("dbtest: kill the primary: %v", err)
		}
	}
}

// killPostgres kills the first process of a server; the others end with it.
func killPostgres(dsn string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var pid int
	if err := conn.QueryRow(ctx, "select split_part(pg_read_file('postmaster.pid'), E'\\n', 1)::int").Scan(
		&pid); err != nil {
		return err
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}

func postgresPair(tb testing.TB) (dsn, standby string, stopStandby func()) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	bin, err := orInstall(newestPostgres, "PostgreSQL", PostgresDSN, "postgresql")
	if err != nil {
		tb.Fatalf("dbtest: %v", err)
	}
	primary, err := new(Config).startPostgres(ctx, bin, nil)
	if err != nil {
		tb.Fatalf("dbtest: %v", err)
	}
	tb.Cleanup(primary.Stop)
	standby, stop, err := startStandby(ctx, bin, primary.DSN)
	if err != nil {
		tb.Fatalf("dbtest: standby: %v", err)
	}
	tb.Cleanup(stop)
	return primary.DSN, standby, stop
}

// startStandby starts a copy of a primary, makes it the synchronous one, and waits
// until it is.
func startStandby(ctx context.Context, bin, primary string) (standby string, stop func(), err error) {
	cfg, err := pgx.ParseConfig(primary)
	if err != nil {
		return "", nil, err
	}
	f, err := newFolder("standby", "postgres")
	if err != nil {
		return "", nil, err
	}
	fail := func(err error) (string, func(), error) {
		f.remove()
		return "", nil, err
	}
	data := filepath.Join(f.path, "data")
	if err := f.run(ctx, filepath.Join(bin, "pg_basebackup"), "-h", cfg.Host, "-p", strconv.Itoa(int(cfg.Port)),
		"-U", cfg.User,
		"-D", data, "-R", "-c", "fast", "--no-sync"); err != nil {
		return fail(err)
	}
	port, err := freePort("127.0.0.1")
	if err != nil {
		return fail(err)
	}
	cmd := f.command(context.WithoutCancel(ctx), filepath.Join(bin, "postgres"), "-D", data, "-h", "127.0.0.1", "-p",
		strconv.Itoa(port),
		"-k", f.path, "-c", "max_connections=300")
	cmd.SysProcAttr.Pdeathsig = syscall.SIGQUIT
	standby = fmt.Sprintf("postgres://%s@%s/postgres", cfg.User, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	p, err := f.launch(ctx, cmd, 2*time.Minute, func() error { return execPostgres(ctx, standby, "select 1") })
	if err != nil {
		return fail(err)
	}
	stop = stopper(func() {
		p.end(syscall.SIGQUIT)
		f.remove()
	})
	for _, sql := range []string{"alter system set synchronous_standby_names = '*'", "select pg_reload_conf()"} {
		if err = execPostgres(ctx, primary, sql); err != nil {
			stop()
			return "", nil, err
		}
	}
	const synchronous = "do $$ begin assert (select bool_or(sync_state = 'sync') from pg_stat_replication); end $$"
	for err = execPostgres(ctx, primary, synchronous); err != nil; err = execPostgres(ctx, primary, synchronous) {
		if ctx.Err() != nil {
			stop()
			return "", nil, fmt.Errorf("it does not become synchronous: %w", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	return standby, stop, nil
}
