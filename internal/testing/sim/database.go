package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// epoch is the time at which database clocks stand when a simulation starts, plus the
// seed's own offset.
var epoch = time.Date(2027, 3, 27, 20, 0, 0, 0, time.UTC)

// database is the model of a database server: rows with locks, a clock of its own,
// transactions that commit or not, and a connection to it that can lose requests and
// answers. What it decides is what package law says; what it models is everything that
// a driver and its server do around that:
//
//   - A transaction locks the rows of its cells in the order of their keys, first come,
//     first served, reads the clock after the last lock, decides, writes, and commits
//     after commitTime. The locks are held until then. A commit can hang for seconds, as
//     where a cluster has lost a node.
//   - A transaction that does not commit leaves nothing. That happens when the server
//     dies, when its disk is full, and in conflicts, which the driver repeats.
//   - A request can be lost before it reaches the server, and an answer after the commit.
//     The driver cannot tell these apart: ErrUnknownOutcome.
//   - A fail-over may forget what was committed within the last moments, as replication
//     without waiting for the replica does; or nothing, as with waiting.
//
// Faults are in thousandths of the requests.
type database struct {
	way
	p     *process
	rows  map[law.Cell]*row
	locks locks

	number  int64 // of the last entry
	journal []undo

	store.Catalog // of limits; nil: it keeps none. A fail-over forgets nothing of it, and nodes write nothing

	commitTime time.Duration // a commit takes up to this

	conflicts, hanging int
	full               bool // commits fail
}

// row is a cell with its log and its register, as committed.
type row struct {
	state    law.State
	reason   string
	entries  []law.Entry
	receipts map[string]law.Receipt
}

// copy returns a row to be changed: a new one if there is none.
func (r *row) copy() *row {
	if r == nil {
		return &row{receipts: map[string]law.Receipt{}}
	}
	c := *r
	c.entries, c.receipts = slices.Clone(r.entries), maps.Clone(r.receipts)
	return &c
}

// undo is a row as it was before a commit.
type undo struct {
	at   time.Duration
	cell law.Cell
	row  *row // nil: there was none
}

// locks are the locks of the rows that somebody holds.
type locks map[law.Cell]*rowLock

type rowLock struct{ waiting []chan struct{} }

func newDatabase(s *scheduler) *database {
	d := &database{
		way: way{s: s, latency: s.between(50*time.Microsecond, 5*time.Millisecond)},
		p:   newProcess("db"), rows: map[law.Cell]*row{}, locks: locks{},
	}
	d.p.ppm = drift(s)
	d.commitTime = s.between(50*time.Microsecond, 5*time.Millisecond)
	d.p.wall = epoch.Sub(s.start) + s.between(0, 8*time.Hour)
	return d
}

// clock is the server's clock.
func (d *database) clock() int64 { return d.s.wallOf(d.p).UnixMicro() }

// crash ends the server with all transactions under way, and starts it again.
func (d *database) crash() {
	d.p.kill()
	p := newProcess("db")
	p.ppm, p.wall = d.p.ppm, d.p.wall
	d.p, d.locks = p, locks{}
}

// forget undoes what was committed since a time.
func (d *database) forget(since time.Duration) {
	for len(d.journal) > 0 && d.journal[len(d.journal)-1].at >= since {
		u := d.journal[len(d.journal)-1]
		d.journal = d.journal[:len(d.journal)-1]
		if u.row == nil {
			delete(d.rows, u.cell)
		} else {
			d.rows[u.cell] = u.row
		}
	}
}

func (k locks) lock(c law.Cell) {
	l := k[c]
	if l == nil {
		k[c] = &rowLock{}
		return
	}
	turn := make(chan struct{})
	l.waiting = append(l.waiting, turn)
	sched.Receive(turn)
}

func (k locks) unlock(c law.Cell) {
	l := k[c]
	if len(l.waiting) == 0 {
		delete(k, c)
		return
	}
	turn := l.waiting[0]
	l.waiting = l.waiting[1:]
	close(turn)
}

// transact decides about ops in one transaction. It runs in a goroutine of the server.
func (d *database) transact(ops []law.Op, outs []law.Outcome) error {
	cells := make([]law.Cell, 0, len(ops))
	for i := range ops {
		cells = append(cells, ops[i].Cell)
	}
	slices.SortFunc(cells, byName)
	cells = slices.Compact(cells)
	locks := d.locks // of this server: another has its own
	for _, c := range cells {
		locks.lock(c)
		defer locks.unlock(c)
	}
	clock := d.clock()
	records, by := make([]*law.Record, len(ops)), make(map[law.Cell]*law.Record, len(cells))
	for i := range ops {
		r := by[ops[i].Cell]
		if r == nil {
			r = d.record(ops[i].Cell)
			by[ops[i].Cell] = r
		}
		records[i] = r
	}
	law.Apply(ops, outs, clock, records)
	d.s.sleep(d.s.between(1, d.commitTime))
	if d.s.chance(d.hanging) {
		d.s.sleep(d.s.between(time.Second, 5*time.Second))
	}
	switch {
	case d.full: // what was decided stays in outs, which no caller may believe
		return fmt.Errorf("simulated: %w: the disk is full", store.ErrUnavailable)
	case d.s.chance(d.conflicts):
		return fmt.Errorf("simulated: %w", store.ErrConflict)
	}
	for _, c := range cells {
		d.write(c, by[c])
	}
	for i := range ops {
		records[i].Number(&outs[i])
	}
	return nil
}

