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

// Tables are made by migrations, each of which is applied once. Procedures belong to
// the binary: it installs all of them whenever their texts have changed.
//
// The procedures that others call have the number of the revision in their names, _N in
// the texts, since MySQL cannot replace a procedure in one step: those of a revision are
// made beside the former, then the procedures for people, which have plain names, are
// replaced, and the former are dropped.

//go:embed sql/tables/*.sql sql/procedures/*.sql sql/triggers/*.sql
var files embed.FS

// These numbers are raised by hand. TestRevisionIsRaised sees to the revision.
const (
	// state is what the rows of the tables mean. A migration that changes it renames a
	// column of headgate_cells, so that an older process which is still running fails.
	state      = 2
	firstState = 2  // the first state that migrations start from: what was before was never released
	revision   = 16 // of the texts of the procedures
)

// definition has the objects that a binary makes in a database.
type definition struct {
	state, revision int
	tables          [][]ddl // number 1 is the first
	inner           []ddl
	plain           []ddl // what people use: procedures and views
	triggers        []ddl
	articles        []ddl
}

// ddl is a statement of a file, with the kind and the name of what it makes: a table, view, procedure or trigger. The
// kind of one that drops what the next one makes is "drop".
type ddl struct{ file, text, kind, name string }

// terminator ends a statement of a file, on a line of its own.
const terminator = "\n//\n"

var (
	revisionNumber = regexp.MustCompile(`_N\b`)
	// makes are the first words of a statement that makes something, after comments.
	makes = regexp.MustCompile(`(?m)^create (?:or replace )?(table|view|procedure|trigger)(?: if not exists)? (\w+)`)
	// rights are the last characteristic of a procedure before its comment.
	rights = regexp.MustCompile(`(?m)^.*sql security (?:definer|invoker)$`)
)

// numbered replaces the _N of names by the number of the revision.
func (d *definition) numbered(text string) string {
	return revisionNumber.ReplaceAllLiteralString(text, "_"+strconv.Itoa(d.revision))
}

func (d *definition) read(path string) (list []ddl) {
	text, err := files.ReadFile(path)
	if err != nil {
		panic(err) // they are embedded
	}
	path = strings.TrimPrefix(path, "sql/")
	for s := range strings.SplitSeq(d.numbered(expand(string(text))), terminator) {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		one := ddl{file: path, text: s}
		if m := makes.FindStringSubmatch(s); m != nil {
			one.kind, one.name = m[1], m[2]
		}
		if one.kind == "procedure" || one.kind == "trigger" { // neither can be replaced on MySQL
			list = append(list, ddl{path, fmt.Sprintf("drop %s if exists %s", one.kind, one.name), "drop", one.name})
		}
		if one.kind == "procedure" && !strings.Contains(s, " comment '") { // those for people have their own
			const comment = "$0 comment 'A part of Headgate: its procedures and triggers call it.'"
			one.text = rights.ReplaceAllString(s, comment)
		}
		list = append(list, one)
	}
	return list
}

// current is the definition of this binary.
var current = sync.OnceValue(func() *definition {
	d := &definition{state: state, revision: revision}
	tables, _ := fs.Glob(files, "sql/tables/*.sql") // the patterns are good
	for i, path := range tables {
		if !strings.HasPrefix(path, fmt.Sprintf("sql/tables/%03d_", i+1)) {
			panic(path + " is not number " + strconv.Itoa(i+1))
		}
		d.tables = append(d.tables, d.read(path))
	}
	suffix := d.numbered("_N")
	procedures, _ := fs.Glob(files, "sql/procedures/*.sql")
	for _, path := range procedures {
		for _, s := range d.read(path) {
			switch {
			case path == "sql/procedures/articles.sql":
				d.articles = append(d.articles, s)
			case s.kind == "":
				panic(s.file + " has a statement that makes nothing: " + s.text)
			case strings.HasSuffix(s.name, suffix):
				d.inner = append(d.inner, s)
			default:
				d.plain = append(d.plain, s)
			}
		}
	}
	d.triggers = slices.Concat(d.read("sql/triggers/catalog.sql"), d.read("sql/triggers/articles.sql"))
	return d
})

