package main

import (
	"cmp"
	_ "embed"
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/docs"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/stores"
)

// The linker sets these: see the Makefile and .goreleaser.yaml. A build without the linker's flags has what the go
// command knows.
var (
	release string // such as v0.4.0
	commit  string // its hash
	date    string // of the commit, in RFC 3339
)

// build identifies the source of this binary.
type build struct {
	version string // devel if unknown
	commit  string // hash; empty: it is not known
	date    string // of the commit, in RFC 3339; empty: it is not known
}

// readBuild prefers the linker's flags to the go command's record.
func readBuild() build {
	b := build{release, commit, date}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.complete(info)
	}
	b.version = cmp.Or(b.version, "devel")
	return b
}

// complete adds what the go command has recorded.
func (b *build) complete(info *debug.BuildInfo) {
	b.version = cmp.Or(b.version, strings.Trim(info.Main.Version, "()")) // (devel) is that of no version
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			b.commit = cmp.Or(b.commit, setting.Value)
		case "vcs.time":
			b.date = cmp.Or(b.date, setting.Value)
		}
	}
}

// short returns the version and the commit in one line.
func (b build) short() string {
	if c := b.commit[:min(12, len(b.commit))]; c != "" && !strings.Contains(b.version, c) {
		return b.version + " " + c
	}
	return b.version
}

// version returns the version, the commit and the version of Go, on one line.
func version() string { return readBuild().short() + " " + runtime.Version() }

// versionText returns the text that --version prints.
func versionText() string {
	b := readBuild()
	return fmt.Sprintf("headgate %s\ncommit    %s\ndate      %s\nplatform  %s/%s\nstores    %s\n", version(),
		cmp.Or(b.commit, "unknown"), cmp.Or(b.date, "unknown"), runtime.GOOS, runtime.GOARCH,
		strings.Join(stores.Schemes(), ", "))
}

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print what this program is, and what it was built from",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), versionText())
			return err
		},
	}
}

// licenses covers all that is linked into this binary; make licenses writes the file.
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

// schemaCommands has the commands of stores below `headgate schema`.
var schemaCommands []func() *cobra.Command

func newSchemaCommand() *cobra.Command {
	var place string
	names := slices.Sorted(maps.Keys(stores.Schemas))
	described := map[string][]byte{"config": docs.ConfigSchema, "openapi": api.OpenAPI}
	cmd := &cobra.Command{
		Use:   "schema " + strings.Join(names, "|") + "|config|openapi",
		Short: "Print the schema of a store as SQL, that of the config file, or that of the HTTP interface",
		Long: "Print a store's schema as SQL, for a migration tool of your own, the config file's JSON Schema, or\n" +
			"the OpenAPI description of the HTTP interface.",
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: append(names, "config", "openapi"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if text, ok := described[args[0]]; ok {
				_, err := cmd.OutOrStdout().Write(text)
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
