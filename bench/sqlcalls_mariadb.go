package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"net/url"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/bench/articles"
	"github.com/headgate/headgate/bench/compare"
	"github.com/headgate/headgate/bench/rivals"
)

// fromMariaDB compares what callers from SQL get, by mariadb-slap.
func (b *bench) fromMariaDB() []compare.Comparison {
	return sqlRows("mariadb", "MariaDB", mariadbCalls, &sqlStand{
		names: []string{"mariadb-slap", "mysqlslap"}, database: b.mariadb, meter: b.meterMariaDB,
		fill: fillSlap, run: runSlap, count: countSlap,
	})
}

// countSlap counts what sessions get out of a limit of 20 for one key.
func countSlap(dsn string, _ *sqlCall, sessions int) counting {
	return func(ctx context.Context, d time.Duration) (compare.Exactness, error) {
		db, err := mariaPool(dsn, "", sessions)
		if err != nil {
			return compare.Exactness{}, err
		}
		defer db.Close()
		take := rivals.Func(func(ctx context.Context, key string) (allowed bool, err error) {
			var rest [5]any
			err = db.QueryRowContext(ctx, "CALL headgate_take('fixed-window 20/1h', ?, 1)", key).Scan(&allowed,
				&rest[0], &rest[1], &rest[2], &rest[3], &rest[4])
			return allowed, err
		})
		return compare.Fixed(sessions, 20, asked(take, []string{fresh()}))(ctx, d)
	}
}

// fillSlap puts in what the procedures of both sides need, the rows of all keys too. Those of Headgate are
// copies of the ones that the first calls make.
func fillSlap(ctx context.Context, mine, theirs string) error {
	db, err := mariaPool(mine, "", 1)
	if err != nil {
		return err
	}
	defer db.Close()
	for _, text := range []string{
		"INSERT INTO headgate_zones (id, description, rate, window_seconds) VALUES (1, 'login', 5, 60)",
		"INSERT INTO headgate_buckets (id, capacity, refill_seconds) SELECT CONCAT('user:', seq), 1000000000, 3600 FROM seq_0_to_19999",
		"INSERT INTO headgate_limits (name, rule) VALUES ('api', 'token-bucket 1000000000/h')",
		"CALL headgate_take('api', 'user:0', 1)", "CALL check_velocity(1, 'user:0')", "CALL request_token('user:0')",
		"INSERT INTO headgate_cells (limit_name, cell_key, law, level, prev, at, unit, step, empty_at) " +
			"SELECT limit_name, CONCAT('user:', seq), law, level, prev, at, unit, step, empty_at " +
			"FROM headgate_cells, seq_1_to_19999 WHERE cell_key = 'user:0'",
	} {
		if _, err := db.ExecContext(ctx, text); err != nil {
			return fmt.Errorf("%.60s: %w", text, err)
		}
	}
	other, err := mariaPool(theirs, "", 1)
	if err != nil {
		return err
	}
	defer other.Close()
	if err := articles.InstallMariaDB(ctx, other); err != nil {
		return err
	}
	keys := users(20_000)
	l := &articles.RequestToken{DB: other, Capacity: 1_000_000_000, RefillSeconds: 3600}
	if err := l.Fill(ctx, keys); err != nil {
		return err
	}
	return (&articles.CheckVelocity{DB: other, Zone: articles.Login}).Fill(ctx, keys)
}

// runSlap calls a procedure by mariadb-slap, which takes a number of calls, and tells seconds to
// a thousandth.
func runSlap(ctx context.Context, slap, dsn, text string, sessions int, d time.Duration) (s compare.Sample, err error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return s, err
	}
	text = strings.ReplaceAll(text, ":key", "CONCAT('user:', FLOOR(RAND() * 20000))")
	run := func(calls int) (time.Duration, error) {
		args := []string{
			"--no-defaults", "--host=" + u.Hostname(), "--port=" + u.Port(), "--user=" + u.User.Username(),
			"--protocol=tcp",
			"--create-schema=" + strings.TrimPrefix(u.Path, "/"), "--no-drop", "--csv", "--delimiter=;",
			"--concurrency=" + strconv.Itoa(sessions), "--number-of-queries=" + strconv.Itoa(calls), "--query=" + text,
		}
		out, err := exec.CommandContext(ctx, slap, args...).CombinedOutput()
		if err != nil {
			return 0, fmt.Errorf("mariadb-slap: %w: %s", err, lastOf(out))
		}
		fields, err := csv.NewReader(strings.NewReader(lastOf(out))).Read()
		if err != nil || len(fields) < 3 {
			return 0, fmt.Errorf("mariadb-slap: its answer is not understood: %s", lastOf(out))
		}
		seconds, err := strconv.ParseFloat(fields[2], 64)
		return time.Duration(seconds * float64(time.Second)), err
	}
	trial := 100 * sessions
	took, err := run(trial)
	if err != nil {
		return s, err
	}
	calls := max(trial, int(float64(trial)*float64(d)/float64(max(took, time.Millisecond)))/sessions*sessions)
	if took, err = run(calls); err != nil {
		return s, err
	}
	s.Value, s.Asked = float64(calls)/max(took, time.Millisecond).Seconds(), int64(calls)
	s.Decisions = float64(calls + trial)
	return s, nil
}