// fingerprint hashes the texts of all procedures.
func (d *definition) fingerprint() string {
	h := sha256.New()
	for _, s := range slices.Concat(d.inner, d.plain, d.triggers, d.articles) {
		h.Write([]byte(s.text))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// names returns the names of the procedures that every database has, in order.
func (d *definition) names() []string {
	list := namesOfKind("procedure", d.inner, d.plain)
	slices.Sort(list)
	return list
}

// installation describes a database: all zero without the schema.
type installation struct {
	state, revision     int
	tables              int // migrations applied
	fingerprint, digest string
	names               []string // of the procedures that every database has
}

// readInstalled reads it. Of a schema that Remove has begun to remove, it knows the names alone.
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
	return i, classify("read what is installed", err)
}

// check returns why a binary of this definition cannot use the database, or nil.
func (i *installation) check(d *definition) error {
	switch {
	case i.state > d.state:
		return i.newer(d)
	case i.state == d.state && i.tables >= len(d.tables):
		return nil
	case i.state > 0 && i.state < firstState:
		return fmt.Errorf("mysql: %w", i.older())
	case i.state == 0:
		return fmt.Errorf("mysql: %w: the schema is not there: run headgate migrate", store.ErrSetup)
	}
	return fmt.Errorf("mysql: %w: the schema has state %d and %d tables' migrations, this binary needs %d and %d: "+
		"run headgate migrate",
		store.ErrSetup, i.state, i.tables, d.state, len(d.tables))
}

// older returns the error about a schema that no release has made.
func (i *installation) older() error {
	return fmt.Errorf("%w: the schema has state %d, from before the first release: remove it with headgate "+
		"migrate --remove, then migrate again", store.ErrSetup, i.state)
}

// newer returns the error of a binary that is too old.
func (i *installation) newer(d *definition) error {
	return fmt.Errorf("mysql: %w: the schema has state %d, this binary knows %d", store.ErrSchemaNewer,
		i.state, d.state)
}

// Articles returns the procedures of the articles as a script for the mysql client, which makes them in a database
// that has the schema.
func Articles(database string) string {
	var b strings.Builder
	b.WriteString(setSession + "use `" + strings.ReplaceAll(database, "`", "``") + "`;\ndelimiter //\n\n")
	for _, s := range current().articles {
		b.WriteString(s.text + terminator + "\n")
	}
	b.WriteString("delimiter ;\n" + resetSession)
	return b.String()
}

// Schema returns the schema as a script for the mysql client, for people
// with a migration tool of their own.
func Schema() string {
	d := current()
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
	for _, s := range slices.Concat(d.inner, d.plain) {
		write(s.text)
	}
	write(d.record(""))
	for _, s := range d.triggers { // the script ends where it may not make one
		write(s.text)
	}
	b.WriteString("delimiter ;\n" + resetSession)
	return b.String()
}

// record returns the statement that writes down what is installed.
func (d *definition) record(digest string) string {
	return fmt.Sprintf("replace into headgate_installed (only_one, state, revision, fingerprint, digest, names) "+
		"values (1, %d, %d, '%s', '%s', '%s')",
		d.state, d.revision, d.fingerprint(), digest, strings.Join(d.names(), ","))
}

// The procedures and views keep the sql_mode, the character set and the collation
// under which they are made, whatever the session of the caller has. By mode
// what does not fit an argument is an error, not cut to size; by names the bytes of
// text decide what equals what. setSession sets a session to them, and resetSession
// to what it was.
const (
	mode  = "sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'"
	names = charset + " collate " + charset + "_bin"

	setSession = "set @hg_mode = @@sql_mode, @hg_client = @@character_set_client, @hg_results = " +
		"@@character_set_results, @hg_collation = @@collation_connection;\n" +
		"set " + mode + ";\nset names " + names + ";\n"
	resetSession = "set session transaction read write;\n" +
		"set sql_mode = @hg_mode, character_set_client = @hg_client, character_set_results = @hg_results, " +
		"collation_connection = @hg_collation;\n"
)
