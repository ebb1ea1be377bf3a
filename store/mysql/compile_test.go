package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/mysql"
)

// openSession returns a session of the URL's user, which may send several statements at once and prepares none.
func openSession(tb testing.TB, url string) *sql.Conn {
	tb.Helper()
	user, address, _ := strings.Cut(strings.TrimPrefix(url, "mysql://"), "@")
	host, database, _ := strings.Cut(address, "/")
	db, err := sql.Open("mysql", user+"@tcp("+host+")/"+database+"?multiStatements=true&interpolateParams=true")
	if err != nil {
		tb.Fatal(err)
	}
	conn, err := db.Conn(context.Background())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { conn.Close(); db.Close() })
	return conn
}

// makeProcedures creates the procedures of compile.sql and calendar.sql, and no others.
func makeProcedures(tb testing.TB, conn *sql.Conn) {
	tb.Helper()
	for _, name := range []string{"sql/procedures/compile.sql", "sql/procedures/calendar.sql"} {
		text, err := os.ReadFile(name)
		if err != nil {
			tb.Fatal(err)
		}
		numbered := strings.ReplaceAll(string(text), "_N", fmt.Sprint("_", mysql.Revision))
		for _, statement := range strings.Split(numbered, "\n//\n") {
			if statement = strings.TrimSpace(statement); statement != "" {
				mustExec(tb, conn, statement)
			}
		}
	}
}

// callCompile calls headgate_compile, and returns canonical and params in the format of the golden file.
func callCompile(conn *sql.Conn, rule any) (canonical, params string, calendar, zone sql.NullString, err error) {
	ctx := context.Background()
	if _, err = conn.ExecContext(ctx, fmt.Sprintf(`call headgate_compile_%d(?, @canonical, @law, @anchor, @unit, @capacity, @step, @drain, @block, @history, @calendar, @zone)`, mysql.Revision), rule); err != nil {
		return "", "", calendar, zone, err
	}
	err = conn.QueryRowContext(ctx, `select @canonical, concat_ws(' ', @law, @anchor, @unit, @capacity, @step, @drain, @block, @history), @calendar, @zone`).
		Scan(&canonical, &params, &calendar, &zone)
	return canonical, params, calendar, zone, err
}

// signalText returns the message of an error that headgate_fail raised. ok is false for any other error.
func signalText(err error) (text string, ok bool) {
	var my *driver.MySQLError
	if errors.As(err, &my) && my.Number == 1644 && string(my.SQLState[:]) == "45000" {
		return my.Message, true
	}
	return "", false
}

// TestCompileMatchesTheGoldenNotations compares headgate_compile with the golden file of Parse.
func TestCompileMatchesTheGoldenNotations(t *testing.T) {
	t.Parallel()
	expectGoldenNotations(t, openSession(t, migrated.MariaDB(t)))
}

// TestCompileMatchesTheGoldenNotationsInOtherModes compares headgate_compile with the golden file when the procedure
// was created under SQL modes or a character set that a migration does not set.
func TestCompileMatchesTheGoldenNotationsInOtherModes(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	for _, tt := range []struct{ name, setup string }{
		{"ANSI_QUOTES", `set sql_mode = 'ANSI_QUOTES,STRICT_ALL_TABLES,PIPES_AS_CONCAT,IGNORE_SPACE'`},
		{"NO_BACKSLASH_ESCAPES", `set sql_mode = 'NO_BACKSLASH_ESCAPES,HIGH_NOT_PRECEDENCE'`},
		{"without a mode", `set sql_mode = ''`},
		{"latin1", `alter database character set latin1; set names latin1`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			conn := openSession(t, dbtest.MariaDB(t))
			mustExec(t, conn, tt.setup)
			makeProcedures(t, conn)
			mustExec(t, conn, `set names utf8mb4`)
			expectGoldenNotations(t, conn)
		})
	}
}

// expectGoldenNotations compares the results and errors of headgate_compile with testdata/notations.golden.
func expectGoldenNotations(t *testing.T, conn *sql.Conn) {
	t.Helper()
	golden, err := os.ReadFile("../../testdata/notations.golden")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(golden)) {
		columns := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		rule, wantCanonical, wantParams := columns[0], columns[1], columns[2]
		canonical, params, _, _, err := callCompile(conn, rule)
		if wantCanonical == "error" {
			if message, ok := signalText(err); !ok {
				t.Errorf("%q: got %q %s, %v; want an error", rule, canonical, params, err)
			} else if field := columns[3]; field != "limit" && !strings.HasPrefix(message, field+":") {
				t.Errorf("%q: got the error %q, want one that names the field %s", rule, message, field)
			}
			continue
		}
		if err != nil || canonical != wantCanonical || params != wantParams {
			t.Errorf("%q:\n got %q %s %v\nwant %q %s", rule, canonical, params, err, wantCanonical, wantParams)
		}
	}
}

