package main

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/run"
)

// pauses are how long a server waits. Tests do not wait as long.
var pauses run.Pauses

func newServeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:        "serve",
		Short:      "Serve limits over HTTP, gRPC and the protocol of Redis",
		SuggestFor: []string{"server", "start", "listen"},
		Long: "Serve limits over HTTP, over gRPC with --grpc, and to clients of redis-cell with --resp.\n" +
			"Requests name limits of the store's catalogue (headgate limits).\n" +
			"Without a config file they may also say a limit in one line; with one, only if it says\n" +
			"allow_notations: true. The limits of the file are applied to the catalogue at the start, when\n" +
			"the file is changed, and on SIGHUP, unless a newer file was applied by another server.\n\n" +
			"A database server may come later than this one: until it does, and while it is away,\n" +
			"requests are answered as their limits say, with status 503 unless they say otherwise, and\n" +
			"GET /readyz with 503. GET /livez answers 200 as long as this process does. What waiting cannot cure (a wrong URL, a schema that is newer\n" +
			"than this binary, a file that cannot be opened) ends it at once with exit code 2.",
		Example: "  headgate serve\n  headgate serve --grpc :8081 --envoy /data/ratelimit/config\n" +
			"  headgate serve --config headgate.yaml --store postgres://headgate@db/app " +
			"--http :8080",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := config.Load(flags(cmd))
			if err != nil {
				return err
			}
			sockets, err := run.Sockets()
			if err != nil {
				return err
			}
			hangup := make(chan os.Signal, 1)
			if signals := heeded(syscall.SIGHUP); len(signals) > 0 { // to notify of none is to notify of all
				signal.Notify(hangup, signals...)
				defer signal.Stop(hangup)
			}
			return run.Serve(cmd.Context(), run.Config{
				File: file, Flags: flags(cmd), Log: cmd.ErrOrStderr(), Version: version(), Author: by("").Author,
				Hangup: hangup, Sockets: sockets, Pauses: pauses,
			})
		},
	}
	for _, s := range config.Settings {
		if s != config.Server && s != config.Token { // settings of commands that ask a server
			addSettings(cmd, s)
		}
	}
	return cmd
}
