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

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/headgate/headgate/store"
)

// Migrate implements store.Migrator. It makes the tables that are missing in the database of the connections. It
// installs the procedures of this binary if they are newer than the installed ones, or differ from them at the same
// revision. If the installed ones are newer, it changes nothing. A user without the right to make procedures gets an
// error that says so; TiDB, which has no procedures, gets the tables.
func (s *Store) Migrate(ctx context.Context) (report []string, err error) {
	err = s.administer(ctx, "migrate", func(conn *sql.Conn) (err error) {
		report, err = s.migrateOn(ctx, conn)
		return err
	})
	if err == nil {
		s.checked.Store(true)
	}
	return report, err
}

// administer calls do on a connection to a node that can be reached. It fails inside a transaction of the caller.
func (s *Store) administer(ctx context.Context, action string, do func(*sql.Conn) error) error {
	if err := s.usable(); err != nil {
		return err
	}
	if s.tx != nil {
		return fmt.Errorf("mysql: %s: %w: not inside a transaction of the caller", action, store.ErrInvalid)
	}
	return s.onAnyNode(func(db querier) error {
		conn, err := db.(*sql.DB).Conn(ctx)
		if err != nil {
			return classify(action, notSent.wrap(err))
		}
		defer conn.Close()
		return do(conn)
	})
}

// migrateOn migrates on a connection, and then sets the facts about the server.
func (s *Store) migrateOn(ctx context.Context, conn *sql.Conn) (report []string, err error) {
	if err := checkServer(ctx, conn); err != nil {
		return nil, err
	}
	// One migrator reports all attempts, since each attempt finds what the former ones have made.
	m := &migrator{definition: s.def, conn: conn, articles: s.cfg.Articles}
	err = withMigrationLock(ctx, conn, func() error { return m.migrate(ctx) })
	switch {
	case errors.Is(err, store.ErrSchemaNewer):
		return nil, err
	case err != nil:
		if my, ok := errors.AsType[*mysqldriver.MySQLError](err); ok && classByNumber(my) == nil {
			return nil, fmt.Errorf("mysql: migrate: %w: %w", store.ErrSetup, err) // a migration charges nothing
		}
		return nil, classify("migrate", err)
	}
	return m.report, s.detect(ctx, conn)
}

// migrator makes a definition in a database.
type migrator struct {
	*definition
	conn      *sql.Conn
	articles  string // the database for the articles' procedures; empty: none
	report    []string
	isMariaDB bool

	madeProcedures bool // this migration has made procedures, which have no grants yet
}

// addLine adds a line to the report.
func (m *migrator) addLine(format string, args ...any) {
	m.report = append(m.report, fmt.Sprintf(format, args...))
}

// migrate makes what the database lacks of the definition, and grants roles again. It sets the session up for that.
func (m *migrator) migrate(ctx context.Context) error {
	if _, err := m.conn.ExecContext(ctx, setSession); err != nil {
		return fmt.Errorf("set up the session: %w", err)
	}
	defer func() { _, _ = m.conn.ExecContext(context.WithoutCancel(ctx), resetSession) }()
	installed, err := readInstalled(ctx, m.conn)
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
	m.isMariaDB = strings.Contains(version, "MariaDB")
	switch {
	case installed.state > m.state:
		return installed.newerError(m.definition)
	case installed.state > 0 && installed.state < firstState:
		return installed.olderError()
	case installed.revision > m.revision:
		m.addLine("the procedures have revision %d, those of this binary %d: nothing to do", installed.revision,
			m.revision)
		return nil
	}
	if err := m.makeTables(ctx, installed.tables); err != nil {
		return err
	}
	if strings.Contains(version, "TiDB") {
		m.addLine("left out the procedures: this server has none")
		if installed.revision != m.revision {
			_, err = m.conn.ExecContext(ctx, m.recordStatement(""))
		}
		return err
	}
	if err := m.renewRuleCheck(ctx); err != nil {
		return err
	}
	if err := m.installProcedures(ctx, &installed); err != nil {
		return err
	}
	if err := m.makeTriggers(ctx); err != nil {
		return err
	}
	if err := m.installArticles(ctx, installed.fingerprint != m.fingerprint()); err != nil {
		return err
	}
	if m.madeProcedures { // replacing a procedure drops the grants on it
		lines, err := grantAgain(ctx, m.conn, m.definition)
		if m.report = append(m.report, lines...); err != nil {
			return err
		}
	}
	if len(m.report) == 0 {
		m.addLine("the schema has all %d tables' migrations and the procedures of revision %d, nothing to do",
			len(m.tables), m.revision)
	}
	lines, err := unreadableLimits(ctx, m.conn, m.definition)
	m.report = append(m.report, lines...)
	return err
}

