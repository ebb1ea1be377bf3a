package headgate_test

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/sqlite"
)

// newExampleLimiter returns a limiter over a store in memory, and the store's clock, which stands still until advanced.
func newExampleLimiter() (*headgate.Limiter, *clock) {
	c := newClock("2026-03-01T12:00:00Z")
	return headgate.New(memory.New(&memory.Config{Clock: c.read, Names: true}), nil), c
}

// A program puts package front in front of its store. Close stops the sweeper and closes the store.
func ExampleNew() {
	db, err := sqlite.Open(context.Background(), "sqlite::memory:", nil) // or postgres.Open, mysql.Open, redis.Open
	if err != nil {
		fmt.Println(err)
		return
	}
	s := front.New(db, nil)
	defer s.Close()
	limiter := headgate.New(s, nil)
	d, err := limiter.Allow(context.Background(), headgate.MustParse("token-bucket 5/1m"), "alice")
	fmt.Println(d.Allowed, d.Remaining, err)
	// Output: true 4 <nil>
}

func ExampleLimiter_Allow() {
	limiter, clock := newExampleLimiter()
	limit := headgate.MustParse("token-bucket 1/s burst 2")
	for range 3 {
		d, err := limiter.Allow(context.Background(), limit, "alice")
		fmt.Println(d.Allowed, d.Remaining, d.RetryAfter, err)
	}
	clock.advance(time.Second)
	d, _ := limiter.Allow(context.Background(), limit, "alice")
	fmt.Println(d.Allowed)
	// Output:
	// true 1 0s <nil>
	// true 0 0s <nil>
	// false 0 1s <nil>
	// true
}

func ExampleLimiter_Take() {
	limiter, _ := newExampleLimiter()
	user, org := headgate.MustParse("token-bucket 10/s"), headgate.MustParse("fixed-window 100/month")
	d, err := limiter.Take(context.Background(),
		headgate.Charge{Limit: user, Key: "alice"},
		headgate.Charge{Limit: org, Key: "acme", Cost: headgate.MustCost("30.75")})
	fmt.Println(d.Allowed, d.LimitName, d.Remaining, err)
	// Output: true fixed-window 100/month 69 <nil>
}

func ExampleFirstOf() {
	limiter, _ := newExampleLimiter()
	plan := headgate.MustParseNamed("plan", "fixed-window 2/month")
	credits := headgate.MustParseNamed("credits", "fixed-window 1/month")
	for range 4 {
		d, _ := limiter.Take(context.Background(), headgate.FirstOf(
			[]headgate.Charge{{Limit: plan, Key: "acme"}}, []headgate.Charge{{Limit: credits, Key: "acme"}})...)
		fmt.Println(d.Allowed, d.Alternative, d.LimitName)
	}
	// Output:
	// true 1 plan
	// true 1 plan
	// true 2 credits
	// false 1 plan
}

func ExampleLimiter_Check() {
	limiter, _ := newExampleLimiter()
	limit := headgate.MustParse("token-bucket 10/s burst 5")
	d, _ := limiter.Check(context.Background(), headgate.Charge{Limit: limit, Key: "alice", Cost: headgate.Units(6)})
	fmt.Println(d.Allowed, d.RetryAfter == headgate.Never, d.Remaining)
	// Output: false true 5
}

func ExampleLimiter_Batch() {
	limiter, _ := newExampleLimiter()
	limit := headgate.MustParse("token-bucket 1/s")
	charge := headgate.Charge{Limit: limit, Key: "alice"}
	answers, _ := limiter.Batch(context.Background(),
		[]headgate.Request{{Charges: []headgate.Charge{charge}}, {Charges: []headgate.Charge{charge}}})
	for _, a := range answers {
		fmt.Println(a.Decision.Allowed, a.Err)
	}
	// Output:
	// true <nil>
	// false <nil>
}

func ExampleLimiter_FillUp() {
	limiter, _ := newExampleLimiter()
	bucket := headgate.MustParse("leaky-bucket 1/s capacity 10")
	f, _ := limiter.FillUp(context.Background(),
		headgate.Charge{Limit: bucket, Key: "imports", Cost: headgate.Units(12)})
	fmt.Println(f.Accepted, f.Brim)
	// Output: 10 true
}

func ExampleLimiter_Debit() {
	limiter, _ := newExampleLimiter()
	tokens := headgate.MustParse("gcra 1000/1h burst 1000")
	// An answer took more tokens than were left.
	d, _ := limiter.Debit(context.Background(),
		headgate.Charge{Limit: tokens, Key: "acme", Cost: headgate.Units(1200)})
	next, _ := limiter.Allow(context.Background(), tokens, "acme")
	fmt.Println(d.Level, d.Over, next.Allowed, next.RetryAfter)
	// Output: 1200 true false 12m3.6s
}

