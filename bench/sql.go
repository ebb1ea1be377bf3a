package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/bench/articles"
	"github.com/headgate/headgate/bench/rivals"
)

// sqlCall is a statement that calls a function of Headgate from SQL, and the one that calls an article's function. In
// both, :key stands for one of 20,000 keys at random.
type sqlCall struct{ name, article, headgateText, articleText string }

const limitingRequest = "select rate_limiting_request(:key, 1000, 3600)"

var postgresCalls = []sqlCall{
	{"take", "article 000", "select * from headgate.take('api', :key)", limitingRequest},
	{"rate_limiting_request", "article 000", limitingRequest, limitingRequest},
	{
		"check_velocity", "article 001, translated", "select * from check_velocity(1, :key)",
		"select check_velocity(1, :key)",
	},
	{"request_token", "article 003, translated", "select * from request_token(:key)", "select request_token(:key)"},
}

var mariadbCalls = []sqlCall{
	{"check_velocity", "article 001", "CALL check_velocity(1, :key)", "CALL check_velocity(1, :key)"},
	{"request_token", "article 003", "CALL request_token(:key)", "CALL request_token(:key)"},
	{"headgate_take", "article 003", "CALL headgate_take('api', :key, 1)", "CALL request_token(:key)"},
}

// Statements that make what the functions need, with the rows of all keys.
var (
	postgresSetup = []string{
		"insert into headgate.limits (name, rule) values ('api', 'token-bucket 1000000000/h')",
		"insert into headgate.zones (id, description, rate, window_seconds) values (1, 'login', 5, 60)",
		"insert into headgate.buckets (id, capacity, refill_seconds) " +
			"select 'user:' || i, 1000000000, 3600 from generate_series(0, 19999) i",
		"select count(headgate.take('api', 'user:' || i)) from generate_series(0, 19999) i",
		"select count(rate_limiting_request('user:' || i, 1000, 3600)) from generate_series(0, 19999) i",
		"select count(r) from generate_series(0, 19999) i, request_token('user:' || i) r",
		"select count(r) from generate_series(0, 19999) i, check_velocity(1, 'user:' || i) r",
		"vacuum analyze",
	}
	postgresArticleSetup = []string{
		"insert into rate_limiting_token_bucket select 'user:' || i, 3600000, now() from generate_series(0, 19999) i",
		"insert into zone_bucket_lock select 'user:' || i from generate_series(0, 19999) i",
		"insert into token_buckets select 'user:' || i, 1000000000, 1000000000, 3600, now() " +
			"from generate_series(0, 19999) i",
		"vacuum analyze",
	}
	mariadbSetup = []string{ // most cells are copies of those that the first calls make
		"INSERT INTO headgate_zones (id, description, rate, window_seconds) VALUES (1, 'login', 5, 60)",
		"INSERT INTO headgate_buckets (id, capacity, refill_seconds) " +
			"SELECT CONCAT('user:', seq), 1000000000, 3600 FROM seq_0_to_19999",
		"INSERT INTO headgate_limits (name, rule) VALUES ('api', 'token-bucket 1000000000/h')",
		"CALL headgate_take('api', 'user:0', 1)", "CALL check_velocity(1, 'user:0')", "CALL request_token('user:0')",
		"INSERT INTO headgate_cells (limit_name, cell_key, law, level, prev, at, unit, step, empty_at) " +
			"SELECT limit_name, CONCAT('user:', seq), law, level, prev, at, unit, step, empty_at " +
			"FROM headgate_cells, seq_1_to_19999 WHERE cell_key = 'user:0'",
	}
	mariadbArticleSetup = []string{
		"INSERT INTO token_buckets " +
			"SELECT CONCAT('user:', seq), 1000000000, 1000000000, 3600, NOW(3) FROM seq_0_to_19999",
		"INSERT INTO zone_bucket_lock SELECT CONCAT('user:', seq) FROM seq_0_to_19999",
	}
)

