package mysql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/mysql"
	"github.com/headgate/headgate/store/storetest"
)

// taker is a Limiter, or a Limiter with an id.
type taker interface {
	Take(context.Context, ...headgate.Charge) (headgate.Decision, error)
}

// breakouts end a quoted string if a backslash is a part of a character, or has no meaning.
var breakouts = []string{
	"\xbf');insert into loot select current_user();-- ", "\xbf' or 1=1-- ",
	"\xbf\\';insert into loot select current_user();-- ",
	"';insert into loot select current_user();-- ", "\\';insert into loot select current_user();-- ", "\x00",
	"\xff", "\xbf\\'",
	"縗';insert into loot select current_user();-- ", "¿';insert into loot select current_user();-- ", "?",
	"$1", "@hg_out",
}

// attack lists cells, entries and limits by hostile names.
func attack(t *testing.T, s *mysql.Store, db *sql.DB) {
	t.Helper()
	run(t, db, "CREATE TABLE loot (who TEXT)")
	defer run(t, db, "DROP TABLE loot")
	for _, b := range breakouts {
		for _, q := range []store.Query{
			{Limit: b},
			{Key: b, HasKey: true},
			{After: law.Cell{Limit: b, Key: "k"}},
			{After: law.Cell{Limit: "a", Key: b}, Max: 3},
		} {
			if cells, _, err := s.Cells(t.Context(), q); err == nil && (q.Limit != "" || q.HasKey) && len(cells) > 0 {
				t.Errorf("%+v shows %d cells", q, len(cells))
			}
		}
		if entries, err := s.Entries(t.Context(), law.Cell{Limit: b, Key: b}, 9); err == nil && len(entries) > 0 {
			t.Errorf("%q shows entries", b)
		}
		items := []store.Item{
			{Kind: store.KindLimit, Name: b, Text: b, Note: b},
			{Kind: store.KindOverride, Name: b, Key: b, Text: b},
			{Kind: store.KindAssignment, Key: b, Text: b, Note: b},
			{Kind: store.KindFile, Name: b, Origin: b, Note: b},
		}
		_ = storetest.TryDefine(t.Context(), s, store.Item{Name: "a", Text: "token-bucket 1/s", Note: b, Origin: b})
		for _, i := range items {
			if now, err := s.ReadCatalog(t.Context(), 0); err == nil {
				_, _ = s.WriteCatalog(t.Context(), store.Edit{
					Base: now.Version, Author: b, Reason: b, Items: []store.Item{i},
				})
			}
		}
		if _, found, err := s.Items(t.Context(), items); err == nil {
			for _, i := range found {
				if i.Key != b && i.Name != b || i.Kind == store.KindLimit || i.Kind == store.KindOverride {
					t.Errorf("%q shows %+v", b, i)
				}
			}
		}
	}
	var n int
	if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM loot").Scan(&n); err != nil || n != 0 {
		t.Fatalf("%d rows of loot, %v", n, err)
	}
}

// TestEveryConnectionIsUTF8 opens stores by URLs with options. Keys, ids and reasons must be exact, and nothing may
// break out of a quote.
func TestEveryConnectionIsUTF8(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	for _, o := range []string{
		"?charset=utf8mb4&collation=utf8mb4_unicode_ci&interpolateParams=true&multiStatements=false&clientFoundRows=true&" +
			"sql_mode=%27NO_BACKSLASH_ESCAPES,ANSI_QUOTES,PIPES_AS_CONCAT%27&pool_max_conns=3",
		"?charset=utf8mb4&collation=utf8mb4_bin",
		"?collation=utf8mb4_unicode_ci&interpolateParams=true&multiStatements=false&clientFoundRows=true",
		"?sql_mode=%27NO_BACKSLASH_ESCAPES%27",
		"?sql_mode=%27ANSI_QUOTES,PIPES_AS_CONCAT%27&pool_max_conns=3",
	} {
		t.Run(o, func(t *testing.T) {
			url := migrated.MariaDB(t)
			s := openUnmigrated(t, url+o)
			attack(t, s, plainDB(t, url))
			storetest.RunKeys(t, s)
		})
	}
}

