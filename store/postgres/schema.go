package postgres

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
)

// Tables are made by migrations, each of which is applied once. Functions belong to the binary: a migration installs
// all of them when their texts have changed, unless the database has a newer revision.
//
// A layout is the meaning of the numbers in the arguments and results of functions. The functions that the driver
// calls, and all that these call, have the number of their layout in their names, _N in the texts. So binaries of two
// layouts can use one database, each with its own functions. These functions, and the functions of triggers, are in
// schema headgate_internal. Functions for people have plain names, and are in schema headgate.
//
// Ops, outcomes and other records are arrays of numbers. The texts refer to the numbers by placeholders, which are
// replaced when a text is read. The lists are in layout.go.
//
//	p_ops[o + {op.ceiling}]               the ceiling of the op after the first o numbers
//	o := (k - 1) * {op.width}             an op has op.width numbers
//	array[{out: granted => n, law => 1}]  an outcome; numbers that are not given are 0
//
// An unknown name panics.

// These numbers are raised by hand. TestRevisionIsRaised checks the revision.
const (
	state      = 4  // the meaning of the tables' rows
	firstState = 4  // the first state that was released, from which migrations start
	layout     = 2  // of the numbers in arguments and results, as above
	revision   = 20 // the revision of the functions' texts
)

// functionFiles are the files of sql/functions that every database gets, in the order in which they can be executed:
// the functions that a function in SQL calls have to exist before it.
var functionFiles = []string{
	"arithmetic", "giveback", "apply", "sweep_from", "sweep", "roles", "compile", "catalog", "find", "plain", "take",
	"log", "late", "once", "apply_plain", "verbs", "several", "ways", "manage", "levels",
	"comments",
}

// text is one file of SQL, with its placeholders replaced.
type text struct{ name, sql string }

// definition is the schema that a binary makes in a database.
type definition struct {
	state, layout, revision int
	tables                  []text // the migrations; number 1 is the first
	functions               []text
	articles                text // functions in a schema that the user names
	adapter                 text // functions of the previous layout, which call functions of this one; empty: none
	rights                  text // who may execute the functions; applied when all functions exist
}

// withLayout replaces the _N of names by the number of the layout.
func (d *definition) withLayout(sql string) string {
	return layoutPlaceholder.ReplaceAllLiteralString(sql, "_"+strconv.Itoa(d.layout))
}

// statement replaces the _N of the first function that a statement calls. It needs no regular expression.
func (d *definition) statement(sql string) string {
	return strings.Replace(sql, "_N(", "_"+strconv.Itoa(d.layout)+"(", 1)
}

var layoutPlaceholder = regexp.MustCompile(`_N\b`)

// readText reads an embedded file, assembles its text, and replaces the _N of names.
func (d *definition) readText(path string) text {
	sql, err := sqlFiles.ReadFile("sql/" + path)
	if err != nil {
		panic(err) // cannot happen: the files are embedded
	}
	return text{path, d.withLayout(assemble(path, string(sql)))}
}

// postgresDefinition returns the definition of this binary for PostgreSQL.
var postgresDefinition = sync.OnceValue(func() *definition {
	d := &definition{state: state, layout: layout, revision: revision}
	entries, err := sqlFiles.ReadDir("sql/tables")
	if err != nil {
		panic(err)
	}
	for i, e := range entries {
		if !strings.HasPrefix(e.Name(), fmt.Sprintf("%03d_", i+1)) {
			panic("sql/tables: " + e.Name() + " is not number " + strconv.Itoa(i+1))
		}
		d.tables = append(d.tables, d.readText("tables/"+e.Name()))
	}
	for _, name := range functionFiles {
		d.functions = append(d.functions, d.readText("functions/"+name+".sql"))
	}
	d.articles = d.readText("functions/articles.sql")
	d.rights = d.readText("functions/rights.sql")
	return d
})

// yugabyteDefinition returns the definition of this binary for YugabyteDB.
var yugabyteDefinition = sync.OnceValue(func() *definition {
	d := *postgresDefinition()
	d.tables, d.functions = slices.Clone(d.tables), slices.Clone(d.functions)
	// A sweep visits the rows by their hash codes, since they have no other order.
	d.functions[slices.Index(functionFiles, "sweep_from")] = d.readText("yugabyte/sweep_from.sql")
	for _, change := range yugabyteChanges {
		replacements := 0
		for _, list := range [][]text{d.tables, d.functions} {
			for i := range list {
				replacements += strings.Count(list[i].sql, change.postgres)
				list[i].sql = strings.ReplaceAll(list[i].sql, change.postgres, change.yugabyte)
			}
		}
		if replacements == 0 {
			panic("sharding: the schema does not say: " + change.postgres) // a mistake in this package
		}
	}
	return &d
})

