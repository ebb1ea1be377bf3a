package law_test

import (
	"maps"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
)

// start is a time for tests, in microseconds.
const start = int64(1_790_000_000_000_000)

// textbook is a limiter as textbooks define it, computed in exact rationals.
type textbook interface {
	take(now int64, cost *big.Rat) bool // cost is in units
}

// tokenBucket is a bucket into which rate tokens drip per microsecond, up to burst.
type tokenBucket struct {
	tokens, burst, rate *big.Rat
	at                  int64 // the time to which tokens belongs
}

func (b *tokenBucket) take(now int64, n *big.Rat) bool {
	if b.tokens == nil {
		b.tokens, b.at = new(big.Rat).Set(b.burst), now
	}
	b.tokens.Add(b.tokens, new(big.Rat).Mul(b.rate, big.NewRat(now-b.at, 1)))
	if b.at = now; b.tokens.Cmp(b.burst) > 0 {
		b.tokens.Set(b.burst)
	}
	if b.tokens.Cmp(n) < 0 {
		return false
	}
	b.tokens.Sub(b.tokens, n)
	return true
}

// gcra is ITU-T I.371 with an increment for each unit. A take may put tat at most burst increments ahead of its time.
type gcra struct{ tat, increment, burst *big.Rat } // tat: the theoretical arrival time

func (g *gcra) take(now int64, n *big.Rat) bool {
	t := big.NewRat(now, 1)
	if g.tat == nil || g.tat.Cmp(t) < 0 {
		g.tat = t
	}
	next := new(big.Rat).Add(g.tat, new(big.Rat).Mul(n, g.increment))
	if new(big.Rat).Sub(next, t).Cmp(new(big.Rat).Mul(g.burst, g.increment)) > 0 {
		return false
	}
	g.tat = next
	return true
}

// fixedWindow counts in windows that are aligned to the epoch, or begin with the first take after the previous window.
type fixedWindow struct {
	amount, used *big.Rat
	length       int64
	aligned      bool
	begin        int64
}

func (w *fixedWindow) take(now int64, n *big.Rat) bool {
	begin := now - now%w.length
	if !w.aligned {
		begin = now
	}
	if w.used == nil || w.aligned && begin != w.begin || !w.aligned && now >= w.begin+w.length {
		if n.Cmp(w.amount) > 0 {
			return false
		}
		w.used, w.begin = new(big.Rat), begin
	}
	sum := new(big.Rat).Add(w.used, n)
	if sum.Cmp(w.amount) > 0 {
		return false
	}
	w.used = sum
	return true
}

// interval refills amount at the end of each interval. Intervals are counted from the first use, and again from when
// the bucket was full.
type interval struct {
	tokens, amount, burst *big.Rat
	length, phase         int64
}

func (b *interval) take(now int64, n *big.Rat) bool {
	if b.tokens == nil {
		b.tokens, b.phase = new(big.Rat).Set(b.burst), now
	}
	for b.phase+b.length <= now && b.tokens.Cmp(b.burst) < 0 {
		b.phase += b.length
		b.tokens.Add(b.tokens, b.amount)
	}
	if b.tokens.Cmp(b.burst) >= 0 {
		b.tokens.Set(b.burst)
		b.phase = now
	}
	if b.tokens.Cmp(n) < 0 {
		return false
	}
	b.tokens.Sub(b.tokens, n)
	return true
}

// slidingLog counts the takes that were admitted less than a window ago.
type slidingLog struct {
	amount *big.Rat
	length int64
	times  []int64
	costs  []*big.Rat
}

func (l *slidingLog) take(now int64, n *big.Rat) bool {
	sum := new(big.Rat).Set(n)
	for i, t := range l.times {
		if now < t+l.length {
			sum.Add(sum, l.costs[i])
		}
	}
	if sum.Cmp(l.amount) > 0 {
		return false
	}
	l.times, l.costs = append(l.times, now), append(l.costs, n)
	return true
}

