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

// The linker sets these variables: see the Makefile and .goreleaser.yaml. If it does not, they are empty, and readBuild
// uses what the go command has recorded.
var (
	release string // version such as v0.4.0
	commit  string // hash of the commit
	date    string // date of the commit, in RFC 3339
)

// build identifies the source of this binary.
type build struct {
	version string // devel if unknown
	commit  string // hash of the commit; empty if unknown
	date    string // date of the commit, in RFC 3339; empty if unknown
}

// readBuild returns the build of this process. It prefers the linker's flags to the go command's record.
func readBuild() build {
	b := build{release, commit, date}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.addBuildInfo(info)
	}
	b.version = cmp.Or(b.version, "devel")
	return b
}

// addBuildInfo fills in what is missing from the go command's record.
func (b *build) addBuildInfo(info *debug.BuildInfo) {
	b.version = cmp.Or(b.version, strings.Trim(info.Main.Version, "()")) // (devel): no version
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			b.commit = cmp.Or(b.commit, setting.Value)
		case "vcs.time":
			b.date = cmp.Or(b.date, setting.Value)
		}
	}
}

// versionAndCommit returns the version and, unless the version contains it, the short hash of the commit.
func (b build) versionAndCommit() string {
	if c := b.commit[:min(12, len(b.commit))]; c != "" && !strings.Contains(b.version, c) {
		return b.version + " " + c
	}
	return b.version
}

// version returns the version, the commit if it is known, and the version of Go, on one line.
func version() string { return readBuild().versionAndCommit() + " " + runtime.Version() }

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

// licenses has the licences of all modules in this binary; make licenses writes the file.
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

// schemaCommands has a constructor for each command of a store below `headgate schema`.
var schemaCommands []func() *cobra.Command

func newSchemaCommand() *cobra.Command {
	var articlesSchema string
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
			if articles := stores.Schemas[args[0]].Articles; articles != nil && articlesSchema != "" {
				fmt.Fprint(cmd.OutOrStdout(), "\n", articles(articlesSchema))
			} else if articlesSchema != "" {
				return headgate.Invalid("articles", "%s has no schemas", args[0])
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&articlesSchema, "articles", "", "print the functions of the articles too, for this `schema`")
	for _, newCommand := range schemaCommands {
		cmd.AddCommand(newCommand())
	}
	return cmd
}
