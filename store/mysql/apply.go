package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/internal/overflow"
)

// Apply implements store.Store.
func (s *Store) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	apply := s.applyRouted
	var later error
	if s.tx != nil { // what the second question does to the transaction is of all groups
		apply = func(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
			later = s.applyRouted(ctx, ops, outs)
			return later
		}
	}
	if err := overflow.Apply(ctx, ops, outs, apply, &s.rooms.shared); err != nil {
		return err
	}
	s.saw(ops, outs)
	return later
}

// applyRouted is Apply, but for full limits.
func (s *Store) applyRouted(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	return s.route(ops, outs, func(ops []law.Op, outs []law.Outcome, n *node) error {
		return s.apply(ctx, n, ops, outs)
	})
}

func (s *Store) apply(ctx context.Context, n *node, ops []law.Op, outs []law.Outcome) error {
	p := newPlainPlan(ops)
	if p == nil {
		p = newPlan(ops, outs)
	}
	if len(p.runs) == 0 {
		return nil
	}
	at := site{own: s.tx == nil, foreign: !s.own, galera: s.galera.Load(), group: s.group.Load(), snapshots: s.snapshots.Load(), full: s.rooms.full.Load() || p.mayBeFull()}
	heard, err := s.send(ctx, n, p.text(at))
	if !at.full && mentionsFull(err) { // a limit has begun to share
		s.rooms.full.Store(true)
		at.full = true
		heard, err = s.send(ctx, n, p.text(at))
	}
	if err != nil {
		return classify(fmt.Sprintf("apply %d ops", len(ops)), err)
	}
	if heard.sharing.Valid {
		s.rooms.full.Store(heard.sharing.Bool)
	}
	if err := p.hear(heard.records, heard.entries, outs); err != nil {
		return fmt.Errorf("mysql: apply %d ops: %w", len(ops), err)
	}
	return nil
}

// send asks a node, and others where it cannot be reached.
func (s *Store) send(ctx context.Context, n *node, text string) (heard answer, err error) {
	err = s.retry(ctx, n, func(n *node) (err error) {
		heard, err = s.ask(ctx, n, text)
		return err
	})
	return heard, err
}

// mentionsFull reports whether a text failed that knows of no full limit, as it does
// where one shares: see rooms.tmpl.
func mentionsFull(err error) bool {
	number, _ := numberOf(err)
	return number == errOutOfRange
}

// hear turns the server's answer into outcomes. It came after the commit, so one
// that cannot be read leaves the outcome unknown, unless nothing was to be charged.
func (p *plan) hear(records, entries []byte, outs []law.Outcome) (err error) {
	if p.plain != nil {
		err = p.decodePlain(records, entries, outs)
	} else {
		err = p.decode(records, entries, outs)
	}
	if err == nil {
		return nil
	}
	store.Void(outs)
	if p.reads {
		return fmt.Errorf("%w: %w", store.ErrSetup, err)
	}
	return fmt.Errorf("%w: %w", store.ErrUnknownOutcome, err)
}

// answer is what the last statement of a text selects.
type answer struct {
	records, entries []byte
	sharing          sql.NullBool // some limit shares; not valid where that was not asked
}

// ask sends a text and returns what its last statement selects. When a
// statement fails the rest is not executed, and the transaction that the text
// began is rolled back; what its COMMIT did before is not known.
func (s *Store) ask(ctx context.Context, n *node, text string) (heard answer, err error) {
	if s.tx != nil {
		if heard, err = last(s.tx.QueryContext(ctx, text)); err != nil {
			err = &undone{s.because(ctx, s.tx, err)} // of that transaction nothing is committed yet
			// Half a batch must not be committed with what is the caller's.
			switch undo := context.WithoutCancel(ctx); {
			case !s.group.Load():
				_, _ = s.tx.ExecContext(undo, "ROLLBACK TO SAVEPOINT headgate")
			case !mentionsFull(err): // nothing was charged before that error
				_, _ = s.tx.ExecContext(undo, "KILL CONNECTION_ID()")
			}
		}
		return heard, err
	}
	conn, err := n.db.Conn(ctx)
	if err != nil {
		return answer{}, &notSent{err}
	}
	heard, err = last(conn.QueryContext(ctx, text))
	if err == nil {
		return heard, conn.Close()
	}
	// A connection with half a transaction must not go back to the pool.
	var ended sql.NullInt64
	undo := conn.QueryRowContext(context.WithoutCancel(ctx), "SELECT @hg_end; ROLLBACK; SET autocommit = 1").Scan(&ended)
	switch {
	case undo != nil:
		_ = conn.Raw(func(any) error { return errBadConn })
	case ended.Int64 == 0:
		err = &undone{s.because(ctx, conn, err)}
	}
	conn.Close()
	return answer{}, err
}

// last reads all results of a text and returns those of its last statement.
func last(rows *sql.Rows, err error) (heard answer, _ error) {
	if err != nil {
		return answer{}, err
	}
	defer rows.Close()
	for {
		columns, err := rows.Columns()
		if err != nil {
			return answer{}, err
		}
		to := []any{&heard.records, &heard.entries, &heard.sharing}
		for rows.Next() && len(columns) > 1 { // a list of checks is a result of one
			if err := rows.Scan(to[:len(columns)]...); err != nil {
				return answer{}, err
			}
		}
		if !rows.NextResultSet() {
			return heard, rows.Err()
		}
	}
}

