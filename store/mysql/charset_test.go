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

// taker is a *headgate.Limiter or a headgate.Once.
type taker interface {
	Take(context.Context, ...headgate.Charge) (headgate.Decision, error)
}

// breakouts are texts that might end a quoted string, for example if the server takes a backslash for a part of a
// character or for any character, or that might be taken for a placeholder or a variable.
var breakouts = []string{
	"\xbf');insert into loot select current_user();-- ", "\xbf' or 1=1-- ",
	"\xbf\\';insert into loot select current_user();-- ",
	"';insert into loot select current_user();-- ", "\\';insert into loot select current_user();-- ", "\x00",
	"\xff", "\xbf\\'",
	"縗';insert into loot select current_user();-- ", "¿';insert into loot select current_user();-- ", "?",
	"$1", "@hg_out",
}

// attackQuoting uses breakouts as names, keys and texts in reads of cells and entries and in edits of the catalog. No
// read may return foreign rows, and no statement in a breakout may be executed.
func attackQuoting(t *testing.T, s *mysql.Store, db *sql.DB) {
	t.Helper()
	mustExec(t, db, "CREATE TABLE loot (who TEXT)")
	defer mustExec(t, db, "DROP TABLE loot")
	for _, b := range breakouts {
		for _, q := range []store.Query{
			{Limit: b},
			{Key: b, HasKey: true},
			{After: law.Cell{Limit: b, Key: "k"}},
			{After: law.Cell{Limit: "a", Key: b}, Max: 3},
		} {
			if cells, _, err := s.Cells(t.Context(), q); err == nil && (q.Limit != "" || q.HasKey) && len(cells) > 0 {
				t.Errorf("%+v: got %d cells, want none", q, len(cells))
			}
		}
		if entries, err := s.Entries(t.Context(), law.Cell{Limit: b, Key: b}, 9); err == nil && len(entries) > 0 {
			t.Errorf("%q: got %d entries, want none", b, len(entries))
		}
		items := []store.Item{
			{Kind: store.KindLimit, Name: b, Text: b, Note: b},
			{Kind: store.KindOverride, Name: b, Key: b, Text: b},
			{Kind: store.KindAssignment, Key: b, Text: b, Note: b},
			{Kind: store.KindFile, Name: b, Origin: b, Note: b},
		}
		_ = storetest.TryDefine(t.Context(), s, store.Item{Name: "a", Text: "token-bucket 1/s", Note: b, Origin: b})
		for _, i := range items {
			if current, err := s.ReadCatalog(t.Context(), 0); err == nil {
				_, _ = s.WriteCatalog(t.Context(), store.Edit{
					Base: current.Version, Author: b, Reason: b, Items: []store.Item{i},
				})
			}
		}
		if _, found, err := s.Items(t.Context(), items); err == nil {
			for _, i := range found {
				if i.Key != b && i.Name != b || i.Kind == store.KindLimit || i.Kind == store.KindOverride {
					t.Errorf("%q: got the item %+v", b, i)
				}
			}
		}
	}
	var n int
	if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM loot").Scan(&n); err != nil || n != 0 {
		t.Fatalf("got %d rows of loot, %v; want none", n, err)
	}
}

// TestEveryConnectionIsUTF8 checks that keys, ids and reasons are exact, and that nothing breaks out of a quote, in
// stores whose URLs set collations, SQL modes and options of the driver.
func TestEveryConnectionIsUTF8(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	for _, options := range []string{
		"?charset=utf8mb4&collation=utf8mb4_unicode_ci&interpolateParams=true&multiStatements=false&clientFoundRows=true&" +
			"sql_mode=%27NO_BACKSLASH_ESCAPES,ANSI_QUOTES,PIPES_AS_CONCAT%27&pool_max_conns=3",
		"?charset=utf8mb4&collation=utf8mb4_bin",
		"?collation=utf8mb4_unicode_ci&interpolateParams=true&multiStatements=false&clientFoundRows=true",
		"?sql_mode=%27NO_BACKSLASH_ESCAPES%27",
		"?sql_mode=%27ANSI_QUOTES,PIPES_AS_CONCAT%27&pool_max_conns=3",
	} {
		t.Run(options, func(t *testing.T) {
			url := migrated.MariaDB(t)
			s := openStore(t, url+options)
			attackQuoting(t, s, openPlainDB(t, url))
			storetest.RunKeys(t, s)
		})
	}
}

