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
			"A server can list, show, set, rename and roll back limits; the other commands need a store.\n\n" +
			limitGrammar(),
		Args: requireKnownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newLimitsListCommand(), newLimitsShowCommand(), newLimitsSetCommand(), newLimitsRenameCommand(),
		newLimitsApplyCommand(), newLimitsHistoryCommand(), newLimitsRollbackCommand(), newLimitsRemoveCommand(),
		newLimitsResetCommand())
	return cmd
}

func newLimitsListCommand() *cobra.Command {
	var query queryFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the named limits",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return show(cmd, &query, func(s backend) ([]limitLine, error) {
				c, err := callCatalog(cmd.Context(), s, nil)
				if err != nil {
					return nil, err
				}
				if s.local != nil {
					stored, _ := s.names.StoreCatalog() // no error: callCatalog has just read it
					for name, err := range stored.Unreadable() {
						fmt.Fprintf(cmd.ErrOrStderr(), "limit %s cannot be read by this program: %v\n", name, err)
					}
				}
				list := []limitLine{}
				for _, l := range c.Limits {
					list = append(list, limitLine{
						l.Name, l.RenamedTo, l.Limit, l.Description, l.Origin, l.Retired, l.Bound,
					})
				}
				return list, nil
			}, printLimits)
		},
	}
	query.addFlags(cmd)
	return cmd
}

type limitLine struct {
	Name        string `json:"name"`
	RenamedTo   string `json:"renamed_to,omitempty"`
	Limit       string `json:"limit"`
	Description string `json:"description,omitempty"`
	Origin      string `json:"origin,omitempty"`
	Retired     bool   `json:"retired,omitempty"`
	Bound       string `json:"bound"`
}

func printLimits(w io.Writer, list []limitLine) error {
	t := newTable(w, "NAME", "LIMIT", "FROM", "DESCRIPTION")
	for _, l := range list {
		name := l.Name
		if l.RenamedTo != "" {
			name = l.RenamedTo + " (was " + l.Name + ")"
		}
		t.row(name, l.Limit, formatOrigin(l.Origin, l.Retired), l.Description)
	}
	return t.Flush()
}

func formatOrigin(origin string, retired bool) string {
	if retired {
		return "retired"
	}
	return cmp.Or(origin, "-")
}

func newLimitsShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Say what a named limit means, and what changed it last",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withBackend(cmd, func(s backend) error { return showLimit(cmd, s, args[0]) })
		},
	}
	addPlaceSettings(cmd)
	return cmd
}

// showLimit prints what a limit means, and the version that changed it last.
func showLimit(cmd *cobra.Command, s backend, name string) error {
	sentences, err := explainLimit(cmd.Context(), s, name)
	if err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), sentences)
	v, err := callVersions(cmd.Context(), s, &api.VersionsQuery{Limit: name, Max: 1})
	if err == nil && len(v.Versions) > 0 {
		fmt.Fprintf(cmd.OutOrStdout(), "%-10s %s\n", "changed", versionLine(&v.Versions[0]))
	}
	return err
}

// versionLine returns the number, time, author and reason of a version.
func versionLine(v *api.Version) string {
	return fmt.Sprintf("version %d, %s, by %s%s", v.Version, formatMicros(v.At), quoteKey(v.By), reasonSuffix(v.Reason))
}

func newLimitsHistoryCommand() *cobra.Command {
	var query queryFlags
	var request api.VersionsQuery
	cmd := &cobra.Command{
		Use:   "history [NAME]",
		Short: "List the versions of the catalog, or those that changed one limit, newest first",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				request.Limit = args[0]
			}
			return withBackend(cmd, func(s backend) error {
				list, forJSON, err := listVersions(cmd, s, &request)
				if err != nil {
					return err
				}
				if len(list) == 0 && request.Limit != "" { // so no limit had the name, or its history is gone
					if _, err := explainLimit(cmd.Context(), s, request.Limit); err != nil {
						return err
					}
				}
				return query.json.print(cmd.OutOrStdout(), forJSON, func(w io.Writer) error {
					for i := range list {
						fmt.Fprintln(w, versionLine(&list[i]))
						for _, line := range list[i].Changes {
							fmt.Fprintln(w, "  "+line)
						}
					}
					return nil
				})
			})
		},
	}
	query.addFlags(cmd)
	cmd.Flags().IntVarP(&request.Max, "max", "n", 20, "list at most this `number` of versions")
	return cmd
}

// listVersions returns the versions that q selects, and the value that -o json prints: for a store it has more fields
// than for a server, and all changes of each version.
func listVersions(cmd *cobra.Command, s backend, q *api.VersionsQuery) (list []api.Version, forJSON any, err error) {
	if s.local == nil {
		v, err := callVersions(cmd.Context(), s, q)
		if err != nil {
			return nil, nil, err
		}
		return v.Versions, v.Versions, nil
	}
	c, err := s.names.StoreCatalog()
	if err != nil {
		return nil, nil, err
	}
	history, err := c.History(cmd.Context(), q.Limit, q.Max)
	for _, v := range history {
		version := api.Version{Version: v.Number, At: v.At, By: v.Author, Reason: v.Reason}
		for _, change := range v.Changes {
			if q.Limit == "" || c.Concerns(change, q.Limit) {
				version.Changes = append(version.Changes, catalog.Describe(change))
			}
		}
		list = append(list, version)
	}
	return list, history, err
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