// TestCompileAgreesWithParse compares headgate_compile with Parse for random notations, many of them invalid.
func TestCompileAgreesWithParse(t *testing.T) {
	t.Parallel()
	conn := openSession(t, migrated.MariaDB(t))
	seed := tier.Seed()
	rng := rand.New(rand.NewPCG(seed, 0))
	invalid := 0
	rounds := tier.Pick(250, 2500, 10_000)
	for range rounds {
		rule := randomRule(rng)
		canonical, params, calendar, zone, err := callCompile(conn, rule)
		limit, wantErr := headgate.Parse(rule)
		if wantErr != nil {
			invalid++
			if message, ok := signalText(err); !ok {
				t.Errorf("seed %d: %q: got %q %s %v, want %v", seed, rule, canonical, params, err, wantErr)
			} else if want := parseErrorText(wantErr, rule); !matchesParseError(message, want) {
				t.Errorf("seed %d: %q:\n got %s\nwant %s", seed, rule, message, want)
			}
			continue
		}
		p := limit.Params()
		numbers := strings.Trim(fmt.Sprint([]int64{
			int64(p.Kind), int64(p.Anchor), p.Unit, p.Capacity, p.Step, p.Drain,
			p.Block, p.History,
		}), "[]")
		if err != nil || canonical != limit.String() || params != numbers {
			t.Errorf("seed %d: %q:\n got %q %s %v\nwant %q %s", seed, rule, canonical, params, err, limit, numbers)
		}
		if calendar.Valid != (p.Anchor == law.Calendar) || zone.Valid != calendar.Valid {
			t.Errorf("seed %d: %q: got calendar %v, zone %v; want both or neither", seed, rule, calendar, zone)
		}
	}
	if invalid == 0 || invalid == rounds {
		t.Errorf("seed %d: got %d invalid rules of %d, want some and not all", seed, invalid, rounds)
	}
}

// parseErrorText returns the text of an error of Parse without the position, which SQL does not report.
func parseErrorText(err error, rule string) string {
	var parse *headgate.ParseError
	if errors.As(err, &parse) {
		return parse.Field + ": " + strings.ReplaceAll(parse.Problem, `\n`, "\n")
	}
	text := strings.TrimPrefix(err.Error(), fmt.Sprintf("limit %q: ", rule))
	return strings.TrimPrefix(text, headgate.ErrInvalid.Error()+": ")
}

// matchesParseError reports whether a message of SQL has the text of an error of Parse. A message of 128 characters is
// a shortened text, and the hint for a missing amount is shorter in SQL.
func matchesParseError(message, text string) bool {
	if len([]rune(message)) == 128 { // the quoted part is shortened first, then the end is cut
		parts := strings.SplitN(message, `..."`, 2)
		head, tail := parts[0], strings.TrimSuffix(parts[len(parts)-1], "...")
		return strings.HasPrefix(text, strings.TrimSuffix(head, "...")) &&
			(len(parts) == 1 || strings.Contains(text, `"`+tail))
	}
	return text == message || strings.Contains(message, ": is missing: write ") && strings.HasPrefix(text, message)
}

