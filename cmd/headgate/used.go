package main

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/server/config"
)

// usedFelt is how long a change waits until all servers have it; 0: as long as their looks at the catalogue need.
var usedFelt time.Duration

// using is the flag that says what becomes of what keys have used.
type using struct {
	mode string
	bar  *bar[catalog.UsedPhase]
}

func (u *using) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&u.mode, "used", catalog.KeepUsed.String(),
		"what becomes of what keys have used: `keep`, scale (the same fraction) or reset")
}

// of says what becomes of it, and shows the progress. clear ends that.
func (u *using) of(cmd *cobra.Command) (used catalog.Used, err error) {
	mode, err := catalog.ParseUsedMode(cmp.Or(u.mode, catalog.KeepUsed.String()))
	if err != nil || mode == catalog.KeepUsed {
		return used, err
	}
	u.bar = newBar[catalog.UsedPhase](cmd.ErrOrStderr(), nil)
	return catalog.Used{Mode: mode, Felt: usedFelt, Progress: func(p catalog.UsedProgress) {
		if p.Phase == catalog.UsedWaiting {
			u.bar.clear()
			fmt.Fprintf(cmd.ErrOrStderr(), "%s; keys to work on: %d\n", p.Phase, p.Keys)
			return
		}
		u.bar.show(p.Phase, int64(p.Done), int64(p.Keys))
	}}, nil
}

// by is the author of a change, with what becomes of what is used.
func (u *using) by(cmd *cobra.Command, reason string) (a catalog.By, err error) {
	a = by(reason)
	a.Used, err = u.of(cmd)
	return a, err
}

// made tells which version was made, also where keys are left that were not worked on. name is the
// limit that was changed, or empty where that is not one alone.
func (u *using) made(cmd *cobra.Command, before, version int64, err error, name string) error {
	if _, unfinished := errors.AsType[*catalog.UnfinishedError](err); err == nil || unfinished {
		made(cmd, before, version)
	}
	return u.left(err, name)
}

// left ends the progress, and says what goes on where keys are left.
func (u *using) left(err error, name string) error {
	if u.bar != nil {
		u.bar.clear()
	}
	left, unfinished := errors.AsType[*catalog.UnfinishedError](err)
	if !unfinished || name == "" {
		return err
	}
	return fmt.Errorf("%w; headgate limits used %s %s goes on", err, name, left.Mode)
}

func newLimitsUsedCommand() *cobra.Command {
	var u using
	var c changing
	cmd := &cobra.Command{
		Use:   "used NAME scale|reset",
		Short: "Go on where a change with --used was interrupted, or reset all keys of a limit",
		Long: "Go on where a change of a limit with --used was interrupted, or reset all keys of a limit.\n\n" +
			"reset forgets what all keys of the limit have used, their blocks and the ids of requests; it may be\n" +
			"repeated. scale goes on with the last change of the limit: it scales the keys that were certainly not\n" +
			"charged since, and those that have used more than the limit allows now. A key that was scaled is\n" +
			"not scaled again. Keys with a plan or an override keep what they have used.\n\n" +
			"Exit 0 done, 2 error or interrupted.",
		Example: "  headgate limits used login reset --yes\n  headgate limits used api scale",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			u.mode = args[1]
			used, err := u.of(cmd)
			if err != nil {
				return err
			}
			if used.Mode == catalog.KeepUsed {
				return headgate.Invalid("used", "keep changes nothing: write scale or reset")
			}
			return catalogued(cmd, func(limits *catalog.Catalog) error {
				if _, err := limits.Get(args[0]); err != nil {
					return err
				}
				if used.Mode == catalog.ResetUsed {
					if err := c.agreed(cmd, "Reset what all keys have used of "+args[0]+"?"); err != nil {
						return err
					}
				}
				n, err := limits.ContinueUsed(cmd.Context(), args[0], used)
				if err := u.left(err, args[0]); err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%d keys are done\n", n)
				return nil
			})
		},
	}
	addSettings(cmd, config.Store, config.File)
	cmd.Flags().BoolVarP(&c.yes, "yes", "y", false, "do not ask")
	return cmd
}
