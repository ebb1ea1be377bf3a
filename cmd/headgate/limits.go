package main

import (
	"cmp"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/run"
)

func newLimitsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "limits",
		Short: "Show and change the catalog: the named limits that a store keeps",
		Long: "Show and change the catalog: the named limits that a store keeps, for all who use it.\n" +
			"A change is felt by every server and program within two seconds, and is kept as a version\n" +
			"with its author, its time and its reason.\n\n" +
			"A server can list, show, set and roll back limits; the other commands need a store.\n\n" + notations(),
		Args: knownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newLimitsListCommand(), newLimitsShowCommand(), newLimitsSetCommand(), newLimitsApplyCommand(),
		newLimitsHistoryCommand(), newLimitsRollbackCommand(), newLimitsRemoveCommand(),
		newLimitsResetCommand())
	return cmd
}

func newLimitsListCommand() *cobra.Command {
	var a queryFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the named limits",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return show(cmd, &a, func(s backend) ([]limitLine, error) {
				c, err := askCatalog(cmd.Context(), s, nil)
				if err != nil {
					return nil, err
				}
				if s.local != nil {
					kept, _ := s.names.Kept() // there is one, which was just listed
					for name, err := range kept.Unreadable() {
						fmt.Fprintf(cmd.ErrOrStderr(), "limit %s cannot be read by this program: %v\n", name, err)
					}
				}
				list := []limitLine{}
				for _, l := range c.Limits {
					list = append(list, limitLine{l.Name, l.Limit, l.Description, l.Origin, l.Retired, l.Bound})
				}
				return list, nil
			}, printLimits)
		},
	}
	a.flags(cmd)
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

func printLimits(w io.Writer, list []limitLine) error {
	t := newTable(w, "NAME", "LIMIT", "FROM", "DESCRIPTION")
	for _, l := range list {
		t.row(l.Name, l.Limit, origin(l.Origin, l.Retired), l.Description)
	}
	return t.Flush()
}

func origin(from string, retired bool) string {
	if retired {
		return "retired"
	}
	return cmp.Or(from, "-")
}

func newLimitsShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Say what a named limit means, and what changed it last",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd, func(s backend) error { return showLimit(cmd, s, args[0]) })
		},
	}
	addPlaceSettings(cmd)
	return cmd
}

// showLimit says what a limit means, and what changed it last.
func showLimit(cmd *cobra.Command, s backend, name string) error {
	sentences, err := meaning(cmd.Context(), s, name)
	if err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), sentences)
	v, err := askVersions(cmd.Context(), s, &api.VersionsQuery{Limit: name, Max: 1})
	if err == nil && len(v.Versions) > 0 {
		fmt.Fprintf(cmd.OutOrStdout(), "%-10s %s\n", "changed", versionLine(&v.Versions[0]))
	}
	return err
}

// versionLine says which version it is, when it was made, by whom and why.
func versionLine(v *api.Version) string {
	return fmt.Sprintf("version %d, %s, by %s%s", v.Version, instant(v.At), key(v.By), given(v.Reason))
}

func newLimitsHistoryCommand() *cobra.Command {
	var a queryFlags
	var q api.VersionsQuery
	cmd := &cobra.Command{
		Use:   "history [NAME]",
		Short: "List the versions of the catalog, or those that changed one limit, newest first",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				q.Limit = args[0]
			}
			return ask(cmd, func(s backend) error {
				v, whole, err := versions(cmd, s, &q)
				if err != nil {
					return err
				}
				if len(v) == 0 && q.Limit != "" { // a limit that was removed has a history
					if _, err := meaning(cmd.Context(), s, q.Limit); err != nil {
						return err
					}
				}
				return a.json.print(cmd.OutOrStdout(), whole, func(w io.Writer) error {
					for i := range v {
						fmt.Fprintln(w, versionLine(&v[i]))
						for _, line := range v[i].Changes {
							fmt.Fprintln(w, "  "+line)
						}
					}
					return nil
				})
			})
		},
	}
	a.flags(cmd)
	cmd.Flags().IntVarP(&q.Max, "max", "n", 20, "list at most this `number` of versions")
	return cmd
}

// versions returns versions of a catalog, and what is written of them as JSON: a store has more to say than a server,
// and says all changes of each.
func versions(cmd *cobra.Command, s backend, q *api.VersionsQuery) (list []api.Version, whole any, err error) {
	if s.local == nil {
		v, err := askVersions(cmd.Context(), s, q)
		if err != nil {
			return nil, nil, err
		}
		return v.Versions, v.Versions, nil
	}
	c, err := s.names.Kept()
	if err != nil {
		return nil, nil, err
	}
	kept, err := c.History(cmd.Context(), q.Limit, q.Max)
	for _, v := range kept {
		one := api.Version{Version: v.Number, At: v.At, By: v.Author, Reason: v.Reason}
		for _, change := range v.Changes {
			if q.Limit == "" || catalog.Concerns(change, q.Limit) {
				one.Changes = append(one.Changes, catalog.Describe(change))
			}
		}
		list = append(list, one)
	}
	return list, kept, err
}

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
				err = run.Check(f)
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
