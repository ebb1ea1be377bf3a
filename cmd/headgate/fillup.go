package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
)

func newFillUpCommand() *cobra.Command {
	const short = "Take as much of an amount as fits: exit 0 some or all of it, 1 nothing, 2 error"
	var a asking
	cmd := &cobra.Command{
		Use:        "fill-up LIMIT KEY AMOUNT",
		Short:      short,
		Long:       short + ". AMOUNT is a decimal.\n\n" + notations(),
		SuggestFor: []string{"fill", "fillup", "pour"},
		Example:    "  headgate fill-up 'token-bucket 5/1m' alice 3\n  headgate fill-up export acme 2.5",
		Args:       cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			amount, err := headgate.ParseCost(args[2])
			if err != nil {
				if wrong, ok := errors.AsType[*headgate.InvalidError](err); ok {
					err = headgate.Invalid("amount", "%s", wrong.Problem)
				}
				return err
			}
			return ask(cmd, func(s answerer) error {
				f, err := s.FillUp(cmd.Context(), &api.Request{Charge: api.Charge{
					Limit: args[0], Key: args[1], Cost: json.Number(amount.String()),
				}})
				switch {
				case err != nil:
					return err
				case a.json:
					err = printJSON(cmd.OutOrStdout(), f)
				case f.Allowed:
					fmt.Fprintln(cmd.OutOrStdout(), poured(f, amount))
				default:
					fmt.Fprintln(cmd.OutOrStdout(), sentence(&f.Decision))
				}
				if err == nil && !f.Allowed {
					err = errRefused
				}
				return err
			})
		},
	}
	a.flags(cmd)
	return cmd
}

// poured tells what fitted in.
func poured(f *api.Filled, amount headgate.Cost) string {
	brim := ""
	if f.Brim {
		brim = ", at the brim"
	}
	return fmt.Sprintf("accepted %s of %s  %s  level %s of %s%s, remaining %s, full again in %s", f.Accepted, amount,
		f.Limit, f.Level, f.Capacity, brim, f.Remaining, ms(f.ResetAfterMS)) +
		because(&f.Decision)
}