func ExampleLimiter_Refund() {
	limiter, _ := newExampleLimiter()
	tokens := headgate.MustParse("gcra 1000/1h burst 1000")
	charge := headgate.Charge{Limit: tokens, Key: "acme", Cost: headgate.Units(600)}
	_, _ = limiter.Take(context.Background(), charge)
	charge.Cost = headgate.Units(200)
	returned, _ := limiter.Refund(context.Background(), charge)
	fmt.Println(returned)
	// Output: 200
}

func ExampleLimiter_Block() {
	limiter, _ := newExampleLimiter()
	login := headgate.MustParse("sliding-log 5/1m")
	s, _ := limiter.Block(context.Background(), login, "mallory", 15*time.Minute, "guessing")
	d, _ := limiter.Allow(context.Background(), login, "mallory")
	fmt.Println(s.BlockedUntil.Format(time.TimeOnly), d.Allowed, d.RetryAfter)
	// Output: 12:15:00 false 15m0s
}

func ExampleLimiter_Reset() {
	limiter, _ := newExampleLimiter()
	login := headgate.MustParse("sliding-log 1/1m")
	_, _ = limiter.Allow(context.Background(), login, "alice")
	existed, _ := limiter.Reset(context.Background(), login, "alice")
	d, _ := limiter.Allow(context.Background(), login, "alice")
	fmt.Println(existed, d.Allowed)
	// Output: true true
}

func ExampleLimiter_Inspect() {
	limiter, _ := newExampleLimiter()
	limit := headgate.MustParse("token-bucket 1/s burst 5")
	_, _ = limiter.Take(context.Background(),
		headgate.Charge{Limit: limit, Key: "alice", Cost: headgate.MustCost("1.5")})
	s, _ := limiter.Inspect(context.Background(), limit, "alice")
	fmt.Println(s.Used, "of", s.Capacity, "remaining", s.Remaining)
	// Output: 1.5 of 5 remaining 3
}

func ExampleLimiter_List() {
	limiter, _ := newExampleLimiter()
	limit := headgate.MustParse("token-bucket 1/s burst 5")
	for _, key := range []string{"bob", "alice"} {
		_, _ = limiter.Allow(context.Background(), limit, key)
	}
	list, _ := limiter.List(context.Background(), store.Query{Limit: limit.Name()})
	for _, s := range list {
		fmt.Println(s.Key, s.Used)
	}
	// Output:
	// alice 1
	// bob 1
}

func ExampleLimit_Bound() {
	limit, _ := headgate.NewLimit("api", headgate.TokenBucket{Amount: headgate.Units(10), Period: time.Second})
	fmt.Println(limit.Bound())
	fmt.Println(limit.Bound().In(time.Hour))
	// Output:
	// token-bucket 10/s burst 10 lets 10 pass each second; at worst 20 in one second
	// 36010
}

func ExampleLimiter_Reserve() {
	limiter, _ := newExampleLimiter()
	limit := headgate.MustParse("token-bucket 2/s burst 1")
	for range 3 {
		r, err := limiter.Reserve(context.Background(), time.Minute, headgate.Charge{Limit: limit, Key: "alice"})
		fmt.Println(r.Decision.Allowed, r.StartAt.Format("05.000"), err)
	}
	// Output:
	// true 00.000 <nil>
	// true 00.500 <nil>
	// true 01.000 <nil>
}

func ExampleLimiter_Wait() {
	limiter, _ := newExampleLimiter()
	limit := headgate.MustParse("fixed-window 1/1h")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for range 2 {
		fmt.Println(limiter.Wait(ctx, headgate.Charge{Limit: limit, Key: "alice"}))
	}
	// Output:
	// <nil>
	// the deadline comes before the start: limit fixed-window 1/1h refuses "alice": try again in 1h0m0s
}

func ExamplePace() {
	limiter, _ := newExampleLimiter()
	charge := headgate.Charge{Limit: headgate.MustParse("token-bucket 10/s burst 3"), Key: "job"}
	for i, err := range headgate.Pace(context.Background(), limiter, charge) {
		fmt.Println(i, err)
		if i == 2 {
			break
		}
	}
	// Output:
	// 0 <nil>
	// 1 <nil>
	// 2 <nil>
}