// expectUTF8 checks that keys are exact, and that nothing breaks out of a quote, at a server that gives all connections
// its own character set, whatever they request in their handshake. MySQL 9.7 no longer has an option for that.
func expectUTF8(t *testing.T, server string) {
	if !hasReturning(t, openPlainDB(t, server)) {
		return
	}
	for _, charset := range []string{"gbk", "latin1", "utf8mb3"} {
		t.Run(charset, func(t *testing.T) {
			root := openPlainDB(t, server)
			for _, name := range []string{"server", "client", "connection", "results"} {
				setGlobal(t, root, "character_set_"+name, "'"+charset+"'")
			}
			url := dbtest.MariaDBAt(t, server)[0]
			var got string
			err := openPlainDB(t, url).QueryRowContext(t.Context(), "SELECT @@character_set_client").Scan(&got)
			if err != nil || got != charset {
				t.Fatalf("got the character set %s, %v; want %s", got, err, charset)
			}
			s := openAndMigrate(t, url)
			attackQuoting(t, s, openPlainDB(t, url))
			storetest.RunKeys(t, s)
		})
	}
}

// TestOpenRefusesCharacterSets checks that Open refuses URLs that set a character set other than utf8mb4, with an error
// that names utf8mb4 and not the password.
func TestOpenRefusesCharacterSets(t *testing.T) {
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
			t.Errorf("%s: got %v, want ErrInvalid with utf8mb4", option, err)
		}
	}
}