// expectUTF8 opens stores at a server that gives all connections its own character set, whatever they request in their
// handshake. MySQL 9.7 no longer has an option for that.
func expectUTF8(t *testing.T, server string) {
	if !knowsReturning(t, plainDB(t, server)) {
		return
	}
	for _, set := range []string{"gbk", "latin1", "utf8mb3"} {
		t.Run(set, func(t *testing.T) {
			root := plainDB(t, server)
			for _, name := range []string{"server", "client", "connection", "results"} {
				setGlobal(t, root, "character_set_"+name, "'"+set+"'")
			}
			url := dbtest.MariaDBAt(t, server)[0]
			var got string
			err := plainDB(t, url).QueryRowContext(t.Context(), "SELECT @@character_set_client").Scan(&got)
			if err != nil || got != set {
				t.Fatalf("connections have %s, %v", got, err)
			}
			s := openAt(t, url)
			attack(t, s, plainDB(t, url))
			storetest.RunKeys(t, s)
		})
	}
}

func TestACharacterSetOfTheURLIsRefused(t *testing.T) {
	t.Parallel()
	for _, option := range []string{
		"charset=gbk", "charset=latin1", "charset=utf8", "charset=utf8mb3", "charset=utf8mb4,gbk", "CHARSET=gbk",
		"charset=", "collation=gbk_chinese_ci",
		"collation=utf8mb4_bin%3b", "collation=utf8_general_ci", "character_set_client=gbk",
		"Character_Set_Results=latin1", "%40%40character_set_client=gbk",
		"c%68arset=gbk", "collation_connection=gbk_chinese_ci",
	} {
		_, err := mysql.Open(t.Context(), "mysql://u:secret@127.0.0.1:1/x?"+option, nil)
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "utf8mb4") ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", option, err)
		}
	}
}

