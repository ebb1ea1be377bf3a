package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/store"
)

// sweepPortion is how many rows one call of Sweep removes at most.
const sweepPortion = 5000

// sweepOptions are the flags of headgate sweep.
type sweepOptions struct {
	max   int
	every time.Duration
}

func newSweepCommand() *cobra.Command {
	var o sweepOptions
	cmd := &cobra.Command{
		Use:        "sweep --store URL",
		Short:      "Remove the rows that can refuse nobody any more",
		SuggestFor: []string{"clean", "cleanup", "prune", "vacuum", "gc", "purge"},
		Long: "Remove the rows that can refuse nobody any more, and print how many they were. The\n" +
			"tables are read in portions, and no row that a decision holds is waited for.\n\n" +
			"headgate serve and store/front do the same in the background. This command is for\n" +
			"databases that are used from SQL alone. Once, from cron, it removes what is dead when it\n" +
			"begins. With --every it repeats that until a signal comes, and prints a line each time;\n" +
			"an error is printed then too, and the next time comes all the same. A Redis removes dead\n" +
			"keys by itself, so there the number is 0.\n\n" +
			"Exit 0 done, 2 error.",
		Example: "  headgate sweep --store postgres://localhost/app\n" +
			"  headgate sweep --store mysql://root@localhost/app --max 100000\n" +
			"  headgate sweep --store postgres://localhost/app --every 10s",
		Args: cobra.NoArgs,
		RunE: o.run,
	}
	addSettings(cmd, config.File, config.Store)
	cmd.Flags().IntVar(&o.max, "max", 0, "how many rows to remove at most, each time; 0: all that can be")
	cmd.Flags().DurationVar(&o.every, "every", 0, "repeat it so long after each time, until a signal comes; 0: once")
	return cmd
}

// check says what is wrong with the flags.
func (o *sweepOptions) check() error {
	switch {
	case o.max < 0:
		return headgate.Invalid("--max", "%d is negative", o.max)
	case o.every < 0:
		return headgate.Invalid("--every", "%s is negative", o.every)
	}
	return nil
}

func (o *sweepOptions) run(cmd *cobra.Command, _ []string) error {
	if err := o.check(); err != nil {
		return err
	}
	_, _, s, err := openPlace(cmd)
	if err != nil {
		return err
	}
	return cmp.Or(o.sweep(cmd, s), s.Close())
}

// sweep sweeps once, or until a signal comes.
func (o *sweepOptions) sweep(cmd *cobra.Command, s store.Store) error {
	ctx := cmd.Context()
	for {
		removed, err := sweepAll(ctx, s, o.max)
		if err == nil || removed > 0 {
			fmt.Fprintf(cmd.OutOrStdout(), "removed %d rows\n", removed)
		}
		switch {
		case o.every == 0 && ctx.Err() != nil && err != nil: // the signal came before the end
			return fmt.Errorf("interrupted: %w", err)
		case o.every == 0:
			return err
		case err != nil && ctx.Err() == nil:
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: %v\n", cmd.CommandPath(), err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(o.every):
		}
	}
}

// sweepAll removes the rows that are dead when it begins, but no more than most;
// 0: all. What dies meanwhile does not keep it going.
func sweepAll(ctx context.Context, s store.Store, most int) (removed int, err error) {
	begun := store.InfoOf(s)
	for passes, before := int64(0), 0; ; {
		portion := sweepPortion
		if most > 0 {
			portion = min(portion, most-removed)
		}
		n, err := s.Sweep(ctx, portion)
		removed += n
		if err != nil || removed == most && most > 0 {
			return removed, err
		}
		if !begun.Partial {
			if n < portion {
				return removed, nil
			}
			continue
		}
		// A cell goes in the pass after that of its entries, so there are two passes,
		// unless the first finds nothing.
		if done := store.InfoOf(s).Passes - begun.Passes; done > passes {
			if done >= 2 || removed == before {
				return removed, nil
			}
			passes, before = done, removed
		}
	}
}
