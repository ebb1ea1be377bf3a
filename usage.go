package headgate

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// Usage is what a key has used of one limit, and when it can go on. Its Status has no History.
type Usage struct {
	Status
	// RetryAfter is the time until a cost of 1 can pass if nobody else comes, or the smallest amount of a limit
	// that lets less than 1 pass at once: 0 if it can now, or Never. ResetAfter is the time until the key is
	// unused again, its block over.
	RetryAfter, ResetAfter time.Duration
}

// Usage tells what a key has used of each of the limits, in their order. It changes nothing and
// takes no lock, and asks the store once for up to a thousand limits, and once more for each of
// them that blocks the key, unless the store cannot be looked into: then the Reason of a block is
// not known. If one of the limits cannot be told of, none is; errors are those of Check.
func (l *Limiter) Usage(ctx context.Context, key string, limits ...Limit) ([]Usage, error) {
	charges := make([]Charge, len(limits))
	for i, limit := range limits {
		charges[i] = Charge{Limit: limit, Key: key}
	}
	return l.UsageOf(ctx, charges)
}

// UsageOf is Usage for several keys: it tells what the key of each charge has used of its limit, whatever the costs
// of the charges.
func (l *Limiter) UsageOf(ctx context.Context, charges []Charge) (list []Usage, err error) {
	charges = slices.Clone(charges)
	for i := range charges {
		charges[i].Cost, charges[i].Keep = Cost{}, Headroom{}
	}
	ctx, d := withDeadline(ctx, l.timeout)
	defer d.end(&err, store.ErrUnavailable)
	for part := range slices.Chunk(charges, checksAtOnce) {
		some, err := l.usage(ctx, part)
		if err != nil {
			return nil, err
		}
		list = append(list, some...)
	}
	return list, nil
}

// usage is Usage for as many limits as are asked for at once.
func (l *Limiter) usage(ctx context.Context, asked []Charge) ([]Usage, error) {
	charges, err := l.resolve(ctx, asked, retries{})
	if err != nil {
		return nil, err
	}
	r := l.request(charges)
	for i := range charges {
		if err := l.compile(r.ops[i:i+1], law.Check, uint32(i+1), charges[i:i+1]); err != nil {
			return nil, err
		}
		r.ops[i].Cost = probe(&r.ops[i].Params)
	}
	if err := l.apply(ctx, r.ops, r.outs, r.cals); err != nil {
		return nil, err
	}
	list := make([]Usage, len(charges))
	for i := range charges {
		limit := charges[i].Limit
		if err = r.outs[i].Err; errors.Is(err, errStale) { // another limit holds by now
			limit, r.ops[i], r.outs[i], err = l.one(ctx, law.Check, asked[i].Limit, asked[i].Key, func(op *law.Op) {
				op.Cost = probe(&op.Params)
			})
		}
		if err == nil {
			list[i], err = l.used(ctx, limit, &r.ops[i], &r.outs[i])
		}
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// probe returns what a look asks for: a cost of 1, or the smallest amount of a limit that lets less pass at once.
func probe(p *law.Params) int64 {
	if p.Capacity >= p.Unit || closed(p) {
		return p.Unit
	}
	return max(1, p.Unit/pow10[p.Digits])
}

// used is the Usage of a limit that was asked for its probe.
func (l *Limiter) used(ctx context.Context, limit Limit, op *law.Op, out *law.Outcome) (u Usage, err error) {
	cell := store.Cell{Cell: op.Cell, State: out.State}
	if cell.State.BlockedUntil > out.Clock {
		if cell.Reason, err = l.reason(ctx, op.Cell); err != nil {
			return u, err
		}
	}
	f := figures{op, out, out.Granted == op.Count}
	b := f.brief(f.fits)
	var d Decision
	d.derive(&op.Params, &b, &out.State)
	u = Usage{Status: checked(cell, limit, op, out), RetryAfter: d.RetryAfter, ResetAfter: d.ResetAfter}
	return u, nil
}

// reason is that of the block of a cell, if the store can be looked into.
func (l *Limiter) reason(ctx context.Context, cell law.Cell) (string, error) {
	inspector, err := l.inspector()
	if err != nil {
		return "", nil //nolint:nilerr // it cannot
	}
	cells, _, err := inspector.Cells(ctx, store.Query{Limit: cell.Limit, Key: cell.Key, HasKey: true, Max: 1})
	if err != nil || len(cells) == 0 {
		return "", err
	}
	return cells[0].Reason, nil
}
