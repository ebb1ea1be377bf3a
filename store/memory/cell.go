package memory

import (
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/law"
)

// pair is read and written by a decision about a plain cell: its level and
// its time. It is read without a lock. A writer holds the lock bit of
// word, and never lets at run backwards: so a word that was read between two
// equal readings of at belongs to it.
type pair struct {
	word atomic.Uint64 // level << metaBits | id << 1 | lock
	at   atomic.Int64  // of a slot: the tag of its cell << timeBits | time; of a rich cell: the time
}

const (
	lockBit  = 1
	idBits   = 10 // levels take 53 of the 64 bits
	metaBits = idBits + 1
	idMask   = 1<<idBits - 1

	timeBits = 53 // times take as many: law.Apply refuses later ones
	timeMask = 1<<timeBits - 1
)

// The ids of pairs in slots are the numbers of their parameters, but for one.
// Those of pairs in rich cells say how the cell is.
const (
	idRich = idMask // the cell is an object of its own

	idPlain = 1 // the pair says all
	idOther = 2 // rich.state says all
	idGone  = 3 // the cell is not in the store any more
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

// settled waits until nobody holds the lock bit, and returns the word.
func (p *pair) settled() uint64 {
	for n := 0; ; n++ {
		if w := p.word.Load(); w&lockBit == 0 {
			return w
		}
		pause(n)
	}
}

// set writes a pair whose lock bit is held, or that nobody can see, and lets go
// of it.
func (p *pair) set(word uint64, at int64) {
	p.at.Store(at)
	p.word.Store(word)
}

// pause waits between attempts to get what is held for some nanoseconds, unless its holder was put to sleep. The
// others then make many decisions while the cache line is theirs, instead of each fetching it for one.
func pause(n int) {
	switch {
	case n < len(away):
		for range away[n] {
		}
	case n < 1000:
		sched.Yield()
	default:
		sched.Sleep(50 * time.Microsecond)
	}
}

// away are the turns of an empty loop, a third of a nanosecond each, that the
// first attempts are apart.
var away = [...]int{100, 200, 400, 800, 800, 800, 800}

// rich is a cell that is an object of its own: one that is not plain, or one of a
// limit that has no number. It has 128 bytes, so that it shares no cache line with another cell.
type rich struct {
	pair
	params *law.Params // of the plain cell; never changed: the cell is replaced

	// The rest is guarded by the lock bit.
	state  law.State
	reason string
	log    *entries  // nil until the log law is used
	known  *register // nil until a request has an ID
	limit  *limit    // whose cell it is; never changed
}

// load returns the state of a cell whose lock bit is held; word is what lock
// returned.
func (r *rich) load(word uint64) law.State {
	if idOf(word) == idPlain {
		return r.params.PlainState(levelOf(word), r.at.Load())
	}
	return r.state
}

// deadAt returns the time from which on the cell is as good as fresh, and
// remembers nothing.
func (r *rich) deadAt(word uint64) int64 {
	if idOf(word) == idPlain {
		return r.params.PlainEmptyAt(levelOf(word), r.at.Load())
	}
	dead := max(r.state.EmptyAt, r.state.BlockedUntil)
	if r.log != nil {
		dead = max(dead, r.log.keepUntil())
	}
	if r.known.len() > 0 {
		dead = max(dead, r.known.last)
	}
	return dead
}
