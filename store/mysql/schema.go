package mysql

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/headgate/headgate/store"
)

// Migrations make the tables, and each is applied once. The procedures belong to the binary, which installs all of them
// whenever their texts have changed.
//
// MySQL cannot replace a procedure in one step. So procedures that other procedures call have the number of the
// revision in their names, _N in the texts. A migration makes the procedures of its revision beside the former ones,
// then replaces the procedures for people, which have plain names, and drops the former ones.

//go:embed sql/tables/*.sql sql/procedures/*.sql sql/triggers/*.sql
var files embed.FS

// These numbers are raised by hand. TestRevisionIsRaised checks the revision.
const (
	// state is a number for the meaning of the rows. A migration that changes it renames a column of headgate_cells, so
	// that an older process which is still running fails.
	state      = 2
	firstState = 2  // the oldest state that migrations start from: older ones were never released
	revision   = 19 // of the texts of the procedures
)

// definition has the objects that a binary makes in a database.
type definition struct {
	state, revision   int
	tables            [][]ddl // the migrations in order
	privateProcedures []ddl   // with the revision in their names
	publicObjects     []ddl   // procedures and views for people
	triggers          []ddl
	articles          []ddl
}

// ddl is a statement of a file, with the kind and the name of the object that it makes: a table, view, procedure or
// trigger. A statement that drops the object of the next statement has the kind "drop", other statements have none.
type ddl struct{ file, text, kind, name string }

// terminator ends a statement of a file, on a line of its own.
const terminator = "\n//\n"

var (
	revisionPlaceholder = regexp.MustCompile(`_N\b`)
	// makePattern matches the first words of a statement that makes an object, after comments.
	makePattern = regexp.MustCompile(
		`(?m)^create (?:or replace )?(table|view|procedure|trigger)(?: if not exists)? (\w+)`)
	// securityPattern matches the last characteristic of a procedure before its comment.
	securityPattern = regexp.MustCompile(`(?m)^.*sql security (?:definer|invoker)$`)
)

// withRevision replaces the _N of names by the number of the revision.
func (d *definition) withRevision(text string) string {
	return revisionPlaceholder.ReplaceAllLiteralString(text, "_"+strconv.Itoa(d.revision))
}

// readFile returns the statements of a file, expanded, each procedure and trigger after a statement that drops it.
func (d *definition) readFile(path string) (list []ddl) {
	text, err := files.ReadFile(path)
	if err != nil {
		panic(err) // they are embedded
	}
	path = strings.TrimPrefix(path, "sql/")
	for s := range strings.SplitSeq(d.withRevision(expand(string(text))), terminator) {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		stmt := ddl{file: path, text: s}
		if m := makePattern.FindStringSubmatch(s); m != nil {
			stmt.kind, stmt.name = m[1], m[2]
		}
		if stmt.kind == "procedure" || stmt.kind == "trigger" { // MySQL cannot replace either
			list = append(list, ddl{path, fmt.Sprintf("drop %s if exists %s", stmt.kind, stmt.name), "drop", stmt.name})
		}
		if stmt.kind == "procedure" && !strings.Contains(s, " comment '") { // procedures for people have a comment
			const comment = "$0 comment 'A part of Headgate: its procedures and triggers call it.'"
			stmt.text = securityPattern.ReplaceAllString(s, comment)
		}
		list = append(list, stmt)
	}
	return list
}

// currentDefinition returns the definition of this binary.
var currentDefinition = sync.OnceValue(func() *definition {
	d := &definition{state: state, revision: revision}
	tables, _ := fs.Glob(files, "sql/tables/*.sql") // the patterns are good
	for i, path := range tables {
		if !strings.HasPrefix(path, fmt.Sprintf("sql/tables/%03d_", i+1)) {
			panic(path + " is not number " + strconv.Itoa(i+1))
		}
		d.tables = append(d.tables, d.readFile(path))
	}
	suffix := d.withRevision("_N")
	procedures, _ := fs.Glob(files, "sql/procedures/*.sql")
	for _, path := range procedures {
		for _, s := range d.readFile(path) {
			switch {
			case path == "sql/procedures/articles.sql":
				d.articles = append(d.articles, s)
			case s.kind == "":
				panic(s.file + " has a statement that makes nothing: " + s.text)
			case strings.HasSuffix(s.name, suffix):
				d.privateProcedures = append(d.privateProcedures, s)
			default:
				d.publicObjects = append(d.publicObjects, s)
			}
		}
	}
	d.triggers = slices.Concat(d.readFile("sql/triggers/catalog.sql"), d.readFile("sql/triggers/articles.sql"))
	return d
})

