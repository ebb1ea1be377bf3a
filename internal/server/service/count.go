package service

import (
	"context"
	"encoding/json"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/llm"
)

// appendCounted appends a charge to a list. If the charge has a count, its cost is computed from the usage of a model.
func (s *Service) appendCounted(ctx context.Context, list []headgate.Charge, c *api.Charge, used *api.Used,
	parse costParser,
) ([]headgate.Charge, error) {
	if c.Count == "" {
		return s.appendCharge(ctx, list, c, parse)
	}
	if c.Cost != "" {
		return nil, headgate.Invalid("count", "stands beside a cost; say one or the other")
	}
	amount, err := s.amount(c.Count, used)
	if err != nil {
		return nil, err
	}
	counted := *c
	counted.Cost = json.Number(amount.String())
	return s.appendCharge(ctx, list, &counted, parse)
}

// amount returns the cost of a count: tokens, input, output or money.
func (s *Service) amount(count string, used *api.Used) (headgate.Cost, error) {
	var u llm.Usage
	if !u.Update(used.Usage) {
		return headgate.Cost{}, headgate.Invalid("usage", "has no counts of tokens that a charge with a count needs, "+
			"such as input_tokens and output_tokens")
	}
	switch count {
	case "tokens":
		return headgate.Units(u.Tokens()), nil
	case "input":
		return headgate.Units(u.Tokens() - u.Output), nil
	case "output":
		return headgate.Units(u.Output), nil
	case "money":
		price, found := s.prices.Load().Find(used.Model)
		if !found {
			return headgate.Cost{}, headgate.Invalid("model", "%.100q has no price; set it below prices in the config "+
				"file of the server", used.Model)
		}
		return price.Cost(u), nil
	}
	return headgate.Cost{}, headgate.Invalid("count", "is %.40q, not tokens, input, output or money", count)
}
