package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
)

// makeTriggers makes the triggers that record changes by hand, unless the database has the same ones. Every
// migration calls it, since somebody may have dropped them. A server with a binary log lets only some users make
// triggers; for other users the report says so.
func (m *migrator) makeTriggers(ctx context.Context) error {
	bodies, err := readTriggers(ctx, m.conn)
	if err != nil {
		return err
	}
	made := false
	for i, s := range m.triggers { // DROP stands before CREATE
		_, body, _ := strings.Cut(s.text, " for each row\n")
		if s.kind == "drop" || bodies[s.name] == body {
			continue
		}
		err := m.execute(ctx, m.triggers[i-1:i+1])
		if number, text := numberOf(err); slices.Contains(noTriggerRight, number) {
			m.addLine("left out the triggers: what is changed by hand in headgate_limits and headgate_catalog is not "+
				"checked, makes no version, and running processes do not notice it (%s)", text)
			return nil
		}
		if err != nil {
			return err
		}
		made = true
	}
	if made { // run the triggers for the existing zones and buckets
		m.addLine("installed the triggers")
		return execEach(ctx, m.conn, "UPDATE headgate_zones SET description = description",
			"UPDATE headgate_buckets SET capacity = capacity")
	}
	return nil
}

// noTriggerRight are the errors of a user who may not make triggers: without the right, or with a binary log and
// without log_bin_trust_function_creators.
var noTriggerRight = []uint16{1142, 1227, 1419}

// readTriggers returns the bodies of the triggers in the database, by name, of those made under migrationMode. A user
// who may not make triggers sees none.
func readTriggers(ctx context.Context, db querier) (map[string]string, error) {
	bodies := make(map[string]string)
	err := eachRow(ctx, db, `SELECT trigger_name, action_statement, sql_mode
		FROM information_schema.triggers WHERE trigger_schema = DATABASE()`, func(r *sql.Rows) error {
		var name, body, sqlMode string
		err := r.Scan(&name, &body, &sqlMode)
		if strings.Contains(migrationMode, "'"+sqlMode+"'") {
			bodies[name] = strings.TrimSpace(body)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the triggers: %w", err)
	}
	return bodies, nil
}
