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

// Tables are made by migrations, each of which is applied once. Functions belong to
// the binary: it installs all of them whenever their texts have changed.
//
// The functions that the driver calls, and those that they call, have the number of
// their layout in their names, _N in the texts. A layout is what the numbers of their
// arguments and results mean. So binaries of two layouts work beside each other, on
// functions of their own. These functions, and those of triggers, are in schema
// headgate_internal. Functions for people have plain names, and are in schema headgate.
//
// Ops, outcomes and some others are arrays of numbers. The texts name the numbers in
// placeholders, which are replaced when a text is read. The lists are in layout.go.
//
//	p_ops[o + {op.ceiling}]               the ceiling of the op after the first o numbers
//	o := (k - 1) * {op.width}             of which an op has op.width
//	array[{out: granted => n, law => 1}]  an outcome; numbers that are not given are 0
//
// An unknown name panics.

// These numbers are raised by hand. TestRevisionIsRaised sees to the revision.
const (
	state      = 4 // what the rows of the tables mean
	firstState = 4 // the first state that migrations start from: what was before was never released
	layout     = 1
	revision   = 18 // of the texts of the functions
)

// functionFiles are the files of sql/functions, in the order in which they can be
// executed: a function in SQL needs those that it calls.
var functionFiles = []string{
	"arithmetic", "giveback", "apply", "sweep_from", "sweep", "roles", "compile", "catalog", "find", "plain", "take",
	"log", "late", "once", "apply_plain", "verbs", "several", "ways", "manage", "levels",
	"comments",
}

// text is one file.
type text struct{ name, sql string }

// definition is what a binary makes in a database.
type definition struct {
	state, layout, revision int
	tables                  []text // number 1 is the first
	functions               []text
	articles                text // functions in a schema that the user names
	adapter                 text // the functions of the layout before, which call those of this; no text: there is none
	rights                  text // who may execute the functions; applied when all are there
}

// numbered replaces the _N of names by the number of the layout.
func (d *definition) numbered(sql string) string {
	return layoutNumber.ReplaceAllLiteralString(sql, "_"+strconv.Itoa(d.layout))
}

// statement is numbered for a statement that calls one function.
func (d *definition) statement(sql string) string {
	return strings.Replace(sql, "_N(", "_"+strconv.Itoa(d.layout)+"(", 1)
}

var layoutNumber = regexp.MustCompile(`_N\b`)

func (d *definition) read(path string) text {
	sql, err := files.ReadFile("sql/" + path)
	if err != nil {
		panic(err) // they are embedded
	}
	return text{path, d.numbered(assemble(path, string(sql)))}
}

// current is the definition of this binary, for PostgreSQL.
var current = sync.OnceValue(func() *definition {
	d := &definition{state: state, layout: layout, revision: revision}
	entries, err := files.ReadDir("sql/tables")
	if err != nil {
		panic(err)
	}
	for i, e := range entries {
		if !strings.HasPrefix(e.Name(), fmt.Sprintf("%03d_", i+1)) {
			panic("sql/tables: " + e.Name() + " is not number " + strconv.Itoa(i+1))
		}
		d.tables = append(d.tables, d.read("tables/"+e.Name()))
	}
	for _, name := range functionFiles {
		d.functions = append(d.functions, d.read("functions/"+name+".sql"))
	}
	d.articles = d.read("functions/articles.sql")
	d.rights = d.read("functions/rights.sql")
	return d
})

// yugabyte is the definition of this binary, for YugabyteDB.
var yugabyte = sync.OnceValue(func() *definition {
	d := *current()
	d.tables, d.functions = slices.Clone(d.tables), slices.Clone(d.functions)
	// A sweep goes through the rows by the codes of their hashes, since they have no order.
	d.functions[slices.Index(functionFiles, "sweep_from")] = d.read("yugabyte/sweep_from.sql")
	for _, s := range sharding {
		found := 0
		for _, list := range [][]text{d.tables, d.functions} {
			for i := range list {
				found += strings.Count(list[i].sql, s.postgres)
				list[i].sql = strings.ReplaceAll(list[i].sql, s.postgres, s.yugabyte)
			}
		}
		if found == 0 {
			panic("sharding: the schema does not say: " + s.postgres) // both are ours
		}
	}
	return &d
})

// sharding is what YugabyteDB wants otherwise: rows spread by a hash of what
// they are looked up by, so that no range of them is hot, none of the settings of
// PostgreSQL's heap, and no ctid.
var sharding = []struct{ postgres, yugabyte string }{
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

// on returns the definition for a server of this version.
func (d *definition) on(version string) *definition {
	if d == current() && isYugabyte(version) {
		return yugabyte()
	}
	return d
}

// isYugabyte reports whether a server of this version is YugabyteDB.
func isYugabyte(version string) bool { return strings.Contains(version, "-YB-") }

// fingerprint is one of the texts of all functions.
func (d *definition) fingerprint() string {
	h := sha256.New()
	for _, t := range append(slices.Clone(d.functions), d.articles, d.adapter, d.rights) {
		h.Write([]byte(t.sql))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// functionName finds the functions in our schemas that a text makes.
var functionName = regexp.MustCompile(`(?m)^create or replace function (headgate(?:_internal)?\.\w+)\(`)

// names returns the names of the functions in our schemas, as an array of SQL.
func (d *definition) names() string {
	var list []string
	for _, t := range append(slices.Clone(d.functions), d.adapter) {
		for _, m := range functionName.FindAllStringSubmatch(t.sql, -1) {
			list = append(list, m[1])
		}
	}
	return "{" + strings.Join(list, ",") + "}"
}

// Schema returns the whole schema as SQL, for people with a migration tool of
// their own.
func Schema() string { return current().script() }

// SchemaYugabyte returns the whole schema as YugabyteDB wants it, for a release
// that is compatible with PostgreSQL 15.
func SchemaYugabyte() string { return yugabyte().script() }

// Articles returns the functions of the articles as SQL, for a database that has the whole schema: they are made in
// the schema of this name, unless something of somebody else's has one of their names there.
func Articles(schema string) string {
	d := current()
	return safely + d.articlesIn(schema) + "\n" + d.rights.sql + schemaTail
}

// articles are the names of these functions.
var articles = []string{
	"rate_limiting_request", "rate_limiting_token_bucket_request", "check_velocity", "request_token",
}

func (d *definition) articlesIn(schema string) string {
	return strings.NewReplacer("articles.", pgx.Identifier{schema}.Sanitize()+".",
		"'articles'", "'"+strings.ReplaceAll(schema, "'", "''")+"'").Replace(d.articles.sql)
}

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
		d.state, d.layout, d.revision, d.fingerprint(), d.names())
	b.WriteString(schemaTail)
	return b.String()
}

// safePath is the search_path under which the schema is made, and the one of its
// functions: nothing that others have made is found.
const safePath = "pg_catalog, pg_temp"

// The printed schema sets the search_path and gives the reader's own back. It replaces
// no functions that are newer.
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

` + safely
	safely = `-- Nothing that others have made, in schema public above all, may be taken for an
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
