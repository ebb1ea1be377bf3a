package postgres_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/postgres"
)

// TestAnswersThatCannotBeReadAreUnknownOutcomes makes the server return nonsense after a charge.
func TestAnswersThatCannotBeReadAreUnknownOutcomes(t *testing.T) {
	t.Parallel()
	dsn := migrated.Postgres(t)
	conn := connect(t, dsn)
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s := postgres.New(pool, nil)
	ask := func(s *postgres.Store, n int, id string) error {
		ops, outs := make([]law.Op, n), make([]law.Outcome, n)
		for i := range ops {
			ops[i] = request(id, 1000)
			ops[i].Cell.Key, ops[i].Group = string(rune('a'+i)), uint32(i)
			if i > 0 { // then headgate_internal.apply decides, in the same call
				ops[i].Ceiling = ops[i].Params.Capacity
			}
		}
		err := s.Apply(context.Background(), ops, outs)
		for i := range outs {
			if err != nil && outs[i] != (law.Outcome{}) {
				t.Errorf("an outcome of what failed: %+v", outs[i])
			}
		}
		return err
	}
	if err := ask(s, 1, ""); err != nil {
		t.Fatal(err)
	}
	for _, answer := range []string{"'{1,2,3}'", "'{}'", "null", "array[null::bigint]"} {
		if _, err := conn.Exec(t.Context(), `
			create or replace function headgate_internal.apply_1(
				p_limits text[], p_keys text[], p_modes smallint[], p_ops bigint[], p_notes text[])
			returns bigint[] language sql volatile as $$ select `+answer+`::bigint[] $$;
			create or replace function headgate_internal.apply_plain_1(
				p_limits text[], p_keys text[], p_modes smallint[], p_ops bigint[], p_notes text[],
				p_prints bigint[], p_parts int[])
			returns bigint[] language sql volatile as $$ select `+answer+`::bigint[] $$;
			create or replace function headgate_internal.take_one_1(
				p_limit text, p_key text, p_anchor bigint, p_unit bigint, p_capacity bigint, p_step bigint,
				p_drain bigint, p_block bigint, p_cost bigint, p_now bigint)
			returns bigint[] language sql volatile as $$ select `+answer+`::bigint[] $$`); err != nil {
			t.Fatal(err)
		}
		for name, err := range map[string]error{
			"one": ask(s, 1, ""), "plain": ask(s, 2, ""),
			"by id": ask(s, 1, "id"),
		} {
			if !errors.Is(err, store.ErrUnknownOutcome) {
				t.Errorf("%s, answered with %s: %v", name, answer, err)
			}
		}
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := ask(s.InTx(tx), 1, ""); !errors.Is(err, store.ErrUnknownOutcome) {
			t.Errorf("in the caller's transaction, answered with %s: %v", answer, err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCancelledStatementsHaveDoneNothing holds a row until the server gives up:
// the error says that nothing was done, and the statement is not repeated.
func TestCancelledStatementsHaveDoneNothing(t *testing.T) {
	t.Parallel()
	dsn := migrated.Postgres(t)
	s := openAt(t, dsn)
	applyOp(t, s, request("", 0))
	limited, err := postgres.Open(t.Context(), dsn+"?statement_timeout=3000", nil) // too short to migrate
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { limited.Close() })
	other := connect(t, dsn)
	hold, err := other.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := hold.Exec(t.Context(), "select from headgate.cells for update"); err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.New(t.Context(), dsn+"?statement_timeout=3000")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*postgres.Store{"alone": limited, "in the caller's transaction": limited.InTx(tx)} {
		err := s.Apply(t.Context(), []law.Op{request("", 0)}, make([]law.Outcome, 1))
		if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrUnknownOutcome) || s.Info().Retries != 0 {
			t.Errorf("%s: %v after %d retries", name, err, s.Info().Retries)
		}
	}
	if err := s.InTx(tx).Apply(t.Context(), []law.Op{request("", 0)}, make([]law.Outcome, 1)); !errors.Is(
		err, store.ErrInvalid) {
		t.Errorf("in a transaction that has failed: %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	if err := hold.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	if out := applyOp(t, s, request("", 0)); out.Used != 2000 {
		t.Errorf("%d are used, want 2000", out.Used)
	}
}

// TestAnUnknownVerbDoesNothing sends the op of a program that is newer than the functions.
func TestAnUnknownVerbDoesNothing(t *testing.T) {
	t.Parallel()
	dsn := migrated.Postgres(t)
	s := openAt(t, dsn)
	op := request("", 1000)
	outs := make([]law.Outcome, 1)
	if err := s.Apply(t.Context(), []law.Op{op}, outs); err != nil || outs[0].Granted != 1 {
		t.Fatalf("%+v, %v", outs[0], err)
	}
	ask := []int64{
		9, 1, 1, int64(op.Params.Kind), 0, op.Params.Unit, op.Params.Capacity, op.Params.Step, op.Params.Drain, 0, 0,
		1000, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
	}
	_, err := connect(t, dsn).Exec(t.Context(), `select headgate_internal.apply_1(array[$1], array[$2], '{1}', $3, null)`,
		op.Cell.Limit, op.Cell.Key, ask)
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "22023" || pg.Message != "verb: 9 is not known here" {
		t.Errorf("a verb that is not known: %v", err)
	}
	op.Verb = law.Check
	if err := s.Apply(t.Context(), []law.Op{op}, outs); err != nil || outs[0].State.Level == 0 {
		t.Errorf("the key was forgotten: %+v, %v", outs[0], err)
	}
}
