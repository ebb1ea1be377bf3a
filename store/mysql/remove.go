package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/store"
)

// revisionSuffix matches the revision in the name of a private procedure.
var revisionSuffix = regexp.MustCompile(`_[0-9]+$`)

// schemaObjects are the objects in a database that Migrate has made: sorted names by kind, which is table, trigger,
// view, procedure or article (a procedure of the articles).
type schemaObjects struct {
	names map[string][]string
	rows  map[string]int64 // the approximate number of rows of each table
}

// namesOfKind returns the names of the objects of a kind.
func namesOfKind(kind string, lists ...[]ddl) (names []string) {
	for _, s := range slices.Concat(lists...) {
		if s.kind == kind {
			names = append(names, s.name)
		}
	}
	return names
}

// ownProcedureMatcher returns a function that reports whether a procedure is Headgate's, by the rule of findObjects.
func (d *definition) ownProcedureMatcher(installed []string) func(name string) bool {
	for _, name := range namesOfKind("procedure", d.articles) {
		if strings.HasPrefix(name, "headgate_") {
			installed = append(installed, name)
		}
	}
	names, privateNames := d.procedureNames(), make(map[string]bool) // privateNames are without the revision
	for _, name := range names {
		if base := revisionSuffix.ReplaceAllString(name, ""); base != name {
			privateNames[base] = true
		}
	}
	return func(name string) bool {
		base := revisionSuffix.ReplaceAllString(name, "")
		return slices.Contains(names, name) || slices.Contains(installed, name) || base != name && privateNames[base]
	}
}

// findObjects returns the objects of Headgate in a database. A procedure is Headgate's if this binary makes it, if it
// is recorded as installed, or if it has the name of such a procedure with the number of another revision. If the
// database has tables that this binary does not know, the error is ErrSchemaNewer.
func findObjects(ctx context.Context, db querier, d *definition) (o schemaObjects, err error) {
	installed, err := readInstalled(ctx, db)
	switch {
	case err != nil:
		return o, err
	case installed.state > d.state || installed.state == d.state && installed.tables > len(d.tables):
		return o, fmt.Errorf("mysql: %w: the schema has state %d and %d tables' migrations, "+
			"this binary knows %d and %d", store.ErrSchemaNewer, installed.state, installed.tables, d.state,
			len(d.tables))
	}
	oneOf := func(names []string) func(string) bool {
		return func(name string) bool { return slices.Contains(names, name) }
	}
	isOwn := map[string]func(string) bool{
		"table":     oneOf(namesOfKind("table", d.tables...)),
		"view":      oneOf(namesOfKind("view", d.publicObjects)),
		"trigger":   oneOf(namesOfKind("trigger", d.triggers)),
		"procedure": d.ownProcedureMatcher(installed.names),
		"article":   func(string) bool { return true },
	}
	o = schemaObjects{make(map[string][]string), make(map[string]int64)}
	err = eachRow(ctx, db, `SELECT 'table', t.table_name, COALESCE(t.table_rows, 0) FROM information_schema.tables t
			WHERE t.table_schema = DATABASE() AND t.table_type = 'BASE TABLE'
		UNION ALL SELECT 'view', v.table_name, 0 FROM information_schema.views v WHERE v.table_schema = DATABASE()
		UNION ALL SELECT IF(r.routine_comment LIKE '`+articleComment+`%', 'article', 'procedure'), r.routine_name, 0
			FROM information_schema.routines r WHERE r.routine_schema = DATABASE() AND r.routine_type = 'PROCEDURE'
		UNION ALL SELECT 'trigger', g.trigger_name, 0 FROM information_schema.triggers g
			WHERE g.trigger_schema = DATABASE()
		ORDER BY 2`, func(r *sql.Rows) error {
		var kind, name string
		var rowCount int64
		if err := r.Scan(&kind, &name, &rowCount); err != nil {
			return err
		}
		if isOwn[kind](name) {
			o.names[kind], o.rows[name] = append(o.names[kind], name), rowCount
		}
		return nil
	})
	if err != nil {
		return o, fmt.Errorf("list what there is: %w", err)
	}
	return o, nil
}

// Removal implements store.Migrator. It needs no schema: without one there is nothing to remove.
func (s *Store) Removal(ctx context.Context) (lines []string, err error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	err = s.onAnyNode(func(db querier) error {
		o, err := findObjects(ctx, db, s.def)
		switch {
		case errors.Is(err, store.ErrSchemaNewer):
			return err
		case err != nil:
			return classifyRead("list what there is", err)
		}
		lines = nil
		for _, name := range o.names["table"] {
			lines = append(lines, fmt.Sprintf("table %s, about %d rows", name, o.rows[name]))
		}
		for _, kind := range []string{"trigger", "view"} {
			for _, name := range o.names[kind] {
				lines = append(lines, kind+" "+name)
			}
		}
		if n := len(o.names["procedure"]); n > 0 {
			lines = append(lines, strconv.Itoa(n)+" procedures whose names begin with headgate_")
		}
		for _, name := range o.names["article"] {
			lines = append(lines, "procedure "+name)
		}
		return nil
	})
	return lines, err
}

// Remove implements store.Migrator. Each statement commits by itself. The first one drops the table by which a binary
// recognizes the schema. So after an interrupted removal a program that starts fails with ErrSetup, Migrate makes what
// is missing, and Remove removes the rest. It waits for transactions that use the tables, for up to a minute.
func (s *Store) Remove(ctx context.Context) error {
	err := s.administer(ctx, "remove", func(conn *sql.Conn) error {
		err := withMigrationLock(ctx, conn, func() error { return s.removeOn(ctx, conn) })
		if err == nil || errors.Is(err, store.ErrSchemaNewer) {
			return err
		}
		return classify("remove", err)
	})
	if err == nil {
		s.checked.Store(false)
	}
	return err
}

// removeOn removes all objects on a connection.
func (s *Store) removeOn(ctx context.Context, conn *sql.Conn) error {
	o, err := findObjects(ctx, conn, s.def)
	if err != nil {
		return err
	}
	// headgate_installed has the names of procedures of other revisions, so it is dropped last.
	const firstTable, lastTable = "headgate_schema_version", "headgate_installed"
	drop := []string{"DROP TABLE IF EXISTS " + firstTable}
	for _, k := range [...]struct{ kind, word string }{
		{"view", "VIEW"},
		{"trigger", "TRIGGER"},
		{"article", "PROCEDURE"},
		{"procedure", "PROCEDURE"},
		{"table", "TABLE"},
	} {
		for _, name := range o.names[k.kind] {
			if name != firstTable && name != lastTable {
				drop = append(drop, "DROP "+k.word+" IF EXISTS "+name)
			}
		}
	}
	return execEach(ctx, conn, append(drop, "DROP TABLE IF EXISTS "+lastTable)...)
}
