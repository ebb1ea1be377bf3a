package dbtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// PgBouncer returns the URL of the database of a PostgreSQL URL through a
// pgbouncer in transaction mode, with four connections to the server. The
// pooler ends with the test.
func PgBouncer(tb testing.TB, dsn string) string {
	tb.Helper()
	pooled, stop, err := startPgBouncer(context.Background(), dsn)
	if err != nil {
		tb.Fatalf("dbtest: %v", err)
	}
	tb.Cleanup(stop)
	return pooled
}

func startPgBouncer(ctx context.Context, dsn string) (pooled string, stop func(), err error) {
	bin, err := program("pgbouncer", "", "pgbouncer")
	if err != nil {
		return "", nil, err
	}
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return "", nil, err
	}
	f, err := newFolder("pgbouncer", "postgres")
	if err != nil {
		return "", nil, err
	}
	fail := func(err error) (string, func(), error) {
		f.remove()
		return "", nil, err
	}
	port, err := freePort("127.0.0.1")
	if err != nil {
		return fail(err)
	}
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
	server := fmt.Sprintf("host=%s port=%d dbname=%s user=%s", quote(cfg.Host), cfg.Port, quote(cfg.Database),
		quote(cfg.User))
	if cfg.Password != "" {
		server += " password=" + quote(cfg.Password)
	}
	ini := fmt.Sprintf("[databases]\n%s = %s\n\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = "+
		"%d\nunix_socket_dir =\nauth_type = any\n"+
		"pool_mode = transaction\ndefault_pool_size = 4\nmax_client_conn = 500\n", cfg.Database, server, port)
	file := filepath.Join(f.path, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(ini), 0o644); err != nil {
		return fail(err)
	}
	u := url.URL{
		Scheme: "postgres", User: url.User(cfg.User), Host: fmt.Sprintf("127.0.0.1:%d", port),
		Path: "/" + cfg.Database,
	}
	pooled = u.String()
	p, err := f.launch(ctx, f.command(context.WithoutCancel(ctx), bin, file), time.Minute, func() error {
		c, err := pgx.ParseConfig(pooled)
		if err != nil {
			return err
		}
		c.DefaultQueryExecMode = pgx.QueryExecModeExec
		conn, err := pgx.ConnectConfig(ctx, c)
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		_, err = conn.Exec(ctx, "select 1")
		return err
	})
	if err != nil {
		return fail(err)
	}
	return pooled, stopper(func() {
		// Newer versions take SIGTERM for a wish to wait for their clients.
		p.end(syscall.SIGKILL)
		f.remove()
	}), nil
}
