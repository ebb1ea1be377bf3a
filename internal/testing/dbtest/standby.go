package dbtest

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// PostgresPair is a PostgreSQL whose commits wait for a synchronous standby. Both have the distribution's version,
// which has pg_basebackup. A PostgresPair is not for concurrent use.
type PostgresPair struct {
	bin     string
	nodes   [2]*Server
	primary int
}

// StartPostgresPair starts a primary and its standby, which end with the test.
func StartPostgresPair(tb testing.TB) *PostgresPair {
	tb.Helper()
	defer failTest(tb)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	p := &PostgresPair{bin: findOrInstall(newestPostgres, "PostgreSQL", PostgresDSNEnv, "postgresql")}
	tb.Cleanup(func() {
		for _, s := range p.nodes {
			if s != nil {
				s.Stop()
			}
		}
	})
	p.nodes[0] = new(Config).startPostgres(ctx, p.bin, nil)
	p.nodes[1] = startStandby(ctx, p.bin, p.nodes[0].DSN, 0)
	return p
}

// Primary returns the server that takes writes.
func (p *PostgresPair) Primary() *Server { return p.nodes[p.primary] }

func (p *PostgresPair) Standby() *Server { return p.nodes[1-p.primary] }

// Promote makes the standby the primary, after the primary has ended.
func (p *PostgresPair) Promote(ctx context.Context) error {
	if err := execPostgres(ctx, p.Standby().DSN, "select pg_promote()"); err != nil {
		return err
	}
	p.primary = 1 - p.primary
	return nil
}

// Rejoin starts a new standby at the address of the server that was primary before.
func (p *PostgresPair) Rejoin(ctx context.Context) (err error) {
	defer returnFailure(&err)
	p.Standby().Stop()
	port := must(pgx.ParseConfig(p.Standby().DSN)).Port
	p.nodes[1-p.primary] = startStandby(ctx, p.bin, p.Primary().DSN, int(port))
	return nil
}

// maxConnections is a setting of all servers: a standby with fewer connections than its primary does not start.
const maxConnections = "max_connections=600"

// startStandby starts a copy of a primary at a port, or at a free port for 0. It waits until the copy is a synchronous
// standby.
func startStandby(ctx context.Context, bin, primary string, port int) *Server {
	defer wrapFailure("standby")
	cfg := must(pgx.ParseConfig(primary))
	s := new(Config).start(ctx, "standby", "postgres", func(f *folder, freePort int) *Server {
		data, port := filepath.Join(f.path, "data"), cmp.Or(port, freePort)
		dsn := fmt.Sprintf("postgres://%s:@127.0.0.1:%d/postgres", cfg.User, port)
		f.run(ctx, "", filepath.Join(bin, "pg_basebackup"), "-h", cfg.Host, "-p", strconv.Itoa(int(cfg.Port)),
			"-U", cfg.User, "-D", data, "-R", "-c", "fast", "--no-sync")
		return f.postgresServer(bin, data, dsn, dsn, port, "-c", maxConnections, "-c", "fsync=off")
	})
	defer onFailure(s.Stop)
	for _, sql := range []string{
		"alter system set synchronous_standby_names = '*'", "select pg_reload_conf()",
		"do $$ begin assert (select bool_or(sync_state = 'sync') from pg_stat_replication); end $$",
	} {
		check(waitFor(ctx, maxClusterWait, func() error { return execPostgres(ctx, primary, sql) }))
	}
	return s
}
