//go:build !headgate_noredis

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/store/redis"
)

func init() { schemaCommands = append(schemaCommands, newSchemaRedisCommand) }

// newSchemaRedisCommand returns the command that prints what programs without a driver need to charge in Redis.
func newSchemaRedisCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "redis",
		Short: "Print the Lua script that charges a key in Redis, for redis-cli and other languages",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	take := &cobra.Command{
		Use:   "take",
		Short: "Print the script. It begins with what its keys, arguments and answer are",
		Example: "  redis-cli EVAL \"$(headgate schema redis take)\" 2 \\\n" +
			"    'headgate:c:{k:alice}:api' 'headgate:l:{k:alice}:api' \\\n" +
			"    $(headgate schema redis args 'fixed-window 100/1h') cost=1000",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Fprint(cmd.OutOrStdout(), redis.TakeScript())
			return nil
		},
	}
	arguments := &cobra.Command{
		Use:   "args LIMIT",
		Short: "Print the arguments of the script for a limit, all but the cost",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := resolveLimit(cmd, args[0])
			if err != nil {
				return err
			}
			p := l.Params()
			list, err := redis.TakeArguments(&p)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), strings.Join(list, " "))
			return nil
		},
	}
	addSettings(arguments, config.File)
	cmd.AddCommand(take, arguments)
	return cmd
}