// randomRule returns a random notation of a limit. Many are invalid in one place or more.
func randomRule(rng *rand.Rand) string {
	pick := func(texts ...string) string { return texts[rng.IntN(len(texts))] }
	amount := func() string {
		switch rng.IntN(12) {
		case 0:
			return pick("0", "0.0", "00", "-1", "-", "1e3", ".5", "5.", "1.2.3", "NaN", "ä", "5\n", "", "\n",
				"1234567890123456789", "9007199254740992", "0.0000000001")
		case 1:
			return pick("007", "0.50", "1.500", "9007199254740991", "9007199.254740991", "0.000000001", "4294967295",
				"4294967.2951", "0000000000000000000000000000001")
		}
		text := fmt.Sprint(rng.Int64N(1 << rng.IntN(40)))
		if rng.IntN(3) == 0 {
			text += "." + fmt.Sprint(rng.Int64N(1<<rng.IntN(24)))
		}
		return text
	}
	period := func() string {
		switch rng.IntN(12) {
		case 0:
			return pick("", "0s", "00m", "5", "5S", "s5", "ss", "5s5", "5sh", "h30m", "1.5s", "5fortnight", "4000d",
				"3660d1us", "3660d", "99999999999999999999s", "9223372036854775808d", "s\n", "0s0m", "1m/x")
		case 1:
			return pick("s", "ms", "us", "d", "1h30m", "90m", "1000ms", "7s3us", "1d12h", "0d5s",
				"0000000000000000000000000000001s")
		}
		return fmt.Sprint(1+rng.IntN(1000)) + pick("us", "ms", "s", "m", "h", "d")
	}
	name := pick("token-bucket", "token-bucket", "leaky-bucket", "gcra", "fixed-window", "fixed-window", "interval",
		"sliding-window", "sliding-log", "concurrency", "Gcra", "", "", "unlimited")
	rate := amount()
	switch {
	case rng.IntN(12) == 0 || name == "concurrency":
	case name == "fixed-window" && rng.IntN(2) == 0 || rng.IntN(15) == 0:
		rate += "/" + pick("minute", "hour", "day", "week", "month", "Day", "second")
	default:
		rate += "/" + period()
	}
	if name == "" && rng.IntN(2) == 0 {
		rate = strings.Replace(rate, "/", pick(" per ", " per ", " per"), 1)
	}
	words := []string{name, rate}
	if name == "concurrency" {
		words = append(words, "ttl", period())
	}
	for range rng.IntN(4) {
		switch word := pick("burst", "history", "block", "block", "ttl", "zone", "zone", "from-first", "prefetch",
			"deadline", "Burst", "fast", "away deny", "away share", "away allow", "away Allow", "away never",
			"notify 80%", "notify 9%,80%,100%", "notify 80%,9%", "notify 101%", "notify 1%,"); word {
		case "burst":
			words = append(words, pick(word, "capacity"), amount())
		case "history", "block", "ttl", "deadline":
			words = append(words, word, period())
		case "prefetch":
			words = append(words, word, amount()+pick("", "", "%", "%%")+pick("", "", "/"+period()))
		case "zone":
			words = append(words, pick("UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Asia/Kolkata",
				"Mars/Olympus", "Local", "SYSTEM", "utc", "+01:00", "Etc/GMT+5", "a/"+strings.Repeat("b", 80)))
		default:
			words = append(words, word)
		}
	}
	if rng.IntN(30) == 0 {
		words = words[:1+rng.IntN(len(words))]
	}
	return pick("", "", " ", "\t ") + strings.Join(words, pick(" ", " ", "  ", "\t", " \t  ")) + pick("", "", " ")
}

// TestCompileRefusesInvalidRules checks the errors of headgate_compile for NULL, long rules and a long algorithm.
func TestCompileRefusesInvalidRules(t *testing.T) {
	t.Parallel()
	conn := openSession(t, migrated.MariaDB(t))
	for _, tt := range []struct {
		rule any
		want string
	}{
		{nil, "limit: is null"},
		{strings.Repeat(" ", 256), "limit: is 256 bytes long, at most 255 are allowed"},
		{"token-bucket 1/s" + strings.Repeat("ä", 120), "limit: is 256 bytes long, at most 255 are allowed"},
		{strings.Repeat("ä", 127), `algorithm: "` + strings.Repeat("ä", 37) +
			`..." is not known; known are token-bucket, leaky-bucket, gcra, fixed-window,...`},
	} {
		_, _, _, _, err := callCompile(conn, tt.rule)
		if message, ok := signalText(err); !ok || message != tt.want {
			t.Errorf("%v: got %v, want %s", tt.rule, err, tt.want)
		}
	}
}

// recordingStore is a store that records the boundaries of the windows that a Limiter sends.
type recordingStore struct {
	store.Store
	bounds [4]int64
}

func (r *recordingStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	r.bounds = ops[0].Window
	return r.Store.Apply(ctx, ops, outs)
}

// callBounds calls headgate_bounds, which returns four boundaries of windows: now is between the second and the third.
func callBounds(conn *sql.Conn, unit, zone any, now int64) (b [4]int64, err error) {
	if _, err = conn.ExecContext(context.Background(), fmt.Sprintf(`call headgate_bounds_%d(?, ?, ?, @b0, @b1, @b2, @b3)`,
		mysql.Revision), unit, zone, now); err == nil {
		err = conn.QueryRowContext(context.Background(), `select @b0, @b1, @b2, @b3`).Scan(&b[0], &b[1], &b[2], &b[3])
	}
	return b, err
}

