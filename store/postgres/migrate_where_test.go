package postgres_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/postgres"
)

// TestMigrateNamesTheSchemasToCreate checks the statements in the error for a role that may not create schemas, with no
// schema and with one of the two, as after an older migration.
func TestMigrateNamesTheSchemasToCreate(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Postgres(t)
	conn := connect(t, dsn)
	app, url := createOrdinaryRole(t, conn)
	s, err := postgres.Open(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	internal := "create schema headgate_internal authorization " + app
	for _, remedy := range []string{"create schema headgate authorization " + app + "; " + internal, internal} {
		report, err := s.Migrate(t.Context())
		if !errors.Is(err, store.ErrSetup) || !strings.HasSuffix(err.Error(), "execute: "+remedy) {
			t.Errorf("Migrate: got %q, %v; want the remedy %s", report, err, remedy)
		}
		firstStatement, _, _ := strings.Cut(remedy, ";")
		mustExec(t, conn, firstStatement)
	}
	if _, err := s.Migrate(t.Context()); err != nil {
		t.Errorf("Migrate with both schemas: %v", err)
	}
}

// TestMigrateMakesArticlesInTheirSchemaOnly checks that only the schema of Config.Articles has the articles' functions,
// that Grant covers them, and that Remove drops them.
func TestMigrateMakesArticlesInTheirSchemaOnly(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Postgres(t)
	conn := connect(t, dsn)
	schemasWithArticles := func() (list string) {
		if err := conn.QueryRow(t.Context(), `select coalesce(string_agg(distinct n.nspname, ' '), '') from pg_proc p
			join pg_namespace n on n.oid = p.pronamespace where p.proname in ('check_velocity', 'rate_limiting_request', 'request_token')`).
			Scan(&list); err != nil {
			t.Fatal(err)
		}
		return list
	}
	openAt(t, dsn)
	if list := schemasWithArticles(); list != "" {
		t.Errorf("without Config.Articles: got functions in %s, want none", list)
	}
	s, err := postgres.Open(t.Context(), dsn, &postgres.Config{Articles: "of five Articles"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Migrate(t.Context()); !errors.Is(err, store.ErrSetup) ||
		!strings.Contains(err.Error(), "no such schema") {
		t.Errorf("Migrate without the schema: got %v, want ErrSetup: no such schema", err)
	}
	mustExec(t, conn, `create schema "of five Articles"`)
	if report, err := s.Migrate(t.Context()); err != nil ||
		!strings.Contains(fmt.Sprint(report), "in schema of five Articles") {
		t.Errorf("Migrate: got %q, %v; want the schema in the report", report, err)
	}
	if list := schemasWithArticles(); list != "of five Articles" {
		t.Errorf("got functions in %s, want of five Articles", list)
	}
	user, _ := createOrdinaryRole(t, conn)
	if _, err := s.Grant(t.Context(), store.RoleApp, user); err != nil {
		t.Fatal(err)
	}
	mustExec(t, conn, `insert into headgate.zones (id, rate, window_seconds) values (1, 5, 60); set role `+user)
	var blocked int
	if err := conn.QueryRow(t.Context(), `select blocked from "of five Articles".check_velocity(1, 'k')`).Scan(&blocked); err != nil || blocked != 0 {
		t.Errorf("check_velocity: got blocked %d, %v; want 0", blocked, err)
	}
	mustExec(t, conn, `reset role`)
	if err := s.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if list := schemasWithArticles(); list != "" {
		t.Errorf("after Remove: got functions in %s, want none", list)
	}
}
