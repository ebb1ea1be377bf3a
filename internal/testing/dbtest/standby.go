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

// PostgresPair is a PostgreSQL whose commits wait for a synchronous standby. Both are of the distribution's
// version, which has pg_basebackup. It is not for concurrent use.
type PostgresPair struct {
	bin     string
	nodes   [2]*Server
	primary int
}

// StartPostgresPair starts a primary and its standby, which end with the test.
func StartPostgresPair(tb testing.TB) *PostgresPair {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	bin, err := orInstall(newestPostgres, "PostgreSQL", PostgresDSN, "postgresql")
	must(tb, err)
	p := &PostgresPair{bin: bin}
	tb.Cleanup(func() {
		for _, s := range p.nodes {
			if s != nil {
				s.Stop()
			}
		}
	})
	p.nodes[0], err = new(Config).startPostgres(ctx, bin, nil)
	must(tb, err)
	p.nodes[1], err = startStandby(ctx, bin, p.nodes[0].DSN, 0)
	must(tb, err)
	return p
}

// Primary returns the server that takes writes, and Standby the other one.
func (p *PostgresPair) Primary() *Server { return p.nodes[p.primary] }

// Standby returns the server that follows the primary.
func (p *PostgresPair) Standby() *Server { return p.nodes[1-p.primary] }

// Promote lets the standby take writes, in the place of a primary that has ended.
func (p *PostgresPair) Promote(ctx context.Context) error {
	if err := execPostgres(ctx, p.Standby().DSN, "select pg_promote()"); err != nil {
		return err
	}
	p.primary = 1 - p.primary
	return nil
}

// Rejoin starts a new standby at the address of the server that was primary before.
func (p *PostgresPair) Rejoin(ctx context.Context) error {
	p.Standby().Stop()
	cfg, err := pgx.ParseConfig(p.Standby().DSN)
	if err != nil {
		return err
	}
	s, err := startStandby(ctx, p.bin, p.Primary().DSN, int(cfg.Port))
	if err == nil {
		p.nodes[1-p.primary] = s
	}
	return err
}

// startStandby starts a copy of a primary at a port, or at a free one if that is 0, makes it the synchronous one, and
// waits until it is.
func startStandby(ctx context.Context, bin, primary string, port int) (*Server, error) {
	cfg, err := pgx.ParseConfig(primary)
	if err != nil {
		return nil, err
	}
	s, err := new(Config).start(ctx, "standby", "postgres", func(f *folder, free int) (*Server, error) {
		data, port := filepath.Join(f.path, "data"), cmp.Or(port, free)
		dsn := fmt.Sprintf("postgres://%s:@127.0.0.1:%d/postgres", cfg.User, port)
		return f.postgres(bin, data, dsn, dsn, port, "-c", "max_connections=300", "-c", "fsync=off"),
			f.run(ctx, filepath.Join(bin, "pg_basebackup"), "-h", cfg.Host, "-p", strconv.Itoa(int(cfg.Port)),
				"-U", cfg.User, "-D", data, "-R", "-c", "fast", "--no-sync")
	})
	if err != nil {
		return nil, fmt.Errorf("standby: %w", err)
	}
	for _, sql := range []string{
		"alter system set synchronous_standby_names = '*'", "select pg_reload_conf()",
		"do $$ begin assert (select bool_or(sync_state = 'sync') from pg_stat_replication); end $$",
	} {
		if err := until(ctx, func() error { return execPostgres(ctx, primary, sql) }); err != nil {
			s.Stop()
			return nil, fmt.Errorf("the standby does not become synchronous: %w", err)
		}
	}
	return s, nil
}
