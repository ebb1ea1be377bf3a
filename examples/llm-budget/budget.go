package main

import (
	"cmp"
	"net/http"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/llm"
)

// client is the owner of an API key.
type client struct{ user, team, org string }

// budgets are the six limits. They have names, so that a key keeps its usage when a limit is changed.
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

// price is the price of the model, in dollars for a million tokens.
var price = llm.Price{Input: headgate.Units(3), CachedInput: headgate.MustCost("0.3"), Output: headgate.Units(15)}

// charges returns the charges of a request with the usage u: an estimate to begin, or the actual usage to settle.
func (b *budgets) charges(c client, u llm.Usage) []headgate.Charge {
	team := c.org + "/" + c.team
	user := team + "/" + c.user
	tokens, money := headgate.Units(u.Tokens()), price.Cost(u)
	return []headgate.Charge{
		{Limit: b.userRequests, Key: user, Cost: headgate.Units(1)},
		{Limit: b.userTokens, Key: user, Cost: tokens},
		{Limit: b.teamTokens, Key: team, Cost: tokens},
		{Limit: b.orgTokens, Key: c.org, Cost: tokens},
		{Limit: b.teamMoney, Key: team, Cost: money},
		{Limit: b.orgMoney, Key: c.org, Cost: money},
	}
}

// chargeUnits has the unit of each charge, in the order of charges.
var chargeUnits = [...]string{"requests", "tokens", "tokens", "tokens", "money", "money"}

// setHeaders writes a decision into the headers that clients of language models read. If several limits have the same
// unit, the headers are about the limit with the least remaining.
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
		reset := (f.ResetAfter + time.Millisecond - 1).Truncate(time.Millisecond) // so nobody retries early
		h.Set("X-RateLimit-Reset-"+unit, reset.String())
	}
	// Clients wait for up to a minute. If the wait is longer or endless, the headers ask them not to retry.
	httplimit.SetRetryAfter(h, &d, httplimit.DefaultNoRetryBeyond)
}