// fingerprint hashes the texts of all procedures, views and triggers.
func (d *definition) fingerprint() string {
	h := sha256.New()
	for _, s := range slices.Concat(d.privateProcedures, d.publicObjects, d.triggers, d.articles) {
		h.Write([]byte(s.text))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// procedureNames returns the sorted names of all procedures but those of the articles.
func (d *definition) procedureNames() []string {
	list := namesOfKind("procedure", d.privateProcedures, d.publicObjects)
	slices.Sort(list)
	return list
}

// installation is the schema that a database has. It is zero if the database has none.
type installation struct {
	state, revision     int
	tables              int // how many migrations were applied
	fingerprint, digest string
	names               []string // what procedureNames returned to the binary that has migrated
}

// readInstalled reads the installation. If Remove has begun to remove the schema, only names is set.
func readInstalled(ctx context.Context, db querier) (i installation, err error) {
	var names string
	err = db.QueryRowContext(ctx, "SELECT state, revision, fingerprint, digest, names FROM headgate_installed").Scan(
		&i.state, &i.revision, &i.fingerprint, &i.digest, &names)
	if err == nil {
		i.names = strings.Split(names, ",")
		err = db.QueryRowContext(ctx, "SELECT COALESCE(MAX(version), 0) FROM headgate_schema_version").Scan(&i.tables)
	}
	if number, _ := numberOf(err); number == errNoTable || errors.Is(err, sql.ErrNoRows) {
		return installation{names: i.names}, nil
	}
	return i, classifyRead("read what is installed", err)
}

// check returns why a binary of this definition cannot use the database, or nil.
func (i *installation) check(d *definition) error {
	switch {
	case i.state > d.state:
		return i.newerError(d)
	case i.state == d.state && i.tables >= len(d.tables):
		return nil
	case i.state > 0 && i.state < firstState:
		return fmt.Errorf("mysql: %w", i.olderError())
	case i.state == 0:
		return fmt.Errorf("mysql: %w: the schema is not there: run headgate migrate", store.ErrSetup)
	}
	return fmt.Errorf("mysql: %w: the schema has state %d and %d tables' migrations, this binary needs %d and %d: "+
		"run headgate migrate",
		store.ErrSetup, i.state, i.tables, d.state, len(d.tables))
}

// olderError returns the error for a schema from before the first release.
func (i *installation) olderError() error {
	return fmt.Errorf("%w: the schema has state %d, from before the first release: remove it with headgate "+
		"migrate --remove, then migrate again", store.ErrSetup, i.state)
}

// newerError returns the error for a schema that is too new for this binary.
func (i *installation) newerError(d *definition) error {
	return fmt.Errorf("mysql: %w: the schema has state %d, this binary knows %d", store.ErrSchemaNewer,
		i.state, d.state)
}

// Articles returns the procedures of the articles as a script for the mysql client, which makes them in a database
// that has the schema.
func Articles(database string) string {
	var b strings.Builder
	b.WriteString(setSession + "use `" + strings.ReplaceAll(database, "`", "``") + "`;\ndelimiter //\n\n")
	for _, s := range currentDefinition().articles {
		b.WriteString(s.text + terminator + "\n")
	}
	b.WriteString("delimiter ;\n" + resetSession)
	return b.String()
}

// Schema returns the schema as a script for the mysql client, for people with a migration tool of their own.
func Schema() string {
	d := currentDefinition()
	var b strings.Builder
	b.WriteString(setSession + "delimiter //\n\n")
	write := func(text string) { b.WriteString(text + terminator + "\n") }
	for i, t := range d.tables {
		fmt.Fprintf(&b, "-- %s\n\n", t[0].file)
		for _, s := range t {
			write(s.text)
		}
		write(fmt.Sprintf("insert ignore into headgate_schema_version (version) values (%d)", i+1))
	}
	for _, s := range slices.Concat(d.privateProcedures, d.publicObjects) {
		write(s.text)
	}
	write(d.recordStatement(""))
	for _, s := range d.triggers { // last, since the script fails at a trigger that the user may not make
		write(s.text)
	}
	b.WriteString("delimiter ;\n" + resetSession)
	return b.String()
}

// recordStatement returns the statement that records what is installed.
func (d *definition) recordStatement(digest string) string {
	return fmt.Sprintf("replace into headgate_installed (only_one, state, revision, fingerprint, digest, names) "+
		"values (1, %d, %d, '%s', '%s', '%s')",
		d.state, d.revision, d.fingerprint(), digest, strings.Join(d.procedureNames(), ","))
}

// The procedures and views keep the sql_mode, the character set and the collation under which they are made, whatever
// the caller's session has. Under migrationMode a value that does not fit an argument is an error, not truncated. Under
// migrationNames texts are compared byte by byte. setSession sets both. resetSession restores the session, and undoes
// the READ ONLY by which the script of the articles refuses to go on.
const (
	migrationMode  = "sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'"
	migrationNames = charset + " collate " + charset + "_bin"

	setSession = "set @hg_mode = @@sql_mode, @hg_client = @@character_set_client, @hg_results = " +
		"@@character_set_results, @hg_collation = @@collation_connection;\n" +
		"set " + migrationMode + ";\nset names " + migrationNames + ";\n"
	resetSession = "set session transaction read write;\n" +
		"set sql_mode = @hg_mode, character_set_client = @hg_client, character_set_results = @hg_results, " +
		"collation_connection = @hg_collation;\n"
)
