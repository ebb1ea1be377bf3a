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

// SuggestOptions has the share that suggested limits may refuse, and the periods of the limits.
type SuggestOptions struct {
	Refuse  float64         // share that may be refused, from 0 to below 1
	OfKeys  bool            // Refuse is a share of the keys, else of the requests
	Periods []time.Duration // periods of the limits; none: a minute, an hour and a day
}

// Suggestion has limits that would refuse no more than Options allow, each with its report.
type Suggestion struct {
	Options    SuggestOptions `json:"-"`
	MaxRefused int64          `json:"most"` // requests or keys that may be refused
	Peaks      []Peaks        `json:"peaks"`
	Choices    []Choice       `json:"limits"`  // for each period a token bucket, a sliding and a fixed window, if found
	Busiest    []KeyRow       `json:"busiest"` // the keys with the highest cost, with what each choice does to them
}

// Choice is a suggested limit.
type Choice struct {
	*Report
	family       *family
	Sentence     string  `json:"sentence"` // what the limit would have done
	Period       Seconds `json:"period_seconds"`
	MostInPeriod Amount  `json:"most_in_period"`        // bound of the limit on what passes within Period
	Curve        []Point `json:"curve"`                 // the limit with its own and other bursts or numbers
	OtherRates   []Point `json:"other_rates,omitempty"` // token buckets of this and other rates, with the least bursts
}

// Point is a limit of a curve, with the numbers of requests and keys that it would refuse.
type Point struct {
	Limit      string `json:"limit"`
	Denied     int64  `json:"denied"`
	DeniedKeys int64  `json:"keys_denied"`
	Chosen     bool   `json:"chosen,omitempty"` // the limit is itself a Choice
}

// DefaultRefuse is the share of requests that may be refused by default.
const DefaultRefuse = 0.001

// Evaluating is the phase in which many limits are evaluated.
const Evaluating Phase = "weighing"

// Suggest finds limits that would refuse at most a share of the requests or of the keys of logs. For each period it
// finds the token bucket with the lowest bound within such a period, and the tightest sliding and fixed window, with
// round numbers. The figures of the limits are those of Compare. It is an error if no limit is found at all.
func (reqs *Requests) Suggest(ctx context.Context, options SuggestOptions) (*Suggestion, error) {
	switch {
	case !(options.Refuse >= 0 && options.Refuse < 1):
		return nil, headgate.Invalid("refuse", "%g is not a share from 0 to below 1", options.Refuse)
	case reqs.cfg.Fill:
		return nil, headgate.Invalid("fill", "has no meaning where limits are suggested: nothing is refused then")
	}
	if len(options.Periods) == 0 {
		options.Periods = []time.Duration{time.Minute, time.Hour, 24 * time.Hour}
	}
	e := newEvaluator(reqs)
	s := &Suggestion{Options: options, MaxRefused: int64(options.Refuse * float64(reqs.report.Requests))}
	if options.OfKeys {
		s.MaxRefused = int64(options.Refuse * float64(len(reqs.keys)))
	}
	e.plannedPasses = 4 + int(math.Log2(float64(len(roundNumbers)))) // peaks, curves, and at most 2 + log2 of search
	var err error
	if s.Peaks, err = e.findPeaks(ctx, options.Periods); err != nil {
		return nil, err
	}
	families := s.families()
	if err := e.search(ctx, families, s); err != nil {
		return nil, err
	}
	chosen := s.familiesToSuggest(families)
	for _, f := range chosen {
		if err := s.addChoice(ctx, reqs, f); err != nil {
			return nil, err
		}
	}
	if len(s.Choices) == 0 {
		return nil, errors.New("replay: no limit refuses as little: the costs are too large or too fine")
	}
	s.findBusiest(e)
	return s, e.addCurves(ctx, s, families)
}

// roundNumbers are the numbers that suggested limits may have, in ascending order.
var roundNumbers = func() (list []int64) {
	for scale := int64(1); scale <= 1e15; scale *= 10 {
		for _, n := range []int64{10, 12, 15, 20, 25, 30, 40, 50, 60, 80} {
			if n*scale%10 == 0 {
				list = append(list, n*scale/10)
			}
		}
	}
	return list
}()

// family is a set of limits that differ only in one number: a burst or an amount. Larger ones refuse less, as a rule.
type family struct {
	kind      kind
	period    time.Duration
	rate      int64      // tokens per period, of token buckets
	low, high int        // binary search: the index in roundNumbers of the least acceptable number, if any, is in here
	current   *candidate // the candidate that search evaluates; nil: none
}

// kind is an algorithm of suggested limits.
type kind int

const (
	tokenBucket kind = iota
	slidingWindow
	fixedWindow
)

// candidate returns the family's limit with a number, or nil if the number is too large.
func (f *family) candidate(n int64) *candidate {
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
	return &candidate{family: f, limit: limit, params: p, op: law.Op{Verb: law.Take, Params: p, Count: 1}}
}

// families returns the families to search for each period: token buckets of round rates, the last of them above the
// highest peak of the lengths up to the period, and windows.
func (s *Suggestion) families() (list []*family) {
	for _, period := range s.Options.Periods {
		peak := int64(1)
		for _, p := range s.Peaks {
			if n := p.Highest.units + 1; p.Period.Duration <= period || peak == 1 {
				peak = max(peak, n)
			}
		}
		for _, rate := range roundNumbers {
			list = append(list, &family{kind: tokenBucket, period: period, rate: rate, high: len(roundNumbers)})
			if rate > peak {
				break
			}
		}
		for _, k := range []kind{slidingWindow, fixedWindow} {
			list = append(list, &family{kind: k, period: period, high: len(roundNumbers)})
		}
	}
	return list
}