// makeTables applies the migrations that follow the applied ones.
func (m *migrator) makeTables(ctx context.Context, applied int) error {
	for i := applied; i < len(m.tables); i++ {
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
		m.addLine("applied %s", t[0].file)
	}
	return nil
}

// renewRuleCheck replaces the check of rules that an older binary made, which knows neither notify nor other names.
func (m *migrator) renewRuleCheck(ctx context.Context) error {
	var isOld bool
	err := m.conn.QueryRowContext(ctx, `SELECT COUNT(*) > 0 FROM information_schema.check_constraints WHERE
		constraint_schema = DATABASE() AND constraint_name = 'headgate_rule_is_a_limit' AND
		check_clause NOT LIKE '%renamed from%'`).Scan(&isOld)
	if err != nil || !isOld {
		return err
	}
	const add = "constraint headgate_rule_is_a_limit"
	i := slices.IndexFunc(m.tables[0], func(s ddl) bool { return s.name == "headgate_limits" })
	_, check, _ := strings.Cut(m.tables[0][i].text, add)
	check, _, _ = strings.Cut(check, "\n) engine")
	if _, err = m.conn.ExecContext(ctx, "ALTER TABLE headgate_limits DROP "+add+", ADD "+add+check); err == nil {
		m.addLine("replaced the check of rules in headgate_limits")
	}
	return err
}

// installProcedures installs the procedures and views, unless the database has the same ones: first the private
// procedures, then the objects for people, which call them. Last it drops procedures that this revision lacks.
func (m *migrator) installProcedures(ctx context.Context, installed *installation) error {
	digest, err := m.digest(ctx)
	if err != nil {
		return err
	}
	repaired := installed.revision == m.revision && installed.digest != "" // the script of Schema records no digest
	if installed.revision == m.revision && installed.fingerprint == m.fingerprint() &&
		(installed.digest == digest || installed.digest == "") {
		if installed.digest == "" {
			_, err = m.conn.ExecContext(ctx, m.recordStatement(digest))
		}
		return err
	}
	m.madeProcedures = true
	if err := m.execute(ctx, m.privateProcedures); err != nil {
		return err
	}
	if err := m.execute(ctx, m.publicObjects); err != nil {
		return err
	}
	if digest, err = m.digest(ctx); err != nil {
		return err
	}
	if _, err := m.conn.ExecContext(ctx, m.recordStatement(digest)); err != nil {
		return fmt.Errorf("record what is installed: %w", err)
	}
	names := m.procedureNames()
	for _, name := range installed.names {
		if !slices.Contains(names, name) { // no procedure calls it any more
			if _, err := m.conn.ExecContext(ctx, "DROP PROCEDURE IF EXISTS "+name); err != nil {
				return fmt.Errorf("drop %s, which this revision does not have: %w", name, err)
			}
		}
	}
	if repaired {
		m.addLine("repaired the procedures of revision %d: they were others", m.revision)
	} else {
		m.addLine("installed the procedures of revision %d", m.revision)
	}
	return nil
}

