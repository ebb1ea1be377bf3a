package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/migrated"

	"github.com/jackc/pgx/v5"
)

func execute(t *testing.T, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(context.Background(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// TestMigrateGivesRoles grants both roles, and takes as their users.
func TestMigrateGivesRoles(t *testing.T) {
	store := migrated.Postgres(t)
	execute(t, store, `insert into headgate.limits (name, rule) values ('login', 'gcra 5/1h')`)
	for _, role := range []string{"app", "service"} {
		user := "headgate_" + strings.ToLower(rand.Text())
		execute(t, store, "create role "+user+" login")
		t.Cleanup(func() { execute(t, store, "drop owned by "+user+"; drop role "+user) })
		if said := command(t, exitOK, "migrate", "--store", store, "--role", role, "--user", user); !strings.Contains(
			said, user+" may execute ") {
			t.Errorf("%s: %s", role, said)
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
		command(t, code, "take", "--store", u.String(), "login", "bob")
	}
	command(t, exitError, "migrate", "--store", store, "--role", "owner", "--user", "x")
	command(t, exitError, "migrate", "--store", store, "--role", "app", "--user", "nobody of this name")
	command(t, exitError, "migrate", "--store", store, "--role", "app")
}

// TestBucketsByCommand empties a bucket of request_token, and fills it again.
func TestBucketsByCommand(t *testing.T) {
	store := migrated.Postgres(t)
	execute(t, store, `insert into headgate.buckets (id, capacity, refill_seconds) values ('payments', 1, 3600)`)
	token := func() (n int64) {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), store)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		if err := conn.QueryRow(t.Context(), `select count(*) from request_token('payments')`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	steps := []struct {
		args string
		code int
		want int64
	}{
		{"take bucket.payments payments", exitOK, 0},
		{"inspect payments bucket.payments", exitOK, 0},
		{"take bucket.payments payments", exitRefused, 0},
		{"reset payments bucket.payments", exitOK, 1},
		{"reset payments bucket.payments", exitOK, 1},
		{"block payments bucket.payments --for 1h", exitOK, 0},
		{"reset payments bucket.payments", exitOK, 1},
	}
	for _, at := range [][]string{{"--store", store}, {"--server", startReady(t, t.TempDir(), "--store", store).url}} {
		for _, s := range steps {
			command(t, s.code, append(strings.Fields(s.args), at...)...)
			if got := token(); got != s.want {
				t.Errorf("after %s %s: %s", s.args, at[0], fmt.Sprint(got, " tokens"))
			}
		}
		command(t, exitOK, append([]string{"reset", "payments", "bucket.payments"}, at...)...)
	}
}
