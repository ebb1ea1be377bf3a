package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/run"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/internal/stores"
	"github.com/headgate/headgate/store"
)

func newService(s store.Store, c *config.Config, names catalog.Names) *service.Service {
	return service.New(headgate.New(s, &headgate.Config{Names: names}), c, names)
}

func newMigrateCommand() *cobra.Command {
	var options stores.Options
	var remove bool
	var role, user string
	var change changeFlags
	cmd := &cobra.Command{
		Use:        "migrate --store URL",
		Short:      "Bring a store's schema up to date, and apply the config file's limits",
		SuggestFor: []string{"upgrade", "install", "init"},
		Args:       cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			place, s, err := openStore(cmd, file, options)
			if err != nil {
				return err
			}
			defer s.Close()
			if remove {
				return change.remove(cmd, s, place)
			}
			if change.yes || change.dryRun {
				return headgate.Invalid("--remove", "is missing: --yes and --dry-run go with it alone")
			}
			if (role == "") != (user == "") {
				return headgate.Invalid("role", "--role and --user stand together")
			}
			migrator, ok := store.As[store.Migrator](s)
			if !ok {
				return headgate.Invalid("store", "%s has no schema", store.RedactURL(place.URL))
			}
			report, err := migrator.Migrate(cmd.Context())
			if err != nil {
				return err
			}
			if role != "" {
				lines, err := migrator.Grant(cmd.Context(), store.Role(role), user)
				if err != nil {
					return err
				}
				report = append(report, lines...)
			}
			for _, line := range report {
				fmt.Fprintln(cmd.OutOrStdout(), line)
			}
			if file.Limits == nil && file.Plans == nil {
				return nil
			}
			limits, err := readCatalog(cmd.Context(), s)
			if err != nil {
				return err
			}
			return applyOnce(cmd, limits, file.CatalogFile())
		},
	}
	addSettings(cmd, config.Store, config.File)
	cmd.Flags().BoolVar(&remove, "remove", false,
		"remove all that it has made, with the state of all keys; it prints what, and asks")
	cmd.Flags().BoolVarP(&change.yes, "yes", "y", false, "with --remove: do not ask")
	cmd.Flags().BoolVar(&change.dryRun, "dry-run", false,
		"with --remove: print what would be removed, and remove nothing")
	cmd.Flags().StringVar(&role, "role", "", "give --user a `role`: app asks about limits by name, in SQL; "+
		"service is for servers, the command and the Go library")
	cmd.Flags().StringVar(&user, "user", "", "an existing `user` of the database, for --role")
	cmd.Flags().StringVar(&options.Articles, "articles", "", "make the functions of five articles too, such as "+
		"check_velocity, in this `schema` of PostgreSQL, or database of MariaDB or MySQL")
	return cmd
}

// applyOnce applies a config file as a server does: a file that was applied before changes nothing.
func applyOnce(cmd *cobra.Command, limits *catalog.Catalog, f catalog.File) error {
	before, _ := limits.Version()
	d, version, err := limits.Apply(cmd.Context(), changeAuthor("headgate migrate, "+f.Path), f, catalog.ApplyOnce)
	switch {
	case err != nil:
		return err
	case d.Standing == catalog.FileOlder:
		fmt.Fprintln(cmd.ErrOrStderr(), run.OlderFileMessage(f.Path))
		return nil
	case d.Standing == catalog.FileNewest && !d.Empty():
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: limits were changed since it was applied; they stay as they are:\n", f.Path)
	}
	for _, line := range d.Lines() {
		fmt.Fprintln(cmd.OutOrStdout(), line)
	}
	if d.Standing == catalog.FileNew {
		printVersion(cmd, version != before, version)
	}
	return nil
}

// remove prints everything that migrate has made, and removes it unless proceed refuses.
func (c *changeFlags) remove(cmd *cobra.Command, s store.Store, p config.Place) error {
	m, ok := store.As[store.Migrator](s)
	if !ok {
		return fmt.Errorf("%w: %s has nothing that migrate has made, or it is removed otherwise: see docs/stores.md",
			headgate.ErrUnsupported, store.RedactURL(p.URL))
	}
	lines, err := m.Removal(cmd.Context())
	if err != nil {
		return err
	}
	if len(lines) == 0 {
		fmt.Fprintln(cmd.OutOrStdout(), "nothing to remove")
		return nil
	}
	for _, line := range lines {
		fmt.Fprintln(cmd.OutOrStdout(), "- "+line)
	}
	if ok, err := c.proceed(cmd, true, "Remove all of this from "+store.RedactURL(p.URL)+"?"); !ok {
		return err
	}
	if err := m.Remove(cmd.Context()); err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), "removed")
	return nil
}

