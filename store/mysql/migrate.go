package mysql

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	driver1 "github.com/go-sql-driver/mysql"

	"github.com/headgate/headgate/store"
)

// Migrate implements store.Migrator. It makes the tables that are missing in the
// database of the URL, and installs the procedures of this binary if they are newer
// than those in the database, or others of the same revision. Where those in the
// database are newer it changes nothing. A user without the right to make procedures
// gets an error that says so; TiDB, which has none, gets the tables.
func (s *Store) Migrate(ctx context.Context) (report []string, err error) {
	err = s.administer(ctx, "migrate", func(conn *sql.Conn) (err error) {
		report, err = s.migrateAt(ctx, conn)
		return err
	})
	if err == nil {
		s.checked.Store(true)
	}
	return report, err
}

// administer has do change something by way of one node, and not in a transaction of the caller's.
func (s *Store) administer(ctx context.Context, doing string, do func(*sql.Conn) error) error {
	switch {
	case s.closed.Load():
		return store.ErrClosed
	case s.tx != nil:
		return fmt.Errorf("mysql: %s: %w: not inside a transaction of the caller", doing, store.ErrInvalid)
	}
	return s.anywhere(func(db querier) error {
		conn, err := db.(*sql.DB).Conn(ctx)
		if err != nil {
			return classify(doing, notSent.of(err))
		}
		defer conn.Close()
		return do(conn)
	})
}

// migrateAt migrates on a connection.
func (s *Store) migrateAt(ctx context.Context, conn *sql.Conn) (report []string, err error) {
	if err := checkServer(ctx, conn); err != nil {
		return nil, err
	}
	// One migrator for all attempts: what an attempt has made, the next one finds there.
	m := &migrator{definition: s.def, conn: conn, articles: s.cfg.Articles}
	err = withMigrationLock(ctx, conn, func() error { return m.migrate(ctx) })
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
	return m.report, s.detect(ctx, conn)
}

// migrator makes a definition in a database.
type migrator struct {
	*definition
	conn     *sql.Conn
	articles string // the database to make the articles' procedures in; empty: none
	report   []string
	mariadb  bool
	made     bool // procedures
}

func (m *migrator) say(format string, args ...any) {
	m.report = append(m.report, fmt.Sprintf(format, args...))
}

func (m *migrator) migrate(ctx context.Context) error {
	if _, err := m.conn.ExecContext(ctx, setSession); err != nil {
		return fmt.Errorf("set up the session: %w", err)
	}
	defer func() { _, _ = m.conn.ExecContext(context.WithoutCancel(ctx), resetSession) }()
	have, err := readInstalled(ctx, m.conn)
	if err != nil {
		return err
	}
	var version, database string
	if err := m.conn.QueryRowContext(ctx, "SELECT VERSION(), COALESCE(DATABASE(), '')").Scan(&version,
		&database); err != nil {
		return fmt.Errorf("read the version: %w", err)
	}
	if m.articles != "" && m.articles != database {
		return fmt.Errorf("%w: the articles' procedures stand beside the tables, in database %s, and not in %s",
			store.ErrSetup, database, m.articles)
	}
	m.mariadb = strings.Contains(version, "MariaDB")
	switch {
	case have.state > m.state:
		return have.newer(m.definition)
	case have.state > 0 && have.state < firstState:
		return have.older()
	case have.revision > m.revision:
		m.say("the procedures have revision %d, those of this binary %d: nothing to do", have.revision, m.revision)
		return nil
	}
	if err := m.makeTables(ctx, have.tables); err != nil {
		return err
	}
	if strings.Contains(version, "TiDB") {
		return m.withoutProcedures(ctx, &have)
	}
	if err := m.installProcedures(ctx, &have); err != nil {
		return err
	}
	switch line, err := m.makeTriggers(ctx); {
	case err != nil:
		return err
	case line != "":
		m.report = append(m.report, line)
	}
	if err := m.makeArticles(ctx, have.fingerprint != m.fingerprint()); err != nil {
		return err
	}
	if m.made { // replacing a procedure drops the grants on it
		lines, err := grantAgain(ctx, m.conn, m.definition)
		if m.report = append(m.report, lines...); err != nil {
			return err
		}
	}
	if len(m.report) == 0 {
		m.say("the schema has all %d tables' migrations and the procedures of revision %d, nothing to do",
			len(m.tables), m.revision)
	}
	lines, err := unreadable(ctx, m.conn, m.definition)
	m.report = append(m.report, lines...)
	return err
}

