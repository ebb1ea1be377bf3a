package dbtest

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"syscall"
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
	if err != nil {
		tb.Fatalf("dbtest: %v", err)
	}
	p := &PostgresPair{bin: bin}
	tb.Cleanup(func() {
		for _, s := range p.nodes {
			if s != nil {
				s.Stop()
			}
		}
	})
	if p.nodes[0], err = new(Config).startPostgres(ctx, bin, nil); err != nil {
		tb.Fatalf("dbtest: %v", err)
	}
	port, err := freePort("127.0.0.1")
	if err == nil {
		p.nodes[1], err = startStandby(ctx, bin, p.nodes[0].DSN, port)
	}
	if err != nil {
		tb.Fatalf("dbtest: standby: %v", err)
	}
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

// startStandby starts a copy of a primary at a port, makes it the synchronous one, and waits until it is.
func startStandby(ctx context.Context, bin, primary string, port int) (*Server, error) {
	cfg, err := pgx.ParseConfig(primary)
	if err != nil {
		return nil, err
	}
	f, err := newFolder("standby", "postgres")
	if err != nil {
		return nil, err
	}
	data := filepath.Join(f.path, "data")
	err = f.run(ctx, filepath.Join(bin, "pg_basebackup"), "-h", cfg.Host, "-p", strconv.Itoa(int(cfg.Port)),
		"-U", cfg.User, "-D", data, "-R", "-c", "fast", "--no-sync")
	if err != nil {
		f.remove()
		return nil, err
	}
	s := &Server{DSN: fmt.Sprintf("postgres://%s:@127.0.0.1:%d/postgres", cfg.User, port), polite: syscall.SIGINT}
	err = s.run(ctx, f, func(ctx context.Context) (*process, error) {
		cmd := f.command(context.WithoutCancel(ctx), filepath.Join(bin, "postgres"), "-D", data, "-h", "127.0.0.1",
			"-p", strconv.Itoa(port), "-k", f.path, "-c", "max_connections=300", "-c", "fsync=off")
		cmd.SysProcAttr.Pdeathsig = syscall.SIGQUIT
		return f.launch(ctx, cmd, 2*time.Minute, func() error { return execPostgres(ctx, s.DSN, "select 1") })
	})
	if err != nil {
		f.remove()
		return nil, err
	}
	for _, sql := range []string{"alter system set synchronous_standby_names = '*'", "select pg_reload_conf()"} {
		if err = execPostgres(ctx, primary, sql); err != nil {
			s.Stop()
			return nil, err
		}
	}
	const synchronous = "do $$ begin assert (select bool_or(sync_state = 'sync') from pg_stat_replication); end $$"
	for err = execPostgres(ctx, primary, synchronous); err != nil; err = execPostgres(ctx, primary, synchronous) {
		if ctx.Err() != nil {
			s.Stop()
			return nil, fmt.Errorf("it does not become synchronous: %w", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	return s, nil
}