func byName(a, b law.Cell) int {
	return cmp.Or(cmp.Compare(a.Limit, b.Limit), cmp.Compare(a.Key, b.Key))
}

func (d *database) record(c law.Cell) *law.Record {
	r := cmp.Or(d.rows[c], &row{})
	return &law.Record{State: r.state, Reason: r.reason, Log: r, Receipts: r}
}

// write commits what package law has left to do.
func (d *database) write(c law.Cell, rec *law.Record) {
	old := d.rows[c]
	r := old.copy()
	if rec.Clear {
		for i := range r.entries {
			r.entries[i].ExpiresAt = 0
		}
	}
	for _, n := range rec.Renew {
		e := r.entry(n.Number)
		e.ExpiresAt, e.KeepUntil = n.To, max(e.KeepUntil, n.To)
	}
	for _, l := range rec.Lower {
		e := r.entry(l.Number)
		if e.Cost -= l.Credits; e.Cost <= 0 {
			e.ExpiresAt = 0
		}
	}
	for i := range rec.Add {
		d.number++
		rec.Add[i].Number = d.number
		r.entries = append(r.entries, rec.Add[i])
	}
	if rec.Forget {
		clear(r.receipts)
	}
	for _, a := range rec.Admit {
		rec.Number(&a.Outcome)
		r.receipts[a.ID] = a
	}
	if rec.Dirty {
		r.state, r.reason = rec.State, rec.Reason
	}
	d.journal = append(d.journal, undo{d.s.now(), c, old})
	if rec.State.Kind == 0 && len(r.entries) == 0 && len(r.receipts) == 0 {
		delete(d.rows, c)
		return
	}
	d.rows[c] = r
}

func (r *row) entry(number int64) *law.Entry {
	i := slices.IndexFunc(r.entries, func(e law.Entry) bool { return e.Number == number })
	return &r.entries[i]
}

// Receipt implements law.Receipts.
func (r *row) Receipt(id string) (law.Receipt, bool) {
	a, ok := r.receipts[id]
	return a, ok
}

// Sum implements law.Ledger.
func (r *row) Sum(after, upto int64) (sum int64) {
	for i := range r.entries {
		if e := &r.entries[i]; e.Granted && e.ExpiresAt > after && e.ExpiresAt <= upto {
			sum += e.Cost
		}
	}
	return sum
}

// Freed implements law.Ledger.
func (r *row) Freed(after, need int64) int64 {
	list := slices.DeleteFunc(slices.Clone(r.entries), func(e law.Entry) bool {
		return !e.Granted || e.ExpiresAt <= after
	})
	slices.SortStableFunc(list, func(a, b law.Entry) int { return cmp.Compare(a.ExpiresAt, b.ExpiresAt) })
	for _, e := range list {
		if need -= e.Cost; need <= 0 {
			return e.ExpiresAt
		}
	}
	return law.Never
}

// Entry implements law.Ledger.
func (r *row) Entry(number int64) (credits, expiresAt int64) {
	for i := range r.entries {
		if e := &r.entries[i]; e.Number == number && e.Granted && e.ExpiresAt > 0 {
			return e.Cost, e.ExpiresAt
		}
	}
	return 0, 0
}

// sweep removes what can no longer matter, as the drivers' statements do.
func (d *database) sweep(most int) (removed int) {
	now := d.clock()
	cells := make([]law.Cell, 0, len(d.rows))
	for c := range d.rows {
		if d.locks[c] == nil {
			cells = append(cells, c)
		}
	}
	slices.SortFunc(cells, byName)
	for _, c := range cells {
		if removed >= most {
			return removed
		}
		r := d.rows[c]
		live := slices.DeleteFunc(slices.Clone(r.entries), func(e law.Entry) bool {
			return e.KeepUntil <= now && (e.ExpiresAt <= r.state.At || r.state.EmptyAt <= now)
		})
		known := maps.Clone(r.receipts)
		maps.DeleteFunc(known, func(_ string, a law.Receipt) bool { return a.KeepUntil <= now })
		gone := len(r.entries) - len(live) + len(r.receipts) - len(known)
		dead := r.state.EmptyAt <= now && r.state.BlockedUntil <= now && len(live) == 0 && len(known) == 0
		if gone == 0 && !dead {
			continue
		}
		d.journal = append(d.journal, undo{d.s.now(), c, r.copy()})
		removed += gone
		r.entries, r.receipts = live, known
		if dead {
			removed++
			delete(d.rows, c)
		}
	}
	if n := len(d.journal); n > 1000 {
		d.journal = slices.Clone(d.journal[n-500:])
	}
	return removed
}
