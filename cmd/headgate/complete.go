package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/law"
)

// completeTimeout is how long a shell waits for names and keys. Tests wait longer, since the machine may be busy.
var completeTimeout = 2 * time.Second

// completer lists values of an argument. The shell drops those that do not begin with the typed text.
type completer func(cmd *cobra.Command, s backend, typed string) []string

// completeArgs completes each argument of a command by its completer, and further arguments by the last completer. It
// offers nothing if the store or the server does not answer in time, and never creates a store.
func completeArgs(completers ...completer) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) (found []string, _ cobra.ShellCompDirective) {
		n := len(args)
		if last := len(completers) - 1; n > last {
			if cmd.Args(cmd, append(slices.Clone(args), typed)) != nil { // the command takes no more arguments
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			n = last
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
		defer cancel()
		cmd.SetContext(ctx)
		server, err := serverOf(cmd)
		if err == nil && server == "" {
			_, p, err := loadPlace(cmd)
			if err != nil || p.Missing() {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
		}
		_ = withBackend(cmd, func(s backend) error { found = completers[n](cmd, s, typed); return nil })
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

func completeLimit(cmd *cobra.Command, s backend, _ string) (names []string) {
	list, err := callCatalog(cmd.Context(), s, nil)
	if err != nil {
		return nil
	}
	for _, limit := range list.Limits {
		names = append(names, limit.Name)
		if limit.RenamedTo != "" {
			names = append(names, limit.RenamedTo)
		}
	}
	return names
}

func completePlan(cmd *cobra.Command, s backend, _ string) (names []string) {
	list, err := callCatalog(cmd.Context(), s, nil)
	if err != nil {
		return nil
	}
	for _, plan := range list.Plans {
		names = append(names, plan.Name)
	}
	return names
}

// completeKey returns some keys that begin with the typed text, of the first limits. It leaves out keys to be quoted.
func completeKey(cmd *cobra.Command, s backend, typed string) (keys []string) {
	const limitsRead, enoughKeys = 10, 20
	limits := completeLimit(cmd, s, "")
	for _, limit := range limits[:min(len(limits), limitsRead)] {
		l := keyQuery{limit: limit, prefix: typed}
		_ = l.eachKey(cmd.Context(), s, law.Cell{}, func(u *keyUse) (bool, error) {
			if quoteKey(u.Key) == u.Key {
				keys = append(keys, u.Key)
			}
			return len(keys) < enoughKeys, nil
		})
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

var quotedName = regexp.MustCompile(`"([a-z0-9._-]+)"`)

// withSuggestion adds similar names to an error about an unknown limit of a server, or an unknown plan. Errors about
// limits of a store already have similar names.
func withSuggestion(cmd *cobra.Command, s backend, err error) error {
	if err == nil {
		return nil
	}
	invalid, _ := errors.AsType[*headgate.InvalidError](err)
	name := quotedName.FindStringSubmatch(err.Error())
	switch {
	case name == nil:
	case s.local == nil && (errors.Is(err, headgate.ErrUnknownLimit) || invalid != nil && invalid.Field == "limit"):
		return addSimilar(err, name[1], completeLimit(cmd, s, ""))
	case invalid != nil && invalid.Field == "plan":
		return addSimilar(err, name[1], completePlan(cmd, s, ""))
	}
	return err
}

// addSimilar adds to an error which of names are similar to name.
func addSimilar(err error, name string, names []string) error {
	c := &cobra.Command{SuggestionsMinimumDistance: 2} // the most edits, despite its name
	for _, n := range names {
		c.AddCommand(&cobra.Command{Use: n, Run: func(*cobra.Command, []string) {}})
	}
	if similar := didYouMean(c, name); similar != "" {
		return fmt.Errorf("%w; %s", err, similar)
	}
	return err
}

// didYouMean asks whether a command below cmd with a similar name was meant; "" if none, or too many, are similar.
func didYouMean(cmd *cobra.Command, name string) string {
	names := cmd.SuggestionsFor(name)
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) == 0 || len(names) > namesShown {
		return ""
	}
	return "did you mean " + strings.Join(names, " or ") + "?"
}
