package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/internal/stores"
)

// chargeFlags has the flags of commands that charge.
type chargeFlags struct{ cost, keep string }

func (f *chargeFlags) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.cost, "cost", "1", "what it costs, a `decimal`")
	cmd.Flags().StringVar(&f.keep, "keep", "",
		"headroom: how much has to be free after it, a share such as `10%` or an amount")
}

// newTakeCommand returns take, or check.
func newTakeCommand(check bool) *cobra.Command {
	verb, short := "take", "Take from a limit for a key: exit 0 admitted, 1 refused, 2 error"
	if check {
		verb, short = "check", "Ask whether take would admit a cost, and what could pass, without taking"
	}
	var query queryFlags
	var charge chargeFlags
	var id string
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   verb + " LIMIT KEY",
		Short: short,
		Long:  short + ".\n\n" + aboutLimit,
		Example: "  headgate " + verb + " 'token-bucket 5/1m' alice\n  headgate " + verb +
			" login alice --cost 2.5",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: completeArgs(completeLimit, completeKey),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := headgate.ParseCost(charge.cost); err != nil && charge.cost != "" { // before opening a store
				return err
			}
			if wait != 0 {
				if id != "" {
					return headgate.Invalid("id", "does not go with --wait")
				}
				return query.takeWithin(cmd, args[0], args[1], &charge, wait)
			}
			return decide(cmd, &query, func(s backend) (*api.Decision, error) {
				take := callTake
				if check {
					take = callCheck
				}
				return take(cmd.Context(), s, &api.Request{
					Charge: api.Charge{Limit: args[0], Key: args[1], Cost: json.Number(charge.cost), Keep: charge.keep},
					ID:     id,
				})
			}, func(d *api.Decision) bool { return d.Allowed }, formatDecision)
		},
	}
	query.addFlags(cmd)
	charge.addFlags(cmd)
	if !check {
		cmd.Flags().DurationVar(&wait, "wait", 0,
			"for how long to wait for a turn at most, such as `30s`; only with a store")
		cmd.Flags().StringVar(&id, "id", "", "charge once, however often it is asked under this `id` within an hour")
	}
	return cmd
}

// decide calls query and prints its decision by format. If the decision is a refusal, it returns errRefused.
func decide[T any](cmd *cobra.Command, f *queryFlags, query func(backend) (T, error), allowed func(T) bool,
	format func(T) string,
) error {
	return withBackend(cmd, func(s backend) error {
		d, err := query(s)
		if err != nil {
			return err
		}
		err = f.json.print(cmd.OutOrStdout(), d, func(w io.Writer) error {
			_, err := fmt.Fprintln(w, format(d))
			return err
		})
		if err == nil && !allowed(d) {
			err = errRefused
		}
		return err
	})
}

// takeWithin waits until the charge is admitted, at most for wait, and prints the result. A refusal is errRefused.
func (f *queryFlags) takeWithin(cmd *cobra.Command, limit, key string, c *chargeFlags, wait time.Duration) error {
	url, err := serverOf(cmd)
	if err != nil {
		return err
	}
	if url != "" {
		return headgate.Invalid("wait", "take does not wait at a server; name a store")
	}
	w, closeStore, err := openWaiter(cmd, limit, key, c)
	if err != nil {
		return err
	}
	begin := time.Now()
	err = cmp.Or(w.limiter.WaitAtMost(cmd.Context(), wait, w.charge), closeStore())
	denied, refused := errors.AsType[*headgate.DeniedError](err)
	if err != nil && !refused {
		return err
	}
	result := struct {
		Allowed      bool   `json:"allowed"`
		Limit        string `json:"limit"`
		RetryAfterMS *int64 `json:"retry_after_ms"` // as in the output of take without --wait, from now on
		WaitedMS     int64  `json:"waited_ms"`
	}{!refused, w.charge.Limit.Name(), new(int64), time.Since(begin).Milliseconds()}
	if refused {
		result.Limit, result.RetryAfterMS = denied.Decision.LimitName, nil // nil: never
		if d := denied.Decision.RetryAfter; d != headgate.Never {
			result.RetryAfterMS = new(service.Millis(d))
		}
	}
	err = f.json.print(cmd.OutOrStdout(), result, func(w io.Writer) error {
		if refused {
			_, err := fmt.Fprintf(w, "refused  %s  %s\n", result.Limit, denied)
			return err
		}
		_, err := fmt.Fprintf(w, "allowed  %s  after %s\n", result.Limit, formatMillis(result.WaitedMS))
		return err
	})
	if err == nil && refused {
		err = errRefused
	}
	return err
}

