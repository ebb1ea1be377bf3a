package replay

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/accesslog"
)

// tally counts the requests of a key, and those that were denied.
type tally struct {
	requests, denied int64
	firstDenied      int64 // time of the first denial
}

// decide lets a limiter decide every request, and returns the report, with at most top keys in Top.
func decide(ctx context.Context, limit headgate.Limit, reqs *Requests, top int) (*Report, error) {
	cfg := reqs.cfg
	r := reqs.report // a copy: each limit has its own report
	r.Notation, r.Bound = limit.String(), limit.Bound().String()
	r.limit, r.keyNumbers = limit, reqs.keyNumbers
	if !cfg.Fill && slices.ContainsFunc(r.Logs, func(l Log) bool { return l.Format == accesslog.Usage }) {
		r.Used = &Total{}
	}
	if r.Fill = cfg.Fill; r.Fill {
		r.Bound = "" // a bound assumes that requests are refused
	}
	first, last := r.First.UnixMicro(), r.Last.UnixMicro()
	width := bucketWidth(last-first, maxBuckets)
	start := first - first%width
	r.Width = Seconds{time.Duration(width) * time.Microsecond}
	r.Buckets = make([]Bucket, (last-start)/width+1)
	for i := range r.Buckets {
		r.Buckets[i].Start = timeOf(start + int64(i)*width)
	}
	r.tallies = make([]tally, len(reqs.keys))
	p := newPlayer(limit, cfg, cfg.Fill || cfg.Trace > 0)
	n := int64(0)
	err := reqs.events.each(ctx, func(e *request) error {
		key := reqs.keys[e.key]
		s, err := p.play(ctx, e, key)
		if err != nil {
			return err
		}
		t, b := &r.tallies[e.key], &r.Buckets[(e.at-start)/width]
		t.requests++
		r.Asked.add(e.cost)
		r.Accepted.add(s.accepted)
		if e.end > 0 && s.allowed {
			r.Used.add(e.used)
		}
		if s.brim && r.Fill {
			r.Brim++
		}
		if s.allowed {
			b.Allowed++
		} else {
			b.Denied++
			if t.denied++; t.denied == 1 {
				t.firstDenied = e.at
			}
		}
		if int64(len(r.Steps)) < int64(cfg.Trace) {
			r.Steps = append(r.Steps, newStep(p, e, key, &s))
		}
		if n++; n&0x3fff == 0 {
			cfg.Progress(Deciding, n, r.Requests)
		}
		return nil
	})
	if err == nil {
		err = p.settle(ctx, accesslog.MaxTime)
	}
	if err != nil {
		return nil, err
	}
	cfg.Progress(Deciding, n, r.Requests)
	r.widenSparse()
	for _, b := range r.Buckets {
		r.Allowed += b.Allowed
		r.Denied += b.Denied
	}
	r.rank(reqs.keys, top)
	return &r, nil
}

// widenSparse widens the buckets while most buckets with requests follow an empty bucket: requests that come each hour
// leave every second bucket of half an hour empty, which looks like a comb and says nothing.
func (r *Report) widenSparse() {
	for _, w := range bucketWidths {
		width := w * second
		old := r.Width.Microseconds()
		if width <= old || width%old != 0 {
			continue
		}
		if medianGap(r.Buckets) < 2 {
			return
		}
		merged := mergeBuckets(r.Buckets, width)
		if len(merged) < minBuckets {
			return
		}
		r.Buckets, r.Width = merged, Seconds{time.Duration(width) * time.Microsecond}
	}
}

// mergeBuckets sums buckets into wider buckets, of a width in microseconds.
func mergeBuckets(list []Bucket, width int64) (sums []Bucket) {
	for _, b := range list {
		t := b.Start.UnixMicro()
		if start := timeOf(t - t%width); len(sums) == 0 || sums[len(sums)-1].Start != start {
			sums = append(sums, Bucket{Start: start})
		}
		last := &sums[len(sums)-1]
		last.Allowed += b.Allowed
		last.Denied += b.Denied
	}
	return sums
}

// minBuckets is the minimum number of buckets that widenSparse leaves.
const minBuckets = 24

// medianGap returns the median distance between neighbouring buckets that are not empty.
func medianGap(buckets []Bucket) int {
	var gaps []int
	last := -1
	for i, b := range buckets {
		if b.Allowed+b.Denied == 0 {
			continue
		}
		if last >= 0 {
			gaps = append(gaps, i-last)
		}
		last = i
	}
	if len(gaps) == 0 {
		return 0
	}
	slices.Sort(gaps)
	return gaps[len(gaps)/2]
}

// newStep returns the effect of a request in units of cost.
func newStep(p *player, e *request, key string, s *playResult) Step {
	t := Step{
		At: timeOf(e.at), Key: key, Allowed: s.allowed, Brim: s.brim,
		Before: float64(s.levelBefore) / float64(p.params.Unit), After: float64(s.levelAfter) / float64(p.params.Unit),
	}
	t.Cost.add(e.cost)
	if p.fill {
		t.Overflow.add(e.cost - s.accepted)
	}
	return t
}

// rank sets DeniedKeys, Top to the keys with the most refusals, and Busiest to the key with the most requests.
func (r *Report) rank(keys []string, top int) {
	var deniedKeys []uint32
	busiest := 0
	for i := range r.tallies {
		if r.tallies[i].denied > 0 {
			deniedKeys = append(deniedKeys, uint32(i))
		}
		if r.tallies[i].requests > r.tallies[busiest].requests {
			busiest = i
		}
	}
	r.DeniedKeys = int64(len(deniedKeys))
	slices.SortFunc(deniedKeys, func(a, b uint32) int {
		x, y := &r.tallies[a], &r.tallies[b]
		return cmp.Or(cmp.Compare(y.denied, x.denied), cmp.Compare(y.requests, x.requests),
			cmp.Compare(keys[a], keys[b]))
	})
	r.Top = make([]KeyReport, 0, max(top, 0))
	for _, i := range deniedKeys[:min(len(deniedKeys), max(top, 0))] {
		r.Top = append(r.Top, r.keyReport(keys, i))
	}
	r.Busiest = r.keyReport(keys, uint32(busiest))
}

func (r *Report) keyReport(keys []string, i uint32) KeyReport {
	t := &r.tallies[i]
	k := KeyReport{Key: keys[i], Requests: t.requests, Denied: t.denied}
	if t.denied > 0 {
		k.FirstDenied = timeOf(t.firstDenied)
	}
	return k
}

// bucketWidths are the lengths of buckets, in seconds.
var bucketWidths = []int64{
	1, 2, 5, 10, 15, 30, 60, 2 * 60, 5 * 60, 10 * 60, 15 * 60, 30 * 60,
	3600, 2 * 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86400, 2 * 86400, 4 * 86400, 7 * 86400, 14 * 86400, 28 * 86400,
}

// bucketWidth returns the shortest width of which maxCount buckets cover a span, in microseconds, wherever it begins:
// one of bucketWidths, or the last of them doubled some times.
func bucketWidth(span, maxCount int64) int64 {
	for _, w := range bucketWidths {
		if span/(w*second)+2 <= maxCount {
			return w * second
		}
	}
	w := 28 * day
	for span/w+2 > maxCount {
		w *= 2
	}
	return w
}
