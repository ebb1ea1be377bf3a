package main

import (
	_ "embed"
	"fmt"

	"github.com/spf13/cobra"
)

// licenses are those of all that is linked into this binary; make licenses writes the
// file.
//
//go:embed licenses.txt
var licenses string

func newLicensesCommand() *cobra.Command {
	return &cobra.Command{
		Use:        "licenses",
		SuggestFor: []string{"license", "licence", "licences", "notice", "copyright"},
		Short:      "Print the licences of this program and of all that it contains",
		Args:       cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), licenses)
			return err
		},
	}
}