// TestNewRefusesPoolsThatAreNotUTF8 checks that a store over a caller's pool returns ErrSetup if the pool has another
// character set, at its first use or later, and charges nothing.
func TestNewRefusesPoolsThatAreNotUTF8(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	url := migrated.MariaDB(t)
	charge := headgate.Charge{Limit: headgate.MustParse("token-bucket 1/1h burst 5"), Key: "k"}
	for _, charset := range []string{"gbk", "latin1", "utf8mb3"} {
		db := openMultiDB(t, url, "charset="+charset, "interpolateParams=true")
		_, err := newLimiter(mysql.New(db, nil)).Take(t.Context(), charge)
		if !errors.Is(err, store.ErrSetup) || !strings.Contains(err.Error(), "character_set_client is "+charset) {
			t.Errorf("%s: Take: got %v, want ErrSetup with character_set_client", charset, err)
		}
		s := mysql.New(db, nil)
		if _, err := s.Migrate(t.Context()); !errors.Is(err, store.ErrSetup) {
			t.Errorf("%s: Migrate: got %v, want ErrSetup", charset, err)
		}
		attackQuoting(t, s, openPlainDB(t, url))
	}

	db := openMultiDB(t, url, "interpolateParams=true")
	db.SetMaxOpenConns(1)
	l := newLimiter(mysql.New(db, nil))
	if _, err := l.Take(t.Context(), charge); err != nil {
		t.Fatal(err)
	}
	for _, change := range []string{
		"SET NAMES gbk", "SET NAMES latin1", "SET character_set_results = latin1",
		"SET character_set_client = latin1",
	} {
		mustExec(t, db, change)
		for name, limiter := range map[string]taker{"plain": l, "with an id": l.Once("id", 1e9)} {
			if _, err := limiter.Take(t.Context(), charge); !errors.Is(err, store.ErrSetup) ||
				!strings.Contains(err.Error(), "character_set_") {
				t.Errorf("%s, %s: got %v, want ErrSetup with character_set_", change, name, err)
			}
		}
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		s := mysql.New(db, nil).InTx(tx)
		if _, err := newLimiter(s).Take(t.Context(), charge); !errors.Is(err, store.ErrSetup) {
			t.Errorf("%s, in a transaction: got %v, want ErrSetup", change, err)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		mustExec(t, db, "SET NAMES utf8mb4")
	}
	mustExec(t, db, "SET character_set_results = NULL")
	if d, err := l.Take(t.Context(), charge); err != nil || d.Remaining != 3 {
		t.Errorf("with utf8mb4 again: got %+v, %v; want the second charge", d, err)
	}
	s := mysql.New(db, nil)
	attackQuoting(t, s, openPlainDB(t, url))
	storetest.RunKeys(t, s)
}

// expectModeRefused checks that stores return ErrSetup at a server whose sql_mode changes the meaning of their texts,
// unless the URL sets another mode.
func expectModeRefused(t *testing.T, server string) {
	root := openPlainDB(t, server)
	if _, err := root.ExecContext(t.Context(), "SET sql_mode = 'ORACLE'"); errorNumber(err) == 1231 {
		t.Skipf("this server has no such mode: %v", err)
	}
	setGlobal(t, root, "sql_mode", "'ORACLE'")
	url := dbtest.MariaDBAt(t, server)[0]
	if _, err := mysql.Open(t.Context(), url, nil); !errors.Is(err, store.ErrSetup) ||
		!strings.Contains(err.Error(), "sql_mode has ORACLE") {
		t.Errorf("Open: got %v, want ErrSetup with sql_mode", err)
	}
	charge := headgate.Charge{Limit: headgate.MustParse("token-bucket 1/1h burst 5"), Key: "k"}
	_, err := newLimiter(mysql.New(openMultiDB(t, url), nil)).Take(t.Context(), charge)
	if !errors.Is(err, store.ErrSetup) {
		t.Errorf("New: got %v, want ErrSetup", err)
	}
	s := openAndMigrate(t, url+"?sql_mode=%27ANSI%27")
	if _, err := newLimiter(s).Take(t.Context(), charge); err != nil {
		t.Errorf("another mode in the URL: got %v, want no error", err)
	}
	// Procedures have a mode of their own.
	got, err := callTake(t, openPlainDB(t, url), "headgate_take", "token-bucket 1/1h burst 5", "k", "1")
	if err != nil || got.allowed != 1 || got.remaining != 3 {
		t.Errorf("headgate_take: got %+v, %v; want allowed 1, remaining 3", got, err)
	}
}

// recordingConnector is a connector that records the statements with arguments of its connections.
type recordingConnector struct {
	driver.Connector
	mu      sync.Mutex
	queries []string
}

// recordingConn is a connection of a recordingConnector.
type recordingConn struct {
	driver.Conn
	connector *recordingConnector
}

func (r *recordingConnector) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := r.Connector.Connect(ctx)
	return &recordingConn{c, r}, err
}

func (c *recordingConn) record(query string, args []driver.NamedValue) {
	if r := c.connector; len(args) > 0 {
		r.mu.Lock()
		r.queries = append(r.queries, query)
		r.mu.Unlock()
	}
}

