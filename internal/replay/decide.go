package replay

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// tally counts what became of a key.
type tally struct {
	requests, denied int64
	firstDenied      int64
}

// decide asks a limiter about every event, and fills the report.
func decide(ctx context.Context, limit headgate.Limit, in *input, cfg *Config) error {
	r := &in.report
	if r.Requests == 0 {
		return nil
	}
	first, last, err := in.events.span(ctx)
	if err != nil {
		return err
	}
	r.First, r.Last = at(first), at(last)
	width := bucketWidth(last-first, maxBuckets)
	start := first - first%width
	r.Width = time.Duration(width) * time.Microsecond
	r.Buckets = make([]Bucket, (last-start)/width+1)
	for i := range r.Buckets {
		r.Buckets[i].Start = at(start + int64(i)*width)
	}

	tallies := make([]tally, len(in.keys))
	lim, clock := newLimiter(nil)
	n := int64(0)
	err = in.events.each(ctx, func(t int64, key uint32) error {
		*clock = t
		d, err := lim.Take(ctx, headgate.Charge{Limit: limit, Key: in.keys[key]})
		if err != nil {
			return fmt.Errorf("replay: take of %s at %s: %w", quote(in.keys[key]), at(t).Format(time.RFC3339), err)
		}
		k, b := &tallies[key], &r.Buckets[(t-start)/width]
		k.requests++
		if d.Allowed {
			b.Allowed++
		} else {
			b.Denied++
			if k.denied++; k.denied == 1 {
				k.firstDenied = t
			}
		}
		if n++; n&0x3fff == 0 {
			cfg.Progress(Deciding, n, r.Requests)
		}
		return nil
	})
	if err != nil {
		return err
	}
	cfg.Progress(Deciding, n, r.Requests)
	for _, b := range r.Buckets {
		r.Allowed += b.Allowed
		r.Denied += b.Denied
	}
	r.rank(in.keys, tallies, cfg.Top)
	return nil
}

// newLimiter returns a limiter over a memory store, and the clock of both.
func newLimiter(wrap func(store.Store) store.Store) (*headgate.Limiter, *int64) {
	now := new(int64)
	clock := func() int64 { return *now }
	var s store.Store = memory.New(&memory.Config{Clock: clock, MaxKeys: -1})
	if wrap != nil {
		s = wrap(s)
	}
	return headgate.New(s, &headgate.Config{Clock: clock}), now
}

// rank finds the keys that were refused most.
func (r *Report) rank(keys []string, tallies []tally, top int) {
	var order []uint32
	busiest := 0
	for i := range tallies {
		if tallies[i].denied > 0 {
			order = append(order, uint32(i))
		}
		if tallies[i].requests > tallies[busiest].requests {
			busiest = i
		}
	}
	r.Refused = len(order)
	slices.SortFunc(order, func(a, b uint32) int {
		x, y := &tallies[a], &tallies[b]
		return cmp.Or(cmp.Compare(y.denied, x.denied), cmp.Compare(y.requests, x.requests),
			cmp.Compare(keys[a], keys[b]))
	})
	report := func(i uint32) KeyReport {
		t := &tallies[i]
		k := KeyReport{Key: keys[i], Requests: t.requests, Denied: t.denied}
		if t.denied > 0 {
			k.FirstDenied = at(t.firstDenied)
		}
		return k
	}
	r.Top = make([]KeyReport, 0, max(top, 0))
	for _, i := range order[:min(len(order), max(top, 0))] {
		r.Top = append(r.Top, report(i))
	}
	r.Busiest = report(uint32(busiest))
}

// widths are what a bucket may last, in seconds: a time that people use.
var widths = []int64{
	1, 2, 5, 10, 15, 30, 60, 2 * 60, 5 * 60, 10 * 60, 15 * 60, 30 * 60,
	3600, 2 * 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86400, 2 * 86400, 4 * 86400, 7 * 86400, 14 * 86400, 28 * 86400,
}

// bucketWidth returns the shortest width, in microseconds, of which no more
// than most are needed for a span.
func bucketWidth(span, most int64) int64 {
	for _, w := range widths {
		if span/(w*second)+2 <= most {
			return w * second
		}
	}
	w := 28 * day
	for span/w+2 > most {
		w *= 2
	}
	return w
}
