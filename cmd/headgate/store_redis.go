//go:build !headgate_noredis

package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/server/config"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
)

func init() {
	kind := storeKind{open: openRedis, server: true}
	stores["redis"], stores["rediss"] = kind, kind
	schemaCommands = append(schemaCommands, newSchemaRedisCommand)
}

func openRedis(ctx context.Context, url string, o storeOptions) (store.Store, error) {
	return redis.Open(ctx, url, &redis.Config{MaxKeys: o.maxKeys, Logger: o.log, Observer: o.observer})
}

// newSchemaRedisCommand has what callers of Redis need who have no driver.
func newSchemaRedisCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "redis",
		Short: "Print the Lua script that charges a key in Redis, for redis-cli and other languages",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var cluster bool
	take := &cobra.Command{
		Use:   "take",
		Short: "Print the script. It begins with what its keys, arguments and answer are",
		Example: "  redis-cli EVAL \"$(headgate schema redis take)\" 3 \\\n" +
			"    'headgate:c:{k:alice}:api' 'headgate:l:{k:alice}:api' headgate:room \\\n" +
			"    $(headgate schema redis args 'fixed-window 100/1h') cost=1000",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Fprint(cmd.OutOrStdout(), redis.TakeScript(cluster))
			return nil
		},
	}
	take.Flags().BoolVar(&cluster, "cluster", false, "that for a Redis Cluster, which has two keys")
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