// sqlBench is a database for Headgate and one for the articles. A program calls the functions in them.
type sqlBench struct {
	group
	name, title, program string
	calls                []sqlCall
	newDatabase          func(ctx context.Context) (dsn string, drop func(), err error)
	exec                 func(ctx context.Context, dsn string, texts []string) error
	articles             func(dsn string) string // schema or database for functions of the articles' names
	run                  func(ctx context.Context, program, dsn, text string, n int, d time.Duration) (sample, error)

	headgateDSN, articleDSN     string
	headgateSetup, articleSetup []string // statements that make the rows, and for the articles the functions
}

// sqlGroup returns the comparisons of callers from SQL: one session, and eight.
func (sb *sqlBench) sqlGroup(ctx context.Context) *group {
	sb.open = sync.OnceValue(func() error { return sb.makeDatabases(ctx) })
	for _, call := range sb.calls {
		for _, sessions := range []int{1, 8} {
			sb.rows = append(sb.rows, comparison{
				name:  fmt.Sprintf("sql-%s-%s-%d", sb.name, strings.ReplaceAll(call.name, "_", "-"), sessions),
				title: fmt.Sprintf("From SQL on %s, %s, %s", sb.title, call.name, count(sessions, "session")),
				cells: func(context.Context) ([]cell, error) { return sb.cells(call, sessions), nil },
			})
		}
	}
	return &sb.group
}

func (sb *sqlBench) cells(call sqlCall, sessions int) []cell {
	newCell := func(side side, name, dsn, text string) cell {
		return cell{
			side: side, name: name, setting: count(sessions, "session"),
			measure: func(ctx context.Context, d time.Duration) (sample, error) {
				return sb.run(ctx, sb.program, dsn, text, sessions, d)
			},
		}
	}
	return []cell{
		newCell(headgateSide, "Headgate "+call.name, sb.headgateDSN, call.headgateText),
		newCell(rivalSide, call.article, sb.articleDSN, call.articleText),
	}
}

// makeDatabases finds the program, and makes both databases.
func (sb *sqlBench) makeDatabases(ctx context.Context) error {
	if path, err := exec.LookPath(sb.program); err == nil {
		sb.program = path
	} else if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + sb.program); len(found) > 0 {
		sb.program = found[len(found)-1]
	} else {
		return fmt.Errorf("not run: %s is missing", sb.program)
	}
	var err, errArticle error
	sb.headgateDSN, err = sb.database(ctx, sb.newDatabase)
	sb.articleDSN, errArticle = sb.database(ctx, sb.newDatabase)
	if err = errors.Join(err, errArticle); err != nil {
		return err
	}
	s, err := openDriver(ctx, sb.headgateDSN, sb.articles(sb.headgateDSN))
	if err != nil {
		return err
	}
	s.Close()
	return errors.Join(sb.exec(ctx, sb.headgateDSN, sb.headgateSetup), sb.exec(ctx, sb.articleDSN, sb.articleSetup))
}

// postgresSQLGroup compares calls from SQL on PostgreSQL, by pgbench.
func (b *bench) postgresSQLGroup(ctx context.Context) *group {
	return (&sqlBench{
		name: "postgres", title: "PostgreSQL", program: "pgbench", calls: postgresCalls, newDatabase: b.postgres,
		articles: func(string) string { return "public" },
		run:      runPgbench, headgateSetup: postgresSetup,
		articleSetup: append(articles.Postgres(), postgresArticleSetup...),
		exec:         execPostgres,
	}).sqlGroup(ctx)
}

// mariadbSQLGroup compares calls from SQL on MariaDB, by mariadb-slap.
func (b *bench) mariadbSQLGroup(ctx context.Context) *group {
	return (&sqlBench{
		name: "mariadb", title: "MariaDB", program: "mariadb-slap", calls: mariadbCalls, newDatabase: b.mariadb,
		articles: func(dsn string) string { return dsn[strings.LastIndexByte(dsn, '/')+1:] },
		run:      runSlap, headgateSetup: mariadbSetup,
		articleSetup: append(articles.MariaDB(), mariadbArticleSetup...),
		exec:         execMariaDB,
	}).sqlGroup(ctx)
}

