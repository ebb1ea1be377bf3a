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

// TestARoleThatMayMakeNoSchemasGetsAClearError, also if one of the two schemas exists, as after an older migration.
func TestARoleThatMayMakeNoSchemasGetsAClearError(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Postgres(t)
	conn := connect(t, dsn)
	app, url := ordinary(t, conn)
	s, err := postgres.Open(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	internal := "create schema headgate_internal authorization " + app
	for _, remedy := range []string{"create schema headgate authorization " + app + "; " + internal, internal} {
		report, err := s.Migrate(t.Context())
		if !errors.Is(err, store.ErrSetup) || !strings.HasSuffix(err.Error(), "execute: "+remedy) {
			t.Errorf("%q, %v; want %s", report, err, remedy)
		}
		first, _, _ := strings.Cut(remedy, ";")
		if _, err := conn.Exec(t.Context(), first); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Migrate(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestArticlesAreMadeWhereAsked makes the articles' functions in one schema, and checks that no other has them.
func TestArticlesAreMadeWhereAsked(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Postgres(t)
	conn := connect(t, dsn)
	count := func() (list string) {
		if err := conn.QueryRow(t.Context(), `select coalesce(string_agg(distinct n.nspname, ' '), '') from pg_proc p
			join pg_namespace n on n.oid = p.pronamespace where p.proname in ('check_velocity', 'rate_limiting_request', 'request_token')`).
			Scan(&list); err != nil {
			t.Fatal(err)
		}
		return list
	}
	openAt(t, dsn)
	if list := count(); list != "" {
		t.Errorf("nobody has asked for them, and they are in %s", list)
	}
	in, err := postgres.Open(t.Context(), dsn, &postgres.Config{Articles: "of five Articles"})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if _, err := in.Migrate(t.Context()); !errors.Is(err, store.ErrSetup) ||
		!strings.Contains(err.Error(), "no such schema") {
		t.Errorf("there is no schema: %v", err)
	}
	if _, err := conn.Exec(t.Context(), `create schema "of five Articles"`); err != nil {
		t.Fatal(err)
	}
	if report, err := in.Migrate(t.Context()); err != nil ||
		!strings.Contains(fmt.Sprint(report), "in schema of five Articles") {
		t.Errorf("%q, %v", report, err)
	}
	if list := count(); list != "of five Articles" {
		t.Errorf("they are in %s", list)
	}
	user, _ := ordinary(t, conn)
	if _, err := in.Grant(t.Context(), store.RoleApp, user); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), `insert into headgate.zones (id, rate, window_seconds) values (1, 5, 60); set role `+user); err != nil {
		t.Fatal(err)
	}
	var left int
	if err := conn.QueryRow(t.Context(), `select blocked from "of five Articles".check_velocity(1, 'k')`).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d, %v", left, err)
	}
	if _, err := conn.Exec(t.Context(), `reset role`); err != nil {
		t.Fatal(err)
	}
	if err := in.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if list := count(); list != "" {
		t.Errorf("they are left in %s", list)
	}
}
