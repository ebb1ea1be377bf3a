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

// budgets are the six limits. They have names, so that a key keeps what it has used when a limit
// is changed.
type budgets struct {
	userRequests, userTokens, teamTokens, orgTokens, teamMoney, orgMoney headgate.Limit
}

// defaults are windows and logs: they give back all that a settlement leaves, however many streams run at once; a token
// bucket gives back only what has not drained. A log has a row for each request, and there are few in a minute. If a
// stream goes on past midnight, the money of its estimate stays charged to the day before.
var defaults = budgets{
	userRequests: headgate.MustParseNamed("user-requests", "sliding-log 60/1m"),
	userTokens:   headgate.MustParseNamed("user-tokens", "sliding-log 40000/1m"),
	teamTokens:   headgate.MustParseNamed("team-tokens", "sliding-log 200000/1m"),
	orgTokens:    headgate.MustParseNamed("org-tokens", "sliding-log 1000000/1m"),
	teamMoney:    headgate.MustParseNamed("team-money", "sliding-window 50/1d scale 6"), // dollars, in millionths
	orgMoney:     headgate.MustParseNamed("org-money", "sliding-window 400/1d scale 6"),
}

// charges returns the charges of a request with the usage u: an estimate to take, or the actual usage to settle.
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

// allowance is the charge of a stream so far, and how to extend it.
type allowance struct {
	budgets   *budgets
	client    client
	once      headgate.Once
	step      int64 // tokens of one extension
	maxTokens int64 // tokens that the answer may have
	charged   usage
}

// extend extends the charge until it covers a number of tokens of the answer. It returns an error if a
// limit refuses the extension, or if the outcome is unknown: then the stream has to stop.
func (a *allowance) extend(ctx context.Context, completion int64) error {
	if completion <= a.charged.Completion {
		return nil
	}
	extended := a.charged
	extended.Completion = max(completion, min(extended.Completion+a.step, a.maxTokens))
	e, err := a.once.Extend(ctx, a.budgets.charges(a.client, extended)...)
	switch {
	case err != nil:
		log.Print(err)
		return errors.New("the budgets cannot be read")
	case !e.Decision.Allowed:
		return &headgate.DeniedError{Decision: e.Decision}
	}
	a.charged = extended
	return nil
}

// chargeUnits has the unit of each charge, in the order of charges.
var chargeUnits = [...]string{"requests", "tokens", "tokens", "tokens", "money", "money"}

// setHeaders writes a decision into the headers that clients of language models read. If several
// limits have the same unit, the headers are about the limit with the least remaining.
func setHeaders(h http.Header, d headgate.Decision) {
	tightest := map[string]headgate.ChargeDecision{}
	for _, f := range d.Each {
		t, found := tightest[chargeUnits[f.Charge]]
		less := cmp.Or(cmp.Compare(f.Remaining, t.Remaining), cmp.Compare(f.RemainingNanos, t.RemainingNanos)) < 0
		if !found || less {
			tightest[chargeUnits[f.Charge]] = f
		}
	}
	for unit, f := range tightest {
		h.Set("X-RateLimit-Limit-"+unit, f.CapacityCost().String())
		h.Set("X-RateLimit-Remaining-"+unit, f.RemainingCost().String())
		reset := (f.ResetAfter + time.Millisecond - 1).Truncate(time.Millisecond) // round up: nobody retries early
		h.Set("X-RateLimit-Reset-"+unit, reset.String())
	}
	// Clients wait for up to a minute. If the wait is longer or endless, the headers ask them not to retry.
	httplimit.SetRetryAfter(h, &d, httplimit.DefaultNoRetryBeyond)
}
