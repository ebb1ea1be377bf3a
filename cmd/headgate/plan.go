package main

import (
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/config"
)

func newPlanCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show and change plans, and which keys have them",
		Long: "Show and change plans, and which keys have them. A plan is a set of limits, each in the place of\n" +
			"the named limit for keys that have the plan; what it does not name is as it is for all.\n" +
			"Plans are defined by the config file (plans:), or one by one. Every server and program feels a\n" +
			"change within two seconds, and each is kept as a version.\n\n" +
			"A server can list plans and give them to single keys; the other commands need a store.",
		Args: requireKnownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPlanListCommand(), newPlanKeysCommand(), newPlanSetCommand(), newPlanUnsetCommand(),
		newPlanDefineCommand(), newPlanRemoveCommand())
	return cmd
}

func newPlanListCommand() *cobra.Command {
	var query queryFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the plans with their limits",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return show(cmd, &query, func(s backend) ([]planLine, error) {
				c, err := callCatalog(cmd.Context(), s, nil)
				if err != nil {
					return nil, err
				}
				lines := []planLine{}
				for _, p := range c.Plans {
					for _, l := range p.Limits {
						lines = append(lines, planLine{p.Name, l.Name, l.Limit, formatOrigin(p.Origin, p.Retired)})
					}
				}
				return lines, nil
			}, printPlans)
		},
	}
	query.addFlags(cmd)
	return cmd
}

func printPlans(w io.Writer, lines []planLine) error {
	t := newTable(w, "PLAN", "LIMIT", "IN THIS PLAN", "FROM")
	for _, l := range lines {
		t.row(l.Plan, l.Limit, l.Rule, l.From)
	}
	return t.Flush()
}

// planLine is one limit of a plan, as JSON.
type planLine struct {
	Plan  string `json:"plan"`
	Limit string `json:"limit"`
	Rule  string `json:"rule"`
	From  string `json:"from"`
}

// assignmentLine is the plan of a key or prefix, as JSON.
type assignmentLine struct {
	Key    string     `json:"key"`
	Prefix bool       `json:"prefix,omitempty"`
	Plan   string     `json:"plan"`
	Until  *time.Time `json:"until,omitempty"`
	Over   bool       `json:"over,omitempty"`
	Reason string     `json:"reason,omitempty"`
}

func newPlanKeysCommand() *cobra.Command {
	var asJSON outputFlag
	var maxKeys int
	var after string
	cmd := &cobra.Command{
		Use:   "keys [KEY]",
		Short: "List which keys have which plan, or say it of one key",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withCatalog(cmd, func(c *catalog.Catalog) error {
				list, err := assignments(cmd, c, args, after, maxKeys)
				if err != nil {
					return err
				}
				lines := []assignmentLine{}
				for _, a := range list {
					line := assignmentLine{Key: a.Key, Prefix: a.Prefix, Plan: a.Plan, Reason: a.Reason}
					if !a.Until.IsZero() {
						line.Until, line.Over = &a.Until, !a.Until.After(c.Now())
					}
					lines = append(lines, line)
				}
				return asJSON.print(cmd.OutOrStdout(), lines, func(w io.Writer) error {
					t := newTable(w, "KEY", "PLAN", "UNTIL", "REASON")
					for _, l := range lines {
						t.row(keyOrPrefix(l.Key, l.Prefix), l.Plan, formatEnd(l.Until, l.Over), quoteText(l.Reason))
					}
					return t.Flush()
				})
			})
		},
	}
	addSettings(cmd, config.Store, config.File)
	asJSON.addFlag(cmd)
	cmd.Flags().IntVarP(&maxKeys, "max", "n", 1000, "list at most this `number` of single keys")
	cmd.Flags().StringVar(&after, "after", "", "list the single keys after this `key`")
	return cmd
}