func ExampleLimited() {
	limiter, _ := newExampleLimiter()
	send := headgate.Limited(limiter, func(context.Context) (string, error) { return "sent", nil },
		headgate.Charge{Limit: headgate.MustParse("fixed-window 1/1h"), Key: "mail"})
	for range 2 {
		fmt.Println(send(context.Background()))
	}
	// Output:
	// sent <nil>
	//  limit fixed-window 1/1h refuses "mail": try again in 1h0m0s
}

func ExampleLimiter_Once() {
	limiter, _ := newExampleLimiter()
	ctx := context.Background()
	limit := headgate.MustParse("token-bucket 1000/h burst 1000")
	order := limiter.Once("order 4711", time.Hour)
	for range 2 { // a client retries if it gets no answer
		d, err := order.Take(ctx, headgate.Charge{Limit: limit, Key: "acme", Cost: headgate.Units(300)})
		fmt.Println(d.Allowed, d.Remaining, d.Replayed, err)
	}
	// Any process that knows the id can settle the charge at the actual cost.
	returned, err := order.Settle(ctx, headgate.Charge{Limit: limit, Key: "acme", Cost: headgate.MustCost("120.5")})
	fmt.Println(returned, err)
	// Output:
	// true 700 false <nil>
	// true 700 true <nil>
	// [179.5] <nil>
}

// A language model's answer is charged an estimate, to both budgets or to none, and more while it streams. It is
// settled when the usage is known. A request that is sent again with the same id is not charged again.
func ExampleOnce() {
	limiter, _ := newExampleLimiter()
	ctx := context.Background()
	user, org := headgate.MustParse("sliding-log 40000/1m"), headgate.MustParse("sliding-log 1000000/1m")
	charges := func(tokens int64) []headgate.Charge {
		return []headgate.Charge{
			{Limit: user, Key: "acme/alice", Cost: headgate.Units(tokens)},
			{Limit: org, Key: "acme", Cost: headgate.Units(tokens)},
		}
	}
	answer := limiter.Once("alice 7f3a", time.Hour)                 // the client and its Idempotency-Key
	d, err := answer.Take(ctx, charges(1200+256)...)                // the prompt and an estimate
	fmt.Println(d.Allowed, d.Remaining, err)                        // if refused: 429 with d.RetryAfter
	extension, err := answer.Extend(ctx, charges(1200+512)...)      // before more than 256 tokens are passed on
	fmt.Println(extension.Decision.Allowed, extension.Charged, err) // if refused: the stream stops here
	extension, err = answer.Extend(ctx, charges(50_000)...)
	fmt.Println(extension.Decision.Allowed, extension.Charged, err) // refused, but earlier charges stay
	returned, err := answer.Settle(ctx, charges(1200+310)...)       // the actual usage, from the end of the stream
	fmt.Println(returned, err)
	// Output:
	// true 38544 <nil>
	// true [1712 1712] <nil>
	// false [1712 1712] <nil>
	// [202 202] <nil>
}

func ExampleReservation_Settle() {
	limiter, _ := newExampleLimiter()
	ctx := context.Background()
	requests := headgate.Charge{Limit: headgate.MustParse("token-bucket 10/s burst 10"), Key: "model"}
	tokens := headgate.Charge{
		Limit: headgate.MustParse("token-bucket 1000/s burst 4000"), Key: "model",
		Cost: headgate.Units(2500),
	}
	r, err := limiter.Reserve(ctx, time.Minute, requests, tokens)
	if err != nil || r.Sleep(ctx) != nil {
		return
	}
	returned, err := r.Settle(ctx, headgate.Units(1), headgate.Units(1800))
	fmt.Println(returned, err)
	// Output: [0 700] <nil>
}

func ExampleLimiter_Acquire() {
	limiter, _ := newExampleLimiter()
	ctx := context.Background()
	jobs := headgate.Charge{Limit: headgate.MustParse("concurrency 1 ttl 30s"), Key: "reports"}
	lease, err := limiter.Acquire(ctx, jobs)
	fmt.Println(lease.Decision.Allowed, err)
	other, err := limiter.Acquire(ctx, jobs)
	fmt.Println(other.Decision.Allowed, err)
	fmt.Println(lease.Release(ctx))
	// Output:
	// true <nil>
	// false <nil>
	// <nil>
}

func ExampleWithLease() {
	limiter, _ := newExampleLimiter()
	err := headgate.WithLease(context.Background(), limiter, func(ctx context.Context) error {
		fmt.Println("alone") // no other caller runs this until ctx ends
		return nil
	}, headgate.Charge{Limit: headgate.MustParse("concurrency 1 ttl 30s"), Key: "backup"})
	fmt.Println(err)
	// Output:
	// alone
	// <nil>
}