// withoutProcedures writes down what is installed on a server that has none.
func (m *migrator) withoutProcedures(ctx context.Context, have *installation) error {
	m.say("left out the procedures: this server has none")
	if have.revision == m.revision {
		return nil
	}
	_, err := m.conn.ExecContext(ctx, m.record(""))
	return err
}

// makeTables applies the migrations after the first have.
func (m *migrator) makeTables(ctx context.Context, have int) error {
	for i := have; i < len(m.tables); i++ {
		t := m.tables[i]
		for _, s := range t {
			if _, err := m.conn.ExecContext(ctx, s.text); err != nil {
				return fmt.Errorf("%s: %w", t[0].file, err)
			}
		}
		if _, err := m.conn.ExecContext(
			ctx, fmt.Sprintf("INSERT IGNORE INTO headgate_schema_version (version) VALUES (%d)", i+1)); err != nil {
			return fmt.Errorf("record %s: %w", t[0].file, err)
		}
		m.say("applied %s", t[0].file)
	}
	return nil
}

// installProcedures installs the procedures and views, unless those in the database are
// just these: first the procedures that others call, whose names nobody knows yet, then
// those for people.
func (m *migrator) installProcedures(ctx context.Context, have *installation) error {
	digest, err := m.digest(ctx)
	if err != nil {
		return err
	}
	repaired := have.revision == m.revision && have.digest != "" // by the printed schema there is no digest
	if have.revision == m.revision && have.fingerprint == m.fingerprint() &&
		(have.digest == digest || have.digest == "") {
		if have.digest == "" {
			_, err = m.conn.ExecContext(ctx, m.record(digest))
		}
		return err
	}
	m.made = true
	if err := m.execute(ctx, m.inner); err != nil {
		return err
	}
	if err := m.execute(ctx, m.plain); err != nil {
		return err
	}
	if digest, err = m.digest(ctx); err != nil {
		return err
	}
	if _, err := m.conn.ExecContext(ctx, m.record(digest)); err != nil {
		return fmt.Errorf("record what is installed: %w", err)
	}
	names := m.names()
	for _, name := range have.names {
		if !slices.Contains(names, name) { // no call is under way that knows the name
			if _, err := m.conn.ExecContext(ctx, "DROP PROCEDURE IF EXISTS "+name); err != nil {
				return fmt.Errorf("drop %s, which this revision does not have: %w", name, err)
			}
		}
	}
	if repaired {
		m.say("repaired the procedures of revision %d: they were others", m.revision)
	} else {
		m.say("installed the procedures of revision %d", m.revision)
	}
	return nil
}

// execute makes procedures, views and triggers. MariaDB replaces one in one step; on MySQL
// it is missing for a moment.
func (m *migrator) execute(ctx context.Context, list []ddl) error {
	for _, s := range list {
		text := s.text
		if m.mariadb {
			if s.kind == "drop" {
				continue
			}
			text = makes.ReplaceAllString(text, "create or replace $1 $2")
		}
		if _, err := m.conn.ExecContext(ctx, text); err != nil {
			return fmt.Errorf("%s: %w", s.file, err)
		}
	}
	return nil
}

