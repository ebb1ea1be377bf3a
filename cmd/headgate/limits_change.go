package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/store"
)

// changing are the flags of the commands that change the catalog.
type changing struct {
	reason string
	yes    bool
	dry    bool
}

func (c *changing) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.reason, "reason", "", "`why`, for the history")
	f.BoolVarP(&c.yes, "yes", "y", false, "do not ask")
	f.BoolVar(&c.dry, "dry-run", false, "print what would be changed, and change nothing")
}

const changeIt = "Change the catalog?"

// errDeclined is the answer no.
var errDeclined = errors.New("nothing was changed")

// agreed asks whether to go on. Where nobody can answer, --yes has to.
func (c *changing) agreed(cmd *cobra.Command, question string) error {
	if c.yes {
		return nil
	}
	in := cmd.InOrStdin()
	if f, ok := in.(*os.File); ok && !term.IsTerminal(int(f.Fd())) {
		return headgate.Invalid("--yes", "is missing: there is no terminal to ask at")
	}
	fmt.Fprint(cmd.ErrOrStderr(), question+" [y/N] ")
	said := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n')
		said <- line
	}()
	select {
	case line := <-said:
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return nil
		}
		return errDeclined
	case <-cmd.Context().Done():
		return errDeclined
	}
}

// proceed reports whether to go on when what would be changed was shown. Where that is nothing, nobody is asked.
func (c *changing) proceed(cmd *cobra.Command, some bool, question string) (bool, error) {
	if c.dry || !some {
		return !c.dry, nil
	}
	err := c.agreed(cmd, question)
	return err == nil, err
}

// by returns the author of a change of a version that was shown.
func (c *changing) by(seen int64) catalog.By {
	a := by(c.reason)
	a.Seen = &seen
	return a
}

// changed opens the store of a command, makes a change of its catalog, and prints which version
// that made.
func changed(cmd *cobra.Command, change func(c *catalog.Catalog) (version int64, err error)) error {
	return withCatalog(cmd, func(c *catalog.Catalog) error {
		before, _ := c.Version()
		version, err := change(c)
		if err != nil {
			return err
		}
		if version != before {
			if list, err := c.Between(cmd.Context(), version-1, version); err == nil {
				for _, change := range list {
					fmt.Fprintln(cmd.OutOrStdout(), catalog.Describe(change))
				}
			}
		}
		made(cmd, version != before, version)
		return nil
	})
}

// made prints which version was made, if one was.
func made(cmd *cobra.Command, one bool, version int64) {
	if !one {
		fmt.Fprintln(cmd.OutOrStdout(), "nothing to change")
		return
	}
	fmt.Fprintf(cmd.OutOrStdout(), "the catalog has version %d now%s\n", version, changedIn(cmd))
}

// changedIn returns where a command has changed something.
func changedIn(cmd *cobra.Command) string {
	if server, err := serverOf(cmd); err == nil && server != "" && cmd.Flags().Lookup(config.Server.Flag()) != nil {
		return ", at " + store.RedactURL(server)
	}
	c, err := loadConfig(cmd)
	if err != nil {
		return ""
	}
	p, err := placeOf(cmd, c)
	if err != nil {
		return ""
	}
	return ", in " + p.String()
}

// printChanged prints what was changed, or would be.
func printChanged(cmd *cobra.Command, out *api.Changed, err error, dry bool) error {
	if err != nil {
		return err
	}
	for _, change := range out.Changes {
		fmt.Fprintln(cmd.OutOrStdout(), change.Text)
	}
	if some := len(out.Changes) > 0; !some || !dry {
		made(cmd, some, out.Version)
	}
	return nil
}

// needsStore refuses flags that a server does not know.
func needsStore(cmd *cobra.Command, s backend, names ...string) error {
	if s.local != nil {
		return nil
	}
	for _, name := range names {
		if cmd.Flags().Changed(name) {
			return headgate.Invalid(name, "is not known to a server; name a store")
		}
	}
	return nil
}

func newLimitsSetCommand() *cobra.Command {
	var in api.SetLimit
	var description string
	cmd := &cobra.Command{
		Use:     "set NAME LIMIT",
		Short:   "Define a named limit, or change it",
		Example: "  headgate limits set login 'sliding-log 5/15m' --reason 'passwords are being guessed'",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.Name, in.Limit = args[0], args[1]
			if _, err := headgate.ParseNamed(in.Name, in.Limit); err != nil { // before a store is opened
				return err
			}
			if cmd.Flags().Changed("description") {
				in.Description = &description
			}
			return ask(cmd, func(s backend) error {
				out, err := askSetLimit(cmd.Context(), s, &in)
				return printChanged(cmd, out, err, in.DryRun)
			})
		},
	}
	addPlaceSettings(cmd)
	f := cmd.Flags()
	f.StringVar(&in.Reason, "reason", "", "`why`, for the history")
	f.BoolVar(&in.DryRun, "dry-run", false, "print what would be changed, and change nothing")
	f.StringVar(&description, "description", "", "what it is for, a `text`")
	return cmd
}

