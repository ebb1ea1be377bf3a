package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/mysql"
	"github.com/headgate/headgate/store/storetest"
)

// versionsOf returns the versions of a catalog, oldest first.
func versionsOf(tb testing.TB, s *mysql.Store) []store.Version {
	tb.Helper()
	list, err := s.CatalogVersions(tb.Context(), 0, 1000)
	if err != nil {
		tb.Fatal(err)
	}
	slices.Reverse(list)
	return list
}

// changesOf returns one text for each version, oldest first: its number and its changes.
func changesOf(tb testing.TB, s *mysql.Store) (list []string) {
	tb.Helper()
	for _, v := range versionsOf(tb, s) {
		text := fmt.Sprint(v.Number)
		for _, c := range v.Changes {
			i := &c.After
			text += fmt.Sprintf("; %s %s%s %s > %s", i.Kind, i.Name, i.Key, c.Before.Text, i.Text)
		}
		list = append(list, text)
	}
	return list
}

// userOf returns the user of a pool's sessions as triggers see it.
func userOf(tb testing.TB, db *sql.DB) (user string) {
	tb.Helper()
	if err := db.QueryRowContext(tb.Context(), "SELECT USER()").Scan(&user); err != nil {
		tb.Fatal(err)
	}
	return user
}

// TestChangesByHandAreVersions checks that each row of the catalog that SQL changes and commits makes a version.
func TestChangesByHandAreVersions(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	s := openStore(t, url)
	db := openPlainDB(t, url)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, text := range []string{
		`INSERT INTO headgate_limits (name, rule, description)
			VALUES ('login', 'gcra 1/s', 'a "note"'), ('api', 'gcra 2/s', '')`,
		`UPDATE headgate_limits SET rule = 'gcra 3/s' WHERE name = 'login'`,
		`UPDATE headgate_limits SET description = 'A "note"', retired = 1 WHERE name = 'login'`,
		`UPDATE headgate_limits SET name = 'log-in' WHERE name = 'login'`,
		`START TRANSACTION`,
		`DELETE FROM headgate_limits`,
		`ROLLBACK`,
		`CREATE TEMPORARY TABLE compiled AS SELECT * FROM headgate_limits WHERE rule_compiled = rule AND law = 1 AND unit > 0`,
		`INSERT INTO headgate_catalog (kind, name, item_key, text) VALUES ('override', 'api', 'bob ', 'gcra 9/s')`,
		`INSERT INTO headgate_catalog (kind, name, item_key, text) VALUES ('override', 'api', 'bob', 'gcra 8/s')`,
		`UPDATE headgate_catalog SET until = 5 WHERE item_key = 'bob'`,
		`DELETE FROM headgate_catalog WHERE item_key = 'bob '`,
		`DELETE FROM headgate_limits WHERE name = 'api'`,
	} {
		mustExec(t, conn, text)
	}
	want := []string{
		"1; limit login  > gcra 1/s",
		"2; limit api  > gcra 2/s",
		"3; limit login gcra 1/s > gcra 3/s",
		"4; limit login gcra 3/s > gcra 3/s",
		"5; limit log-in  > gcra 3/s; limit login gcra 3/s > ",
		"6; override apibob   > gcra 9/s",
		"7; override apibob  > gcra 8/s",
		"8; override apibob gcra 8/s > gcra 8/s",
		"9; override apibob  gcra 9/s > ",
		"10; limit api gcra 2/s > ",
	}
	if got := changesOf(t, s); !slices.Equal(got, want) {
		t.Errorf("got versions\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	list := versionsOf(t, s)
	user := userOf(t, db)
	for _, v := range list {
		if v.Author != user || v.Reason != "" || v.At < 1e15 {
			t.Errorf("got %+v, want the author %q and no reason", v, user)
		}
	}
	before := store.Item{Kind: store.KindLimit, Name: "login", Text: "gcra 3/s", Note: `a "note"`}
	after := before
	after.Note, after.Retired = `A "note"`, true
	if got := list[3].Changes[0]; got != (store.Change{Before: before, After: after}) {
		t.Errorf("got %+v, want a change from %+v to %+v", got, before, after)
	}
	got, err := s.ReadCatalog(t.Context(), 4)
	if err != nil || got.Version != 10 || len(got.Items) != 5 {
		t.Errorf("ReadCatalog after version 4: got %+v, %v; want version 10 with 5 items", got, err)
	}
	if n := rowText(t, conn, "SELECT COUNT(*) AS n FROM compiled"); n != "n=2" {
		t.Errorf("limits with compiled parameters: got %s, want n=2", n)
	}
	expectRowsRefused(t, s, conn)
}

// expectRowsRefused checks that the tables refuse a name that exists and rows that nobody could use, without a version.
func expectRowsRefused(t *testing.T, s *mysql.Store, conn *sql.Conn) {
	t.Helper()
	n := len(versionsOf(t, s))
	for _, tt := range []struct{ text, errText string }{
		{`INSERT INTO headgate_limits (name, rule) VALUES ('a', 'gcra 0/s')`, "amount: is 0"},
		{`INSERT INTO headgate_limits (name, rule) VALUES ('A', 'gcra 1/s')`, "name: "},
		{`INSERT INTO headgate_limits (name, rule) VALUES ('a ', 'gcra 1/s')`, "name: "},
		{`INSERT INTO headgate_limits (name, rule) VALUES ('log-in', 'gcra 1/s')`, "Duplicate"},
		{`INSERT INTO headgate_limits (name, rule) VALUES ('c', 'fixed-window 1/day Nowhere/Else')`, "time zone"},
		{`UPDATE headgate_limits SET rule = 'gcra 1/fortnight'`, "period: "},
		{`UPDATE headgate_limits SET name = 'log-in '`, "name: "},
		{`INSERT INTO headgate_catalog (kind, name, item_key, text) VALUES ('plan', 'p', 'api', 'gcra 1')`, "period: "},
		{`INSERT INTO headgate_catalog (kind, name, text) VALUES ('rule', 'pro', 'gcra 1/s')`, "kind_is_known"},
		{`INSERT INTO headgate_catalog (kind, item_key, text) VALUES ('assignment', x'ff', 'pro')`, "UTF-8"},
		{`UPDATE headgate_catalog SET text = 'gcra 1/fortnight'`, "period: "},
	} {
		if _, err := conn.ExecContext(t.Context(), tt.text); err == nil || !strings.Contains(err.Error(), tt.errText) {
			t.Errorf("%s: got %v, want an error with %q", tt.text, err, tt.errText)
		}
	}
	if got := len(versionsOf(t, s)); got != n {
		t.Errorf("got %d versions after the refused statements, want %d", got, n)
	}
}

// TestWriteCatalogRefusesAnOldBase checks that of two edits on top of one version the second gets ErrVersion, and so
// does an edit that has waited for a transaction that changed rows by hand.
func TestWriteCatalogRefusesAnOldBase(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	alice, bob := openStore(t, url), openStore(t, url)
	write := func(s *mysql.Store, base int64, author, text string) error {
		_, err := s.WriteCatalog(t.Context(), store.Edit{
			Base: base, Author: author,
			Items: []store.Item{{Kind: store.KindLimit, Name: "login", Text: text}},
		})
		return err
	}
	if err := write(alice, 0, "alice", "gcra 1/s"); err != nil {
		t.Fatal(err)
	}
	if err := write(bob, 0, "bob", "gcra 2/s"); !errors.Is(err, store.ErrVersion) {
		t.Errorf("the second edit: got %v, want ErrVersion", err)
	}
	if err := write(bob, 1, "", "gcra 2/s"); err != nil {
		t.Fatal(err)
	}
	db := openPlainDB(t, url)
	tx := beginTx(t, db)
	defer tx.Rollback()
	mustExec(t, tx, "UPDATE headgate_limits SET rule = 'gcra 3/s'")
	waitingEdit := make(chan error, 1)
	go func() { waitingEdit <- write(alice, 2, "alice", "gcra 4/s") }()
	awaitStatement(t, db, "headgate_catalog_version WHERE%FOR UPDATE")
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := await.Receive(t, "the edit that waits", waitingEdit); !errors.Is(err, store.ErrVersion) {
		t.Errorf("after a change by hand: got %v, want ErrVersion", err)
	}
	want := []string{
		"1; limit login  > gcra 1/s", "2; limit login gcra 1/s > gcra 2/s", "3; limit login gcra 2/s > gcra 3/s",
	}
	if got := changesOf(t, alice); !slices.Equal(got, want) {
		t.Errorf("got versions %q, want %q", got, want)
	}
	user := userOf(t, db)
	for i, author := range []string{"alice as " + user, user, user} {
		if got := versionsOf(t, alice)[i].Author; got != author {
			t.Errorf("version %d: got author %q, want %q", i+1, got, author)
		}
	}
}

// TestChangesByHandMakeVersionsAfterAFailedWriteCatalog checks that a connection on which WriteCatalog has failed still
// makes a version of each change by hand, and that InTx refuses WriteCatalog.
func TestChangesByHandMakeVersionsAfterAFailedWriteCatalog(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	db := openMultiDB(t, url)
	db.SetMaxOpenConns(1)
	s := mysql.New(db, nil)
	storetest.Define(t, s, store.Item{Name: "login", Text: "gcra 1/s"})
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, e := range []struct {
		ctx  context.Context
		base int64
		text string
	}{{t.Context(), 0, "gcra 2/s"}, {t.Context(), 1, "gcra 0/s"}, {cancelled, 1, "gcra 2/s"}} {
		item := store.Item{Kind: store.KindLimit, Name: "login", Text: e.text}
		if _, err := s.WriteCatalog(e.ctx, store.Edit{Base: e.base, Items: []store.Item{item}}); err == nil {
			t.Errorf("%+v on top of version %d: got no error", item, e.base)
		}
	}
	for i := range 3 {
		text := fmt.Sprintf("UPDATE headgate_limits SET rule = 'gcra %d/s'", 7+i)
		mustExec(t, db, text)
	}
	if got := changesOf(t, s); len(got) != 4 || got[3] != "4; limit login gcra 8/s > gcra 9/s" {
		t.Errorf("got %q, want 4 versions, one for each change by hand", got)
	}
	tx := beginTx(t, db)
	_, err := s.InTx(tx).WriteCatalog(t.Context(), store.Edit{Base: 4})
	if tx.Rollback(); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("in a transaction: got %v, want ErrInvalid", err)
	}
}

// TestRecordActionKeepsActionsWhoseNumbersHaveGaps records an action beside 10,005 others with every third number, as
// the nodes of a Galera cluster give them: the newest 10,000 are kept.
func TestRecordActionKeepsActionsWhoseNumbersHaveGaps(t *testing.T) {
	t.Parallel()
	db, s := openDBAndStore(t)
	mustExec(t, db, "INSERT INTO headgate_actions (number, at, verb, limit_name, cell_key, lasts, author, reason) "+
		"SELECT 3*seq, seq, 'reset', 'api', 'k', 0, '', ''"+fromSeq(10_005))
	if err := s.RecordAction(t.Context(), store.Action{Verb: "reset", Limit: "api", Key: "a"}); err != nil {
		t.Fatal(err)
	}
	var count, first int
	if err := db.QueryRowContext(t.Context(), "SELECT count(*), min(number) FROM headgate_actions").Scan(
		&count, &first); err != nil || count != store.KeptActions || first != 21 {
		t.Errorf("got %d actions from number %d on, and the error %v, want %d from 21 on", count, first, err, store.KeptActions)
	}
}

// TestWriteCatalogWithManyItems checks that edits of 2800 items, more than one statement has, add and remove them all.
func TestWriteCatalogWithManyItems(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	s := openMigrated(t)
	e := store.Edit{Author: "alice"}
	for i := range 1400 { // two items each
		name := fmt.Sprint("n", i)
		e.Items = append(e.Items, store.Item{
			Kind: store.KindOverride, Name: "login", Key: name, Text: "gcra 1/s",
			Note: strings.Repeat("\x01", store.MaxNote),
		}, store.Item{Kind: store.KindLimit, Name: name, Text: "gcra 2/s"})
	}
	for base := range int64(2) {
		if v, err := s.WriteCatalog(t.Context(), e); err != nil || v != base+1 {
			t.Fatal(v, err)
		}
		_, found, err := s.Items(t.Context(), e.Items)
		if err != nil || len(found) != len(e.Items)*int(1-base) {
			t.Errorf("version %d: got %d items, %v", base+1, len(found), err)
		}
		e.Base = base + 1
		for i := range e.Items {
			e.Items[i].Removed = true
		}
	}
	if list := versionsOf(t, s); len(list[0].Changes) != len(e.Items) || len(list[1].Changes) != len(e.Items) {
		t.Errorf("got %d and %d changes, want %d each", len(list[0].Changes), len(list[1].Changes), len(e.Items))
	}
}
