package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/server/config"
	"github.com/headgate/headgate/store"
)

func newLimitsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "limits",
		Short: "Show and change the catalogue: the named limits that a store keeps",
		Long: "Show and change the catalogue: the named limits that a store keeps, for all who use it.\n" +
			"A change is felt by every server and program within two seconds, and is kept as a version\n" +
			"with its author, its time and its reason.\n\n" +
			"A server can list, show, set and roll back limits; the other commands need a store.",
		Args: knownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newLimitsListCommand(), newLimitsShowCommand(), newLimitsSetCommand(), newLimitsApplyCommand(),
		newLimitsHistoryCommand(), newLimitsRollbackCommand(), newLimitsRemoveCommand(),
		newLimitsResetCommand())
	return cmd
}

func newLimitsListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the named limits",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list := []limitLine{}
			asked, err := askServer(cmd, func(r *remote) error {
				c, err := r.catalogue(cmd)
				for _, l := range c.Limits {
					list = append(list, limitLine{
						l.Name, l.Limit, l.Description, l.Origin, l.Retired, l.Bound,
					})
				}
				return err
			})
			if !asked {
				err = catalogued(cmd, func(c *catalog.Catalog) error {
					for name, err := range c.Unreadable() {
						fmt.Fprintf(cmd.ErrOrStderr(), "limit %s cannot be read by this program: %v\n", name, err)
					}
					for _, d := range c.List() {
						list = append(list, lineOf(&d))
					}
					return nil
				})
			}
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), list)
			}
			t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(t, "NAME\tLIMIT\tFROM\tDESCRIPTION")
			for _, l := range list {
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", l.Name, l.Limit, origin(l.Origin, l.Retired), l.Description)
			}
			return t.Flush()
		},
	}
	addSettings(cmd, askedSettings...)
	cmd.MarkFlagsMutuallyExclusive("store", "server")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// limitLine is a limit as JSON.
type limitLine struct {
	Name        string `json:"name"`
	Limit       string `json:"limit"`
	Description string `json:"description,omitempty"`
	Origin      string `json:"origin,omitempty"`
	Retired     bool   `json:"retired,omitempty"`
	Bound       string `json:"bound"`
}

func lineOf(d *catalog.Definition) limitLine {
	return limitLine{
		d.Name(), d.String(), d.Description, d.Origin, d.Retired, d.Bound().String(),
	}
}

func origin(from string, retired bool) string {
	switch {
	case retired:
		return "retired"
	case from != "":
		return from
	}
	return "-"
}

func newLimitsShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Say what a named limit means, and what changed it last",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return showLimit(cmd, args[0])
		},
	}
	addSettings(cmd, askedSettings...)
	cmd.MarkFlagsMutuallyExclusive("store", "server")
	return cmd
}

// showLimit says what a limit of a server or of a store means.
func showLimit(cmd *cobra.Command, name string) error {
	if asked, err := askServer(cmd, func(r *remote) error { return r.show(cmd, name) }); asked {
		return err
	}
	return catalogued(cmd, func(c *catalog.Catalog) error {
		l, err := c.Get(name)
		if err != nil {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout(), l.Explain())
		list, err := c.History(cmd.Context(), name, 1)
		if err == nil && len(list) > 0 {
			last := &list[0]
			fmt.Fprintf(cmd.OutOrStdout(), "%-10s %s\n", "changed",
				versionLine(last.Number, last.At, last.Author, last.Reason))
		}
		return err
	})
}

// versionLine says which version it is, when it was made, by whom and why.
func versionLine(number, at int64, author, reason string) string {
	line := fmt.Sprintf("version %d, %s, by %s", number, instant(at), key(author))
	if reason != "" {
		line += ": " + key(reason)
	}
	return line
}

func newLimitsHistoryCommand() *cobra.Command {
	var most int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "history [NAME]",
		Short: "List the versions of the catalogue, or those that changed one limit, newest first",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := ""
			if len(args) > 0 {
				name = args[0]
			}
			if asked, err := askServer(cmd, func(r *remote) error {
				return r.history(cmd, name, most, asJSON)
			}); asked {
				return err
			}
			return catalogued(cmd, func(c *catalog.Catalog) error {
				list, err := c.History(cmd.Context(), name, most)
				if err != nil {
					return err
				}
				if len(list) == 0 && name != "" { // a limit that was removed has a history
					if _, err := c.Get(name); err != nil {
						return err
					}
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), list)
				}
				for i := range list {
					printVersion(cmd.OutOrStdout(), &list[i], name)
				}
				return nil
			})
		},
	}
	addSettings(cmd, askedSettings...)
	cmd.MarkFlagsMutuallyExclusive("store", "server")
	cmd.Flags().IntVar(&most, "max", 20, "number of versions")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printVersion(w io.Writer, v *store.Version, name string) {
	fmt.Fprintln(w, versionLine(v.Number, v.At, v.Author, v.Reason))
	for _, c := range v.Changes {
		if name == "" || catalog.Concerns(c, name) {
			fmt.Fprintln(w, "  "+catalog.Describe(c))
		}
	}
}

// noFlags are those of a command line without any.
func noFlags(string) (string, bool) { return "", false }

func newValidateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "validate FILE ...",
		Short: "Check config files: mistakes are named with their lines and columns",
		Long: "Check config files: mistakes are named with their lines and columns. So is what can never work, such as a\n" +
			"rule whose cost is more than its limit, or the limit of a plan, lets pass at once. A server starts\n" +
			"with the latter, but for a plan of another kind, and says so in its log and in GET /readyz.\n\n" +
			"Files that the settings name, such as those of tokens, are not looked at.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := config.Read(args...)
			if err == nil {
				_, err = settingsOf(f, noFlags)
			}
			if err == nil {
				err = errors.Join(impossible(f)...)
			}
			if err == nil {
				about := fmt.Sprintf("%d limits and %d plans", len(f.Limits), len(f.Plans))
				if n := f.Rules.Len(); n > 0 {
					about = fmt.Sprintf("%d limits, %d plans and %d rules", len(f.Limits), len(f.Plans), n)
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s: %s, nothing wrong\n", f.File, about)
				for _, warning := range f.Warnings() {
					fmt.Fprintln(cmd.OutOrStdout(), "warning: "+warning)
				}
			}
			return err
		},
	}
}
