package mysql

import (
	"cmp"
	"context"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store/internal/overflow"
)

// While a limit is full, its keys without a cell share one. That no key passes more than
// its limit rests on this:
//
//  1. A batch locks the rows of all its cells first, also of those that were missing,
//     which it inserts. So from then until its end nobody else makes the cell of such a
//     key, or finds it missing.
//  2. Then it reads which limits share, as it was committed last. A cell that was missing
//     is made if its limit does not share; else the row goes again, and the key is sent to
//     the shared cell of the generation that was read.
//  3. In the same order, a batch that names a shared cell locks its row, and then reads
//     that its period is under way. Else it has done nothing.
//  4. A period ends in a transaction that has locked the row of the shared cell, if
//     nothing in that counts any more.
//
// So say that a key was sent to the shared cell of a period and charged there, and that
// its own cell is made. If that came first, the batch that sent the key would have seen
// the cell, or waited for it (1, 2). If it came later, it had read that the limit does not
// share, after the period was read; so that had ended, and by then nothing counted that
// was charged in it (2, 3, 4).
//
// A statement that is prepared for full limits costs more. So one is sent only where some
// limit is known to share; the others fail, and do nothing, where a cell is missing while
// any limit shares: see rooms.tmpl.

// rooms is what a store knows of full limits, and those made from it by InTx.
type rooms struct {
	shared overflow.Counts
	full   atomic.Bool   // some limit shares, as far as is known
	every  atomic.Int64  // after how many new keys of a limit to count them, at least; 0: no limit has a maximum
	most   atomic.Int64  // keys that a limit may have that says nothing of its own; 0: any number
	asking atomic.Bool   // a count in the background is under way
	turn   chan struct{} // holds one while somebody counts
	warned atomic.Int64  // of this maximum, which is not that of the configuration

	mu    sync.Mutex
	own   map[string]int64 // maxima that limits have said, not written yet; guarded by mu
	known map[string]int64 // those that are in the store; guarded by mu
	fresh map[string]int64 // keys that seem new since the last count, by limit; guarded by mu
}

func newRooms() *rooms {
	return &rooms{
		turn: make(chan struct{}, 1), own: map[string]int64{}, known: map[string]int64{},
		fresh: map[string]int64{},
	}
}

// mostNames bounds what is remembered by the names of limits, which may come from
// outside.
const mostNames = 10_000

// often returns after how many new keys to count, for a maximum.
func often(most int64) int64 { return max(1, most/50) }

// note notes the maximum that a limit has of its own.
func (r *rooms) note(op *law.Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if cmp.Or(r.own[op.Cell.Limit], r.known[op.Cell.Limit]) == op.Params.MaxKeys || len(r.own) >= mostNames {
		return
	}
	r.own[op.Cell.Limit] = op.Params.MaxKeys
	if every := r.every.Load(); every == 0 || often(op.Params.MaxKeys) < every {
		r.every.Store(often(op.Params.MaxKeys))
	}
}

// comes notes that a limit seems to have a new key, and reports whether it is time to
// count.
func (r *rooms) comes(limit string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.fresh) >= mostNames {
		clear(r.fresh)
	}
	r.fresh[limit]++
	most := cmp.Or(r.own[limit], r.known[limit], r.most.Load())
	return most > 0 && r.fresh[limit] >= often(most)
}

// unwritten takes the maxima that are not in the store yet.
func (r *rooms) unwritten() map[string]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.own)
}

// wrote notes that maxima are in the store, and which ones are.
func (r *rooms) wrote(some map[string]int64, all map[string]*room) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, most := range some {
		if r.own[name] == most {
			delete(r.own, name)
		}
	}
	clear(r.known)
	for name, room := range all {
		if room.own > 0 && room.keys > 0 && len(r.known) < mostNames {
			r.known[name] = room.own
		}
	}
}

// counted notes that keys were counted: of these limits, or of all if there are none.
func (r *rooms) counted(limits []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if limits == nil {
		clear(r.fresh)
	}
	for _, name := range limits {
		delete(r.fresh, name)
	}
}

// room is what the store has about a limit, or about all under the empty name.
type room struct {
	own, keys, at, took int64
	generation, since   int64
	sharing             bool
}

// readRooms reads what the store has about limits that have a maximum or have shared,
// and its clock.
func readRooms(ctx context.Context, db querier) (all map[string]*room, now int64, err error) {
	rows, err := db.QueryContext(ctx, `SELECT n.limit_name,
		COALESCE(k.max_keys, 0), COALESCE(k.key_count, 0), COALESCE(k.counted_at, 0), COALESCE(k.took, 0),
		COALESCE(r.generation, 0), COALESCE(r.since, 0), COALESCE(r.sharing, 0), `+readClock+`
		FROM (SELECT limit_name FROM headgate_key_counts UNION SELECT limit_name FROM headgate_rooms WHERE sharing = 1 UNION SELECT '') n
		LEFT JOIN headgate_key_counts k ON k.limit_name = n.limit_name
		LEFT JOIN headgate_rooms r ON r.limit_name = n.limit_name`)
	if err != nil {
		return nil, 0, classify("read how many keys limits have", err)
	}
	defer rows.Close()
	all = map[string]*room{}
	for rows.Next() {
		var name string
		r := &room{}
		if err := rows.Scan(&name, &r.own, &r.keys, &r.at, &r.took, &r.generation, &r.since, &r.sharing,
			&now); err != nil {
			return nil, 0, classify("read how many keys limits have", err)
		}
		all[name] = r
	}
	if err := rows.Err(); err != nil {
		return nil, 0, classify("read how many keys limits have", err)
	}
	return all, now, nil
}
