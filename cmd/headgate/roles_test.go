package main

import (
	"context"
	"crypto/rand"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/migrated"

	"github.com/jackc/pgx/v5"
)

// execute runs an SQL statement in a database.
func execute(t *testing.T, dsn, sql string) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(context.Background(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// TestMigrateGrantsRoles grants two roles to users. Both users may take by SQL, only that of service by the command.
func TestMigrateGrantsRoles(t *testing.T) {
	store := migrated.Postgres(t)
	execute(t, store, `insert into headgate.limits (name, rule) values ('login', 'gcra 5/1h')`)
	for _, role := range []string{"app", "service"} {
		user := "headgate_" + strings.ToLower(rand.Text())
		execute(t, store, "create role "+user+" login")
		t.Cleanup(func() { execute(t, store, "drop owned by "+user+"; drop role "+user) })
		output := runCommand(t, exitOK, "migrate", "--store", store, "--role", role, "--user", user)
		if !strings.Contains(output, user+" may execute ") {
			t.Errorf("the role %s: got %s", role, output)
		}
		u, err := url.Parse(store)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.User(user)
		execute(t, u.String(), `select headgate.take('login', 'bob')`)
		code := exitOK
		if role == "app" {
			code = exitError
		}
		runCommand(t, code, "take", "--store", u.String(), "login", "bob")
	}
	runCommand(t, exitError, "migrate", "--store", store, "--role", "owner", "--user", "x")
	runCommand(t, exitError, "migrate", "--store", store, "--role", "app", "--user", "nobody of this name")
	runCommand(t, exitError, "migrate", "--store", store, "--role", "app")
}

// TestCommandsOnRequestTokenBuckets takes from a bucket, resets and blocks it by commands, and checks request_token.
func TestCommandsOnRequestTokenBuckets(t *testing.T) {
	store := migrated.Postgres(t)
	execute(t, store, `insert into headgate.buckets (id, capacity, refill_seconds) values ('payments', 1, 3600)`)
	requestToken := func() (granted int64) { // takes the token if there is one
		t.Helper()
		conn, err := pgx.Connect(t.Context(), store)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		if err := conn.QueryRow(t.Context(), `select count(*) from request_token('payments')`).Scan(&granted); err != nil {
			t.Fatal(err)
		}
		return granted
	}
	steps := []struct {
		args string
		code int
		want int64 // tokens that request_token grants afterwards
	}{
		{"take bucket.payments payments", exitOK, 0},
		{"inspect payments bucket.payments", exitOK, 0},
		{"take bucket.payments payments", exitRefused, 0},
		{"reset payments bucket.payments", exitOK, 1},
		{"reset payments bucket.payments", exitOK, 1},
		{"block payments bucket.payments --for 1h", exitOK, 0},
		{"reset payments bucket.payments", exitOK, 1},
	}
	for _, place := range [][]string{{"--store", store}, {"--server", startReady(t, t.TempDir(), "--store", store).url}} {
		for _, s := range steps {
			runCommand(t, s.code, append(strings.Fields(s.args), place...)...)
			if got := requestToken(); got != s.want {
				t.Errorf("after %s %s: got %d tokens, want %d", s.args, place[0], got, s.want)
			}
		}
		runCommand(t, exitOK, append([]string{"reset", "payments", "bucket.payments"}, place...)...)
	}
}
