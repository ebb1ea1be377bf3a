package replay

import (
	"context"

	"github.com/headgate/headgate"
)

// Log holds the results that do not depend on a limit: what was read, the times, the disorder and the notes.
func (in *Requests) Log() Report { return in.report }

// Compare applies limits to the requests, as [Compare] does to logs. The reports name the top keys by refusals;
// below 0: none.
func (in *Requests) Compare(ctx context.Context, top int, limits ...headgate.Limit) ([]*Report, error) {
	if err := checkLimits(limits); err != nil {
		return nil, err
	}
	reports := make([]*Report, len(limits))
	for i, limit := range limits {
		var err error
		if reports[i], err = decide(ctx, limit, in, top); err == nil && in.cfg.Pictures {
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

// Memory is about how many bytes the requests and their keys take.
func (in *Requests) Memory() int64 {
	return in.text + keyMemory*int64(len(in.keys)) + eventMemory*int64(len(in.events.list)) +
		costMemory*int64(len(in.events.costs))
}