// acceptable reports whether a limit that denies so many requests, of so many keys, refuses no more than MaxRefused.
func (s *Suggestion) acceptable(denied, deniedKeys int64) bool {
	if s.Options.OfKeys {
		return deniedKeys <= s.MaxRefused
	}
	return denied <= s.MaxRefused
}

// search finds the least acceptable number of each family by a binary search, of all families at once.
func (e *evaluator) search(ctx context.Context, families []*family, s *Suggestion) error {
	for {
		var list []*candidate
		for _, f := range families {
			if f.current = nil; f.low >= f.high {
				continue
			}
			if f.current = f.candidate(roundNumbers[(f.low+f.high)/2]); f.current == nil {
				f.high = (f.low + f.high) / 2 // larger numbers are too large also
				continue
			}
			list = append(list, f.current)
		}
		if len(list) == 0 {
			return nil
		}
		if err := e.evaluate(ctx, list); err != nil {
			return err
		}
		for _, f := range families {
			switch c := f.current; {
			case c == nil:
			case s.acceptable(c.denied, c.deniedKeys):
				f.high = (f.low + f.high) / 2
			default:
				f.low = (f.low+f.high)/2 + 1
			}
		}
	}
}

func (f *family) found() bool {
	return f.low == f.high && f.low < len(roundNumbers) && f.candidate(roundNumbers[f.low]) != nil
}

// familiesToSuggest returns, of those found, for each period the token bucket with the lowest bound, then the windows.
func (s *Suggestion) familiesToSuggest(families []*family) (list []*family) {
	for _, period := range s.Options.Periods {
		var bucket *family
		var windows []*family
		for _, f := range families {
			switch {
			case f.period != period || !f.found():
			case f.kind != tokenBucket:
				windows = append(windows, f)
			case bucket == nil || f.rate+roundNumbers[f.low] < bucket.rate+roundNumbers[bucket.low]:
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

// addChoice replays the limit that search has found for a family, or larger ones, until one is acceptable, and adds it
// to Choices. The first may not be: a call of a model reserves more than the cost that it was evaluated with.
func (s *Suggestion) addChoice(ctx context.Context, reqs *Requests, f *family) error {
	for ; f.low < len(roundNumbers); f.low++ {
		c := f.candidate(roundNumbers[f.low])
		if c == nil {
			return nil
		}
		r, err := decide(ctx, c.limit, reqs, reqs.cfg.Top)
		if err != nil {
			return err
		}
		if s.acceptable(r.Denied, r.DeniedKeys) {
			f.high = f.low
			s.Choices = append(s.Choices, Choice{
				Report: r, family: f, Sentence: r.sentence(), Period: Seconds{f.period},
				MostInPeriod: Amount{c.limit.Bound().In(f.period)},
			})
			return nil
		}
	}
	return nil
}

// The maximum numbers of other limits that a curve shows on each side of a choice.
const (
	tighterPoints = 7
	looserPoints  = 4
)

// addCurves evaluates each choice and limits around it, and adds them to its Curve and its OtherRates.
func (e *evaluator) addCurves(ctx context.Context, s *Suggestion, families []*family) error {
	var list []*candidate
	var curves []*[]Point // the curve of each candidate of list
	add := func(curve *[]Point, c *candidate) {
		if c != nil {
			list, curves = append(list, c), append(curves, curve)
		}
	}
	for i := range s.Choices {
		c := &s.Choices[i]
		for n := max(0, c.family.low-tighterPoints); n <= min(len(roundNumbers)-1, c.family.low+looserPoints); n++ {
			add(&c.Curve, c.family.candidate(roundNumbers[n]))
		}
		if c.family.kind != tokenBucket {
			continue
		}
		familyIndex := slices.Index(families, c.family)
		for j := max(0, familyIndex-tighterPoints); j <= min(len(families)-1, familyIndex+looserPoints); j++ {
			if f := families[j]; f.period == c.family.period && f.kind == tokenBucket && f.found() {
				add(&c.OtherRates, f.candidate(roundNumbers[f.low]))
			}
		}
	}
	if err := e.evaluate(ctx, list); err != nil {
		return err
	}
	for i, c := range list {
		p := Point{Limit: c.limit.String(), Denied: c.denied, DeniedKeys: c.deniedKeys}
		p.Chosen = slices.ContainsFunc(s.Choices, func(c Choice) bool { return c.Notation == p.Limit })
		*curves[i] = append(*curves[i], p)
	}
	return nil
}

// findBusiest sets Busiest to the keys with the highest total cost, Config.Top of them.
func (s *Suggestion) findBusiest(e *evaluator) {
	byCost := make([]int, len(e.totals))
	for i := range byCost {
		byCost[i] = i
	}
	slices.SortFunc(byCost, func(a, b int) int {
		return cmp.Or(cmp.Compare(e.totals[b], e.totals[a]), cmp.Compare(e.reqs.keys[a], e.reqs.keys[b]))
	})
	var reports []*Report
	for _, c := range s.Choices {
		reports = append(reports, c.Report)
	}
	for _, i := range byCost[:min(len(byCost), max(e.reqs.cfg.Top, 0))] {
		s.Busiest = append(s.Busiest, keyRow(reports, e.reqs.keys[i]))
	}
}
