package mysql_test

import (
	"strings"
	"testing"
)

// TestTablesAndProceduresHaveComments checks that each table and procedure has a comment in the database, and so have
// the columns of headgate_cells and some of headgate_limits. Views and triggers cannot have comments.
func TestTablesAndProceduresHaveComments(t *testing.T) {
	t.Parallel()
	db, _ := openDBAndStore(t)
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
		var uncommented string
		if err := db.QueryRowContext(t.Context(), query).Scan(&uncommented); err != nil {
			t.Fatal(err)
		}
		if uncommented != "" {
			t.Errorf("got %s without a comment: %s", what, strings.ReplaceAll(uncommented, ",", ", "))
		}
	}
}
