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

// PgBouncer returns the URL of the database of a PostgreSQL URL through a pgbouncer in transaction mode, with four
// connections to the server. The pooler ends with the test.
func PgBouncer(tb testing.TB, dsn string) string {
	tb.Helper()
	defer failTest(tb)
	bin, cfg := program("pgbouncer", "", "pgbouncer"), must(pgx.ParseConfig(dsn))
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
	server := fmt.Sprintf("host=%s port=%d dbname=%s user=%s", quote(cfg.Host), cfg.Port, quote(cfg.Database),
		quote(cfg.User))
	if cfg.Password != "" {
		server += " password=" + quote(cfg.Password)
	}
	s := new(Config).start(tb.Context(), "pgbouncer", "postgres", func(f *folder, port int) *Server {
		ini := fmt.Sprintf("[databases]\n%s = %s\n\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = "+
			"%d\nunix_socket_dir =\nauth_type = any\n"+
			"pool_mode = transaction\ndefault_pool_size = 4\nmax_client_conn = 500\n", cfg.Database, server, port)
		file := filepath.Join(f.path, "pgbouncer.ini")
		check(os.WriteFile(file, []byte(ini), 0o644))
		u := url.URL{
			Scheme: "postgres", User: url.User(cfg.User), Host: fmt.Sprintf("127.0.0.1:%d", port),
			Path: "/" + cfg.Database,
		}
		launch := func(ctx context.Context) *process {
			cmd := f.command(context.WithoutCancel(ctx), bin, file)
			return f.launch(ctx, cmd, time.Minute, func() error { return execPostgres(ctx, u.String(), "select 1") })
		}
		// After SIGTERM, newer versions wait for their clients.
		return &Server{DSN: u.String(), stopSignal: syscall.SIGKILL, launch: launch}
	})
	tb.Cleanup(s.Stop)
	return s.DSN
}
