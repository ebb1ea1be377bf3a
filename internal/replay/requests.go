package replay

import (
	"context"

	"github.com/headgate/headgate"
)

// Requests are those of logs that were read once, to be asked about any number of limits. They are safe for
// concurrent use, and have to be closed.
type Requests struct{ in *input }

// Read reads logs, as Run does. What cfg says of pictures, of Fill and of Trace holds for all that is asked later.
func Read(ctx context.Context, key string, logs []string, cfg *Config) (*Requests, error) {
	in, err := open(ctx, key, logs, cfg)
	if err != nil {
		if in != nil && in.events != nil {
			in.events.close()
		}
		return nil, err
	}
	return &Requests{in}, nil
}

// Close removes what does not fit in memory. Nothing may be asked after that.
func (q *Requests) Close() { q.in.events.close() }

// Log tells of the logs what does not depend on a limit: all that stands before Allowed in a Report, but for that
// limit, and the times, the disorder and the notes.
func (q *Requests) Log() Report { return q.in.report }

// Memory is about how many bytes the requests and their keys take.
func (q *Requests) Memory() int64 { return q.in.memory() }

// Compare is what the function of that name does, and names so many of the most refused keys; 0: those of the
// Config.
func (q *Requests) Compare(ctx context.Context, top int, limits ...headgate.Limit) ([]*Report, error) {
	if err := checkLimits(limits); err != nil {
		return nil, err
	}
	return q.compare(ctx, q.with(top), limits)
}

// with returns the input with another number of keys to be named.
func (q *Requests) with(top int) *input {
	if top == 0 {
		return q.in
	}
	in, cfg := *q.in, *q.in.cfg
	cfg.Top, in.cfg = top, &cfg
	return &in
}

func (q *Requests) compare(ctx context.Context, in *input, limits []headgate.Limit) ([]*Report, error) {
	reports := make([]*Report, len(limits))
	for i, limit := range limits {
		var err error
		if reports[i], err = decide(ctx, limit, in); err == nil && in.cfg.Pictures {
			err = reports[i].trace(ctx, in, len(limits))
		}
		if err != nil {
			return nil, err
		}
	}
	return reports, nil
}

// What a key and a request take beside their text and their amounts, about: in the slices and the map, which have room
// for more than there is.
const (
	keyMemory   = 100
	eventMemory = 24
	costMemory  = 36
)

// memory is about how many bytes the requests and their keys take.
func (in *input) memory() int64 {
	return in.text + keyMemory*int64(len(in.keys)) + eventMemory*int64(len(in.events.buf)) +
		costMemory*int64(len(in.events.costs))
}
