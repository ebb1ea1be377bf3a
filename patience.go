package headgate

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/pause"
	"github.com/headgate/headgate/law"
)

// patience is how long somebody waits: until the context's deadline, and for so long
// at most from the first answer of the store on, since how long that takes is no
// waiting.
type patience struct {
	most time.Duration
	end  time.Time // of most; zero before the first answer
}

// answered is to be called after each answer.
func (p *patience) answered() {
	if p.end.IsZero() && p.most != Never {
		p.end = time.Now().Add(min(p.most, pause.Longest)) //nolint:forbidigo // a pause, not a decision
	}
}

// left is how much is left of it: always more than 0, which is for those who do not
// wait at all.
func (p *patience) left(ctx context.Context) time.Duration {
	left := pause.Patience(ctx)
	if p.end.IsZero() {
		left = min(left, p.most)
	} else {
		left = min(left, time.Until(p.end))
	}
	return max(left, 1)
}

// tooLate says that a refusal cannot be waited for.
func (p *patience) tooLate(ctx context.Context, d *Decision) error {
	switch {
	case d.RetryAfter == Never:
		return &DeniedError{*d}
	case p.left(ctx) < d.RetryAfter:
		return fmt.Errorf("%w: %w", ErrDeadline, &DeniedError{*d})
	}
	return nil
}

// unblocking makes ops those of a caller who waits: the block of a limit is for those
// who try without waiting. Limits with a block have no tokens up front, which only
// they could give out.
func unblocking(ops []law.Op) {
	for i := range ops {
		if p := &ops[i].Params; p.Block > 0 {
			p.Block, p.Lease, p.LeaseLife = 0, 0, 0
		}
	}
}
