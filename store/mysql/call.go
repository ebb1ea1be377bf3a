package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// Where an INSERT returns no rows, a lone charge of a bucket is a call of headgate_direct, which calls from
// SQL use too: one round trip. It decides about plain cells and those that are not there; others it leaves
// alone, and the general way decides about them. On MariaDB the prepared statement of a lone charge takes half
// the time of a call.
//
// It is not used on a node of a cluster, which may repeat a statement by itself after another node has
// won, nor on pools and in transactions of the caller's.

// calls reports whether a lone charge may be a call.
func (s *Store) calls() bool {
	return s.own && s.tx == nil && !s.returning.Load() && !s.uncalled.Load() && !s.galera.Load() && !s.group.Load()
}

// isCallable reports whether a charge is one that the procedure may decide: up to the capacity, at the clock
// of the server.
func isCallable(op *law.Op) bool { return op.Count == 1 && op.Ceiling == 0 && op.Now == 0 }

// applyCall decides a lone charge by a call, and reports false if that has done nothing because the general
// way has to. The answer is that of sums of one cell, but for its last number.
func (s *Store) applyCall(ctx context.Context, n *node, ops []law.Op, outs []law.Outcome) (decided bool, err error) {
	var answer [sumsWidth]sql.NullInt64 // NULL: the session has decided nothing yet
	err = s.retry(ctx, n, func(n *node) (err error) {
		answer, err = s.call(ctx, n, s.callText(&ops[0]))
		return err
	})
	switch number, _ := numberOf(err); {
	case number == errNoProcedure, number == errNoRight, number == errNotImplemented:
		s.uncalled.Store(true) // an older schema, or a server without procedures
		return false, nil
	case err != nil:
		return false, classify("apply 1 op", err)
	case answer[sumsWidth-1].Int64 == 0:
		return false, nil
	}
	numbers := make([]int64, sumsWidth)
	for i := range sumsWidth - 1 {
		numbers[i] = answer[i].Int64
	}
	if _, _, err = newSums(ops).hear(numbers, outs); err != nil {
		return false, fmt.Errorf("mysql: apply 1 op: %w: %w", store.ErrUnknownOutcome, err)
	}
	return true, nil
}

// callText returns the text of a call. The variables are those that the procedure leaves.
func (s *Store) callText(op *law.Op) string {
	var b strings.Builder
	b.WriteString("CALL " + s.def.numbered("headgate_direct_N") + "(")
	literals(&b, op.Cell)
	p := &op.Params
	for _, n := range [...]int64{int64(p.Anchor), p.Unit, p.Capacity, p.Step, max(p.Drain, 1), op.Cost} {
		b.WriteByte(',')
		b.WriteString(strconv.FormatInt(n, 10))
	}
	b.WriteString(");SELECT @hg_g,@hg_level,@hg_at,@hg_empty,@hg_block,@hg_clk,@hg_count")
	return b.String()
}

// call sends the text of a call and reads its row. When it fails, @hg_end says whether it had begun to
// commit.
func (s *Store) call(ctx context.Context, n *node, text string) (answer [sumsWidth]sql.NullInt64, err error) {
	conn, err := n.db.Conn(ctx)
	if err != nil {
		return answer, notSent.of(err)
	}
	defer conn.Close()
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	to := make([]any, len(answer))
	for i := range answer {
		to[i] = &answer[i]
	}
	if err = scanLast(within, conn, text, to...); err == nil {
		return answer, nil
	}
	if ended, undo := abandon(ctx, conn, ""); undo == nil && !ended {
		err = undone.of(err)
	}
	return answer, err
}
