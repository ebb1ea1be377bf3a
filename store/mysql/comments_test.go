package mysql_test

import (
	"strings"
	"testing"
)

// TestObjectsSayWhatTheyAre looks for a comment on each table and procedure, and on the columns that
// people read. Views and triggers cannot have one.
func TestObjectsSayWhatTheyAre(t *testing.T) {
	t.Parallel()
	db, _ := client(t)
	for what, query := range map[string]string{
		"tables": "SELECT COALESCE(GROUP_CONCAT(table_name), '') FROM information_schema.tables " +
			"WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE' AND table_comment = ''",
		"procedures": "SELECT COALESCE(GROUP_CONCAT(routine_name), '') FROM information_schema.routines " +
			"WHERE routine_schema = DATABASE() AND routine_comment = ''",
		"columns of headgate_cells": "SELECT COALESCE(GROUP_CONCAT(column_name), '') FROM information_schema.columns " +
			"WHERE table_schema = DATABASE() AND table_name = 'headgate_cells' AND column_comment = ''",
		"columns of headgate_limits": "SELECT COALESCE(GROUP_CONCAT(column_name), '') FROM information_schema.columns " +
			"WHERE table_schema = DATABASE() AND table_name = 'headgate_limits' AND column_comment = '' " +
			"AND column_name IN ('rule', 'rule_compiled', 'origin', 'retired')",
	} {
		var without string
		if err := db.QueryRowContext(t.Context(), query).Scan(&without); err != nil {
			t.Fatal(err)
		}
		if without != "" {
			t.Errorf("%s without a comment: %s", what, strings.ReplaceAll(without, ",", ", "))
		}
	}
}
