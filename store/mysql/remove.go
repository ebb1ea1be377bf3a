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

var numbered = regexp.MustCompile(`_[0-9]+$`)

// left is what a database has of what Migrate makes: the names of tables, triggers, views, procedures and articles by
// these kinds, each in order.
type left struct {
	names map[string][]string
	rows  map[string]int64 // of tables, about
}

// namesOfKind returns the names that a definition gives to things of a kind.
func namesOfKind(kind string, lists ...[]ddl) (names []string) {
	for _, s := range slices.Concat(lists...) {
		if s.kind == kind {
			names = append(names, s.name)
		}
	}
	return names
}

// ours returns the condition by which a procedure is one of Headgate's.
func (d *definition) ours(installed []string) func(name string) bool {
	for _, name := range namesOfKind("procedure", d.articles) {
		if strings.HasPrefix(name, "headgate_") {
			installed = append(installed, name)
		}
	}
	names, inner := d.names(), make(map[string]bool)
	for _, name := range names {
		if base := numbered.ReplaceAllString(name, ""); base != name {
			inner[base] = true
		}
	}
	return func(name string) bool {
		base := numbered.ReplaceAllString(name, "")
		return slices.Contains(names, name) || slices.Contains(installed, name) || base != name && inner[base]
	}
}

// lookFor finds what is left. Procedures are ours that this binary makes, that are recorded as
// installed, or that another revision makes under the name of one of these with its own number. A
// database with tables that this binary does not know is ErrSchemaNewer.
func lookFor(ctx context.Context, db querier, d *definition) (l left, err error) {
	have, err := readInstalled(ctx, db)
	switch {
	case err != nil:
		return l, err
	case have.state > d.state || have.state == d.state && have.tables > len(d.tables):
		return l, fmt.Errorf("mysql: %w: the schema has state %d and %d tables' migrations, "+
			"this binary knows %d and %d", store.ErrSchemaNewer, have.state, have.tables, d.state, len(d.tables))
	}
	among := func(names []string) func(string) bool {
		return func(name string) bool { return slices.Contains(names, name) }
	}
	own := map[string]func(string) bool{
		"table":     among(namesOfKind("table", d.tables...)),
		"view":      among(namesOfKind("view", d.plain)),
		"trigger":   among(namesOfKind("trigger", d.triggers)),
		"procedure": d.ours(have.names),
		"article":   func(string) bool { return true },
	}
	l = left{make(map[string][]string), make(map[string]int64)}
	err = eachRow(ctx, db, `SELECT 'table', t.table_name, COALESCE(t.table_rows, 0) FROM information_schema.tables t
			WHERE t.table_schema = DATABASE() AND t.table_type = 'BASE TABLE'
		UNION ALL SELECT 'view', v.table_name, 0 FROM information_schema.views v WHERE v.table_schema = DATABASE()
		UNION ALL SELECT IF(r.routine_comment LIKE '`+ours+`%', 'article', 'procedure'), r.routine_name, 0
			FROM information_schema.routines r WHERE r.routine_schema = DATABASE() AND r.routine_type = 'PROCEDURE'
		UNION ALL SELECT 'trigger', g.trigger_name, 0 FROM information_schema.triggers g
			WHERE g.trigger_schema = DATABASE()
		ORDER BY 2`, func(r *sql.Rows) error {
		var kind, name string
		var n int64
		if err := r.Scan(&kind, &name, &n); err != nil {
			return err
		}
		if own[kind](name) {
			l.names[kind], l.rows[name] = append(l.names[kind], name), n
		}
		return nil
	})
	if err != nil {
		return l, fmt.Errorf("list what there is: %w", err)
	}
	return l, nil
}

// Removal implements store.Migrator. It needs no schema: without one there is nothing to remove.
func (s *Store) Removal(ctx context.Context) (lines []string, err error) {
	if s.closed.Load() {
		return nil, store.ErrClosed
	}
	err = s.anywhere(func(db querier) error {
		l, err := lookFor(ctx, db, s.def)
		switch {
		case errors.Is(err, store.ErrSchemaNewer):
			return err
		case err != nil:
			return classifyRead("list what there is", err)
		}
		lines = nil
		for _, name := range l.names["table"] {
			lines = append(lines, fmt.Sprintf("table %s, about %d rows", name, l.rows[name]))
		}
		for _, kind := range []string{"trigger", "view"} {
			for _, name := range l.names[kind] {
				lines = append(lines, kind+" "+name)
			}
		}
		if n := len(l.names["procedure"]); n > 0 {
			lines = append(lines, strconv.Itoa(n)+" procedures whose names begin with headgate_")
		}
		for _, name := range l.names["article"] {
			lines = append(lines, "procedure "+name)
		}
		return nil
	})
	return lines, err
}

// Remove implements store.Migrator. Each statement commits by itself here. The first one takes the
// mark away by which a binary knows that there is a schema, so after a removal that was cut off
// programs fail with ErrSetup, Migrate makes again what is missing, and Remove removes the rest. It waits for
// transactions that use the tables.
func (s *Store) Remove(ctx context.Context) error {
	err := s.administer(ctx, "remove", func(conn *sql.Conn) error {
		err := withMigrationLock(ctx, conn, func() error { return s.removeAt(ctx, conn) })
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

// removeAt removes what there is.
func (s *Store) removeAt(ctx context.Context, conn *sql.Conn) error {
	l, err := lookFor(ctx, conn, s.def)
	if err != nil {
		return err
	}
	// headgate_installed has the names of procedures of other revisions, so it is the last.
	const first, last = "headgate_schema_version", "headgate_installed"
	drop := []string{"DROP TABLE IF EXISTS " + first}
	for _, k := range [...]struct{ kind, word string }{
		{"view", "VIEW"},
		{"trigger", "TRIGGER"},
		{"article", "PROCEDURE"},
		{"procedure", "PROCEDURE"},
		{"table", "TABLE"},
	} {
		for _, name := range l.names[k.kind] {
			if name != first && name != last {
				drop = append(drop, "DROP "+k.word+" IF EXISTS "+name)
			}
		}
	}
	for _, text := range append(drop, "DROP TABLE IF EXISTS "+last) {
		if _, err := conn.ExecContext(ctx, text); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
	}
	return nil
}
