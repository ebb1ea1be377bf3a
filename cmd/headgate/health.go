package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/config"
)

// healthWithin is how long a server may take to say how it is. For /readyz it gives its store 2 s.
const healthWithin = 3 * time.Second

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
			health, err := get[api.Health](cmd.Context(), &remote{url, token.Value, healthWithin}, path, nil)
			switch {
			case errors.Is(err, headgate.ErrUnsupported), errors.Is(err, headgate.ErrInvalid): // it was not asked
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

// healthURL is where a server with the settings of a command tells how it is.
func healthURL(cmd *cobra.Command) (string, error) {
	given := flags(cmd)
	c, err := config.Load(given)
	if err != nil {
		return "", err
	}
	r := c.Reader(given)
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

// localURL is the URL by which a server on this machine is asked that listens on an address. One that
// listens on all addresses is asked on a loopback address.
func localURL(scheme, addr string) string {
	if strings.HasPrefix(addr, "unix:") {
		return addr
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil { // the client says what is wrong with it
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
