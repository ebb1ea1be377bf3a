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
}

// tail writes the options into p, or says what is wrong with it.
func (t Tail) tail(p *law.Params) error {
	if t.Block != 0 {
		if err := checkPeriod("block", t.Block); err != nil {
			return err
		}
		p.Block = t.Block.Microseconds()
	}
	return t.Prefetch.compile(p)
}

// suffix writes the options at the end of a notation.
func (t Tail) suffix() string {
	s := ""
	if t.Block != 0 {
		s = " block " + formatPeriod(t.Block)
	}
	return s + t.Prefetch.suffix()
}