// TestBoundsAgreesWithGo compares the boundaries of headgate_bounds with the boundaries that a Limiter sends, at random
// times and around changes of the zones' offsets.
func TestBoundsAgreesWithGo(t *testing.T) {
	t.Parallel()
	conn := openSession(t, migrated.MariaDB(t))
	mustExec(t, conn, `set time_zone = '-07:00'`) // the zone of the session must not matter
	zones := []string{
		"UTC", "Europe/Berlin", "America/Sao_Paulo", "America/Havana", "Asia/Kathmandu", "Asia/Beirut",
		"Australia/Lord_Howe", "Pacific/Apia", "America/St_Johns", "Africa/Casablanca",
	}
	changes := []string{
		"2018-11-04T03:00:00Z", "2026-11-01T04:30:00Z", "2026-10-03T15:30:00Z", "2011-12-30T10:00:00Z",
		"2026-03-29T01:00:00Z", "2006-10-29T02:31:00Z", "2017-02-19T02:00:00Z", "2027-02-07T02:00:00Z",
	}
	minTime := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	maxTime := time.Date(2037, 9, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	seed := tier.Seed()
	rng := rand.New(rand.NewPCG(seed, 0))
	for i := range tier.Pick(150, 1200, 5000) {
		zone, unit := zones[rng.IntN(len(zones))], []string{"hour", "day", "week", "month"}[rng.IntN(4)]
		now := minTime + rng.Int64N(maxTime-minTime)
		if i%2 == 0 {
			at, _ := time.Parse(time.RFC3339, changes[rng.IntN(len(changes))])
			now = at.UnixMicro() + rng.Int64N(60*3600e6) - 30*3600e6
		}
		if i%5 == 0 {
			now -= now % 60e6 // a full minute, so that some times are boundaries
		}
		got, err := callBounds(conn, unit, zone, now)
		if err != nil {
			t.Fatalf("seed %d: %s %s at %s: %v", seed, unit, zone, time.UnixMicro(now).UTC(), err)
		}
		clock := func() int64 { return now }
		recorder := &recordingStore{Store: memory.New(&memory.Config{Clock: clock})}
		if _, err := headgate.New(recorder, &headgate.Config{Clock: clock}).Allow(t.Context(),
			headgate.MustParse("fixed-window 1/"+unit+" "+zone), "k"); err != nil {
			t.Fatal(err)
		}
		if got != recorder.bounds || got[1] > now || now >= got[2] {
			t.Errorf("seed %d: %s %s at %s (%d):\n got %v\nwant %v", seed, unit, zone, time.UnixMicro(now).UTC(), now,
				got, recorder.bounds)
		}
	}
}

// TestBoundsRefusesInvalidArguments checks the errors of headgate_bounds for NULL, for unknown units and zones, and for
// a time that the server cannot convert, and that UTC has boundaries after the end of TIMESTAMP.
func TestBoundsRefusesInvalidArguments(t *testing.T) {
	t.Parallel()
	conn := openSession(t, migrated.MariaDB(t))
	const now = 1_800_000_000_000_000
	for _, tt := range []struct {
		unit, zone any
		now        int64
		want       string
	}{
		{"minute", "UTC", now, "period:"},
		{nil, "UTC", now, "period:"},
		{"day", nil, now, "zone"},
		{"day", "Mars/Olympus", now, `zone: "Mars/Olympus"`},
		{"day", "SYSTEM", now, `zone: "SYSTEM"`},
		{"day", "Europe/Berlin", 1_000_000, "time zone:"}, // CONVERT_TZ does not convert such early times
	} {
		b, err := callBounds(conn, tt.unit, tt.zone, tt.now)
		if message, ok := signalText(err); !ok || !strings.HasPrefix(message, tt.want) {
			t.Errorf("%v %v: got %v, %v; want an error that begins with %s", tt.unit, tt.zone, b, err, tt.want)
		}
	}
	// On most servers a TIMESTAMP ends in 2038.
	may2050 := time.Date(2050, 5, 5, 5, 5, 5, 0, time.UTC)
	var want [4]int64
	for i := range want {
		want[i] = time.Date(2050, time.Month(4+i), 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	}
	if got, err := callBounds(conn, "month", "UTC", may2050.UnixMicro()); err != nil || got != want {
		t.Errorf("2050: got %v, %v, want %v", got, err, want)
	}
}
