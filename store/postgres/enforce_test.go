package postgres_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// refusalDetail is the JSON in the detail of the error that headgate.enforce raises, except for PostgREST.
type refusalDetail struct {
	Limit      string
	Remaining  int64
	RetryAfter *float64 `json:"retry_after"`
}

// enforceError returns the error that the server reports for a statement. It fails the test if there is none.
func enforceError(t *testing.T, conn *pgx.Conn, sql string) *pgconn.PgError {
	t.Helper()
	_, err := conn.Exec(t.Context(), sql)
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		t.Fatalf("%s: got %v, want an error of the server", sql, err)
	}
	return pg
}

// TestEnforceRaisesRefusals checks the errors of refusals, without and with PostgREST's setting of the request.
func TestEnforceRaisesRefusals(t *testing.T) {
	t.Parallel()
	conn, _ := openSession(t)
	mustExec(t, conn, `insert into headgate.limits (name, rule) values ('api', 'token-bucket 2/1h')`)
	for range 2 {
		if got := queryText(t, conn, `select allowed, retry_after from headgate.enforce('api', 'bob')`); got != "t 00:00:00" {
			t.Fatalf("enforce: got %s, want t 00:00:00", got)
		}
	}
	const hint = "The cost is more than can ever pass at once."
	for _, tt := range []struct {
		sql                 string
		hasDelay, neverFits bool
	}{{`select headgate.enforce('api', 'bob')`, true, false}, {`select headgate.enforce('api', 'bob', 3)`, false, true}} {
		pg := enforceError(t, conn, tt.sql)
		var detail refusalDetail
		err := json.Unmarshal([]byte(pg.Detail), &detail)
		if err != nil || pg.Code != "PT429" || detail.Limit != "api" ||
			(detail.RetryAfter == nil) != tt.neverFits || (pg.Hint == hint) != tt.neverFits ||
			tt.hasDelay && (*detail.RetryAfter < 1000 || *detail.RetryAfter > 1800) { // half an hour, or less
			t.Errorf("%s: got %+v, %v; want PT429", tt.sql, pg, err)
		}
	}
	if got := queryText(t, conn, `select remaining, level from headgate.take_up_to('api', 'bob', 2)`); got[:2] != "0 " {
		t.Errorf("take_up_to after refusals: got %s, want 0 remaining", got)
	}

	// With PostgREST's setting of the request, enforce raises an error in the format of PostgREST.
	mustExec(t, conn, `select set_config('request.method', 'POST', false)`)
	for sql, neverFits := range map[string]bool{`select headgate.enforce('api', 'bob')`: false, `select headgate.enforce('api', 'bob', 3)`: true} {
		pg := enforceError(t, conn, sql)
		var message struct{ Code, Message, Details, Hint string }
		var detail struct {
			Status  int
			Headers map[string]string
		}
		err := errors.Join(json.Unmarshal([]byte(pg.Message), &message), json.Unmarshal([]byte(pg.Detail), &detail))
		if err != nil || pg.Code != "PGRST" || message.Code != "PT429" || message.Message == "" ||
			detail.Status != 429 || (detail.Headers["Retry-After"] == "") != neverFits || len(detail.Headers["Retry-After"]) > 4 ||
			(message.Hint == hint) != neverFits {
			t.Errorf("%s: got %+v, %v; want PGRST with status 429", sql, pg, err)
		}
	}
}

// TestEnforceRejectsLimitsThatWriteAtARefusal checks that enforce fails for limits with a block or a history, also by
// an override: its error would roll back the block or the entry. Nothing must be charged.
func TestEnforceRejectsLimitsThatWriteAtARefusal(t *testing.T) {
	t.Parallel()
	conn, _ := openSession(t)
	mustExec(t, conn, `insert into headgate.limits (name, rule) values ('api', 'fixed-window 2/30d'), ('blocking', 'fixed-window 2/30d block 1h'),
			('listed', 'sliding-log 2/1h history 1d'), ('zoned', 'sliding-log 2/1h');
		insert into headgate.catalog (kind, name, key, text, until) values ('override', 'api', 'watched', 'fixed-window 2/30d block 1h', 0),
			('override', 'blocking', 'free', 'fixed-window 2/30d', 0)`)
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
			t.Errorf("%s: got SQLSTATE %q, %v; want %q", sql, got, err, want)
		}
	}
	if got := queryText(t, conn, `select count(*) from headgate.cells where limit_name = 'listed' or key = 'watched' or
		limit_name = 'blocking' and key = 'bob'`); got != "0" {
		t.Errorf("got %s cells of rejected calls, want 0", got)
	}
	// PostgREST serves a GET in a read-only transaction, in which enforce fails.
	mustExec(t, conn, `begin read only`)
	if pg := enforceError(t, conn, `select headgate.enforce('api', 'bob')`); pg.Code != "25006" {
		t.Errorf("a read-only transaction: got %v, want SQLSTATE 25006", pg)
	}
}
