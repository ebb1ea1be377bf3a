package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/config"
	"github.com/headgate/headgate/server/service"
	"github.com/headgate/headgate/store"
)

func newService(s store.Store, c *config.Config) *service.Service {
	return service.New(headgate.New(s, nil), c)
}

// newServerService is newService for a server, which bounds each request as a whole.
func newServerService(s store.Store, c *config.Config) *service.Service {
	return service.New(headgate.New(s, &headgate.Config{Timeout: -1}), c)
}

func newExplainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "explain LIMIT",
		Short:   "Say what a limit means, and the most that it lets pass",
		Long:    "Say what a limit means, and the most that it lets pass.\n\n" + notations(),
		Example: "  headgate explain 'token-bucket 10/s burst 10'",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := resolveLimit(cmd, args[0])
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), l.Explain())
			return nil
		},
	}
	addSettings(cmd, config.File)
	return cmd
}

func newMigrateCommand() *cobra.Command {
	var o storeOptions
	cmd := &cobra.Command{
		Use:        "migrate --store URL",
		Short:      "Bring a store's schema up to date, and write the config file's limits into it",
		SuggestFor: []string{"upgrade", "install", "init"},
		Args:       cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			p, err := placeOf(cmd, c)
			if err != nil {
				return err
			}
			s, err := p.open(cmd, o)
			if err != nil {
				return err
			}
			defer s.Close()
			m, ok := store.As[store.Migrator](s)
			if !ok {
				return headgate.Invalid("store", "%s has no schema", store.RedactURL(p.url))
			}
			report, err := m.Migrate(cmd.Context())
			if err != nil {
				return err
			}
			for _, line := range report {
				fmt.Fprintln(cmd.OutOrStdout(), line)
			}
			w, ok := store.As[store.LimitWriter](s)
			if !ok || len(c.Limits) == 0 {
				return nil
			}
			limits := make([]store.NamedLimit, len(c.Limits))
			for i, l := range c.Limits {
				limits[i] = store.NamedLimit{Name: l.Name(), Notation: l.String(), Description: l.Description}
			}
			warnings, err := w.WriteLimits(cmd.Context(), limits)
			if err != nil {
				return err
			}
			for _, line := range warnings {
				fmt.Fprintln(cmd.ErrOrStderr(), "warning: calls from SQL cannot use limit "+line)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "wrote %d limits of %s\n", len(limits), c.File)
			return nil
		},
	}
	addSettings(cmd, config.Store, config.File)
	cmd.Flags().BoolVar(&o.skipArticles, "skip-articles", false, "make no functions outside the schema headgate")
	return cmd
}

func newSchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:       "schema " + strings.Join(names(schemas), "|"),
		Short:     "Print a store's schema as SQL, for a migration tool of your own",
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: names(schemas),
		RunE: func(cmd *cobra.Command, args []string) error {
			fmt.Fprint(cmd.OutOrStdout(), schemas[args[0]]())
			return nil
		},
	}
}
