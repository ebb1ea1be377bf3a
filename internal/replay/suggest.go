package replay

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/law"
)

// Ask is a request for suggestions.
type Ask struct {
	Refuse  float64         // the share that may be refused, from 0 to below 1
	Keys    bool            // the share is of the keys, else of the requests
	Periods []time.Duration // of the limits; none: a minute, an hour and a day
}

// Suggestion is limits that would refuse no more than what was requested, each with what it would have done.
type Suggestion struct {
	Ask     Ask      `json:"-"`
	Most    int64    `json:"most"` // requests or keys that may be refused
	Peaks   []Peaks  `json:"peaks"`
	Choices []Choice `json:"limits"`  // for each period a token bucket, a sliding and a fixed window
	Busiest []KeyRow `json:"busiest"` // the keys that asked most, with what each choice does to them
}

// Choice is a limit that is suggested.
type Choice struct {
	*Report
	family   *family
	Sentence string  `json:"sentence"`       // what the limit would have done
	Period   Seconds `json:"period_seconds"` // within which it lets least pass, of its kind that refuses as little
	Passes   Amount  `json:"most_in_period"`
	Curve    []Point `json:"curve"`                 // what it would refuse if its burst or its number were another
	Others   []Point `json:"other_rates,omitempty"` // of a token bucket, each with the least burst that will do
}

// Point is the effect of another limit.
type Point struct {
	Limit  string `json:"limit"`
	Denied int64  `json:"denied"`
	Keys   int64  `json:"keys_denied"`
	Chosen bool   `json:"chosen,omitempty"` // it is the Choice itself
}

// DefaultRefuse is the share of requests that may be refused, unless another is requested.
const DefaultRefuse = 0.001

// Weighing is the phase in which many limits are tried.
const Weighing Phase = "weighing"

// Suggest names limits that would refuse at most a share of the requests or of the keys of logs. For each
// period it finds the token bucket that lets least pass within such a period, and the tightest sliding and fixed
// window, with round numbers. What they would have done is what Compare says of them.
func (in *Requests) Suggest(ctx context.Context, ask Ask) (*Suggestion, error) {
	switch {
	case !(ask.Refuse >= 0 && ask.Refuse < 1):
		return nil, headgate.Invalid("refuse", "%g is not a share from 0 to below 1", ask.Refuse)
	case in.cfg.Fill:
		return nil, headgate.Invalid("fill", "has no meaning where limits are suggested: nothing is refused then")
	}
	if len(ask.Periods) == 0 {
		ask.Periods = []time.Duration{time.Minute, time.Hour, 24 * time.Hour}
	}
	s := newScale(in)
	g := &Suggestion{Ask: ask, Most: int64(ask.Refuse * float64(in.report.Requests))}
	if ask.Keys {
		g.Most = int64(ask.Refuse * float64(len(in.keys)))
	}
	s.passes = 2 + int(math.Log2(float64(len(ladder)))) + 2 // peaks, halves, curves
	var err error
	if g.Peaks, err = s.findPeaks(ctx, ask.Periods); err != nil {
		return nil, err
	}
	families := g.families()
	if err := s.search(ctx, families, g); err != nil {
		return nil, err
	}
	chosen := g.best(families)
	for _, f := range chosen {
		if err := g.choose(ctx, in, f); err != nil {
			return nil, err
		}
	}
	if len(g.Choices) == 0 {
		return nil, errors.New("replay: no limit refuses as little: the costs are too large or too fine")
	}
	g.busiest(s)
	return g, s.curves(ctx, g, families)
}

// ladder is the round numbers that limits are suggested with.
var ladder = func() (list []int64) {
	for scale := int64(1); scale <= 1e15; scale *= 10 {
		for _, n := range []int64{10, 12, 15, 20, 25, 30, 40, 50, 60, 80} {
			if n*scale%10 == 0 {
				list = append(list, n*scale/10)
			}
		}
	}
	return list
}()

// family is limits that differ in one number only, of which the larger ones refuse less.
type family struct {
	kind      kind
	period    time.Duration
	rate      int64 // token bucket: per period
	low, high int   // the least number that will do is one of ladder[low:high], or none is
	try       *candidate
}

// kind is an algorithm of which limits are suggested.
type kind int

const (
	tokenBucket kind = iota
	slidingWindow
	fixedWindow
)

// limit returns the limit of a family with a number, or nil if that is too large.
func (f *family) limit(n int64) *candidate {
	var a headgate.Algorithm
	switch f.kind {
	case tokenBucket:
		a = headgate.TokenBucket{Amount: headgate.Units(f.rate), Period: f.period, Burst: headgate.Units(n)}
	case slidingWindow:
		a = headgate.SlidingWindow{Amount: headgate.Units(n), Period: f.period}
	default:
		a = headgate.FixedWindow{Amount: headgate.Units(n), Period: f.period}
	}
	limit, err := headgate.NewLimit("", a)
	if err != nil {
		return nil
	}
	p := limit.Params()
	return &candidate{family: f, limit: limit, p: p, op: law.Op{Verb: law.Take, Params: p, Count: 1}}
}