// textbooks returns, by name, functions that return parameters of a law and the textbook that has to decide the same.
func textbooks() map[string]func() (law.Params, textbook) {
	// bucketParams returns a bucket's parameters, its rate in units per microsecond, and its burst in units.
	bucketParams := func(unit, drain, step, burst int64) (law.Params, *big.Rat, *big.Rat) {
		return law.Params{Kind: law.Bucket, Unit: unit, Capacity: burst * unit, Step: step, Drain: drain},
			big.NewRat(drain, unit*step), big.NewRat(burst, 1)
	}
	return map[string]func() (law.Params, textbook){
		"token bucket 3/s": func() (law.Params, textbook) {
			p, r, b := bucketParams(1_000_000, 3, 1, 7)
			return p, &tokenBucket{burst: b, rate: r}
		},
		"token bucket 10^7/s": func() (law.Params, textbook) {
			p, r, b := bucketParams(1000, 10_000, 1, 20)
			return p, &tokenBucket{burst: b, rate: r}
		},
		"token bucket 10^9/30d": func() (law.Params, textbook) {
			p, r, b := bucketParams(324_000, 125, 1, 1000)
			return p, &tokenBucket{burst: b, rate: r}
		},
		"gcra 10/s": func() (law.Params, textbook) {
			p, r, b := bucketParams(100_000, 1, 1, 5)
			return p, &gcra{increment: new(big.Rat).Inv(r), burst: b}
		},
		"fixed window, aligned": func() (law.Params, textbook) {
			return law.Params{
					Kind: law.Bucket, Anchor: law.Epoch, Unit: 1000, Capacity: 5000, Step: 1_000_000,
					Drain: law.Max,
				},
				&fixedWindow{amount: big.NewRat(5, 1), length: 1_000_000, aligned: true}
		},
		"fixed window, from first": func() (law.Params, textbook) {
			return law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 5000, Step: 1_000_000, Drain: law.Max},
				&fixedWindow{amount: big.NewRat(5, 1), length: 1_000_000}
		},
		"interval refill": func() (law.Params, textbook) {
			return law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 6000, Step: 1_000_000, Drain: 2000},
				&interval{amount: big.NewRat(2, 1), burst: big.NewRat(6, 1), length: 1_000_000}
		},
		"sliding log": func() (law.Params, textbook) {
			return law.Params{Kind: law.Log, Unit: 1000, Capacity: 5000, Step: 1_000_000},
				&slidingLog{amount: big.NewRat(5, 1), length: 1_000_000}
		},
	}
}

func TestTheLawsDecideAsTheTextbooksDo(t *testing.T) {
	t.Parallel()
	for name, newTextbook := range textbooks() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seed := tier.Pick(1, 1, rand.Uint64())
			rng := rand.New(rand.NewPCG(seed, 0))
			for range 20 {
				p, book := newTextbook()
				var c cell
				now := start + rng.Int64N(1_000_000_000)
				retryAt, retryCost := int64(0), int64(0)
				for step := range 300 {
					credits := 1 + rng.Int64N(3*p.Unit)
					switch {
					case retryAt > 0 && rng.IntN(2) == 0: // just before RetryAt, or at it
						now, credits = max(now, retryAt-rng.Int64N(2)), retryCost
					case rng.IntN(20) == 0:
						now += rng.Int64N(20_000_000)
					default:
						now += rng.Int64N(400_000)
					}
					out := c.apply(take(p, credits), now)
					if want := book.take(now, big.NewRat(credits, p.Unit)); (out.Granted == 1) != want {
						t.Fatalf("seed %d, step %d: %d of %d credits at %d: granted %d, the textbook says %v", seed,
							step, credits, p.Unit, now, out.Granted, want)
					}
					if retryAt = 0; out.RetryAt != law.Never {
						retryAt, retryCost = out.RetryAt, credits
					}
				}
			}
		})
	}
}

// FuzzTextbooks lets the fuzzer choose the textbook, and the times and costs of takes: two bytes for each.
func FuzzTextbooks(f *testing.F) {
	names := slices.Sorted(maps.Keys(textbooks()))
	for i := range names {
		f.Add(uint8(i), []byte{0, 90, 0, 90, 0, 90, 3, 90, 255, 200, 17, 1, 64, 255, 0, 255})
	}
	f.Fuzz(func(t *testing.T, index uint8, steps []byte) {
		name := names[int(index)%len(names)]
		p, book := textbooks()[name]()
		var c cell
		now := start
		for i := 0; i+1 < len(steps) && i < 400; i += 2 {
			now += int64(steps[i]) * int64(steps[i]) * 97 // 0 to 6.3 s
			credits := 1 + int64(steps[i+1])*p.Unit/85    // up to 3 units
			out := c.apply(take(p, credits), now)
			if want := book.take(now, big.NewRat(credits, p.Unit)); (out.Granted == 1) != want {
				t.Fatalf("%s, step %d: %d credits: granted %d, the textbook says %v", name, i/2, credits, out.Granted,
					want)
			}
		}
	})
}

