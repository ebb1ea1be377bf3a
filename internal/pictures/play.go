// Package pictures draws the pictures of the documentation. What they show is decided by the limiter itself, over a
// memory store on a clock that the package moves, so that a picture is always what the code does: a test compares
// the files in docs/pictures with what is drawn, and writes them again with -update.
//
// The charts of package replay are parts of an HTML page, in two sizes, about one key of a log that somebody has. They
// know no leases, so this package has charts of its own. Both take their colours from package palette.
package pictures

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
)

// grid is how far apart the times are at which a level is looked at. Requests come at multiples of it.
const grid = 50 * time.Millisecond

// beginning is where all streams begin: at a multiple of every window that is drawn.
var beginning = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// request is one of a stream, with its answer.
type request struct {
	at       time.Duration // from the beginning
	admitted bool
}

// point is how much is in use at a time.
type point struct {
	at    time.Duration
	level float64
}

// run is what a limit has done to a stream.
type run struct {
	limit    headgate.Limit
	requests []request
	way      []point
	end      time.Duration
}

// play sends a stream of requests of one key to a limit. Those of a concurrency limit hold their place for hold.
func play(notation string, stream []time.Duration, end, hold time.Duration) (*run, error) {
	limit, err := headgate.Parse(notation)
	if err != nil {
		return nil, err
	}
	var clock atomic.Int64
	s := memory.New(&memory.Config{Clock: clock.Load})
	defer s.Close()
	p := player{limiter: headgate.New(s, &headgate.Config{Clock: clock.Load}), limit: limit, hold: hold}
	ctx := context.Background()
	r := &run{limit: limit, end: end}
	for at := time.Duration(0); at <= end; at += grid {
		clock.Store(beginning.Add(at).UnixMicro())
		if err := p.release(ctx, at); err != nil {
			return nil, err
		}
		if err := p.look(ctx, r, at); err != nil {
			return nil, err
		}
		if slices.Contains(stream, at) {
			admitted, err := p.ask(ctx, at)
			if err != nil {
				return nil, err
			}
			r.requests = append(r.requests, request{at, admitted})
			if err := p.look(ctx, r, at); err != nil {
				return nil, err
			}
		}
	}
	if len(r.requests) != len(stream) {
		return nil, fmt.Errorf("pictures: %d of %d requests are at multiples of %s", len(r.requests), len(stream), grid)
	}
	return r, p.release(ctx, end+hold)
}

// player asks a limiter for one key.
type player struct {
	limiter *headgate.Limiter
	limit   headgate.Limit
	hold    time.Duration
	held    []lease
}

// lease is a place that is held until a time.
type lease struct {
	*headgate.Lease
	until time.Duration
}

const key = "alice"

func (p *player) ask(ctx context.Context, at time.Duration) (admitted bool, err error) {
	if p.hold == 0 {
		d, err := p.limiter.Allow(ctx, p.limit, key)
		return d.Allowed, err
	}
	l, err := p.limiter.Acquire(ctx, headgate.Charge{Limit: p.limit, Key: key})
	if err != nil || !l.Decision.Allowed {
		return false, err
	}
	p.held = append(p.held, lease{l, at + p.hold})
	return true, nil
}

// release ends the leases whose time has come.
func (p *player) release(ctx context.Context, at time.Duration) error {
	for len(p.held) > 0 && p.held[0].until <= at {
		if err := p.held[0].Release(ctx); err != nil {
			return err
		}
		p.held = p.held[1:]
	}
	return nil
}

func (p *player) look(ctx context.Context, r *run, at time.Duration) error {
	s, err := p.limiter.Inspect(ctx, p.limit, key)
	r.way = append(r.way, point{at, s.Used.Float64()})
	return err
}

// admitted counts what passes.
func (r *run) admitted() (n int) {
	for _, q := range r.requests {
		if q.admitted {
			n++
		}
	}
	return n
}

// busiest returns the first interval of a length in which most passes, and how much that is. Its end does not belong
// to it: what a sliding log has admitted counts until it is exactly as old as the period.
func (r *run) busiest(length time.Duration) (from time.Duration, most int) {
	for i, first := range r.requests {
		n := 0
		for _, q := range r.requests[i:] {
			if q.admitted && q.at < first.at+length {
				n++
			}
		}
		if first.admitted && n > most {
			from, most = first.at, n
		}
	}
	return from, most
}
