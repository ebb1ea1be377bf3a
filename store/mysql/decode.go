package mysql

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

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

// decodePlain turns the records of plain cells into outcomes, and reads the
// other rows' as those of any batch.
func (p *plan) decodePlain(records, plain []byte, outs []law.Outcome) error {
	d := decoder{records: bytes.TrimPrefix(plain, []byte{';'})}
	r := &p.runs[0]
	rest := make([]row, 0, 8)
	next := 0
	var record law.Record
	list := []*law.Record{&record}
	for len(d.records) > 0 {
		n := int(d.next())
		clock := d.next()
		st := law.State{Level: d.next(), Prev: d.next(), At: d.next(), EmptyAt: d.next(), BlockedUntil: d.next()}
		if d.err != nil || n < next || n >= len(r.rows) {
			return errNoSense(plain, d.err)
		}
		rest = append(rest, r.rows[next:n]...)
		next = n + 1
		i := r.rows[n].op
		op := &p.ops[i]
		st.Kind, st.Unit, st.Step = op.Params.Kind, op.Params.Unit, op.Params.Step
		record = law.Record{State: st}
		law.Apply(p.ops[i:i+1], outs[i:i+1], clock, list)
	}
	rest = append(rest, r.rows[next:]...)
	p.left = len(rest)
	if len(rest) == 0 {
		if len(records) > 0 {
			return errNoSense(records, errors.New("nothing was left to decide"))
		}
		return nil
	}
	others := &plan{ops: p.ops, runs: []run{{rows: rest, shape: r.shape}}}
	return others.decode(records, nil, outs)
}

// hearOne turns the answer to a lone charge into its outcome, and reports whether the cell
// was new. It reports that nothing was decided if the cell is none that the statement
// decides about.
func (p *plan) hearOne(answer [2][]byte, out *law.Outcome) (decided, made bool, err error) {
	before, _, err := cellOf(answer[0])
	if err != nil {
		return false, false, err
	}
	after, clock, err := cellOf(answer[1])
	if err != nil {
		return false, false, err
	}
	op := &p.ops[0]
	of, lp := law.State{Kind: before.Kind, Unit: before.Unit, Step: before.Step}, &op.Params
	if of != (law.State{}) && of != (law.State{Kind: lp.Kind, Unit: lp.Unit, Step: lp.Step}) || before.Prev != 0 ||
		before.At-clock > lp.HealAfter() || of.Kind == 0 && before != (law.State{}) {
		if before != after { // to ask again would charge again
			return false, false, errNoSense(answer[1], fmt.Errorf("a cell that was %+v should not be decided", before))
		}
		return false, false, nil
	}
	outs := []law.Outcome{{}}
	law.Apply(p.ops, outs, clock, []*law.Record{{State: before}})
	if outs[0].Err == nil && outs[0].State != after {
		return false, false, errNoSense(answer[1], fmt.Errorf("the cell should be %+v", outs[0].State))
	}
	*out = outs[0]
	return true, of.Kind == 0, nil
}

// cellOf reads what a lone charge answers of one of its rows.
func cellOf(record []byte) (st law.State, clock int64, err error) {
	d := decoder{records: record}
	st.Kind = law.Kind(d.next())
	st.Level, st.Prev, st.At, st.Unit, st.Step = d.next(), d.next(), d.next(), d.next(), d.next()
	st.EmptyAt, st.BlockedUntil, clock = d.next(), d.next(), d.next()
	if d.err != nil || len(d.records) > 0 {
		return st, 0, errNoSense(record, d.err)
	}
	return st, clock, nil
}

// decode turns the server's records into outcomes.
func (p *plan) decode(records, entries []byte, outs []law.Outcome) error {
	d := decoder{records: records, entries: entries}
	for i := range p.runs {
		p.decodeRun(&d, &p.runs[i], outs)
	}
	if d.err != nil || len(d.records) > 0 {
		return errNoSense(records, d.err)
	}
	return nil
}

// decodeRun decodes the records of a run, and then the numbers of its entries.
func (p *plan) decodeRun(d *decoder, r *run, outs []law.Outcome) {
	var put []added // by each row
	for i := range r.rows {
		row := &r.rows[i]
		if !row.tells() {
			put = append(put, p.decodeRow(d, row, &outs[row.op]))
		} else if row.records() > 0 {
			outs[row.op] = d.outcome(&p.ops[row.op])
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
		p.number(r, put, d.entry(), d.entry(), outs)
		return
	}
	for _, row := range r.rows {
		op := &p.ops[row.op]
		switch row.pass {
		case firstPass, onceFirst, extendFirst:
			continue
		}
		if (op.Verb == law.Take || op.Verb == law.Extend) && op.Params.Kind == law.Log {
			if entry := d.entry(); entry > 0 { // else one that is remembered may stand there
				outs[row.op].EntryNumber = entry
			}
		}
	}
}

// decodeRow decodes the records of a row that answers what its outcome is made of, and
// returns what the row has put into the log if it was put together.
func (p *plan) decodeRow(d *decoder, row *row, out *law.Outcome) added {
	op := &p.ops[row.op]
	var carried int64
	if row.pass != secondPass {
		*out, carried = d.answer()
	}
	state, done := d.state()
	if row.pass != secondPass || done != admitted || op.Verb == law.Check {
		out.State = state
	}
	if op.Verb == law.Reset {
		*out = law.Outcome{Granted: out.Granted, Clock: out.Clock}
	}
	return added{carried: carried > 0 && done != isStale, own: done == admitted || op.Params.History > 0 &&
		done != isStale}
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

// stale makes a group stale of which one op is. The clock of a stale op is the time it
// was decided for.
func (p *plan) stale(rows []row, outs []law.Outcome) {
	stale := false
	for _, row := range rows {
		stale = stale || outs[row.op].Stale
	}
	for _, row := range rows {
		out := &outs[row.op]
		if stale && row.pass != firstPass {
			*out = law.Outcome{State: out.State, Clock: out.EntryNumber, Stale: true}
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
	out.Stale = d.next() != 0
	out.EntryNumber = d.next()
	d.next() // whether the log was cleared
	carried = d.next()
	d.next() // when that expires
	return out, carried
}

// state reads the cell after a row, and what became of the request.
func (d *decoder) state() (st law.State, done int64) {
	done = d.next()
	st.Kind = law.Kind(d.next())
	st.Level, st.Prev, st.At, st.Unit, st.EmptyAt, st.BlockedUntil, st.Step = d.next(), d.next(), d.next(), d.next(),
		d.next(), d.next(), d.next()
	return st, done
}

// outcome reads what the second row of an op in admission.tmpl answered.
func (d *decoder) outcome(op *law.Op) law.Outcome {
	var n law.Numbers
	for i := range n {
		n[i] = d.next()
	}
	rest := moreFields
	if op.Verb == law.Extend {
		rest = extendFields
	}
	for range rest {
		d.next()
	}
	return n.Outcome()
}

func (d *decoder) entry() int64 { return number(&d.entries, &d.err) }