// formatDecision describes a decision in one line.
func formatDecision(d *api.Decision) string {
	because := appliedSuffix(d.Applied)
	if d.Replayed {
		because = ", as before" + because
	}
	if d.Crossed > 0 {
		because += fmt.Sprintf(", crossed %d%%", d.Crossed)
	}
	switch {
	case d.Allowed:
		return fmt.Sprintf("allowed  %s  remaining %s, reset in %s%s", d.Limit, formatAmount(d.Remaining),
			formatMillis(d.ResetAfterMS), because)
	case d.RetryAfterMS == nil:
		return fmt.Sprintf("refused  %s  never: the cost exceeds what can pass at once%s", d.Limit, because)
	}
	return fmt.Sprintf("refused  %s  retry in %s, remaining %s%s", d.Limit, formatMillis(*d.RetryAfterMS),
		formatAmount(d.Remaining), because)
}

func newFillUpCommand() *cobra.Command {
	const short = "Take as much of an amount as fits: exit 0 some or all of it, 1 nothing, 2 error"
	var query queryFlags
	cmd := &cobra.Command{
		Use:               "fill-up LIMIT KEY AMOUNT",
		Short:             short,
		Long:              short + ". AMOUNT is a decimal.\n\n" + aboutLimit,
		SuggestFor:        []string{"fill", "fillup", "pour"},
		Example:           "  headgate fill-up 'token-bucket 5/1m' alice 3\n  headgate fill-up export acme 2.5",
		Args:              cobra.ExactArgs(3),
		ValidArgsFunction: completeArgs(completeLimit, completeKey),
		RunE: func(cmd *cobra.Command, args []string) error {
			amount, err := headgate.ParseCost(args[2])
			if err != nil {
				return service.InField("amount", err)
			}
			return decide(cmd, &query, func(s backend) (*api.Filled, error) {
				return callFillUp(cmd.Context(), s, &api.Request{Charge: api.Charge{
					Limit: args[0], Key: args[1], Cost: json.Number(amount.String()),
				}})
			}, func(f *api.Filled) bool { return f.Allowed },
				func(f *api.Filled) string { return formatFillUp(f, amount) })
		},
	}
	query.addFlags(cmd)
	return cmd
}

// formatFillUp describes in one line how much of an amount was accepted.
func formatFillUp(f *api.Filled, amount headgate.Cost) string {
	if !f.Allowed {
		return formatDecision(&f.Decision)
	}
	brim := ""
	if f.Brim {
		brim = ", at the brim"
	}
	return fmt.Sprintf("accepted %s of %s  %s  level %s of %s%s, remaining %s, reset in %s%s", f.Accepted, amount,
		f.Limit, formatAmount(f.Level), formatAmount(f.Capacity), brim, formatAmount(f.Remaining),
		formatMillis(f.ResetAfterMS), appliedSuffix(f.Applied))
}

// waiter has what a command needs to wait for a charge.
type waiter struct {
	limiter *headgate.Limiter
	charge  headgate.Charge
	place   config.Place
}

// openWaiter opens the store, and returns a waiter for the charge of the command line.
func openWaiter(cmd *cobra.Command, limit, key string, f *chargeFlags) (w waiter, closeStore func() error, err error) {
	c, err := loadConfig(cmd)
	if err != nil {
		return w, nil, err
	}
	if headgate.ValidName(limit) != nil { // report a bad notation before opening a store
		if _, err := c.Resolve(limit); err != nil {
			return w, nil, err
		}
	}
	w.charge.Key = key
	if w.charge.Cost, err = headgate.ParseCost(f.cost); err != nil {
		return w, nil, err
	}
	if err := w.charge.Keep.UnmarshalText([]byte(f.keep)); err != nil {
		return w, nil, err
	}
	p, s, err := openStore(cmd, c, stores.Options{})
	if err != nil {
		return w, nil, err
	}
	if w.charge.Limit, err = c.Resolve(limit); err == nil && w.charge.Limit.OnlyName() {
		w.charge.Limit, err = newCatalogNames(cmd.Context(), s, c).Find(cmd.Context(), limit, key)
	}
	if err != nil {
		s.Close()
		return w, nil, err
	}
	w.limiter, w.place = headgate.New(s, nil), p
	return w, s.Close, nil
}

// waitForTurn waits until the charge is admitted, at most for wait if bounded. For a concurrency limit it returns the
// lease.
func (w waiter) waitForTurn(ctx context.Context, wait time.Duration, bounded bool) (*headgate.Lease, error) {
	if !bounded {
		wait = headgate.Never
	}
	if w.charge.Limit.Concurrency() {
		return w.limiter.AwaitAtMost(ctx, wait, w.charge)
	}
	return nil, w.limiter.WaitAtMost(ctx, wait, w.charge)
}