// TestACallersPoolIsUTF8 changes the session of a caller's pool: the store must check it at its first use, and for each
// batch.
func TestACallersPoolIsUTF8(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	url := migrated.MariaDB(t)
	l := func(db *sql.DB) *headgate.Limiter { return limiter(mysql.New(db, nil)) }
	charge := headgate.Charge{Limit: headgate.MustParse("token-bucket 1/1h burst 5"), Key: "k"}
	for _, set := range []string{"gbk", "latin1", "utf8mb3"} {
		db := pool(t, url, "charset="+set, "interpolateParams=true")
		_, err := l(db).Take(t.Context(), charge)
		if !errors.Is(err, store.ErrSetup) || !strings.Contains(err.Error(), "character_set_client is "+set) {
			t.Errorf("%s: %v", set, err)
		}
		s := mysql.New(db, nil)
		if _, err := s.Migrate(t.Context()); !errors.Is(err, store.ErrSetup) {
			t.Errorf("%s: migrate: %v", set, err)
		}
		attack(t, s, plainDB(t, url))
	}

	db := pool(t, url, "interpolateParams=true")
	db.SetMaxOpenConns(1)
	mine := l(db)
	if _, err := mine.Take(t.Context(), charge); err != nil {
		t.Fatal(err)
	}
	for _, change := range []string{
		"SET NAMES gbk", "SET NAMES latin1", "SET character_set_results = latin1",
		"SET character_set_client = latin1",
	} {
		if _, err := db.ExecContext(t.Context(), change); err != nil {
			t.Fatal(err)
		}
		for name, l := range map[string]taker{"plain": mine, "with an id": mine.Once("id", 1e9)} {
			if _, err := l.Take(t.Context(), charge); !errors.Is(err, store.ErrSetup) ||
				!strings.Contains(err.Error(), "character_set_") {
				t.Errorf("%s, %s: %v", change, name, err)
			}
		}
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		s := mysql.New(db, nil).InTx(tx)
		if _, err := limiter(s).Take(t.Context(), charge); !errors.Is(err, store.ErrSetup) {
			t.Errorf("%s, in a transaction: %v", change, err)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if _, err := db.ExecContext(t.Context(), "SET NAMES utf8mb4"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := db.ExecContext(t.Context(), "SET character_set_results = NULL"); err != nil {
		t.Fatal(err)
	}
	if d, err := mine.Take(t.Context(), charge); err != nil || d.Remaining != 3 {
		t.Errorf("then: %+v, %v; want the second charge", d, err)
	}
	s := mysql.New(db, nil)
	attack(t, s, plainDB(t, url))
	storetest.RunKeys(t, s)
}

// modeIsRefused uses a server whose sql_mode changes the meaning of the text.
func modeIsRefused(t *testing.T, server string) {
	root := plainDB(t, server)
	if _, err := root.ExecContext(t.Context(), "SET sql_mode = 'ORACLE'"); errorNumber(err) == 1231 {
		t.Skipf("this server has no such mode: %v", err)
	}
	setGlobal(t, root, "sql_mode", "'ORACLE'")
	url := dbtest.MariaDBAt(t, server)[0]
	if _, err := mysql.Open(t.Context(), url, nil); !errors.Is(err, store.ErrSetup) ||
		!strings.Contains(err.Error(), "sql_mode has ORACLE") {
		t.Errorf("open: %v", err)
	}
	charge := headgate.Charge{Limit: headgate.MustParse("token-bucket 1/1h burst 5"), Key: "k"}
	if _, err := limiter(mysql.New(pool(t, url), nil)).Take(t.Context(), charge); !errors.Is(err, store.ErrSetup) {
		t.Errorf("new: %v", err)
	}
	s := openAt(t, url+"?sql_mode=%27ANSI%27")
	if _, err := limiter(s).Take(t.Context(), charge); err != nil {
		t.Errorf("another mode in the URL: %v", err)
	}
	// What people call has a mode of its own.
	if got, err := callTake(t, plainDB(t, url), "headgate_take", "token-bucket 1/1h burst 5", "k", "1"); err != nil ||
		got.allowed != 1 || got.remaining != 3 {
		t.Errorf("headgate_take: %+v, %v", got, err)
	}
}

// recorder is a connector whose connections remember the statements that had
// arguments.
type recorder struct {
	driver.Connector
	mu   sync.Mutex
	seen []string
}

type recordingConn struct {
	driver.Conn
	r *recorder
}

func (r *recorder) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := r.Connector.Connect(ctx)
	return &recordingConn{c, r}, err
}

func (c *recordingConn) note(query string, args []driver.NamedValue) {
	if len(args) > 0 {
		c.r.mu.Lock()
		c.r.seen = append(c.r.seen, query)
		c.r.mu.Unlock()
	}
}

func (c *recordingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.note(query, args)
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (c *recordingConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (
	driver.Result, error,
) {
	c.note(query, args)
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

// TestNoStatementHasArguments records the statements that have arguments, which a driver might quote by backslashes.
func TestNoStatementHasArguments(t *testing.T) {
	t.Parallel()
	url := dbtest.MariaDB(t)
	host, name, _ := strings.Cut(strings.TrimPrefix(url, "mysql://root@"), "/")
	cfg, err := mysqldriver.ParseDSN("root@tcp(" + host + ")/" + name + "?multiStatements=true&interpolateParams=true&clientFoundRows=true" +
		"&sql_mode=%27NO_BACKSLASH_ESCAPES,ANSI_QUOTES,PIPES_AS_CONCAT%27")
	if err != nil {
		t.Fatal(err)
	}
	inner, err := mysqldriver.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{Connector: inner}
	db := sql.OpenDB(r)
	t.Cleanup(func() { db.Close() })
	s := mysql.New(db, nil)
	if _, err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	attack(t, s, plainDB(t, url))
	storetest.RunKeys(t, s)
	if _, err := plainDB(t, url).ExecContext(t.Context(),
		"UPDATE headgate_cells SET empty_at = 1, blocked_until = 1"); err != nil {
		t.Fatal(err)
	}
	if _, err := plainDB(t, url).ExecContext(t.Context(), "UPDATE headgate_entries SET keep_until = 1"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sweep(t.Context(), 1_000_000); err != nil {
		t.Fatal(err)
	}
	if len(r.seen) > 0 {
		t.Errorf("%d statements with arguments: %q", len(r.seen), r.seen)
	}
}

// TestSchemasInOtherCharacterSets makes the schema in databases of other character sets, and calls it from connections
// of other character sets.
func TestSchemasInOtherCharacterSets(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	for _, set := range []string{"ucs2", "gbk", "latin1", "utf8mb3"} {
		t.Run(set, func(t *testing.T) {
			url := dbtest.MariaDB(t)
			name := url[strings.LastIndex(url, "/")+1:]
			if _, err := plainDB(t, url).ExecContext(t.Context(), "ALTER DATABASE "+name+" CHARACTER SET "+
				set); err != nil {
				t.Fatal(err)
			}
			s := openAt(t, url)
			expectFixedSession(t, url)
			storetest.RunKeys(t, s)
			callEverything(t, url, s)
		})
	}
}

// callEverything calls the procedures from connections of several character sets, which must all see the same keys.
func callEverything(t *testing.T, url string, s *mysql.Store) {
	t.Helper()
	storetest.Define(t, s, store.Item{Name: "login", Text: "sliding-log 5/1h history 30d", Note: "für alle 🚦"})
	for n, set := range []string{"utf8mb4", "latin1", "gbk", "utf8mb3"} {
		db := plainDB(t, url, "charset="+set, "time_zone=%27Asia%2FTokyo%27")
		// The key is é in the character set of the connection, by its bytes.
		key := "CONVERT(_utf8mb4 x'c3a9' USING " + set + ")"
		for _, rule := range []string{
			"login", "token-bucket 5/1h", "sliding-window 5/1h",
			"fixed-window 5/month Europe/Berlin",
		} {
			var allowed, remaining int64
			var x any
			if err := db.QueryRowContext(t.Context(), fmt.Sprintf("CALL headgate_take('%s', %s, 1)", rule, key)).Scan(
				&allowed, &remaining, &x, &x, &x, &x); err != nil || allowed != 1 || remaining != int64(4-n) {
				t.Errorf("%s, %s: allowed %d, remaining %d, %v; want all to be one key", set, rule, allowed,
					remaining, err)
			}
		}
		for _, statement := range []string{
			"CALL headgate_take_once(CONCAT('a id', " + key + "), 'token-bucket 9/1h', " + key + ", 1, 3600)",
			"CALL headgate_settle(CONCAT('a id', " + key + "), 'token-bucket 9/1h', " + key + ", 0.5)",
			"CALL headgate_reserve('token-bucket 2/s', " + key + ", 1, 60, NULL, NULL)",
			"CALL headgate_acquire('concurrency 9 ttl 30s', " + key + ", 1)",
			"CALL headgate_block('login', CONCAT(" + key + ", '!'), 60, " + key + ")",
			"CALL headgate_attempts('login', " + key + ", 5)",
			"SELECT * FROM headgate_levels WHERE `key` = " + key,
			"SELECT * FROM headgate_history WHERE `key` = " + key,
			"SELECT * FROM headgate_blocked_per_hour",
			"CALL headgate_reset('token-bucket 2/s', " + key + ")",
		} {
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				t.Errorf("%s: %s: %v", set, statement, err)
			}
		}
		var rows, exact int
		if err := db.QueryRowContext(t.Context(),
			"SELECT COUNT(*), SUM(HEX(`key`) = 'C3A9') FROM headgate_levels WHERE limit_name = 'login' AND `key` = "+
				key).Scan(&rows, &exact); err != nil || rows != 1 || exact != 1 {
			t.Errorf("%s: headgate_levels shows %d rows, %d with the key, %v", set, rows, exact, err)
		}
	}
	// no collation takes two for one
	for _, key := range []string{"a", "A", "a ", "é", "e\u0301", "ſ", "s", "\u212a", "K", "k", "🚦", "🚥"} {
		if got, err := callTake(t, plainDB(t, url), "headgate_take", "fixed-window 1/1d", key, "1"); err != nil ||
			got.allowed != 1 {
			t.Errorf("%q was taken for another: %+v, %v", key, got, err)
		}
		row := answerOf(t, plainDB(t, url), `CALL headgate_take_all('[{"limit":"fixed-window 1/2d","key":"`+key+`","cost":1}]')`)
		if !strings.Contains(row, "allowed=1") || !strings.Contains(row, "key="+key) {
			t.Errorf("%q in JSON was taken for another: %s", key, row)
		}
	}
}
