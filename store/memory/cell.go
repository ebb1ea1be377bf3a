package memory

import (
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/law"
)

// pair is the level and the time of a plain cell, which a decision reads and writes. Readers take no lock. A writer
// holds the lock bit of word, and sets at back only in a locked table: so a word that was read between two equal
// readings of at, and the same version of the table, belongs to that time.
type pair struct {
	word atomic.Uint64 // level << metaBits | id << 1 | lock
	at   atomic.Int64  // in a slot: the tag of its cell << timeBits | time; in a rich cell: the time
}

const (
	lockBit  = 1
	idBits   = 10 // levels take 53 of the 64 bits
	metaBits = idBits + 1
	idMask   = 1<<idBits - 1

	timeBits = 53 // law.Apply refuses times that take more bits
	timeMask = 1<<timeBits - 1
)

// The id of a pair in a slot is the number of the cell's definition, or idRich. The id of a pair in a rich cell says
// where its state is.
const (
	idRich = idMask // the cell is an object of its own

	idPlain = 1 // the pair has the whole state
	idOther = 2 // rich.state has the state
	idGone  = 3 // the cell is no longer in the store
)

func wordOf(level int64, id uint64) uint64 { return uint64(level)<<metaBits | id<<1 }
func levelOf(word uint64) int64            { return int64(word >> metaBits) }
func idOf(word uint64) uint64              { return word >> 1 & idMask }

// time returns the time of the pair.
func (p *pair) time() int64 { return p.at.Load() & timeMask }

// lock waits for the lock bit, sets it, and returns the word without it.
func (p *pair) lock() uint64 {
	for n := 0; ; n++ {
		if w := p.word.Load(); w&lockBit == 0 && p.word.CompareAndSwap(w, w|lockBit) {
			return w
		}
		pause(n)
	}
}

// waitUnlocked waits until nobody holds the lock bit, and returns the word.
func (p *pair) waitUnlocked() uint64 {
	for n := 0; ; n++ {
		if w := p.word.Load(); w&lockBit == 0 {
			return w
		}
		pause(n)
	}
}

// set writes a pair whose lock bit the caller holds, or that nobody else can see, and releases it.
func (p *pair) set(word uint64, at int64) {
	p.at.Store(at)
	p.word.Store(word)
}

// pause waits between attempts n and n+1 to get a lock, which others hold for some nanoseconds unless the system
// preempts them. The pauses are so long that a holder can make many decisions while its processor has the cache line.
func pause(n int) {
	switch {
	case n < len(spinLoops):
		for range spinLoops[n] {
		}
	case n < 1000:
		sched.Yield()
	default:
		sched.Sleep(50 * time.Microsecond)
	}
}

// spinLoops are the iterations of an empty loop, a third of a nanosecond each, between the first attempts.
var spinLoops = [...]int{100, 200, 400, 800, 800, 800, 800}

// rich is a cell that is an object of its own: a cell that is not plain, or was not, or whose definition has no number.
// It has 128 bytes, so that it shares no cache line with another cell.
type rich struct {
	pair
	params *law.Params // used while the cell is plain; never changed: the cell is replaced

	// The rest is guarded by the lock bit.
	state    law.State
	reason   string
	log      *entries  // nil until the log law is used
	receipts *register // nil until a request has an ID
	limit    *limit    // never changed
}

// load returns the state of a cell whose lock bit the caller holds; word is the result of lock.
func (r *rich) load(word uint64) law.State {
	if idOf(word) == idPlain {
		return r.params.PlainState(levelOf(word), r.at.Load())
	}
	return r.state
}

// deadAt returns the time from which on the cell is dead: it decides as a fresh cell does, and has nothing to remember.
func (r *rich) deadAt(word uint64) int64 {
	if idOf(word) == idPlain {
		return r.params.PlainEmptyAt(levelOf(word), r.at.Load())
	}
	end := max(r.state.EmptyAt, r.state.BlockedUntil)
	if r.log != nil {
		end = max(end, r.log.keepUntil())
	}
	if r.receipts.len() > 0 {
		end = max(end, r.receipts.lastKeepUntil)
	}
	return end
}
