package postgres_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// refusal is the detail of a refusal of headgate.enforce.
type refusal struct {
	Limit      string
	Remaining  int64
	RetryAfter *float64 `json:"retry_after"`
}

func enforceError(t *testing.T, conn *pgx.Conn, sql string) *pgconn.PgError {
	t.Helper()
	_, err := conn.Exec(t.Context(), sql)
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		t.Fatalf("%s: %v, want an error of the server's", sql, err)
	}
	return pg
}

// TestEnforceRaises checks the error of a refusal, for people and for PostgREST.
func TestEnforceRaises(t *testing.T) {
	t.Parallel()
	conn, _ := session(t)
	if _, err := conn.Exec(t.Context(), `insert into headgate.limits (name, rule) values ('api', 'token-bucket 2/1h')`); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := textOf(t, conn, `select allowed, retry_after from headgate.enforce('api', 'bob')`); got != "t 00:00:00" {
			t.Fatal(got)
		}
	}
	const hint = "The cost is more than can ever pass at once."
	for _, tt := range []struct {
		sql          string
		least, never bool
	}{{`select headgate.enforce('api', 'bob')`, true, false}, {`select headgate.enforce('api', 'bob', 3)`, false, true}} {
		pg := enforceError(t, conn, tt.sql)
		var r refusal
		if err := json.Unmarshal([]byte(pg.Detail), &r); err != nil || pg.Code != "PT429" || r.Limit != "api" ||
			(r.RetryAfter == nil) != tt.never || tt.least && (*r.RetryAfter < 1000 || *r.RetryAfter > 1800) ||
			(pg.Hint == hint) != tt.never {
			t.Errorf("%s: %+v, %v", tt.sql, pg, err)
		}
	}
	if got := textOf(t, conn, `select remaining, level from headgate.take_up_to('api', 'bob', 2)`); got[:2] != "0 " {
		t.Errorf("a refusal has charged: %s", got)
	}

	// PostgREST puts the request into settings of the transaction.
	if _, err := conn.Exec(t.Context(), `select set_config('request.method', 'POST', false)`); err != nil {
		t.Fatal(err)
	}
	for sql, never := range map[string]bool{`select headgate.enforce('api', 'bob')`: false, `select headgate.enforce('api', 'bob', 3)`: true} {
		pg := enforceError(t, conn, sql)
		var message struct{ Code, Message, Details, Hint string }
		var detail struct {
			Status  int
			Headers map[string]string
		}
		err := errors.Join(json.Unmarshal([]byte(pg.Message), &message), json.Unmarshal([]byte(pg.Detail), &detail))
		if err != nil || pg.Code != "PGRST" || message.Code != "PT429" || message.Message == "" ||
			detail.Status != 429 ||
			(detail.Headers["Retry-After"] == "") != never || len(detail.Headers["Retry-After"]) > 4 || (message.Hint == hint) != never {
			t.Errorf("%s: %+v, %v", sql, pg, err)
		}
	}
}

// TestEnforceUndoesNoBlock calls enforce with limits that write something at a refusal. That is an error, also
// for a key that has such a limit by an override, and nothing is charged.
func TestEnforceUndoesNoBlock(t *testing.T) {
	t.Parallel()
	conn, _ := session(t)
	if _, err := conn.Exec(t.Context(), `insert into headgate.limits (name, rule) values ('api', 'fixed-window 2/30d'), ('blocking', 'fixed-window 2/30d block 1h'),
			('listed', 'sliding-log 2/1h history 1d'), ('zoned', 'sliding-log 2/1h');
		insert into headgate.catalog (kind, name, key, text, until) values ('override', 'api', 'watched', 'fixed-window 2/30d block 1h', 0),
			('override', 'blocking', 'free', 'fixed-window 2/30d', 0)`); err != nil {
		t.Fatal(err)
	}
	for sql, want := range map[string]string{
		`select headgate.enforce('blocking', 'bob')`:            "0A000",
		`select headgate.enforce('listed', 'bob')`:              "0A000",
		`select headgate.enforce('api', 'watched')`:             "0A000",
		`select headgate.enforce('blocking', 'free')`:           "",
		`select headgate.enforce('zoned', 'bob')`:               "",
		`select headgate.enforce('api', 'bob')`:                 "",
		`select headgate.enforce('fixed-window 3/30d', 'bob')`:  "",
		`select headgate.enforce('fixed-window 3/1h', 'b', 4)`:  "PT429",
		`select headgate.enforce('sliding-log 3/1h', 'bob', 4)`: "PT429",
	} {
		_, err := conn.Exec(t.Context(), sql)
		if got := sqlstateOf(t, err); got != want {
			t.Errorf("%s: %s %v, want %s", sql, got, err, want)
		}
	}
	if got := textOf(t, conn, `select count(*) from headgate.cells where limit_name = 'listed' or key = 'watched'`); got != "0" {
		t.Errorf("%s cells were charged", got)
	}
	// A GET of PostgREST is read-only: it has to be charged elsewhere.
	if _, err := conn.Exec(t.Context(), `begin read only`); err != nil {
		t.Fatal(err)
	}
	if pg := enforceError(t, conn, `select headgate.enforce('api', 'bob')`); pg.Code != "25006" {
		t.Errorf("in a transaction that only reads: %v", pg)
	}
}
