package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/internal/testing/cells"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// epoch is when simulations start by the wall clocks of nodes. The store's clock is up to eight hours ahead of it.
var epoch = time.Date(2027, 3, 27, 20, 0, 0, 0, time.UTC)

// database is the model of a database server: rows with locks, a clock of its own, transactions that commit or not, and
// a connection to it that can lose requests and answers. Package law makes the decisions; database models everything
// that a driver and its server do around them:
//
//   - A transaction locks the rows of its cells in the order of the cells, first come, first served, reads the clock
//     after the last lock, decides, and commits within commitTime. Then it releases the locks. A commit can hang for
//     seconds, as in a cluster that has lost a node.
//   - A transaction that does not commit leaves nothing. That happens when the server dies, when its disk is full, and
//     in conflicts, which the driver repeats.
//   - A request can be lost before it reaches the server, and an answer after the commit. The driver cannot distinguish
//     these: ErrUnknownOutcome.
//   - A fail-over may forget what was committed within the last moments, as replication without waiting for the replica
//     does; or nothing, as with waiting.
//
// The rates of faults are in thousandths.
type database struct {
	link
	p     *process
	rows  map[law.Cell]*cells.Cell // as committed
	locks locks

	lastEntry int64  // number of the newest entry of a log
	journal   []undo // of recent commits and sweeps, the oldest first

	store.Inspector // nil: nobody asks for KeyCounts
	store.Catalog   // nil: the database keeps no limits. A fail-over forgets nothing of them, and nodes write none

	commitTime time.Duration // the maximum time of a commit, unless it hangs

	conflicts, hangs int  // rates in thousandths of the transactions
	diskFull         bool // commits fail
}

// undo is a row as it was before a commit or a sweep.
type undo struct {
	at   time.Duration
	cell law.Cell
	row  *cells.Cell // nil: there was none
}

type locks map[law.Cell]*rowLock

type rowLock struct{ waiting []chan struct{} } // the first channel is closed when the row is unlocked

func newDatabase(s *scheduler) *database {
	d := &database{
		link: link{scheduler: s, maxLatency: s.between(50*time.Microsecond, 5*time.Millisecond)},
		p:    newProcess("db"), rows: map[law.Cell]*cells.Cell{}, locks: locks{},
	}
	d.p.ppm = randomDrift(s)
	d.commitTime = s.between(50*time.Microsecond, 5*time.Millisecond)
	d.p.wallOffset = epoch.Sub(s.start) + s.between(0, 8*time.Hour)
	return d
}

func (d *database) clock() int64 { return d.scheduler.wallOf(d.p).UnixMicro() }

// crash ends the server with all transactions under way, and starts it again.
func (d *database) crash() {
	d.p.kill()
	p := newProcess("db")
	p.ppm, p.wallOffset = d.p.ppm, d.p.wallOffset
	d.p, d.locks = p, locks{}
}

// forget undoes the commits and sweeps since a time.
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

func (l locks) lock(c law.Cell) {
	row := l[c]
	if row == nil {
		l[c] = &rowLock{}
		return
	}
	turn := make(chan struct{})
	row.waiting = append(row.waiting, turn)
	sched.Receive(turn)
}

func (l locks) unlock(c law.Cell) {
	row := l[c]
	if len(row.waiting) == 0 {
		delete(l, c)
		return
	}
	turn := row.waiting[0]
	row.waiting = row.waiting[1:]
	close(turn)
}

// transact decides about ops in one transaction. It runs in a goroutine of the server.
func (d *database) transact(ops []law.Op, outs []law.Outcome) error {
	names := make([]law.Cell, 0, len(ops))
	for i := range ops {
		names = append(names, ops[i].Cell)
	}
	slices.SortFunc(names, law.Cell.Compare)
	names = slices.Compact(names)
	locks := d.locks // of this server process: the next one has its own
	for _, c := range names {
		locks.lock(c)
		defer locks.unlock(c)
	}
	clock := d.clock()
	records, byCell := make([]*law.Record, len(ops)), make(map[law.Cell]*law.Record, len(names))
	for i := range ops {
		r := byCell[ops[i].Cell]
		if r == nil {
			r = cmp.Or(d.rows[ops[i].Cell], &cells.Cell{}).Record()
			byCell[ops[i].Cell] = r
		}
		records[i] = r
	}
	law.Apply(ops, outs, clock, records)
	d.scheduler.sleep(d.scheduler.between(1, d.commitTime))
	if d.scheduler.chance(d.hangs) {
		d.scheduler.sleep(d.scheduler.between(time.Second, 5*time.Second))
	}
	switch {
	case d.diskFull: // outs keep the decisions, which no caller may use
		return fmt.Errorf("simulated: %w: the disk is full", store.ErrUnavailable)
	case d.scheduler.chance(d.conflicts):
		return fmt.Errorf("simulated: %w", store.ErrConflict)
	}
	for _, c := range names {
		d.write(c, byCell[c])
	}
	for i := range ops {
		records[i].SetEntryNumber(&outs[i])
	}
	return nil
}

// write commits what a record of package law changes in a row.
func (d *database) write(name law.Cell, rec *law.Record) {
	old := d.rows[name]
	row := old.Clone()
	row.Write(rec, &d.lastEntry)
	d.journal = append(d.journal, undo{d.scheduler.now(), name, old})
	if rec.State.Kind == 0 && len(row.Entries) == 0 && len(row.Receipts) == 0 {
		delete(d.rows, name)
		return
	}
	d.rows[name] = row
}

// sweep removes what can no longer matter, as the drivers' statements do.
func (d *database) sweep(maxRows int) (removed int) {
	now := d.clock()
	names := make([]law.Cell, 0, len(d.rows))
	for c := range d.rows {
		if d.locks[c] == nil {
			names = append(names, c)
		}
	}
	slices.SortFunc(names, law.Cell.Compare)
	for _, c := range names {
		if removed >= maxRows {
			return removed
		}
		r := d.rows[c]
		entries := slices.DeleteFunc(slices.Clone(r.Entries), func(e law.Entry) bool {
			return e.KeepUntil <= now && (e.ExpiresAt <= r.State.At || r.State.EmptyAt <= now)
		})
		receipts := maps.Clone(r.Receipts)
		maps.DeleteFunc(receipts, func(_ string, a law.Receipt) bool { return a.KeepUntil <= now })
		expired := len(r.Entries) - len(entries) + len(r.Receipts) - len(receipts)
		empty := r.State.EmptyAt <= now && r.State.BlockedUntil <= now && len(entries) == 0 && len(receipts) == 0
		if expired == 0 && !empty {
			continue
		}
		d.journal = append(d.journal, undo{d.scheduler.now(), c, r.Clone()})
		removed += expired
		r.Entries, r.Receipts = entries, receipts
		if empty {
			removed++
			delete(d.rows, c)
		}
	}
	if n := len(d.journal); n > 1000 {
		d.journal = slices.Clone(d.journal[n-500:])
	}
	return removed
}