func (c *recordingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.record(query, args)
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (c *recordingConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (
	driver.Result, error,
) {
	c.record(query, args)
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

// TestNoStatementHasArguments checks that a store over a pool of the caller sends no statement with arguments, which a
// driver might quote by backslashes.
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
	r := &recordingConnector{Connector: inner}
	db := sql.OpenDB(r)
	t.Cleanup(func() { db.Close() })
	s := mysql.New(db, nil)
	if _, err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	attackQuoting(t, s, openPlainDB(t, url))
	storetest.RunKeys(t, s)
	mustExec(t, openPlainDB(t, url), "UPDATE headgate_cells SET empty_at = 1, blocked_until = 1")
	mustExec(t, openPlainDB(t, url), "UPDATE headgate_entries SET keep_until = 1")
	if _, err := s.Sweep(t.Context(), 1_000_000); err != nil {
		t.Fatal(err)
	}
	if len(r.queries) > 0 {
		t.Errorf("got %d statements with arguments, want none: %q", len(r.queries), r.queries)
	}
}

// TestKeysAreExactInOtherCharacterSets checks keys in databases of other character sets, by Go and by calls from
// connections of other character sets.
func TestKeysAreExactInOtherCharacterSets(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	for _, charset := range []string{"ucs2", "gbk", "latin1", "utf8mb3"} {
		t.Run(charset, func(t *testing.T) {
			url := dbtest.MariaDB(t)
			name := url[strings.LastIndex(url, "/")+1:]
			mustExec(t, openPlainDB(t, url), "ALTER DATABASE "+name+" CHARACTER SET "+charset)
			s := openAndMigrate(t, url)
			expectSessionSettings(t, url)
			storetest.RunKeys(t, s)
			expectCallsInCharsets(t, url, s)
		})
	}
}

// expectCallsInCharsets checks that calls and views work over connections of several character sets, and that a key is
// the same in all of them.
func expectCallsInCharsets(t *testing.T, url string, s *mysql.Store) {
	t.Helper()
	storetest.Define(t, s, store.Item{Name: "login", Text: "sliding-log 5/1h history 30d", Note: "für alle 🚦"})
	for n, charset := range []string{"utf8mb4", "latin1", "gbk", "utf8mb3"} {
		db := openPlainDB(t, url, "charset="+charset, "time_zone=%27Asia%2FTokyo%27")
		// The key is é in the character set of the connection, by its bytes.
		key := "CONVERT(_utf8mb4 x'c3a9' USING " + charset + ")"
		for _, rule := range []string{
			"login", "token-bucket 5/1h", "sliding-window 5/1h",
			"fixed-window 5/month Europe/Berlin",
		} {
			var allowed, remaining int64
			var ignored any
			if err := db.QueryRowContext(t.Context(), fmt.Sprintf("CALL headgate_take('%s', %s, 1)", rule, key)).Scan(
				&allowed, &remaining, &ignored, &ignored, &ignored, &ignored); err != nil || allowed != 1 ||
				remaining != int64(4-n) {
				t.Errorf("%s, %s: got allowed %d, remaining %d, %v; want 1 and %d", charset, rule, allowed, remaining, err, 4-n)
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
				t.Errorf("%s: %s: %v", charset, statement, err)
			}
		}
		var rows, exact int
		if err := db.QueryRowContext(t.Context(),
			"SELECT COUNT(*), SUM(HEX(`key`) = 'C3A9') FROM headgate_levels WHERE limit_name = 'login' AND `key` = "+
				key).Scan(&rows, &exact); err != nil || rows != 1 || exact != 1 {
			t.Errorf("%s: headgate_levels: got %d rows, %d with the key, %v; want 1 and 1", charset, rows, exact, err)
		}
	}
	// No collation takes two of these keys for one.
	for _, key := range []string{"a", "A", "a ", "é", "e\u0301", "ſ", "s", "\u212a", "K", "k", "🚦", "🚥"} {
		if got, err := callTake(t, openPlainDB(t, url), "headgate_take", "fixed-window 1/1d", key, "1"); err != nil ||
			got.allowed != 1 {
			t.Errorf("%q: got %+v, %v; want allowed 1, as for a new key", key, got, err)
		}
		row := rowText(t, openPlainDB(t, url), `CALL headgate_take_all('[{"limit":"fixed-window 1/2d","key":"`+key+`","cost":1}]')`)
		if !strings.Contains(row, "allowed=1") || !strings.Contains(row, "key="+key) {
			t.Errorf("%q in JSON: got %s, want allowed=1 and the key", key, row)
		}
	}
}
