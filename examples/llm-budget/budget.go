package main

import (
	"cmp"
	"context"
	"errors"
	"log"
	"net/http"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
)

// client is the owner of an API key.
type client struct{ user, team, org string }

// usage is the usage block at the end of a model's answer.
type usage struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
}

// budgets are the six limits. They have names, so that a key keeps what it has used when one
// of them is changed.
type budgets struct {
	userRequests, userTokens, teamTokens, orgTokens, teamMoney, orgMoney headgate.Limit
}

// Windows and logs give back all that a settlement leaves, however many streams run at once; a
// token bucket only what has not drained. A log has a row for each request, which
// are few in a minute. Of a stream that goes on past midnight, the money stays charged as it was.
var defaults = budgets{
	userRequests: headgate.MustParseNamed("user-requests", "sliding-log 60/1m"),
	userTokens:   headgate.MustParseNamed("user-tokens", "sliding-log 40000/1m"),
	teamTokens:   headgate.MustParseNamed("team-tokens", "sliding-log 200000/1m"),
	orgTokens:    headgate.MustParseNamed("org-tokens", "sliding-log 1000000/1m"),
	teamMoney:    headgate.MustParseNamed("team-money", "sliding-window 50/1d scale 6"), // dollars, in millionths
	orgMoney:     headgate.MustParseNamed("org-money", "sliding-window 400/1d scale 6"),
}

// charges returns what a request costs that uses u: at most, to take, or in the end, to settle.
func (b *budgets) charges(c client, u usage) []headgate.Charge {
	team := c.org + "/" + c.team
	user := team + "/" + c.user
	tokens := headgate.Units(u.Prompt + u.Completion)
	money := headgate.Nanos(3000*u.Prompt + 15_000*u.Completion) // the model's prices: $3 and $15 a million
	return []headgate.Charge{
		{Limit: b.userRequests, Key: user, Cost: headgate.Units(1)},
		{Limit: b.userTokens, Key: user, Cost: tokens},
		{Limit: b.teamTokens, Key: team, Cost: tokens},
		{Limit: b.orgTokens, Key: c.org, Cost: tokens},
		{Limit: b.teamMoney, Key: team, Cost: money},
		{Limit: b.orgMoney, Key: c.org, Cost: money},
	}
}

// allowance is what a stream was charged so far.
type allowance struct {
	budgets *budgets
	client  client
	once    headgate.Once
	step    int64 // by how many tokens it grows
	most    int64 // tokens that the answer may have
	charged usage
}

// extend charges more, unless as many tokens of the answer are charged already. It returns an
// error if a limit refuses that, or it is not known whether it was charged: then the stream has to stop.
func (a *allowance) extend(ctx context.Context, completion int64) error {
	if completion <= a.charged.Completion {
		return nil
	}
	more := a.charged
	more.Completion = max(completion, min(more.Completion+a.step, a.most))
	e, err := a.once.Extend(ctx, a.budgets.charges(a.client, more)...)
	switch {
	case err != nil:
		log.Print(err)
		return errors.New("the budgets cannot be read")
	case !e.Decision.Allowed:
		return &headgate.DeniedError{Decision: e.Decision}
	}
	a.charged = more
	return nil
}

// counted has what each charge counts.
var counted = [...]string{"requests", "tokens", "tokens", "tokens", "money", "money"}

// setHeaders writes what was decided into the headers that clients of language models
// know. Of several limits that count the same, they are about the one that has the least left.
func setHeaders(h http.Header, d headgate.Decision) {
	tightest := map[string]headgate.ChargeDecision{}
	for _, f := range d.Each {
		t, found := tightest[counted[f.Charge]]
		less := cmp.Or(cmp.Compare(f.Remaining, t.Remaining), cmp.Compare(f.RemainingNanos, t.RemainingNanos)) < 0
		if !found || less {
			tightest[counted[f.Charge]] = f
		}
	}
	for what, f := range tightest {
		h.Set("X-RateLimit-Limit-"+what, f.CapacityCost().String())
		h.Set("X-RateLimit-Remaining-"+what, f.RemainingCost().String())
		reset := (f.ResetAfter + time.Millisecond - 1).Truncate(time.Millisecond) // rounded up, so nobody comes early
		h.Set("X-RateLimit-Reset-"+what, reset.String())
	}
	// Clients wait for up to a minute. For longer, and where it can never pass, the answer asks them not to come back.
	httplimit.SetRetryAfter(h, &d, httplimit.DefaultNoRetryBeyond)
}
