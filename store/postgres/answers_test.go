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

// TestUnreadableAnswersAreErrUnknownOutcome makes the functions that charge return malformed arrays.
func TestUnreadableAnswersAreErrUnknownOutcome(t *testing.T) {
	t.Parallel()
	dsn := migrated.Postgres(t)
	conn := connect(t, dsn)
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s := postgres.New(pool, nil)
	apply := func(s *postgres.Store, plain, withCeiling int, id string) error {
		ops, outs := make([]law.Op, plain+withCeiling), make([]law.Outcome, plain+withCeiling)
		for i := range ops {
			ops[i] = newTake(id, 1000)
			ops[i].Cell.Key, ops[i].Group = string(rune('a'+i)), uint32(i)
			if i >= plain {
				ops[i].Ceiling = ops[i].Params.Capacity
			}
		}
		err := s.Apply(context.Background(), ops, outs)
		for i := range outs {
			if err != nil && outs[i] != (law.Outcome{}) {
				t.Errorf("outcome %d of a failed batch: got %+v, want the zero value", i, outs[i])
			}
		}
		return err
	}
	if err := apply(s, 1, 0, ""); err != nil {
		t.Fatal(err)
	}
	for _, answer := range []string{"'{1,2,3}'", "'{}'", "null", "array[null::bigint]"} {
		mustExec(t, conn, `
			create or replace function headgate_internal.apply_2(
				p_limits text[], p_keys text[], p_modes smallint[], p_ops bigint[], p_notes text[])
			returns bigint[] language sql volatile as $$ select `+answer+`::bigint[] $$;
			create or replace function headgate_internal.apply_plain_2(
				p_limits text[], p_keys text[], p_modes smallint[], p_ops bigint[], p_notes text[],
				p_prints bigint[], p_parts int[])
			returns bigint[] language sql volatile as $$ select `+answer+`::bigint[] $$;
			create or replace function headgate_internal.take_one_2(
				p_limit text, p_key text, p_anchor bigint, p_unit bigint, p_capacity bigint, p_step bigint,
				p_drain bigint, p_block bigint, p_cost bigint, p_now bigint)
			returns bigint[] language sql volatile as $$ select `+answer+`::bigint[] $$`)
		for name, err := range map[string]error{
			"one plain charge, by take_one":           apply(s, 1, 0, ""),
			"also one with a ceiling, by apply_plain": apply(s, 1, 1, ""),
			"only charges with a ceiling, by apply":   apply(s, 0, 2, ""),
			"an id, by apply_plain":                   apply(s, 1, 0, "id"),
		} {
			if !errors.Is(err, store.ErrUnknownOutcome) {
				t.Errorf("%s, answered with %s: got %v, want ErrUnknownOutcome", name, answer, err)
			}
		}
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := apply(s.InTx(tx), 1, 0, ""); !errors.Is(err, store.ErrUnknownOutcome) {
			t.Errorf("in the caller's transaction, answered with %s: got %v, want ErrUnknownOutcome", answer, err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStatementTimeoutIsErrUnavailable locks a row until statement_timeout has cancelled two charges. The errors must
// say that nothing was charged, and the store must not retry.
func TestStatementTimeoutIsErrUnavailable(t *testing.T) {
	t.Parallel()
	dsn := migrated.Postgres(t)
	s := openAt(t, dsn)
	applyOp(t, s, newTake("", 0))
	timeoutStore, err := postgres.Open(t.Context(), dsn+"?statement_timeout=3000", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { timeoutStore.Close() })
	lockTx, err := connect(t, dsn).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mustExec(t, lockTx, "select from headgate.cells for update")
	pool, err := pgxpool.New(t.Context(), dsn+"?statement_timeout=3000")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*postgres.Store{"Apply": timeoutStore, "Apply of InTx": timeoutStore.InTx(tx)} {
		err := s.Apply(t.Context(), []law.Op{newTake("", 0)}, make([]law.Outcome, 1))
		if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrUnknownOutcome) || s.Info().Retries != 0 {
			t.Errorf("%s: got %v after %d retries, want ErrUnavailable after none", name, err, s.Info().Retries)
		}
	}
	if err := s.InTx(tx).Apply(t.Context(), []law.Op{newTake("", 0)}, make([]law.Outcome, 1)); !errors.Is(
		err, store.ErrInvalid) {
		t.Errorf("Apply in a transaction that has failed: got %v, want ErrInvalid", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	if err := lockTx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	if out := applyOp(t, s, newTake("", 0)); out.Used != 2000 {
		t.Errorf("got %d credits in use, want 2000: the two charges that did not fail", out.Used)
	}
}

// TestUnknownVerbIsRefused sends an op of verb 9, which no function knows. The call must fail and not change the cell.
func TestUnknownVerbIsRefused(t *testing.T) {
	t.Parallel()
	dsn := migrated.Postgres(t)
	s := openAt(t, dsn)
	op := newTake("", 1000)
	outs := make([]law.Outcome, 1)
	if err := s.Apply(t.Context(), []law.Op{op}, outs); err != nil || outs[0].Granted != 1 {
		t.Fatalf("%+v, %v", outs[0], err)
	}
	unknownOp := []int64{
		9, 1, 1, int64(op.Params.Kind), 0, op.Params.Unit, op.Params.Capacity, op.Params.Step, op.Params.Drain, 0, 0,
		1000, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
	}
	conn := connect(t, dsn)
	readCell := func() (row string) {
		if err := conn.QueryRow(t.Context(), "select c::text from headgate.cells c").Scan(&row); err != nil {
			t.Fatal(err)
		}
		return row
	}
	want := readCell()
	_, err := conn.Exec(t.Context(), `select headgate_internal.apply_2(array[$1], array[$2], '{1}', $3, null)`,
		op.Cell.Limit, op.Cell.Key, unknownOp)
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "22023" || pg.Message != "verb: 9 is not known here" {
		t.Errorf("verb 9: got %v, want SQLSTATE 22023", err)
	}
	if got := readCell(); got != want {
		t.Errorf("the cell afterwards: got %s, want %s", got, want)
	}
}
