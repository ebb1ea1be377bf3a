//go:build headgate_man

package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func init() { taggedCommands = append(taggedCommands, newManCommand) }

// newManCommand returns the command that writes the manual. Releases have neither it nor the modules that it needs.
func newManCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "man FOLDER",
		Short:  "Write a manual page for each command into a folder",
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true // the tag has the day of the build, and two builds shall be the same
			header := doc.GenManHeader{Section: "1", Source: "headgate " + readBuild().version, Manual: "Headgate"}
			if day, err := time.Parse(time.RFC3339, readBuild().date); err == nil {
				header.Date = &day
			}
			if err := doc.GenManTree(root, &header, args[0]); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "wrote the manual into %s\n", args[0])
			return err
		},
	}
}
