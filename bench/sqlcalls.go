package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate/bench/articles"
	"github.com/headgate/headgate/bench/compare"
	"github.com/headgate/headgate/bench/gate"
	"github.com/headgate/headgate/bench/rivals"
)

// sqlCall is a function for callers from SQL, and the article's beside which it is measured.
// Both are asked about one of 20,000 keys at random; in the texts :key stands for it.
type sqlCall struct {
	name           string
	article        string
	ours, theirs   string
	bound          string // that of ours for one fresh key, which passes 20 times
	goalOf1, goal8 float64
}

var postgresCalls = []sqlCall{
	{
		"take", "article 000", "select * from headgate.take('api', :key)",
		"select rate_limiting_request(:key, 1000, 3600)",
		"select allowed from headgate.take('fixed-window 20/1h', $1)", 0.9, 0.9,
	},
	{
		"rate_limiting_request", "article 000", "select rate_limiting_request(:key, 1000, 3600)",
		"select rate_limiting_request(:key, 1000, 3600)", "", 0.9, 0.9,
	},
	{
		"check_velocity", "article 001, translated", "select * from check_velocity(1, :key)",
		"select check_velocity(1, :key)", "select blocked = 0 from check_velocity(9, $1)", 0, 1,
	},
	{
		"request_token", "article 003, translated", "select * from request_token(:key)",
		"select request_token(:key)", "", 0, 0.9,
	},
}

var mariadbCalls = []sqlCall{
	{"check_velocity", "article 001", "CALL check_velocity(1, :key)", "CALL check_velocity(1, :key)", "", 0, 1},
	{"request_token", "article 003", "CALL request_token(:key)", "CALL request_token(:key)", "", 0, 0.9},
	{
		"headgate_take", "article 003", "CALL headgate_take('api', :key, 1)",
		"CALL request_token(:key)", "", 0.9, 0.9,
	},
}

// sqlRows returns the comparisons of callers from SQL: one session, and eight.
func sqlRows(store, title string, calls []sqlCall, st *sqlStand) (list []compare.Comparison) {
	st.shared.Close = func() {
		for _, end := range slices.Backward(st.ends) {
			end()
		}
	}
	for i := range calls {
		call := &calls[i]
		for _, sessions := range []int{1, 8} {
			c := compare.Comparison{
				Name:   fmt.Sprintf("sql-%s-%s-%d", store, strings.ReplaceAll(call.name, "_", "-"), sessions),
				Title:  fmt.Sprintf("From SQL on %s, %s, %s", title, call.name, count(sessions, "session")),
				Shared: &st.shared,
				Cells: func(ctx context.Context) ([]compare.Cell, error) {
					if !st.opened {
						st.opened = true
						st.err = st.make(ctx)
					}
					return st.cells(call, sessions), st.err
				},
			}
			if goal := map[int]float64{1: call.goalOf1, 8: call.goal8}[sessions]; goal > 0 {
				c.Goals = []compare.Goal{compare.Times(goal)}
			}
			list = append(list, c)
		}
	}
	return list
}

// counting is how a cell counts what it admits.
type counting = func(context.Context, time.Duration) (compare.Exactness, error)

// sqlStand is a database for Headgate and one for the articles, with what their functions need.
type sqlStand struct {
	shared       compare.Shared
	opened       bool
	err          error
	ends         []func()
	program      string // that calls
	mine, theirs string
	read         meter

	names    []string // of the program
	database func(ctx context.Context) (dsn string, drop func(), err error)
	meter    func(ctx context.Context) (meter, func(), error)
	fill     func(ctx context.Context, mine, theirs string) error
	run      func(ctx context.Context, program, dsn, text string, sessions int, d time.Duration) (compare.Sample, error)
	count    func(dsn string, call *sqlCall, sessions int) counting
}

func (st *sqlStand) make(ctx context.Context) (err error) {
	if st.program, err = tool(st.names...); err != nil {
		return err
	}
	for _, dsn := range []*string{&st.mine, &st.theirs} {
		var drop func()
		if *dsn, drop, err = st.database(ctx); err != nil {
			return err
		}
		st.ends = append(st.ends, drop)
	}
	s, err := gate.OpenArticles(ctx, st.mine)
	if err != nil {
		return err
	}
	s.Close()
	read, stop, err := st.meter(ctx)
	if err != nil {
		return err
	}
	st.read, st.ends = read, append(st.ends, stop)
	return st.fill(ctx, st.mine, st.theirs)
}

func (st *sqlStand) cells(call *sqlCall, sessions int) []compare.Cell {
	cell := func(side compare.Side, name, dsn, text string) compare.Cell {
		return compare.Cell{
			Side: side, Name: name, At: count(sessions, "session"), Meter: st.read,
			Measure: func(ctx context.Context, d time.Duration) (compare.Sample, error) {
				return st.run(ctx, st.program, dsn, text, sessions, d)
			},
		}
	}
	ours := cell(compare.Ours, gate.Name+" "+call.name, st.mine, call.ours)
	ours.Exact = st.count(st.mine, call, sessions)
	return []compare.Cell{ours, cell(compare.Rival, call.article, st.theirs, call.theirs)}
}

// tool returns the path of a program, or an error that the table shows in place of a figure.
func tool(names ...string) (string, error) {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + names[0])
	if len(found) > 0 {
		return found[len(found)-1], nil
	}
	return "", fmt.Errorf("not run: %s is missing", names[0])
}

