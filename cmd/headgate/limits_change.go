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

// changeFlags has the flags of the commands that change the catalog.
type changeFlags struct {
	reason string
	yes    bool
	dryRun bool
}

func (c *changeFlags) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.reason, "reason", "", "`why`, for the history")
	f.BoolVarP(&c.yes, "yes", "y", false, "do not ask")
	f.BoolVar(&c.dryRun, "dry-run", false, "print what would be changed, and change nothing")
}

const changeQuestion = "Change the catalog?"

// confirm asks the user a question. It returns an error unless the answer is yes. With no terminal, --yes is needed.
func (c *changeFlags) confirm(cmd *cobra.Command, question string) error {
	if c.yes {
		return nil
	}
	in := cmd.InOrStdin()
	if f, ok := in.(*os.File); ok && !term.IsTerminal(int(f.Fd())) {
		return headgate.Invalid("--yes", "is missing: there is no terminal to ask at")
	}
	fmt.Fprint(cmd.ErrOrStderr(), question+" [y/N] ")
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n')
		answer <- line
	}()
	select {
	case line := <-answer:
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return nil
		}
	case <-cmd.Context().Done():
	}
	return errors.New("nothing was changed")
}

// proceed reports whether to make the changes that were printed. It asks the user if there are some, and no --dry-run.
func (c *changeFlags) proceed(cmd *cobra.Command, hasChanges bool, question string) (bool, error) {
	if c.dryRun || !hasChanges {
		return !c.dryRun, nil
	}
	err := c.confirm(cmd, question)
	return err == nil, err
}

// author returns the author of a change. The change fails if the catalog has another version than the one seen.
func (c *changeFlags) author(seen int64) catalog.By {
	author := changeAuthor(c.reason)
	author.Seen = &seen
	return author
}

// changeCatalog opens the store of a command, calls change with its catalog, and prints what changed.
func changeCatalog(cmd *cobra.Command, change func(c *catalog.Catalog) (version int64, err error)) error {
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
		printVersion(cmd, version != before, version)
		return nil
	})
}

// printVersion prints the new version of the catalog, if there is one, and where it was made.
func printVersion(cmd *cobra.Command, isNew bool, version int64) {
	if !isNew {
		fmt.Fprintln(cmd.OutOrStdout(), "nothing to change")
		return
	}
	fmt.Fprintf(cmd.OutOrStdout(), "the catalog has version %d now%s\n", version, placeSuffix(cmd))
}

// placeSuffix names the server or store that a command has changed, for the end of a line.
func placeSuffix(cmd *cobra.Command) string {
	if server, err := serverOf(cmd); err == nil && server != "" && cmd.Flags().Lookup(config.Server.Flag()) != nil {
		return ", at " + store.RedactURL(server)
	}
	_, p, err := loadPlace(cmd)
	if err != nil {
		return ""
	}
	return ", in " + p.String()
}

// printChanged returns err, or prints the changes of an answer, and, unless it was a dry run, the new version.
func printChanged(cmd *cobra.Command, out *api.Changed, err error, dryRun bool) error {
	if err != nil {
		return err
	}
	for _, change := range out.Changes {
		fmt.Fprintln(cmd.OutOrStdout(), change.Text)
	}
	if hasChanges := len(out.Changes) > 0; !hasChanges || !dryRun {
		printVersion(cmd, hasChanges, out.Version)
	}
	return nil
}

