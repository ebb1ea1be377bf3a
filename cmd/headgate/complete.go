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

// completeWithin is how long a shell waits for names and keys. Tests wait longer, on a busy machine.
var completeWithin = 2 * time.Second

// words lists the values of an argument that begin as typed.
type words func(cmd *cobra.Command, s backend, typed string) []string

// completed completes each argument of a command by its words, and by the last those that follow. It offers nothing
// if nobody answers in time. No store is made for that.
func completed(arguments ...words) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) (found []string, _ cobra.ShellCompDirective) {
		n := len(args)
		if last := len(arguments) - 1; n > last {
			if cmd.Args(cmd, append(slices.Clone(args), typed)) != nil { // there are to be no more
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			n = last
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
		defer cancel()
		cmd.SetContext(ctx)
		server, err := serverOf(cmd)
		if err == nil && server == "" {
			c, wrong := loadConfig(cmd)
			if wrong != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			p, wrong := placeOf(cmd, c)
			if wrong != nil || p.Missing() {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
		}
		_ = ask(cmd, func(s backend) error { found = arguments[n](cmd, s, typed); return nil })
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeLimit returns limits.
func completeLimit(cmd *cobra.Command, s backend, _ string) (names []string) {
	list, err := askLimits(cmd.Context(), s, nil)
	if err != nil {
		return nil
	}
	for _, limit := range list.Limits {
		names = append(names, limit.Name)
	}
	return names
}

// completePlan returns plans.
func completePlan(cmd *cobra.Command, s backend, _ string) (names []string) {
	list, err := askCatalog(cmd.Context(), s, nil)
	if err != nil {
		return nil
	}
	for _, plan := range list.Plans {
		names = append(names, plan.Name)
	}
	return names
}

// completeKey returns keys of the first limits: it reads a page of each.
func completeKey(cmd *cobra.Command, s backend, typed string) (keys []string) {
	const most = 20
	limits := completeLimit(cmd, s, "")
	for _, limit := range limits[:min(len(limits), namesShown)] {
		l := keyQuery{limit: limit, prefix: typed}
		_ = l.each(cmd.Context(), s, law.Cell{}, func(u *keyUse) (bool, error) {
			if key(u.Key) == u.Key {
				keys = append(keys, u.Key)
			}
			return len(keys) < most, nil
		})
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// quotedName is a name in an error.
var quotedName = regexp.MustCompile(`"([a-z0-9._-]+)"`)

// withSuggestion adds similar names to an error about a limit of a server, or about a plan. Errors about limits of a
// store have them already.
func withSuggestion(cmd *cobra.Command, s backend, err error) error {
	if err == nil {
		return nil
	}
	wrong, _ := errors.AsType[*headgate.InvalidError](err)
	name := quotedName.FindStringSubmatch(err.Error())
	switch {
	case name == nil:
	case s.local == nil && (errors.Is(err, headgate.ErrUnknownLimit) || wrong != nil && wrong.Field == "limit"):
		return suggest(err, name[1], completeLimit(cmd, s, ""))
	case wrong != nil && wrong.Field == "plan":
		return suggest(err, name[1], completePlan(cmd, s, ""))
	}
	return err
}

// suggest adds similar names to an error.
func suggest(err error, name string, names []string) error {
	c := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, n := range names {
		c.AddCommand(&cobra.Command{Use: n, Run: func(*cobra.Command, []string) {}})
	}
	if near := nearTo(c, name); near != "" {
		return fmt.Errorf("%w; %s", err, near)
	}
	return err
}

// nearTo suggests commands below a command that are like a name.
func nearTo(cmd *cobra.Command, name string) string {
	names := cmd.SuggestionsFor(name)
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) == 0 || len(names) > namesShown {
		return ""
	}
	return "did you mean " + strings.Join(names, " or ") + "?"
}
