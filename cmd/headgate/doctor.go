package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/store"
)

func newDoctorCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:        "doctor --store URL",
		Short:      "Look for what is wrong with a store: settings, rights, clocks, plans, bloat",
		SuggestFor: []string{"diagnose", "status", "health", "verify", "examine"},
		Long: "Look for what is wrong with a store, and print one line about each thing, with what to do about it.\n" +
			"Nothing is changed. What is \"wrong\" makes limits inexact, loses charges that were admitted, or lets\n" +
			"requests wait; a \"note\" may be intended, and says what it costs.\n\n" +
			"Exit 0 nothing is wrong, 1 something is, 2 error.",
		Example: "  headgate doctor --store postgres://localhost/app\n" +
			"  headgate doctor --store redis://localhost/0 --json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, p, s, err := openPlace(cmd)
			if err != nil {
				return err
			}
			defer s.Close()
			doctor, ok := store.As[store.Doctor](s)
			if !ok {
				return headgate.Invalid("store", "there is nothing to examine at %s", store.RedactURL(p.URL))
			}
			found, err := doctor.Examine(cmd.Context())
			if wrong := printFindings(cmd.OutOrStdout(), found, asJSON); err == nil {
				err = wrong
			}
			return err
		},
	}
	addSettings(cmd, config.File, config.Store)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a list of JSON objects")
	return cmd
}

// printFindings prints what was found, and returns exitCode(1) if something is wrong.
func printFindings(w io.Writer, found []store.Finding, asJSON bool) error {
	var wrong error
	for _, f := range found {
		if f.Severity == store.Wrong {
			wrong = exitCode(exitRefused)
		}
	}
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		if found == nil {
			found = []store.Finding{}
		}
		if err := e.Encode(found); err != nil {
			return err
		}
		return wrong
	}
	t := newTable(w, "")
	for _, f := range found {
		fmt.Fprintf(t, "%s\t%s\t%s\n", f.Severity, f.Check, text(f.Found))
		if f.Remedy != "" {
			fmt.Fprintf(t, "\t\tdo: %s\n", f.Remedy)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return wrong
}