// needsStore refuses the named flags when a server answers, since servers do not know them.
func needsStore(cmd *cobra.Command, s backend, names ...string) error {
	for _, name := range names {
		if s.local == nil && cmd.Flags().Changed(name) {
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
			return withBackend(cmd, func(s backend) error {
				out, err := callSetLimit(cmd.Context(), s, &in)
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

func newLimitsRenameCommand() *cobra.Command {
	var in api.SetLimit
	cmd := &cobra.Command{
		Use:   "rename OLD NEW",
		Short: "Give a limit another name, and no key a fresh limit",
		Long: "Give a limit another name, and no key a fresh limit: both names reach what keys have used.\n" +
			"Decisions, keys, metrics, plans and overrides keep the name OLD; programs ask by either. OLD cannot\n" +
			"be defined again. A file says it with renamed_from: OLD.\n\n" +
			"A program without the catalog (ParseNamed in its code) does not know NEW: as NEW it would count apart.\n" +
			"Let it keep OLD.",
		Example: "  headgate limits rename login signin --reason 'as the product calls it'",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.RenamedFrom, in.Name = args[0], args[1]
			return withBackend(cmd, func(s backend) error {
				out, err := callSetLimit(cmd.Context(), s, &in)
				if err := printChanged(cmd, out, err, in.DryRun); err != nil {
					return err
				}
				const told = "keys are kept as %s; programs without the catalog have to go on to say %[1]s\n"
				for _, change := range out.Changes {
					if cells, ok := strings.CutPrefix(change.After, store.RenamedFrom); ok && change.Name == in.Name {
						fmt.Fprintf(cmd.ErrOrStderr(), told, cells)
					}
				}
				return nil
			})
		},
	}
	addPlaceSettings(cmd)
	cmd.Flags().StringVar(&in.Reason, "reason", "", "`why`, for the history")
	cmd.Flags().BoolVar(&in.DryRun, "dry-run", false, "print what would be changed, and change nothing")
	return cmd
}

func newLimitsApplyCommand() *cobra.Command {
	var change changeFlags
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
			// The file names the store, unless a flag or the variable names another one.
			return withCatalogOf(cmd, cfg, func(limits *catalog.Catalog) error {
				return change.apply(cmd, limits, cfg.CatalogFile())
			})
		},
	}
	change.addFlags(cmd)
	addSettings(cmd, config.Store)
	cmd.Flags().StringArrayVarP(&files, "file", "f", nil, "`file` with limits; may be repeated")
	_ = cmd.MarkFlagRequired("file")
	return cmd
}

// apply prints how a file differs from the catalog, and applies the file unless proceed refuses.
func (c *changeFlags) apply(cmd *cobra.Command, limits *catalog.Catalog, f catalog.File) error {
	d, err := limits.Compare(cmd.Context(), f)
	if err != nil {
		return err
	}
	before, _ := limits.Version()
	if d.Standing == catalog.FileOlder {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s was applied before, and another file since then\n", f.Path)
	}
	for _, line := range d.Lines() {
		fmt.Fprintln(cmd.OutOrStdout(), line)
	}
	if d.Empty() {
		fmt.Fprintf(cmd.OutOrStdout(), "the catalog has all that %s says\n", f.Path)
	}
	if ok, err := c.proceed(cmd, !d.Empty(), changeQuestion); !ok {
		return err
	}
	// The user has confirmed the difference, so it is applied even after changes by hand.
	_, version, err := limits.Apply(cmd.Context(), c.author(before), f, catalog.ApplyAnyway)
	if err == nil && !d.Empty() {
		printVersion(cmd, version != before, version)
	}
	return err
}

func newLimitsRollbackCommand() *cobra.Command {
	var change changeFlags
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
			return withBackend(cmd, func(s backend) error { return change.rollback(cmd, s, version, args[1:]) })
		},
	}
	change.addFlags(cmd)
	addPlaceSettings(cmd)
	return cmd
}

// rollback prints what it would change, and does it unless proceed refuses. It fails if the catalog changed meanwhile.
func (c *changeFlags) rollback(cmd *cobra.Command, s backend, version int64, names []string) error {
	in := api.Rollback{Version: version, Reason: c.reason, DryRun: true}
	if len(names) > 0 {
		in.Limits = names
	}
	plan, err := callRollback(cmd.Context(), s, &in)
	if err != nil {
		return err
	}
	for _, change := range plan.Changes {
		fmt.Fprintln(cmd.OutOrStdout(), change.Text)
	}
	if ok, err := c.proceed(cmd, len(plan.Changes) > 0, changeQuestion); !ok {
		return err
	}
	in.DryRun, in.Seen = false, &plan.Version
	out, err := callRollback(cmd.Context(), s, &in)
	if err == nil {
		printVersion(cmd, out.Version != plan.Version, out.Version)
	}
	return err
}

func newLimitsRemoveCommand() *cobra.Command {
	var change changeFlags
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
				if ok, err := change.proceed(cmd, true, changeQuestion); !ok {
					return err
				}
				version, err := limits.Remove(cmd.Context(), change.author(before), args...)
				if err == nil {
					printVersion(cmd, version != before, version)
				}
				return err
			})
		},
	}
	change.addFlags(cmd)
	addSettings(cmd, config.Store, config.File)
	return cmd
}

func newLimitsResetCommand() *cobra.Command {
	var change changeFlags
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
				if err := change.confirm(cmd, "Reset what all keys have used of "+args[0]+"?"); err != nil {
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
	cmd.Flags().BoolVarP(&change.yes, "yes", "y", false, "do not ask")
	return cmd
}
