package headgate

import (
	"time"

	"github.com/headgate/headgate/law"
)

// Tail are the options that every algorithm shares.
type Tail struct {
	// Block refuses a key for this long once it has been refused. Zero: not.
	Block time.Duration
	// Prefetch lets nodes take tokens up front. Zero: not.
	Prefetch Prefetch
	// Away says what is answered while the store cannot decide. Zero: an error.
	Away Away
	// Deadline is how long a decision may take. Zero: as long as the Limiter lets it, see
	// Config.Timeout. Of the limits of one request the shortest holds.
	Deadline time.Duration
}

// tail writes the options into p, or says what is wrong with it.
func (t Tail) tail(p *law.Params) error {
	if t.Block != 0 {
		if err := checkPeriod("block", t.Block); err != nil {
			return err
		}
		p.Block = t.Block.Microseconds()
	}
	if err := t.checkAway(p); err != nil {
		return err
	}
	return t.Prefetch.compile(p)
}

// suffix writes the options at the end of a notation.
func (t Tail) suffix() string {
	s := ""
	if t.Block != 0 {
		s = " block " + formatPeriod(t.Block)
	}
	return s + t.Prefetch.suffix() + t.awaySuffix()
}