func TestRetryAtIsTheFirstTimeAtWhichTheCostPasses(t *testing.T) {
	t.Parallel()
	seed := tier.Pick(1, 1, rand.Uint64())
	rng := rand.New(rand.NewPCG(seed, 0))
	checks := 0
	for range 3000 {
		p := randomParams(rng)
		var c cell
		now := start + rng.Int64N(1_000_000_000)
		for range 12 {
			now += rng.Int64N(p.Step/2 + 2)
			out := c.apply(take(p, 1+rng.Int64N(p.Capacity)), now)
			if out.Granted != 0 || out.RetryAt == law.Never {
				continue
			}
			cost := 1 + rng.Int64N(p.Capacity)
			check := take(p, cost)
			check.Verb = law.Check
			out = c.apply(check, now)
			if out.Granted != 0 {
				continue
			}
			checks++
			if outBefore := c.apply(check, out.RetryAt-1); outBefore.Granted != 0 {
				t.Fatalf("seed %d: %+v: cost %d passes before %d", seed, p, cost, out.RetryAt)
			}
			if outAt := c.apply(check, out.RetryAt); outAt.Granted != 1 {
				t.Fatalf("seed %d: %+v: cost %d does not pass at %d: %+v", seed, p, cost, out.RetryAt, outAt)
			}
		}
	}
	if checks < 3000 {
		t.Errorf("only %d checks, want 3000 or more", checks)
	}
}

// randomParams returns valid parameters of any law, without a calendar.
func randomParams(rng *rand.Rand) law.Params {
	p := law.Params{
		Kind: law.Kind(1 + rng.IntN(3)), Unit: 1 + rng.Int64N(100_000),
		Step: []int64{1, 10, 1000, 1_000_000, 60_000_000, 2_592_000_000_000}[rng.IntN(6)],
	}
	p.Capacity = p.Unit * (1 + rng.Int64N(40))
	switch p.Kind {
	case law.Bucket:
		p.Anchor = law.Anchor(rng.IntN(2))
		p.Drain = 1 + rng.Int64N(p.Capacity)
		if p.Step > 1000 && rng.IntN(2) == 0 {
			p.Drain = law.Max
		}
	default:
		p.Step += rng.Int64N(5_000_000)
	}
	if p.Valid() != nil { // a full bucket takes more than 142 years to drain
		return randomParams(rng)
	}
	return p
}

// fitsExactWindow reports whether a cost fits by the exact rule of a sliding window: level counts in full, and prev by
// the part of the previous window that is less than a window ago.
func fitsExactWindow(prev, level, cost, elapsed, window, capacity int64) bool {
	sum := new(big.Rat).Mul(big.NewRat(prev, 1), big.NewRat(window-elapsed, window))
	return sum.Add(sum, big.NewRat(level+cost, 1)).Cmp(big.NewRat(capacity, 1)) <= 0
}

func TestTheWindowLawIsNeverLooserThanTheExactRule(t *testing.T) {
	t.Parallel()
	seed := tier.Pick(1, 1, rand.Uint64())
	rng := rand.New(rand.NewPCG(seed, 0))
	needlessRefusals, decisions := 0, 0
	for range 400 {
		window := []int64{1, 7, 1000, 1_000_000, 60_000_000, 2_592_000_000_000}[rng.IntN(6)] + rng.Int64N(1000)
		p := law.Params{Kind: law.Window, Unit: 1000, Capacity: 1000 * (1 + rng.Int64N(4_000_000)), Step: window}
		var c cell
		var prev, level, at int64
		now := start
		for range 200 {
			now += rng.Int64N(window/3 + 2)
			switch now/window - at/window {
			case 0:
			case 1:
				prev, level = level, 0
			default:
				prev, level = 0, 0
			}
			at = now
			cost := 1 + rng.Int64N(p.Capacity/2)
			fits := fitsExactWindow(prev, level, cost, now%window, window, p.Capacity)
			granted := c.apply(take(p, cost), now).Granted == 1
			if granted && !fits {
				t.Fatalf("seed %d: window %d: admitted %d on %d and %d, %d us after its begin", seed, window, cost,
					prev, level, now%window)
			}
			if decisions++; fits && !granted {
				needlessRefusals++
			}
			if granted {
				level += cost
			}
		}
	}
	if needlessRefusals*100 > decisions {
		t.Errorf("%d of %d decisions are needless refusals, want at most 1 %%", needlessRefusals, decisions)
	}
}