// execute makes procedures, views and triggers. On MySQL, a procedure or trigger that it replaces is briefly missing.
func (m *migrator) execute(ctx context.Context, list []ddl) error {
	for _, s := range list {
		text := s.text
		if m.isMariaDB {
			if s.kind == "drop" {
				continue
			}
			text = makePattern.ReplaceAllString(text, "create or replace $1 $2")
		}
		if _, err := m.conn.ExecContext(ctx, text); err != nil {
			return fmt.Errorf("%s: %w", s.file, err)
		}
	}
	return nil
}

// digest hashes the procedures of this definition as the server has them now. It does not notice changes of procedures
// that this user may not read.
func (m *migrator) digest(ctx context.Context) (string, error) {
	h := sha256.New()
	names := m.procedureNames()
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
			if slices.Contains(names, name) {
				fmt.Fprintln(h, name, definition, parameters)
			}
			return err
		})
	if err != nil {
		return "", fmt.Errorf("read the procedures: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// installArticles installs the articles' procedures if Config.Articles asks for them, unless foreign procedures have
// the same names. If changed, it replaces the installed ones too, since they may call private procedures that this
// migration has dropped.
func (m *migrator) installArticles(ctx context.Context, changed bool) error {
	var count int
	if err := m.conn.QueryRowContext(ctx, "SELECT COUNT(*) FROM information_schema.routines WHERE routine_schema = "+
		"DATABASE() AND routine_type = 'PROCEDURE' AND routine_comment LIKE '"+articleComment+"%'").Scan(
		&count); err != nil {
		return fmt.Errorf("look for the articles' procedures: %w", err)
	}
	if m.articles == "" && count == 0 || !changed && count == 2 { // check_velocity and request_token
		return nil
	}
	err := m.execute(ctx, m.definition.articles)
	if number, text := numberOf(err); number == errSignalled { // the script refuses to replace them
		m.addLine("%s", text)
		_, err = m.conn.ExecContext(ctx, "SET SESSION TRANSACTION READ WRITE") // it has set READ ONLY
		return err
	}
	if err == nil {
		m.madeProcedures = true
		m.addLine("installed the articles' procedures")
	}
	return err
}

// migrationLock is the SQL for the name of the lock of the present database. Locks belong to the server: with a fixed
// name the migrations of all databases would wait for each other. MySQL takes up to 64 characters, and 9.7 has no md5.
const migrationLock = "concat('headgate migrate ', left(sha2(database(), 256), 32))"

// withMigrationLock calls f, which changes the schema, under the lock of the database, and repeats f for up to a minute
// while it conflicts with others. Two concurrent migrations would see each other's procedures come and go. Without the
// lock, on a server that has none or after waiting for it for a minute, the migration that fails tries again.
func withMigrationLock(ctx context.Context, conn *sql.Conn, f func() error) error {
	if _, err := conn.ExecContext(ctx, "DO GET_LOCK("+migrationLock+", 60)"); err == nil {
		defer func() { _, _ = conn.ExecContext(context.WithoutCancel(ctx), "DO RELEASE_LOCK("+migrationLock+")") }()
	}
	// The server replaces a procedure once no transaction that has called it is open. New calls
	// wait for the replacement, so it gives up after 3 s, and is repeated.
	if _, err := conn.ExecContext(ctx, "SET @hg_wait = @@lock_wait_timeout, lock_wait_timeout = 3"); err != nil {
		return fmt.Errorf("set up the session: %w", err)
	}
	defer func() {
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), "SET lock_wait_timeout = @hg_wait")
	}()
	_, err := store.Retry(ctx, time.Minute, f, func(err error) bool {
		number, _ := numberOf(err)
		return slices.Contains(retriedErrors, number)
	})
	return err
}

// retriedErrors are the errors after which a migration is repeated: the errors of concurrent migrations, and an
// interruption. On MariaDB a KILL QUERY of one session can interrupt another session that reads
// information_schema.triggers (28 of 160 migrations beside a loop of KILL on 11.8, none without it).
var retriedErrors = []uint16{1304, 1359, 1213, errLockWait, errInterrupted}
