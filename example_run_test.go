package headgate_test

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate"
)

// A run of an agent has its own budget, which is taken from the team's budget when the run starts. When it ends, the
// team gets back what the run and its sub-agents did not use.
func Example_budgetOfARun() {
	limiter, _ := newExampleLimiter()
	ctx := context.Background()
	team := headgate.MustParseNamed("team-tokens", "fixed-window 1000/day")
	run := headgate.MustParseNamed("run-tokens", "fixed-window 400/1d from-first")
	const id, life = "run 4711", 24 * time.Hour

	// The run starts if the team has 400 tokens left.
	budget := headgate.Charge{Limit: team, Key: "shop", Cost: headgate.Units(400)}
	d, err := limiter.Once(id, life).Take(ctx, budget)
	fmt.Println("started:", d.Allowed, err)

	// Each step takes from the run's budget alone, from any process.
	for _, tokens := range []int64{150, 200, 100} {
		d, err = limiter.AllowN(ctx, run, id, tokens)
		fmt.Println(tokens, "tokens:", d.Allowed, err)
	}

	// The run ends: the block refuses all further steps, so its usage is final.
	s, err := limiter.Block(ctx, run, id, life, "the run has ended")
	if err != nil {
		return
	}
	budget.Cost = s.Used
	returned, err := limiter.Once(id, life).Settle(ctx, budget)
	fmt.Println("used", s.Used, "and returned", returned, err)
	// Output:
	// started: true <nil>
	// 150 tokens: true <nil>
	// 200 tokens: true <nil>
	// 100 tokens: false <nil>
	// used 350 and returned [50] <nil>
}
