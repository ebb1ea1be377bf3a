package mysql

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	driver1 "github.com/go-sql-driver/mysql"

	"github.com/headgate/headgate/store"
)

//go:embed sql/*.sql
var files embed.FS

// migration is one numbered file. It can be applied any number of times.
type migration struct {
	number     int
	name       string
	statements []string
}

// terminator ends a statement of a migration, on a line of its own.
const terminator = "\n//\n"

// migrations returns the files in order.
var migrations = sync.OnceValue(func() []migration {
	entries, err := files.ReadDir("sql")
	if err != nil {
		panic(err) // they are embedded
	}
	var list []migration
	for _, e := range entries {
		text, err := files.ReadFile("sql/" + e.Name())
		if err != nil {
			panic(err)
		}
		prefix, _, _ := strings.Cut(e.Name(), "_")
		number, err := strconv.Atoi(prefix)
		if err != nil {
			panic("sql/" + e.Name() + " has no number")
		}
		m := migration{number: number, name: e.Name()}
		for _, s := range strings.Split(expand(string(text)), terminator) {
			if s = strings.TrimSpace(s); s != "" {
				m.statements = append(m.statements, s)
			}
		}
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b migration) int { return a.number - b.number })
	return list
})

func latestVersion() int { return migrations()[len(migrations())-1].number }

// tables tells whether the Go driver needs the migration; the others make
// procedures for people, and their tables.
func (m migration) tables() bool { return m.number == 1 || strings.Contains(m.name, "admissions") }

func (m migration) articles() bool { return strings.Contains(m.name, "articles") }

// ours begins the comment of the procedures that are named after the articles and
// were made here. foreignArticles selects those of other people, and leftAlone is
// what is said of them, before and after their names.
const (
	ours            = "made by headgate"
	foreignArticles = "routine_schema = database() and routine_type = 'PROCEDURE' and lower(routine_name) in ('check_velocity', 'request_token') and routine_comment not like '" + ours + "%'"
)

var leftAlone = [...]string{"did not make the articles'' procedures: ", " exists and is not ours; rename or drop it and migrate again, or say --skip-articles"}

// Schema returns the whole schema as a script for the mysql client, for people
// with a migration tool of their own.
func Schema() string {
	var b strings.Builder
	b.WriteString(setSession + "delimiter //\n\n")
	list := slices.Clone(migrations())
	i := slices.IndexFunc(list, migration.articles)
	articles := list[i]
	for _, m := range append(slices.Delete(list, i, i+1), articles) { // the script ends there if others have their names
		fmt.Fprintf(&b, "-- %s\n\n", m.name)
		for _, s := range m.statements {
			b.WriteString(s + terminator + "\n")
		}
		fmt.Fprintf(&b, "insert ignore into headgate_schema_version (version) values (%d)%s\n", m.number, terminator)
	}
	b.WriteString("delimiter ;\n" + resetSession)
	return b.String()
}

// schemaVersion returns the highest migration that was applied, 0 if none was.
func schemaVersion(ctx context.Context, db querier) (version int, err error) {
	err = db.QueryRowContext(ctx, "SELECT COALESCE(MAX(version), 0) FROM headgate_schema_version").Scan(&version)
	var my *driver1.MySQLError
	if errors.As(err, &my) && my.Number == 1146 {
		return 0, nil
	}
	if err != nil {
		return 0, classify("read the schema's version", err)
	}
	return version, nil
}

func newer(version, latest int) error {
	return fmt.Errorf("mysql: %w: the schema has version %d, this binary knows %d", store.ErrSchemaNewer, version, latest)
}

// Migrate implements store.Migrator. It makes tables and procedures in the
// database of the URL. A user without the right to make procedures gets an
// error that says so; TiDB, which has none, gets the tables.
func (s *Store) Migrate(ctx context.Context) (report []string, err error) {
	if s.closed.Load() {
		return nil, store.ErrClosed
	}
	if s.tx != nil {
		return nil, fmt.Errorf("mysql: migrate: %w: not inside a transaction of the caller", store.ErrInvalid)
	}
	err = s.anywhere(func(db querier) error {
		if report, err = s.migrateAt(ctx, db.(*sql.DB)); err != nil {
			return err
		}
		return s.declareAt(ctx, db) // another node may not have the tables yet
	})
	if err == nil {
		s.checked.Store(true)
	}
	return report, err
}