// yugabyteChanges are the differences of the schema for YugabyteDB. A hash of the lookup key spreads the rows, so that
// no range of them is hot. There are no settings of PostgreSQL's heap, and there is no ctid.
var yugabyteChanges = []struct{ postgres, yugabyte string }{
	{"    primary key (limit_name, key)\n) with (fillfactor = 66, autovacuum_vacuum_scale_factor = 0.05, " +
		"autovacuum_vacuum_cost_delay = 0);", "    primary key ((limit_name, key) hash)\n);"},
	{
		"    number     bigint generated always as identity primary key,\n",
		"    number     bigint generated always as identity,\n",
	},
	{"    granted    boolean not null\n);", "    granted    boolean not null,\n    primary key (number hash)\n);"},
	{
		"on headgate.entries (limit_name, key, expires_at) include",
		"on headgate.entries ((limit_name, key) hash, expires_at asc) include",
	},
	{"    primary key (id, home)\n) with (fillfactor = 50, toast_tuple_target = 4080);", "    primary key (id hash, home)\n);"},
	{"    places tid[];", "    places boolean[];"},
	{"(select c.ctid as place, c.*", "(select true as place, c.*"},
	{"e.ctid = u.place", "u.place and e.limit_name = any (array[p_limits[u.c]]) and e.key = p_keys[u.c]"},
	{"returning c.ctid into place", "returning true into place"},
	{"select c.ctid into place", "select true into place"},
}

// forServer returns the definition for a server of this version.
func (d *definition) forServer(version string) *definition {
	if d == postgresDefinition() && isYugabyte(version) {
		return yugabyteDefinition()
	}
	return d
}

// isYugabyte reports whether a server of this version is YugabyteDB.
func isYugabyte(version string) bool { return strings.Contains(version, "-YB-") }

// fingerprint returns a hash of the texts of all functions and their rights.
func (d *definition) fingerprint() string {
	h := sha256.New()
	for _, t := range append(slices.Clone(d.functions), d.articles, d.adapter, d.rights) {
		h.Write([]byte(t.sql))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// functionName matches the statements that make functions in Headgate's schemas.
var functionName = regexp.MustCompile(`(?m)^create or replace function (headgate(?:_internal)?\.\w+)\(`)

// functionNames returns the names of the functions in Headgate's schemas, as an array of SQL.
func (d *definition) functionNames() string {
	var names []string
	for _, t := range append(slices.Clone(d.functions), d.adapter) {
		for _, m := range functionName.FindAllStringSubmatch(t.sql, -1) {
			names = append(names, m[1])
		}
	}
	return "{" + strings.Join(names, ",") + "}"
}

// Schema returns the whole schema as SQL, for users with another migration tool.
func Schema() string { return postgresDefinition().script() }

// SchemaYugabyte returns the whole schema as SQL for YugabyteDB, for a release that is compatible with PostgreSQL 15.
func SchemaYugabyte() string { return yugabyteDefinition().script() }

// Articles returns the functions of the articles as SQL, for a database that has the whole schema. The SQL makes them
// in the schema of this name, and fails if a function of another owner has one of their names there.
func Articles(schema string) string {
	d := postgresDefinition()
	return setSafePath + d.articlesIn(schema) + "\n" + d.rights.sql + schemaTail
}

// articleNames are the names of the functions of the articles.
var articleNames = []string{
	"rate_limiting_request", "rate_limiting_token_bucket_request", "check_velocity", "request_token",
}

// articlesIn returns the SQL that makes the functions of the articles in a schema of any name.
func (d *definition) articlesIn(schema string) string {
	return strings.NewReplacer("articles.", pgx.Identifier{schema}.Sanitize()+".",
		"'articles'", "'"+strings.ReplaceAll(schema, "'", "''")+"'").Replace(d.articles.sql)
}

// script returns the whole schema as one text of SQL.
func (d *definition) script() string {
	var b strings.Builder
	fmt.Fprintf(&b, schemaHead, d.revision, d.revision, firstState)
	for _, t := range slices.Concat(d.tables, d.functions, []text{d.adapter, d.rights}) {
		if t.sql != "" {
			fmt.Fprintf(&b, "-- %s\n\n%s\n", t.name, t.sql)
		}
	}
	fmt.Fprintf(&b, "insert into headgate.schema_version (version) select generate_series(1, %d) on conflict do "+
		"nothing;\n", len(d.tables))
	fmt.Fprintf(&b, strings.NewReplacer("$1", "%d", "$2", "%d", "$3", "%d", "$4", "'%s'", "$5", "'%s'").Replace(
		recordInstalled)+";\n",
		d.state, d.layout, d.revision, d.fingerprint(), d.functionNames())
	b.WriteString(schemaTail)
	return b.String()
}

// safePath is the search_path of migrations and of functions. It has no schema in which other users make objects.
const safePath = "pg_catalog, pg_temp"

// The printed schema sets the search_path, restores that of the session at the end, and replaces no newer functions.
const (
	schemaHead = `-- Execute this in one transaction: psql --single-transaction -v ON_ERROR_STOP=1.
do $$ begin
    if pg_catalog.to_regclass('headgate.installed') is not null then
        if (select i.revision OPERATOR(pg_catalog.>) %d from headgate.installed i) then
            raise exception 'the functions in schema headgate are newer than revision %d, which this text has';
        elsif (select i.state OPERATOR(pg_catalog.<) %d from headgate.installed i) then
            raise exception 'schema headgate is from before the first release: drop it';
        end if;
    end if;
end $$;

` + setSafePath
	setSafePath = `-- Nothing that others have made, in schema public above all, may be taken for an
-- operator, a function or a type of this text.
do $$ begin
    perform pg_catalog.set_config('headgate.search_path', pg_catalog.current_setting('search_path'), false);
end $$;
set search_path = ` + safePath + `;

`
	schemaTail = `
do $$ begin
    perform pg_catalog.set_config('search_path', pg_catalog.current_setting('headgate.search_path'), false);
end $$;
`
)
