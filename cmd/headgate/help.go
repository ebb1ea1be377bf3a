package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
)

// aboutLimit explains LIMIT in help texts that have no room for the grammar.
const aboutLimit = "LIMIT is a name in the store's catalog, or one line such as 'token-bucket 5/1m':\n" +
	"headgate help limits has the grammar."

// limitGrammar explains LIMIT with the notation of each algorithm.
func limitGrammar() string {
	var b strings.Builder
	b.WriteString("LIMIT is a name in the store's catalog, or one line:\n\n")
	for _, a := range headgate.Algorithms() {
		fmt.Fprintf(&b, "  %s\n      %s\n", a.Notation, a.About)
	}
	b.WriteString("\nPERIOD is a length of time such as s, 30s, 15m, 1h, 30d.")
	return b.String()
}

// helpGroup has the commands below one title of the help.
type helpGroup struct {
	title    string
	commands []*cobra.Command
}

// helpGroups returns the commands in the order of the help, without version, licenses, and those that build tags add.
func helpGroups() []helpGroup {
	return []helpGroup{
		{"Ask:", []*cobra.Command{newTakeCommand(false), newTakeCommand(true), newFillUpCommand(), newRunCommand()}},
		{"Look:", []*cobra.Command{
			newWhyCommand(), newListCommand(), newTopCommand(), newInspectCommand(), newHistoryCommand(),
			newAuditCommand(), newExportCommand(),
		}},
		{"Act:", []*cobra.Command{newBlockCommand(), newResetCommand(), newRefundCommand(), newOverrideCommand()}},
		{"Limits:", []*cobra.Command{newLimitsCommand(), newPlanCommand(), newExplainCommand(), newValidateCommand()}},
		{"Logs:", []*cobra.Command{newReplayCommand(), newSuggestCommand()}},
		{"Server and store:", []*cobra.Command{
			newServeCommand(), newHealthCommand(), newTokenCommand(), newMigrateCommand(), newDoctorCommand(),
			newSweepCommand(), newImportCommand(), newBenchCommand(), newSchemaCommand(),
		}},
	}
}

func init() { cobra.EnableCommandSorting = false } // the help has an order of its own

func addCommands(root *cobra.Command) {
	for _, g := range helpGroups() {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, cmd := range g.commands {
			cmd.GroupID = g.title
			root.AddCommand(cmd)
		}
	}
	root.AddCommand(newVersionCommand(), newLicensesCommand())
	for _, newCommand := range taggedCommands {
		root.AddCommand(newCommand())
	}
	addUsage(root)
}