// assignments returns the plans of all prefixes, and of up to maxKeys keys after the key after. If args has a key, it
// returns the plan of that key and the plans of its prefixes.
func assignments(cmd *cobra.Command, c *catalog.Catalog, args []string, after string, maxKeys int) (
	list []catalog.Assignment, err error,
) {
	prefixes := c.PrefixAssignments()
	if len(args) == 0 {
		list, err = c.Assignments(cmd.Context(), after, maxKeys)
		return append(prefixes, list...), err
	}
	keyAssignment, _, err := c.OfKey(cmd.Context(), args[0])
	if keyAssignment != nil {
		list = append(list, *keyAssignment)
	}
	for _, p := range prefixes {
		if strings.HasPrefix(args[0], p.Key) {
			list = append(list, p)
		}
	}
	return list, err
}

func newPlanSetCommand() *cobra.Command {
	var end endFlags
	var in api.SetPlan
	cmd := &cobra.Command{
		Use:               "set KEY PLAN",
		Short:             "Give a key, or all keys that begin with a text, a plan",
		Example:           "  headgate plan set customer-42 pro --for 30d --reason trial",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: completeArgs(completeKey, completePlan),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			in.Plan, in.For = args[1], end.period
			if in.Until, err = end.end(); err != nil {
				return err
			}
			return setPlan(cmd, &in, args[0])
		},
	}
	end.addFlags(cmd)
	addSetPlanFlags(cmd, &in, "for all keys that begin with KEY")
	return cmd
}

func newPlanUnsetCommand() *cobra.Command {
	in := api.SetPlan{Remove: true}
	cmd := &cobra.Command{
		Use:   "unset KEY",
		Short: "Take the plan of a key away",
		Args:  cobra.ExactArgs(1),
		RunE:  func(cmd *cobra.Command, args []string) error { return setPlan(cmd, &in, args[0]) },
	}
	addSetPlanFlags(cmd, &in, "of all keys that begin with KEY")
	return cmd
}

// addSetPlanFlags adds the flags of commands that set or remove the plan of a key.
func addSetPlanFlags(cmd *cobra.Command, in *api.SetPlan, aboutPrefix string) {
	addPlaceSettings(cmd)
	cmd.Flags().BoolVar(&in.Prefix, "prefix", false, aboutPrefix)
	cmd.Flags().StringVar(&in.Reason, "reason", "", "`why`, for the history")
}

func setPlan(cmd *cobra.Command, in *api.SetPlan, key string) error {
	in.Key = key
	return withBackend(cmd, func(s backend) error {
		if err := needsStore(cmd, s, "prefix", "until"); err != nil {
			return err
		}
		out, err := callSetPlan(cmd.Context(), s, in)
		return printChanged(cmd, out, err, false)
	})
}

func newPlanDefineCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:     "define PLAN NAME=LIMIT ...",
		Short:   "Define a plan, or change it: all its limits",
		Example: "  headgate plan define pro 'api=token-bucket 100/s burst 200' login=unlimited",
		Args:    cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			plan := catalog.Plan{Name: args[0]}
			for _, text := range args[1:] {
				name, notation, ok := strings.Cut(text, "=")
				if !ok {
					return headgate.Invalid("limit", "%q is not NAME=LIMIT", text)
				}
				l, err := headgate.ParseNamed(strings.TrimSpace(name), strings.TrimSpace(notation))
				if err != nil {
					return err
				}
				plan.Limits = append(plan.Limits, l)
			}
			return changeCatalog(cmd, func(c *catalog.Catalog) (int64, error) {
				return c.SetPlans(cmd.Context(), changeAuthor(reason), plan)
			})
		},
	}
	addSettings(cmd, config.Store, config.File)
	cmd.Flags().StringVar(&reason, "reason", "", "`why`, for the history")
	return cmd
}

func newPlanRemoveCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "remove PLAN",
		Short: "Remove a plan; keys that have it have none then",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeCatalog(cmd, func(c *catalog.Catalog) (int64, error) {
				return c.RemovePlan(cmd.Context(), changeAuthor(reason), args[0])
			})
		},
	}
	addSettings(cmd, config.Store, config.File)
	cmd.Flags().StringVar(&reason, "reason", "", "`why`, for the history")
	return cmd
}