// decode turns the server's records into outcomes.
func (p *plan) decode(records, entries []byte, outs []law.Outcome) error {
	d := decoder{records: records, entries: entries}
	for _, r := range p.runs {
		var put []added // of each row
		for _, row := range r.rows {
			op, out := &p.ops[row.op], &outs[row.op]
			if row.tells() {
				if row.records() > 0 {
					*out = d.outcome()
				}
				continue
			}
			var carried int64
			if row.pass != secondPass {
				*out, carried = d.answer()
			}
			state, done := d.state()
			if r.shape.Put {
				put = append(put, added{carried: carried > 0 && done != isStale, own: done == admitted || op.Params.History > 0 && done != isStale})
			}
			if row.pass != secondPass || done != admitted || op.Verb == law.Check {
				out.State = state
			}
			if op.Verb == law.Reset {
				*out = law.Outcome{Granted: out.Granted, Clock: out.Clock}
			}
		}
		for i := 0; i < len(r.rows); {
			j := i + r.rows[i].size
			if r.rows[i].pass == firstPass {
				j += r.rows[i].size
			}
			if !r.rows[i].tells() {
				p.stale(r.rows[i:j], outs)
			}
			i = j
		}
		if r.shape.Put {
			p.number(&r, put, d.entry(), d.entry(), outs)
			continue
		}
		for _, row := range r.rows {
			op := &p.ops[row.op]
			if row.pass != firstPass && row.pass != onceFirst && op.Verb == law.Take && op.Params.Kind == law.Log {
				if entry := d.entry(); entry > 0 { // else one that is remembered may stand there
					outs[row.op].EntryNumber = entry
				}
			}
		}
	}
	if d.err != nil || len(d.records) > 0 {
		return errNoSense(records, d.err)
	}
	return nil
}

// errNoSense is the error of an answer that cannot be read. It comes after the
// commit.
func errNoSense(records []byte, err error) error {
	if err == nil {
		err = errors.New("it is longer than what was asked")
	}
	return fmt.Errorf("the server's answer makes no sense: %q: %w", records, err)
}

// added says what a row has put into the log: what was carried over, and its
// own.
type added struct{ carried, own bool }

// number gives the outcomes the numbers of their entries, which were inserted
// together.
func (p *plan) number(r *run, put []added, next, step int64, outs []law.Outcome) {
	for i, row := range r.rows {
		op := &p.ops[row.op]
		if op.Verb != law.Take || op.Params.Kind != law.Log {
			continue
		}
		if put[i].carried {
			next += step
		}
		if put[i].own {
			outs[row.op].EntryNumber = next
			next += step
		}
	}
}

// stale makes a group stale of which one op is, or Full. The clock of a stale op is
// the time it was decided for.
func (p *plan) stale(rows []row, outs []law.Outcome) {
	stale := false
	for _, row := range rows {
		stale = stale || outs[row.op].Stale
	}
	for _, row := range rows {
		out := &outs[row.op]
		if stale && row.pass != firstPass {
			*out = law.Outcome{State: out.State, Clock: out.EntryNumber, Full: out.Full, Stale: out.Full == 0}
		}
		if row.pass != firstPass {
			out.EntryNumber = 0
		}
	}
}

// decoder reads the numbers of an answer one after another.
type decoder struct {
	records, entries []byte
	err              error
}

// number takes the number at the start of a text, and the byte that ends it.
func number(b *[]byte, failed *error) (n int64) {
	text := *b
	i, negative := 0, len(text) > 0 && text[0] == '-'
	if negative {
		i = 1
	}
	begin := i
	for ; i < len(text) && text[i]-'0' <= 9; i++ {
		n = n*10 + int64(text[i]-'0')
	}
	if i == begin || i-begin > 18 || i == len(text) || text[i] != ',' && text[i] != ';' {
		*failed, *b = errors.New("a number is missing"), nil
		return 0
	}
	*b = text[i+1:]
	if negative {
		return -n
	}
	return n
}

func (d *decoder) next() int64 { return number(&d.records, &d.err) }

// answer reads what a row answered. Entry holds the time of its decision until
// it is known whether the group is stale.
func (d *decoder) answer() (out law.Outcome, carried int64) {
	out.Granted, out.Used, out.Clock, out.RetryAt = d.next(), d.next(), d.next(), d.next()
	stale := d.next()
	out.Stale = stale != 0
	if out.EntryNumber = d.next(); stale == 2 {
		out.Full, out.EntryNumber = out.EntryNumber, out.Clock
	}
	d.next() // whether the log was cleared
	carried = d.next()
	d.next() // when that expires
	return out, carried
}

// What @done is in decide.tmpl.
const (
	admitted = 1
	isStale  = 2
)

// state reads the cell after a row, and what became of the request.
func (d *decoder) state() (st law.State, done int64) {
	done = d.next()
	st.Kind = law.Kind(d.next())
	st.Level, st.Prev, st.At, st.Unit, st.EmptyAt, st.BlockedUntil, st.Step = d.next(), d.next(), d.next(), d.next(), d.next(), d.next(), d.next()
	return st, done
}

// outcome reads what the second row of an op in admission.tmpl answered.
func (d *decoder) outcome() law.Outcome {
	var n law.Numbers
	for i := range n {
		n[i] = d.next()
	}
	for range moreFields {
		d.next()
	}
	return n.Outcome()
}

func (d *decoder) entry() int64 { return number(&d.entries, &d.err) }
