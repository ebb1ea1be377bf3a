package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
)

// makeTriggers makes the triggers that note changes by hand, unless those in the database
// are just these, and returns a line about it. It looks each time, since they may be gone by
// now. A server with a binary log lets only some users make triggers.
func (m *migrator) makeTriggers(ctx context.Context) (line string, err error) {
	have, err := haveTriggers(ctx, m.conn)
	if err != nil {
		return "", err
	}
	for i, s := range m.triggers { // DROP stands before CREATE
		_, body, _ := strings.Cut(s.text, " for each row\n")
		if s.kind == "drop" || have[s.name] == body {
			continue
		}
		err := m.execute(ctx, m.triggers[i-1:i+1])
		if number, text := numberOf(err); slices.Contains(notAllowed, number) {
			return "left out the triggers: what is changed by hand in headgate_limits and headgate_catalog is not " +
				"checked, makes no version, and running processes do not notice it (" + text + ")", nil
		}
		if err != nil {
			return "", err
		}
		line = "installed the triggers"
	}
	if line != "" { // for the zones and buckets that are there
		for _, text := range []string{
			"UPDATE headgate_zones SET description = description", "UPDATE headgate_buckets SET capacity = capacity",
		} {
			if _, err := m.conn.ExecContext(ctx, text); err != nil {
				return "", fmt.Errorf("%s: %w", text, err)
			}
		}
	}
	return line, nil
}

// notAllowed are the errors of a user who may not make triggers: no right to it; a binary
// log without log_bin_trust_function_creators.
var notAllowed = []uint16{1142, 1227, 1419}

// haveTriggers returns what the triggers in the database do, by their names. A user who may
// not make them sees none.
func haveTriggers(ctx context.Context, db querier) (map[string]string, error) {
	have := make(map[string]string)
	err := eachRow(ctx, db, `SELECT trigger_name, action_statement, sql_mode
		FROM information_schema.triggers WHERE trigger_schema = DATABASE()`, func(r *sql.Rows) error {
		var name, body, made string
		err := r.Scan(&name, &body, &made)
		if strings.Contains(mode, "'"+made+"'") {
			have[name] = strings.TrimSpace(body)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the triggers: %w", err)
	}
	return have, nil
}