func newLimitsApplyCommand() *cobra.Command {
	var c changing
	var files []string
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Make the catalog's limits those of a file",
		Long: "Make the catalog's limits those of a file: print the difference, ask, and make one version.\n\n" +
			"Limits that a file has defined and this one does not have are retired: they are marked, and\n" +
			"still decide until they are removed. Limits that were defined otherwise stay.",
		Example: "  headgate limits apply -f headgate.yaml --store postgres://headgate@db/app",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Read(files...)
			if err != nil {
				return err
			}
			// The store is that of the file, unless a flag or the variable names another.
			return withCatalogOf(cmd, cfg, func(limits *catalog.Catalog) error {
				return c.apply(cmd, limits, cfg.Defines())
			})
		},
	}
	c.flags(cmd)
	addSettings(cmd, config.Store)
	cmd.Flags().StringArrayVarP(&files, "file", "f", nil, "`file` with limits; may be repeated")
	_ = cmd.MarkFlagRequired("file")
	return cmd
}

func (c *changing) apply(cmd *cobra.Command, limits *catalog.Catalog, f catalog.File) error {
	d, err := limits.Compare(cmd.Context(), f)
	if err != nil {
		return err
	}
	before, _ := limits.Version()
	if d.Known == catalog.Older {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s was applied before, and another file since then\n", f.Path)
	}
	for _, line := range d.Lines() {
		fmt.Fprintln(cmd.OutOrStdout(), line)
	}
	if d.Empty() {
		fmt.Fprintf(cmd.OutOrStdout(), "the catalog has all that %s says\n", f.Path)
	}
	if ok, err := c.proceed(cmd, !d.Empty(), changeIt); !ok {
		return err
	}
	// What was shown and agreed to is applied: also of the newest file, after changes by hand.
	_, version, err := limits.Apply(cmd.Context(), c.by(before), f, catalog.Anyway)
	if err == nil && !d.Empty() {
		made(cmd, version != before, version)
	}
	return err
}

func newLimitsRollbackCommand() *cobra.Command {
	var c changing
	cmd := &cobra.Command{
		Use:     "rollback VERSION [NAME ...]",
		Short:   "Make the limits, or those that are named, what they were after a version",
		Example: "  headgate limits history\n  headgate limits rollback 41 --reason 'too strict'",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			version, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil || version < 0 {
				return headgate.Invalid("VERSION", "%q is not the number of a version", args[0])
			}
			return ask(cmd, func(s backend) error { return c.rollback(cmd, s, version, args[1:]) })
		},
	}
	c.flags(cmd)
	addPlaceSettings(cmd)
	return cmd
}

// rollback makes limits what they were after a version, on top of what was shown.
func (c *changing) rollback(cmd *cobra.Command, s backend, version int64, names []string) error {
	in := api.Rollback{Version: version, Reason: c.reason, DryRun: true}
	if len(names) > 0 {
		in.Limits = names
	}
	plan, err := askRollback(cmd.Context(), s, &in)
	if err != nil {
		return err
	}
	for _, change := range plan.Changes {
		fmt.Fprintln(cmd.OutOrStdout(), change.Text)
	}
	if ok, err := c.proceed(cmd, len(plan.Changes) > 0, changeIt); !ok {
		return err
	}
	in.DryRun, in.Seen = false, &plan.Version
	out, err := askRollback(cmd.Context(), s, &in)
	if err == nil {
		made(cmd, out.Version != plan.Version, out.Version)
	}
	return err
}

func newLimitsRemoveCommand() *cobra.Command {
	var c changing
	cmd := &cobra.Command{
		Use:   "remove NAME ...",
		Short: "Remove limits from the catalog; then they are unknown",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withCatalog(cmd, func(limits *catalog.Catalog) error {
				unreadable := limits.Unreadable()
				for _, name := range args {
					if d, ok := limits.Lookup(name); ok {
						fmt.Fprintf(cmd.OutOrStdout(), "- %s = %s\n", name, d.String())
					} else if unreadable[name] != nil {
						fmt.Fprintf(cmd.OutOrStdout(), "- %s, which this program cannot read\n", name)
					} else if _, err := limits.Get(name); err != nil {
						return err
					}
				}
				before, _ := limits.Version()
				if ok, err := c.proceed(cmd, true, changeIt); !ok {
					return err
				}
				version, err := limits.Remove(cmd.Context(), c.by(before), args...)
				if err == nil {
					made(cmd, version != before, version)
				}
				return err
			})
		},
	}
	c.flags(cmd)
	addSettings(cmd, config.Store, config.File)
	return cmd
}

func newLimitsResetCommand() *cobra.Command {
	var c changing
	cmd := &cobra.Command{
		Use:   "reset NAME",
		Short: "Forget what all keys have used of a limit",
		Long: "Forget what all keys have used of a limit, their blocks and the ids of requests. headgate reset does\n" +
			"it for one key. If it ends early the other keys keep what they have used, and it may be repeated.",
		Example: "  headgate limits reset login --yes",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withCatalog(cmd, func(limits *catalog.Catalog) error {
				if _, err := limits.Get(args[0]); err != nil {
					return err
				}
				if err := c.agreed(cmd, "Reset what all keys have used of "+args[0]+"?"); err != nil {
					return err
				}
				n, err := limits.Reset(cmd.Context(), args[0])
				if err == nil || n > 0 {
					fmt.Fprintf(cmd.OutOrStdout(), "%d keys are reset\n", n)
				}
				return err
			})
		},
	}
	addSettings(cmd, config.Store, config.File)
	cmd.Flags().BoolVarP(&c.yes, "yes", "y", false, "do not ask")
	return cmd
}
