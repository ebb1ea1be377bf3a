package main

import (
	"context"
	"os"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/bench/compare"
	"github.com/headgate/headgate/bench/daemon"
	"github.com/headgate/headgate/bench/rivals"
	"github.com/headgate/headgate/internal/dbtest"
)

// meter reads what the servers have spent.
type meter func(ctx context.Context) (compare.Reading, error)

// serverCPU returns the CPU time of the servers, or -1 if one of them was not started here.
func serverCPU(env string) func() (r compare.Reading) {
	foreign := os.Getenv(env) != ""
	return func() compare.Reading {
		r := compare.Reading{CPU: -1, Log: -1, Calls: -1}
		if !foreign {
			r.CPU = daemon.CPU()
		}
		return r
	}
}

// meterPostgres reads with a connection of its own. Statements are counted where
// pg_stat_statements is loaded: see -calls.
func (s *servers) meterPostgres(ctx context.Context) (meter, func(), error) {
	conn, err := pgx.Connect(ctx, s.pg.DSN)
	if err != nil {
		return nil, nil, err
	}
	cpu, calls := serverCPU(dbtest.PostgresDSN), s.calls
	return func(ctx context.Context) (compare.Reading, error) {
		r := cpu()
		err := conn.QueryRow(ctx, "select (pg_current_wal_insert_lsn() - '0/0')::bigint").Scan(&r.Log)
		if err == nil && calls {
			err = conn.QueryRow(ctx, "select sum(calls)::bigint from pg_stat_statements").Scan(&r.Calls)
		}
		return r, err
	}, func() { _ = conn.Close(context.WithoutCancel(ctx)) }, nil
}

func (s *servers) meterMariaDB(ctx context.Context) (meter, func(), error) {
	db, err := mariaPool(s.maria.DSN, "", 1)
	if err != nil {
		return nil, nil, err
	}
	status := func(ctx context.Context, name string, into *int64) error {
		var ignored string
		return db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE '"+name+"'").Scan(&ignored, into)
	}
	cpu := serverCPU(dbtest.MySQLDSN)
	return func(ctx context.Context) (compare.Reading, error) {
		r := cpu()
		if err := status(ctx, "Questions", &r.Calls); err != nil {
			return r, err
		}
		return r, status(ctx, "Innodb_os_log_written", &r.Log)
	}, func() { db.Close() }, nil
}

func (s *servers) meterRedis(ctx context.Context) (meter, func(), error) {
	client, err := rivals.Redis(s.red.DSN)
	if err != nil {
		return nil, nil, err
	}
	cpu := serverCPU(dbtest.RedisDSN)
	return func(ctx context.Context) (compare.Reading, error) {
		r := cpu()
		r.Calls, err = rivals.RedisScripts(ctx, client)
		return r, err
	}, func() { _ = client.Close() }, nil
}

// meterNone reads the CPU of this process only: there is no server.
func meterNone(context.Context) (compare.Reading, error) {
	return compare.Reading{CPU: -1, Log: -1, Calls: -1}, nil
}