var (
	pgbenchRate   = regexp.MustCompile(`(?m)^tps = ([0-9.]+)`)
	pgbenchDone   = regexp.MustCompile(`(?m)^number of transactions actually processed: (\d+)`)
	pgbenchFailed = regexp.MustCompile(`(?m)^number of failed transactions: (\d+)`)
)

// runPgbench calls a prepared statement for a time, rounded to whole seconds, which pgbench requires.
func runPgbench(ctx context.Context, pgbench, dsn, text string, sessions int, d time.Duration) (s sample, err error) {
	file, err := os.CreateTemp("", "headgate-bench-")
	if err != nil {
		return s, err
	}
	defer os.Remove(file.Name())
	script := "\\set k random(0, 19999)\n" + strings.ReplaceAll(text, ":key", "'user:' || :k::int") + ";\n"
	_, err = file.WriteString(script)
	if err := errors.Join(err, file.Close()); err != nil {
		return s, err
	}
	seconds := max(1, int(d.Round(time.Second)/time.Second))
	out, err := exec.CommandContext(ctx, pgbench, "-n", "-M", "prepared", "-c", strconv.Itoa(sessions), "-j", "1",
		"-T", strconv.Itoa(seconds), "-f", file.Name(), dsn).CombinedOutput()
	if err != nil {
		return s, fmt.Errorf("pgbench: %w: %s", err, rivals.LastLine(out))
	}
	number := func(r *regexp.Regexp) (f float64) {
		if m := r.FindSubmatch(out); m != nil {
			f, _ = strconv.ParseFloat(string(m[1]), 64)
		}
		return f
	}
	done, failed := number(pgbenchDone), number(pgbenchFailed)
	s = sample{value: number(pgbenchRate), decisions: done, requests: int64(done + failed), errors: int64(failed)}
	return s, nil
}

// runSlap calls a procedure by mariadb-slap, which takes a number of calls: a trial tells how many last for d.
func runSlap(ctx context.Context, slap, dsn, text string, sessions int, d time.Duration) (s sample, err error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return s, err
	}
	text = strings.ReplaceAll(text, ":key", "CONCAT('user:', FLOOR(RAND() * 20000))")
	run := func(calls int) (time.Duration, error) {
		out, err := exec.CommandContext(ctx, slap, "--no-defaults", "--host="+u.Hostname(), "--port="+u.Port(),
			"--user="+u.User.Username(), "--protocol=tcp", "--create-schema="+strings.TrimPrefix(u.Path, "/"),
			"--no-drop", "--csv", "--delimiter=;", "--concurrency="+strconv.Itoa(sessions),
			"--number-of-queries="+strconv.Itoa(calls), "--query="+text).CombinedOutput()
		if err != nil {
			return 0, fmt.Errorf("mariadb-slap: %w: %s", err, rivals.LastLine(out))
		}
		fields, err := csv.NewReader(strings.NewReader(rivals.LastLine(out))).Read()
		if err != nil || len(fields) < 3 {
			return 0, fmt.Errorf("mariadb-slap: its answer is not understood: %s", rivals.LastLine(out))
		}
		seconds, err := strconv.ParseFloat(fields[2], 64)
		return max(time.Millisecond, time.Duration(seconds*float64(time.Second))), err
	}
	trial := 100 * sessions
	duration, err := run(trial)
	if err != nil {
		return s, err
	}
	calls := max(trial, int(float64(trial)*float64(d)/float64(duration))/sessions*sessions)
	if duration, err = run(calls); err != nil {
		return s, err
	}
	return sample{
		value: float64(calls) / duration.Seconds(), requests: int64(calls), decisions: float64(calls + trial),
	}, nil
}