// families returns what is tried: token buckets of round rates up to the highest peak, and windows.
func (g *Suggestion) families() (list []*family) {
	for _, period := range g.Ask.Periods {
		peak := int64(1)
		for _, p := range g.Peaks {
			if n := p.Highest.units + 1; p.Period.Duration <= period || peak == 1 {
				peak = max(peak, n)
			}
		}
		for _, rate := range ladder {
			list = append(list, &family{kind: tokenBucket, period: period, rate: rate, high: len(ladder)})
			if rate > peak {
				break
			}
		}
		for _, k := range []kind{slidingWindow, fixedWindow} {
			list = append(list, &family{kind: k, period: period, high: len(ladder)})
		}
	}
	return list
}

// enough reports whether a limit refuses as little as was requested.
func (g *Suggestion) enough(denied, keys int64) bool {
	if g.Ask.Keys {
		return keys <= g.Most
	}
	return denied <= g.Most
}

// search finds the least number of each family that refuses as little, by halves and all of them at once.
func (s *scale) search(ctx context.Context, families []*family, g *Suggestion) error {
	for {
		var list []*candidate
		for _, f := range families {
			if f.try = nil; f.low >= f.high {
				continue
			}
			if f.try = f.limit(ladder[(f.low+f.high)/2]); f.try == nil {
				f.high = (f.low + f.high) / 2 // what is larger is too large also
				continue
			}
			list = append(list, f.try)
		}
		if len(list) == 0 {
			return nil
		}
		if err := s.weigh(ctx, list); err != nil {
			return err
		}
		for _, f := range families {
			switch c := f.try; {
			case c == nil:
			case g.enough(c.denied, c.keys):
				f.high = (f.low + f.high) / 2
			default:
				f.low = (f.low+f.high)/2 + 1
			}
		}
	}
}

// found reports whether a family has a limit that will do.
func (f *family) found() bool {
	return f.low == f.high && f.low < len(ladder) && f.limit(ladder[f.low]) != nil
}

// best returns the families to be suggested: of the token buckets of a period that which lets least pass in it.
func (g *Suggestion) best(families []*family) (list []*family) {
	for _, period := range g.Ask.Periods {
		var bucket *family
		var windows []*family
		for _, f := range families {
			switch {
			case f.period != period || !f.found():
			case f.kind != tokenBucket:
				windows = append(windows, f)
			case bucket == nil || f.rate+ladder[f.low] < bucket.rate+ladder[bucket.low]:
				bucket = f
			}
		}
		if bucket != nil {
			list = append(list, bucket)
		}
		list = append(list, windows...)
	}
	return list
}

// choose replays the limit of a family. If that refuses too much, it takes the next one: a limit that is larger
// may refuse more here and there, and a call of a model reserves more than it is weighed by.
func (g *Suggestion) choose(ctx context.Context, in *Requests, f *family) error {
	for ; f.low < len(ladder); f.low++ {
		c := f.limit(ladder[f.low])
		if c == nil {
			return nil
		}
		r, err := decide(ctx, c.limit, in, in.cfg.Top)
		if err != nil {
			return err
		}
		if g.enough(r.Denied, r.Refused) {
			f.high = f.low
			g.Choices = append(g.Choices, Choice{
				Report: r, family: f, Sentence: r.sentence(), Period: Seconds{f.period},
				Passes: Amount{c.limit.Bound().In(f.period)},
			})
			return nil
		}
	}
	return nil
}

// How many other limits are shown on each side of a choice.
const (
	tighter = 7
	looser  = 4
)

// curves weighs limits around each choice.
func (s *scale) curves(ctx context.Context, g *Suggestion, families []*family) error {
	var list []*candidate
	var points []*[]Point // of each, those that it belongs to
	add := func(to *[]Point, c *candidate) {
		if c != nil {
			list, points = append(list, c), append(points, to)
		}
	}
	for i := range g.Choices {
		c := &g.Choices[i]
		for n := max(0, c.family.low-tighter); n <= min(len(ladder)-1, c.family.low+looser); n++ {
			add(&c.Curve, c.family.limit(ladder[n]))
		}
		if c.family.kind != tokenBucket {
			continue
		}
		of := slices.Index(families, c.family)
		for j := max(0, of-tighter); j <= min(len(families)-1, of+looser); j++ {
			if f := families[j]; f.period == c.family.period && f.kind == tokenBucket && f.found() {
				add(&c.Others, f.limit(ladder[f.low]))
			}
		}
	}
	if err := s.weigh(ctx, list); err != nil {
		return err
	}
	for i, c := range list {
		p := Point{Limit: c.limit.String(), Denied: c.denied, Keys: c.keys}
		p.Chosen = slices.ContainsFunc(g.Choices, func(c Choice) bool { return c.Notation == p.Limit })
		*points[i] = append(*points[i], p)
	}
	return nil
}

// busiest finds the keys that asked most.
func (g *Suggestion) busiest(s *scale) {
	order := make([]int, len(s.totals))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(s.totals[b], s.totals[a]), cmp.Compare(s.in.keys[a], s.in.keys[b]))
	})
	var reports []*Report
	for _, c := range g.Choices {
		reports = append(reports, c.Report)
	}
	for _, i := range order[:min(len(order), max(s.in.cfg.Top, 0))] {
		g.Busiest = append(g.Busiest, rowOf(reports, s.in.keys[i]))
	}
}
