package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
)

// completeWithin is how long a shell waits for the names of limits. Tests wait longer, on a busy machine.
var completeWithin = 2 * time.Second

// limitFirst completes the first argument of a command, a limit.
func limitFirst(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return knownLimits(cmd), cobra.ShellCompDirectiveNoFileComp
}

// limitsAfterKey completes the arguments after the first, limits.
func limitsAfterKey(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return knownLimits(cmd), cobra.ShellCompDirectiveNoFileComp
}

// knownLimits are the names of the limits that a command knows: none if nobody tells them in time. No store is
// made for that.
func knownLimits(cmd *cobra.Command) (names []string) {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completeWithin)
	defer cancel()
	cmd.SetContext(ctx)
	server, err := serverOf(cmd)
	if err != nil {
		return nil
	}
	if server == "" {
		c, err := loadConfig(cmd)
		if err != nil {
			return nil
		}
		p, err := placeOf(cmd, c)
		if err != nil || p.Missing() {
			return nil
		}
	}
	_ = ask(cmd, func(s answerer) error {
		list, err := s.Limits(ctx)
		if err == nil {
			for _, limit := range list.Limits {
				names = append(names, limit.Name)
			}
		}
		return err
	})
	return names
}
