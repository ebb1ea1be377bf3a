package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/docs"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/stores"
)

// schemaCommands make the commands below `headgate schema`, which stores add.
var schemaCommands []func() *cobra.Command

func newSchemaCommand() *cobra.Command {
	var place string
	names := slices.Sorted(maps.Keys(stores.Schemas))
	cmd := &cobra.Command{
		Use: "schema " + strings.Join(names, "|") + "|config|openapi",
		Short: "Print a store's schema as SQL, for a migration tool of your own, the config file's JSON Schema, or " +
			"the OpenAPI description of the HTTP interface",
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: append(names, "config", "openapi"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch args[0] {
			case "config":
				_, err := cmd.OutOrStdout().Write(docs.ConfigSchema)
				return err
			case "openapi":
				_, err := cmd.OutOrStdout().Write(api.OpenAPI)
				return err
			}
			fmt.Fprint(cmd.OutOrStdout(), stores.Schemas[args[0]].Schema())
			if print := stores.Schemas[args[0]].Articles; print != nil && place != "" {
				fmt.Fprint(cmd.OutOrStdout(), "\n", print(place))
			} else if place != "" {
				return headgate.Invalid("articles", "%s has no schemas", args[0])
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&place, "articles", "", "print the functions of the articles too, for this `schema`")
	for _, more := range schemaCommands {
		cmd.AddCommand(more())
	}
	return cmd
}