// digest hashes the procedures of this definition as the server has them now. All states of procedures that this user
// may not read have the same.
func (m *migrator) digest(ctx context.Context) (string, error) {
	h := sha256.New()
	ours := m.names()
	err := eachRow(ctx, m.conn, `SELECT r.routine_name,
		COALESCE(SHA2(CONCAT(r.routine_definition, r.sql_mode, r.security_type, r.sql_data_access), 256), ''),
		COALESCE((SELECT SHA2(GROUP_CONCAT(p.parameter_mode, ' ', p.parameter_name, ' ', p.dtd_identifier
				ORDER BY p.ordinal_position), 256)
			FROM information_schema.parameters p
			WHERE p.specific_schema = DATABASE() AND p.specific_name = r.routine_name), '')
		FROM information_schema.routines r
		WHERE r.routine_schema = DATABASE() AND r.routine_type = 'PROCEDURE' ORDER BY r.routine_name`,
		func(r *sql.Rows) error {
			var name, definition, parameters string
			err := r.Scan(&name, &definition, &parameters)
			if slices.Contains(ours, name) {
				fmt.Fprintln(h, name, definition, parameters)
			}
			return err
		})
	if err != nil {
		return "", fmt.Errorf("read the procedures: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// makeArticles installs the articles' procedures if they are wanted, unless the database has procedures of somebody
// else's by these names. It replaces installed ones when the revision changes, since they call numbered procedures
// that the migration drops.
func (m *migrator) makeArticles(ctx context.Context, changed bool) error {
	var there int
	if err := m.conn.QueryRowContext(ctx, "SELECT COUNT(*) FROM information_schema.routines WHERE routine_schema = "+
		"DATABASE() AND routine_type = 'PROCEDURE' AND routine_comment LIKE '"+ours+"%'").Scan(&there); err != nil {
		return fmt.Errorf("look for the articles' procedures: %w", err)
	}
	if m.articles == "" && there == 0 || !changed && there == 2 {
		return nil
	}
	err := m.execute(ctx, m.definition.articles)
	if number, text := numberOf(err); number == errSignalled { // they may not be made
		m.say("%s", text)
		_, err = m.conn.ExecContext(ctx, "SET SESSION TRANSACTION READ WRITE")
		return err
	}
	if err == nil {
		m.made = true
		m.say("installed the articles' procedures")
	}
	return err
}

// migrating names the lock of the present database. Locks belong to the server, where a fixed name had the migrations
// of all databases wait for each other. MySQL takes names of up to 64 characters, and 9.7 has no md5.
const migrating = "concat('headgate migrate ', left(sha2(database(), 256), 32))"

// withMigrationLock calls f, which changes the schema, while it holds the lock of the database, and repeats it for up
// to a minute while it conflicts with others. Two that migrate at once would see each other's procedures come and go. A
// server without such locks is served too: then the one that fails tries again.
func withMigrationLock(ctx context.Context, conn *sql.Conn, f func() error) error {
	if _, err := conn.ExecContext(ctx, "DO GET_LOCK("+migrating+", 60)"); err == nil {
		defer func() { _, _ = conn.ExecContext(context.WithoutCancel(ctx), "DO RELEASE_LOCK("+migrating+")") }()
	}
	// A procedure is replaced when no transaction that has called it is open. New calls
	// wait behind that, so it is given up after 3 s, and repeated.
	if _, err := conn.ExecContext(ctx, "SET @hg_wait = @@lock_wait_timeout, lock_wait_timeout = 3"); err != nil {
		return fmt.Errorf("set up the session: %w", err)
	}
	defer func() {
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), "SET lock_wait_timeout = @hg_wait")
	}()
	_, err := store.Retry(ctx, time.Minute, f, func(err error) bool {
		number, _ := numberOf(err)
		return slices.Contains(repeated, number)
	})
	return err
}

// repeated are the errors after which a migration is made again: those of two that migrate
// at once, and an interruption. On MariaDB a KILL QUERY of one session can interrupt another
// one that reads information_schema.triggers (28 of 160 migrations beside a loop of KILL on
// 11.8, none without it).
var repeated = []uint16{1304, 1359, 1213, errLockWait, errInterrupted}