// fromPostgres compares what callers from SQL get, by pgbench.
func (b *bench) fromPostgres() []compare.Comparison {
	return sqlRows("postgres", "PostgreSQL", postgresCalls, &sqlStand{
		names: []string{"pgbench"}, database: b.postgres, meter: b.meterPostgres,
		fill: fillSQL, run: runPgbench, count: countSQL,
	})
}

// fillSQL puts in what the functions of both sides need, and the rows of all keys of theirs and
// of Headgate's buckets; the cells of Headgate are made by a first call for each key.
func fillSQL(ctx context.Context, mine, theirs string) error {
	run := func(dsn string, texts ...string) error {
		p, err := pool(ctx, dsn, 1, committed)
		if err != nil {
			return err
		}
		defer p.Close()
		for _, text := range texts {
			if _, err := p.Exec(ctx, text); err != nil {
				return fmt.Errorf("%.60s: %w", text, err)
			}
		}
		return nil
	}
	p, err := pool(ctx, theirs, 1, committed)
	if err != nil {
		return err
	}
	defer p.Close()
	return errors.Join(
		run(mine, "insert into headgate.limits (name, rule) values ('api', 'token-bucket 1000000000/h')",
			"insert into headgate.zones (id, description, rate, window_seconds) values (1, 'login', 5, 60), (9, 'counted', 20, 3600)",
			"insert into headgate.buckets (id, capacity, refill_seconds) select 'user:' || i, 1000000000, 3600 from generate_series(0, 19999) i",
			"select count(headgate.take('api', 'user:' || i)) from generate_series(0, 19999) i",
			"select count(rate_limiting_request('user:' || i, 1000, 3600)) from generate_series(0, 19999) i",
			"select count(r) from generate_series(0, 19999) i, request_token('user:' || i) r",
			"select count(r) from generate_series(0, 19999) i, check_velocity(1, 'user:' || i) r",
			"vacuum analyze"),
		articles.InstallPostgres(ctx, p), articles.InstallTranslated(ctx, p),
		run(theirs, "insert into rate_limiting_token_bucket select 'user:' || i, 3600000, now() from generate_series(0, 19999) i",
			"insert into zone_bucket_lock select 'user:' || i from generate_series(0, 19999) i",
			"insert into token_buckets select 'user:' || i, 1000000000, 1000000000, 3600, now() from generate_series(0, 19999) i",
			"vacuum analyze"))
}

// countSQL counts what sessions get out of a limit of 20 for one key.
func countSQL(dsn string, call *sqlCall, sessions int) counting {
	text := call.bound
	if text == "" { // what is as the articles have it has no bound of 20 of its own
		text = postgresCalls[0].bound
	}
	return func(ctx context.Context, d time.Duration) (compare.Exactness, error) {
		p, err := pool(ctx, dsn, sessions, committed)
		if err != nil {
			return compare.Exactness{}, err
		}
		defer p.Close()
		return compare.Fixed(sessions, 20, asked(allowedBy(p, text), []string{fresh()}))(ctx, d)
	}
}

func allowedBy(p *pgxpool.Pool, text string) rivals.Limiter {
	return rivals.Func(func(ctx context.Context, key string) (allowed bool, err error) {
		err = p.QueryRow(ctx, text, key).Scan(&allowed)
		return allowed, err
	})
}

var (
	pgbenchRate   = regexp.MustCompile(`(?m)^tps = ([0-9.]+)`)
	pgbenchDone   = regexp.MustCompile(`(?m)^number of transactions actually processed: (\d+)`)
	pgbenchFailed = regexp.MustCompile(`(?m)^number of failed transactions: (\d+)`)
)

// runPgbench calls a prepared statement for whole seconds, of which pgbench knows no parts.
func runPgbench(ctx context.Context, pgbench, dsn, text string, sessions int, d time.Duration) (
	s compare.Sample, err error,
) {
	file, err := os.CreateTemp("", "headgate-bench-")
	if err != nil {
		return s, err
	}
	defer os.Remove(file.Name())
	script := "\\set k random(0, 19999)\n" + strings.ReplaceAll(text, ":key", "'user:' || :k::int") + ";\n"
	if _, err := file.WriteString(script); err != nil {
		return s, err
	}
	if err := file.Close(); err != nil {
		return s, err
	}
	seconds := max(1, int(d.Round(time.Second)/time.Second))
	out, err := exec.CommandContext(ctx, pgbench, "-n", "-M", "prepared", "-c", strconv.Itoa(sessions), "-j", "1",
		"-T", strconv.Itoa(seconds), "-f", file.Name(), dsn).CombinedOutput()
	if err != nil {
		return s, fmt.Errorf("pgbench: %w: %s", err, lastOf(out))
	}
	number := func(r *regexp.Regexp) (f float64) {
		if m := r.FindSubmatch(out); m != nil {
			f, _ = strconv.ParseFloat(string(m[1]), 64)
		}
		return f
	}
	s.Value, s.Decisions = number(pgbenchRate), number(pgbenchDone)
	s.Failed = int64(number(pgbenchFailed))
	s.Asked = int64(s.Decisions) + s.Failed
	return s, nil
}

func lastOf(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}