// migrateAt migrates by way of one node.
func (s *Store) migrateAt(ctx context.Context, db *sql.DB) (report []string, err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, classify("migrate", &notSent{err})
	}
	defer conn.Close()
	if err := checkServer(ctx, conn); err != nil {
		return nil, err
	}
	// Two that migrate at once would see each other's procedures come and go.
	// The lock is a courtesy: where a server has no such locks, the one that
	// stumbles tries again.
	if _, err := conn.ExecContext(ctx, "DO GET_LOCK('headgate migrate', 60)"); err == nil {
		defer func() { _, _ = conn.ExecContext(context.WithoutCancel(ctx), "DO RELEASE_LOCK('headgate migrate')") }()
	}
	_, err = store.Retry(ctx, time.Minute, func() error {
		report = nil
		return s.migrate(ctx, conn, &report)
	}, func(err error) bool {
		var my *driver1.MySQLError
		return errors.As(err, &my) && (my.Number == 1304 || my.Number == 1359 || my.Number == 1213)
	})
	switch {
	case errors.Is(err, store.ErrSchemaNewer):
		return nil, err
	case err != nil:
		var my *driver1.MySQLError
		if errors.As(err, &my) && known(my) == nil {
			return nil, fmt.Errorf("mysql: migrate: %w: %w", store.ErrSetup, err) // nothing is charged by it
		}
		return nil, classify("migrate", err)
	}
	return report, s.look(ctx, conn)
}

// The procedures and views keep the sql_mode, the character set and the collation
// under which they are made, whatever the session of those who use them has. By mode
// what does not fit an argument is an error, not cut to size; by names the bytes of
// text decide what equals what. setSession sets a session to them, and resetSession
// to what it was.
const (
	mode  = "sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'"
	names = charset + " collate " + charset + "_bin"

	setSession = "set @hg_mode = @@sql_mode, @hg_client = @@character_set_client, @hg_results = @@character_set_results, @hg_collation = @@collation_connection;\n" +
		"set " + mode + ";\nset names " + names + ";\n"
	resetSession = "set session transaction read write;\n" +
		"set sql_mode = @hg_mode, character_set_client = @hg_client, character_set_results = @hg_results, collation_connection = @hg_collation;\n"
)

// articles makes the procedures named after the articles, unless somebody else's
// stand in their place. It looks each time, since those may be gone by now.
func (s *Store) articles(ctx context.Context, conn *sql.Conn, m migration, have int, report *[]string) error {
	if s.cfg.SkipArticles {
		*report = append(*report, "left out "+m.name+", as asked")
		return nil
	}
	var foreign sql.NullString
	var made int
	if err := conn.QueryRowContext(ctx, `SELECT GROUP_CONCAT(IF(`+foreignArticles+`, routine_name, NULL) ORDER BY routine_name SEPARATOR ', '),
		COUNT(*) FROM information_schema.routines WHERE routine_schema = DATABASE() AND routine_type = 'PROCEDURE'
		AND LOWER(routine_name) IN ('check_velocity', 'request_token')`).Scan(&foreign, &made); err != nil {
		return err
	}
	switch {
	case foreign.Valid:
		*report = append(*report, strings.ReplaceAll(leftAlone[0]+foreign.String+leftAlone[1], "''", "'"))
		return nil
	case m.number <= have && made == 2:
		return nil
	}
	return m.apply(ctx, conn, report)
}

// apply executes the migration.
func (m migration) apply(ctx context.Context, conn *sql.Conn, report *[]string) error {
	for _, statement := range m.statements {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	*report = append(*report, "applied "+m.name)
	return nil
}

func (s *Store) migrate(ctx context.Context, conn *sql.Conn, report *[]string) error {
	if _, err := conn.ExecContext(ctx, setSession); err != nil {
		return err
	}
	defer func() { _, _ = conn.ExecContext(context.WithoutCancel(ctx), resetSession) }()
	have, err := schemaVersion(ctx, conn)
	if err != nil {
		return err
	}
	if have > latestVersion() {
		return newer(have, latestVersion())
	}
	var version string
	if err := conn.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err != nil {
		return err
	}
	tidb := strings.Contains(version, "TiDB")
	for _, m := range migrations() {
		switch {
		case m.articles() && !tidb:
			err = s.articles(ctx, conn, m, have, report)
		case m.number <= have:
			continue
		case !m.tables() && tidb:
			*report = append(*report, "left out "+m.name+": this server has no stored procedures")
		default:
			err = m.apply(ctx, conn, report)
		}
		if err != nil {
			return err
		}
		if _, err := conn.ExecContext(ctx, fmt.Sprintf("INSERT IGNORE INTO headgate_schema_version (version) VALUES (%d)", m.number)); err != nil {
			return err
		}
	}
	if len(*report) == 0 {
		*report = append(*report, fmt.Sprintf("the schema is at version %d, nothing to do", latestVersion()))
	}
	if tidb {
		return nil
	}
	lines, err := unreadable(ctx, conn)
	*report = append(*report, lines...)
	return err
}
