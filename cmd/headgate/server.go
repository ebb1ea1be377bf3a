package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/run"
)

// pauses has the pauses and timeouts of a server. Zero fields are the defaults; tests set shorter ones.
var pauses run.Pauses

func newServeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:        "serve",
		Short:      "Serve limits over HTTP, gRPC and the protocol of Redis",
		SuggestFor: []string{"server", "start", "listen"},
		Long: "Serve limits over HTTP, over gRPC with --grpc, and to clients of redis-cell with --resp.\n" +
			"Requests name limits of the store's catalog (headgate limits).\n" +
			"Without a config file they may also say a limit in one line; with one, only if it says\n" +
			"allow_notations: true. The limits of the file are applied to the catalog at the start, when\n" +
			"the file is changed, and on SIGHUP, unless a newer file was applied by another server.\n\n" +
			"A database server may come later than this one: until it does, and while it is away,\n" +
			"requests are answered as their limits say, with status 503 unless they say otherwise, and\n" +
			"GET /readyz with 503. GET /livez answers 200 as long as this process does. What waiting cannot\n" +
			"cure (a wrong URL, a schema that is newer than this binary, a file that cannot be opened) ends it at\n" +
			"once with exit code 2.",
		Example: "  headgate serve\n  headgate serve --grpc :8081 --envoy /data/ratelimit/config\n" +
			"  headgate serve --config headgate.yaml --store postgres://headgate@db/app --http :8080",
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
			if signals := notIgnored(syscall.SIGHUP); len(signals) > 0 { // Notify without signals means all of them
				signal.Notify(hangup, signals...)
				defer signal.Stop(hangup)
			}
			return run.Serve(cmd.Context(), run.Config{
				File: file, Flags: flags(cmd), ReadFile: config.ReadFile, Log: cmd.ErrOrStderr(), Version: version(),
				Author: changeAuthor("").Author, Hangup: hangup, Sockets: sockets, Pauses: pauses,
			})
		},
	}
	for _, s := range config.Settings {
		if s != config.Server && s != config.Token { // these are for commands that call a server
			addSettings(cmd, s)
		}
	}
	return cmd
}

func newHealthCommand() *cobra.Command {
	var live bool
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask a server whether it is ready: exit 0 yes, 1 no, 2 error",
		Long: "Ask GET /readyz of the server that --server names, or else of one on this machine with the same\n" +
			"settings: at the address of --metrics if there is one, else at that of --http. With --live ask\n" +
			"GET /livez, which does not look at the store. It is for containers without a shell, and for scripts\n" +
			"that wait for a server. The status is 0 if the answer is 200, and 1 if it is another or there is none\n" +
			"within 3 s.\n\n" +
			"Of a store that is away it tells which, since when and why to who may look: with a token of the role\n" +
			"read or admin, or to anybody where the server asks for no tokens.",
		Example: "  headgate health\n  headgate health --live --metrics :9090\n" +
			"  headgate health --server http://headgate:9090",
		SuggestFor: []string{"ping", "healthcheck", "ready", "live", "status"},
		Args:       cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			url, err := healthURL(cmd)
			if err != nil {
				return err
			}
			path := "/readyz"
			if live {
				path = "/livez"
			}
			token, err := new(config.Config).Get(config.Token, flags(cmd))
			if err != nil {
				return err
			}
			s := serverBackend(url, token.Value, 3*time.Second) // it waits 2 s for its store (service.ReadyTimeout)
			health, err := get[api.Health](cmd.Context(), s, path, nil)
			switch {
			case errors.Is(err, headgate.ErrUnsupported), errors.Is(err, headgate.ErrInvalid): // such as a wrong URL
				return err
			case err != nil:
				fmt.Fprintf(cmd.ErrOrStderr(), "%s: %v\n", cmd.CommandPath(), err)
				return errRefused
			}
			return printJSON(cmd.OutOrStdout(), health)
		},
	}
	addSettings(cmd, config.File, config.Server, config.Token, config.Metrics, config.HTTP, config.TLSCert)
	cmd.Flags().BoolVar(&live, "live", false, "ask whether the process answers, whatever its store does")
	return cmd
}

// healthURL returns the URL of --server, or else the one at which a server with the settings of cmd tells its health.
func healthURL(cmd *cobra.Command) (string, error) {
	lookupFlag := flags(cmd)
	c, err := config.Load(lookupFlag)
	if err != nil {
		return "", err
	}
	r := c.Reader(lookupFlag)
	server, metrics, public := r.Text(config.Server), r.Text(config.Metrics), r.Text(config.HTTP)
	scheme := "http"
	if r.Text(config.TLSCert) != "" && metrics == "" {
		scheme = "https"
	}
	if r.Err != nil || server != "" {
		return server, r.Err
	}
	return localURL(scheme, cmp.Or(metrics, public)), nil
}

// localURL returns the URL of a server on this machine that listens on addr. For a server that listens on all
// addresses it is a loopback address.
func localURL(scheme, addr string) string {
	if strings.HasPrefix(addr, "unix:") {
		return addr
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil { // the client reports what is wrong with the address
		return scheme + "://" + addr
	}
	ip, err := netip.ParseAddr(host)
	switch {
	case host == "", err == nil && ip.Is4() && ip.IsUnspecified():
		host = "127.0.0.1"
	case err == nil && ip.IsUnspecified():
		host = "::1"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}
