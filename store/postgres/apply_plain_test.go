package postgres_test

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/law"
)

// TestPlainRequestsWithIDsSkipApplyOnce charges requests that share cells, and settles them, while
// headgate_internal.apply_once returns a malformed answer. Only repeated requests must reach apply_once, and so fail.
func TestPlainRequestsWithIDsSkipApplyOnce(t *testing.T) {
	t.Parallel()
	dsn := migrated.Postgres(t)
	s, conn := openAt(t, dsn), connect(t, dsn)
	mustExec(t, conn, `
		create or replace function headgate_internal.apply_once_2(
			p_limits text[], p_keys text[], p_modes smallint[], p_ops bigint[], p_notes text[],
			p_prints bigint[], p_parts int[])
		returns bigint[] language sql volatile as $$ select array[-cardinality(p_notes)]::bigint[] $$`)
	const requests, chargesEach = 5, 3
	var takes, settles []law.Op
	for i := range requests {
		for c := range chargesEach {
			op := newTake(fmt.Sprint("id ", i), 3_600_000_000)
			op.Group, op.Cell.Key = uint32(i), fmt.Sprint("key ", c*i/requests)
			op.Cell.Limit = fmt.Sprint("limit ", c)
			takes = append(takes, op)
			op.Verb, op.Cost, op.TTL = law.Settle, 400, 0
			settles = append(settles, op)
		}
	}
	outs := make([]law.Outcome, len(takes))
	if err := s.Apply(t.Context(), takes, outs); err != nil {
		t.Fatal(err)
	}
	for i, out := range outs {
		if out.Err != nil || out.Granted != 1 || out.Replayed {
			t.Errorf("charge %d: got %+v, want 1 granted, no replay", i, out)
		}
	}
	if err := s.Apply(t.Context(), settles, outs); err != nil {
		t.Fatal(err)
	}
	for i, out := range outs {
		if out.Err != nil || out.Granted != 600 || out.Replayed {
			t.Errorf("settlement %d: got %+v, want 600 given back, no replay", i, out) // 1000 less 400
		}
	}
	if err := s.Apply(t.Context(), takes, outs); err == nil {
		t.Error("repeated requests: got no error, want the malformed answer of apply_once")
	}
}
