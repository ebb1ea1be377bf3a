package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/config"
)

func newTokenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:        "token",
		Short:      "Make, list and remove the tokens by which a server knows its callers",
		SuggestFor: []string{"tokens", "auth", "apikey"},
		Long: "Make, list and remove the tokens by which a server knows its callers (headgate serve --tokens FILE).\n" +
			"The file holds hashes of the tokens, the roles of the callers and the limits that each may touch.\n" +
			"A server reads it again within two seconds of a change. Roles are take (charge, check, settle),\n" +
			"read (look at limits and keys) and admin (both, and reset, refund, block, and change limits, plans\n" +
			"and overrides).",
		Args: requireKnownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTokenNewCommand(), newTokenListCommand(), newTokenRemoveCommand())
	return cmd
}

func newTokenNewCommand() *cobra.Command {
	var entry auth.Entry
	var another bool
	cmd := &cobra.Command{
		Use:   "new NAME --role ROLE",
		Short: "Make a token, print it once, and add its hash to the file",
		Long: "Make a token, print it on the standard output, and add its hash to the file. It is shown only now.\n" +
			"Without a file (--tokens, or that setting elsewhere) nothing is changed, and the entry for one is\n" +
			"printed on the standard error.\n\n" +
			"To replace a token while both are accepted: make another one with --another, give it to the\n" +
			"caller, and remove the hash of the first one from the file.",
		Example: "  headgate token new checkout --role take --limits 'api*' --tokens tokens.yaml\n" +
			"  headgate token new checkout --another --tokens tokens.yaml",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, entries, err := readTokens(cmd, false)
			if err != nil {
				return err
			}
			token := auth.NewToken()
			entry.Name, entry.Hashes = args[0], []string{auth.Hash(token)}
			if entries, err = addEntry(entries, entry, another); err != nil {
				return err
			}
			text, err := auth.FileText(entries)
			if err == nil {
				_, err = auth.Parse("the new entry", text)
			}
			if err != nil {
				return err
			}
			if path == "" {
				fmt.Fprintf(cmd.ErrOrStderr(), "for the file of headgate serve --tokens:\n\n%s\n", text)
			} else if err := writeAtomically(path, text, 0o600); err != nil { // comments in the old file are lost
				return fmt.Errorf("tokens: %w", err)
			}
			fmt.Fprintln(cmd.OutOrStdout(), token)
			return nil
		},
	}
	addSettings(cmd, config.File, config.Tokens)
	cmd.Flags().StringVar(&entry.Role, "role", "", "`role` of a new caller: take, read or admin")
	cmd.Flags().StringSliceVar(&entry.Limits, "limits", nil,
		"`patterns` of the limits that a new caller may touch, such as 'api*'; absent, all")
	cmd.Flags().BoolVar(&another, "another", false, "one more token of a caller that is in the file")
	return cmd
}

// addEntry returns entries with e added, or, for another token of a caller, with the hashes of e added to its entry.
func addEntry(entries []auth.Entry, e auth.Entry, another bool) ([]auth.Entry, error) {
	i := slices.IndexFunc(entries, func(old auth.Entry) bool { return old.Name == e.Name })
	switch {
	case another && i < 0:
		return nil, headgate.Invalid("name", "%.64q is not in the file; leave --another out", e.Name)
	case another && (e.Role != "" || e.Limits != nil):
		return nil, headgate.Invalid("another", "stands alone: role and limits are those of the caller")
	case another:
		entries[i].Hashes = append(entries[i].Hashes, e.Hashes...)
		return entries, nil
	case i >= 0:
		return nil, headgate.Invalid("name", "%.64q is in the file; --another makes one more token of it", e.Name)
	case e.Role == "":
		return nil, headgate.Invalid("role", "is missing; there are take, read and admin")
	}
	return append(entries, e), nil
}

func newTokenListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the callers of a file of tokens",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, entries, err := readTokens(cmd, true)
			if err != nil {
				return err
			}
			for _, e := range entries {
				limits := "all limits"
				if len(e.Limits) > 0 {
					limits = strings.Join(e.Limits, " ")
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%-20s  %-5s  %d tokens, %d certificates  %s\n", e.Name, e.Role,
					len(e.Hashes), len(e.Certificates), limits)
			}
			return nil
		},
	}
	addSettings(cmd, config.File, config.Tokens)
	return cmd
}

func newTokenRemoveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:        "remove NAME",
		Short:      "Remove a caller, with all its tokens, from the file",
		SuggestFor: []string{"revoke", "delete"},
		Args:       cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, entries, err := readTokens(cmd, true)
			if err != nil {
				return err
			}
			i := slices.IndexFunc(entries, func(e auth.Entry) bool { return e.Name == args[0] })
			if i < 0 {
				return headgate.Invalid("name", "%.64q is not in %s", args[0], path)
			}
			text, err := auth.FileText(slices.Delete(entries, i, i+1))
			if err != nil {
				return err
			}
			if err := writeAtomically(path, text, 0o600); err != nil {
				return fmt.Errorf("tokens: %w", err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "removed  %s\n", args[0])
			return nil
		},
	}
	addSettings(cmd, config.File, config.Tokens)
	return cmd
}

// readTokens returns the path of the file of tokens, and the entries of its callers. If the file is not required, the
// path may be empty, and the file missing.
func readTokens(cmd *cobra.Command, required bool) (path string, entries []auth.Entry, err error) {
	c, err := loadConfig(cmd)
	if err != nil {
		return "", nil, err
	}
	setting, err := c.Get(config.Tokens, flags(cmd))
	path = setting.Value
	switch {
	case err != nil || path == "" && !required:
		return "", nil, err
	case path == "":
		return "", nil, headgate.Invalid(config.Tokens.Name, "is missing; --tokens names the file")
	}
	text, err := os.ReadFile(path)
	switch {
	case !required && errors.Is(err, fs.ErrNotExist):
		return path, nil, nil
	case err != nil:
		return "", nil, fmt.Errorf("tokens: %w", err)
	}
	t, err := auth.Parse(path, text)
	if err != nil {
		return "", nil, err
	}
	return path, t.Entries(), nil
}