func newDoctorCommand() *cobra.Command {
	var asJSON outputFlag
	cmd := &cobra.Command{
		Use:        "doctor --store URL",
		Short:      "Look for what is wrong with a store: settings, rights, clocks, plans, bloat",
		SuggestFor: []string{"diagnose", "status", "health", "verify", "examine"},
		Long: "Look for what is wrong with a store, and print one line about each thing, with what to do about it.\n" +
			"Nothing is changed. What is \"wrong\" makes limits inexact, loses charges that were admitted, or lets\n" +
			"requests wait; a \"note\" may be intended, and says what it costs.\n\n" +
			"Exit 0 nothing is wrong, 1 something is, 2 error.",
		Example: "  headgate doctor --store postgres://localhost/app\n" +
			"  headgate doctor --store redis://localhost/0 -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, p, s, err := openPlace(cmd)
			if err != nil {
				return err
			}
			defer s.Close()
			doctor, ok := store.As[store.Doctor](s)
			if !ok {
				return headgate.Invalid("store", "there is nothing to examine at %s", store.RedactURL(p.URL))
			}
			found, err := doctor.Examine(cmd.Context())
			return cmp.Or(err, printFindings(cmd.OutOrStdout(), found, asJSON))
		},
	}
	addSettings(cmd, config.File, config.Store)
	asJSON.addFlag(cmd)
	return cmd
}

// printFindings prints findings, and returns exitCode(1) if one of them is wrong.
func printFindings(w io.Writer, found []store.Finding, asJSON outputFlag) error {
	var failure error
	if slices.ContainsFunc(found, func(f store.Finding) bool { return f.Severity == store.Wrong }) {
		failure = exitCode(exitRefused)
	}
	err := asJSON.print(w, append([]store.Finding{}, found...), func(w io.Writer) error {
		t := newTable(w)
		for _, f := range found {
			t.row(string(f.Severity), f.Check, quoteText(f.Found))
			if f.Remedy != "" {
				t.row("", "", "do: "+f.Remedy)
			}
		}
		return t.Flush()
	})
	return cmp.Or(err, failure)
}

// sweepPortion is how many rows one call of Sweep removes at most.
const sweepPortion = 5000

// sweepFlags has the flags of headgate sweep.
type sweepFlags struct {
	max   int
	every time.Duration
}

func newSweepCommand() *cobra.Command {
	var options sweepFlags
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
		RunE: options.run,
	}
	addSettings(cmd, config.File, config.Store)
	cmd.Flags().IntVar(&options.max, "max", 0, "how many rows to remove at most, each time; 0: all that can be")
	cmd.Flags().DurationVar(&options.every, "every", 0,
		"repeat it so long after each time, until a signal comes; 0: once")
	return cmd
}

func (o *sweepFlags) run(cmd *cobra.Command, _ []string) error {
	switch {
	case o.max < 0:
		return headgate.Invalid("--max", "%d is negative", o.max)
	case o.every < 0:
		return headgate.Invalid("--every", "%s is negative", o.every)
	}
	_, _, s, err := openPlace(cmd)
	if err != nil {
		return err
	}
	return cmp.Or(o.sweep(cmd, s), s.Close())
}

// sweep removes dead rows, and prints how many, once or again and again until a signal comes.
func (o *sweepFlags) sweep(cmd *cobra.Command, s store.Store) error {
	ctx := cmd.Context()
	for {
		removed, err := sweepAll(ctx, s, o.max)
		if err == nil || removed > 0 {
			fmt.Fprintf(cmd.OutOrStdout(), "removed %d rows\n", removed)
		}
		switch {
		case o.every == 0 && ctx.Err() != nil && err != nil: // the signal came before the sweep was complete
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

// sweepAll removes the rows that are dead when it begins, up to maxRows of them, or all if maxRows is 0. It may also
// remove rows that die meanwhile.
func sweepAll(ctx context.Context, s store.Store, maxRows int) (removed int, err error) {
	initial := store.InfoOf(s)
	for passes, removedBefore := int64(0), 0; ; {
		portion := sweepPortion
		if maxRows > 0 {
			portion = min(portion, maxRows-removed)
		}
		n, err := s.Sweep(ctx, portion)
		removed += n
		if err != nil || removed == maxRows && maxRows > 0 {
			return removed, err
		}
		if !initial.Partial {
			if n < portion {
				return removed, nil
			}
			continue
		}
		// A cell is removed in the pass after its entries, so there are two passes, unless the first removes nothing.
		if done := store.InfoOf(s).Passes - initial.Passes; done > passes {
			if done >= 2 || removed == removedBefore {
				return removed, nil
			}
			passes, removedBefore = done, removed
		}
	}
}
