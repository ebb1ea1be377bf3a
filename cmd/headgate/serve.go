package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/lograte"
	"github.com/headgate/headgate/server/config"
	"github.com/headgate/headgate/server/edge"
	"github.com/headgate/headgate/server/rest"
	"github.com/headgate/headgate/store"
)

// The sweeper removes up to sweepMax dead rows, and pauses.
const (
	sweepEvery = 10 * time.Second
	sweepMax   = 5000
)

// stopWithin is how long requests under way may take when the server stops.
const stopWithin = 15 * time.Second

func newServeCommand() *cobra.Command {
	var path, url, addr string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve limits over HTTP",
		Long: "Serve limits over HTTP. Without a config file requests say their limit in one line;\n" +
			"with one they name its limits, and lines only if it says allow_notations: true.",
		Example: "  headgate serve\n  headgate serve --config headgate.yaml --store postgres://headgate@db/app --http :8080",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := config.Load(path)
			if err != nil {
				return err
			}
			url := config.Settle(url, "HEADGATE_STORE", c.Store, config.DefaultStore)
			addr := config.Settle(addr, "HEADGATE_HTTP", c.HTTP, config.DefaultHTTP)
			return serve(cmd.Context(), cmd.ErrOrStderr(), c, url, addr)
		},
	}
	f := cmd.Flags()
	f.StringVar(&path, "config", "", "config file (HEADGATE_CONFIG)")
	f.StringVar(&url, "store", "", "URL of the store (HEADGATE_STORE; default "+config.DefaultStore+")")
	f.StringVar(&addr, "http", "", "address to listen on (HEADGATE_HTTP; default "+config.DefaultHTTP+")")
	return cmd
}

// serve serves until ctx is done, then finishes what is under way.
func serve(ctx context.Context, stderr io.Writer, c *config.Config, url, addr string) error {
	s, err := openStore(ctx, url, storeOptions{})
	if err != nil {
		return err
	}
	s = inFront(s)
	defer s.Close()
	service := newService(s, c)
	if err := service.Reachable(ctx); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("http: %w", err)
	}
	lines := lograte.New(slog.NewTextHandler(stderr, nil))
	defer lines.Close()
	log := slog.New(lines)
	server := edge.NewServer(rest.New(service, log, nil), log, nil)
	welcome(stderr, listener.Addr().String(), url, c)

	sweeping, stopSweeping := context.WithCancel(ctx)
	swept := make(chan struct{})
	go func() {
		defer close(swept)
		sweep(sweeping, s, service.Healthy, log)
	}()
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()

	select {
	case err = <-served:
	case <-ctx.Done():
		log.Info("stopping")
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
		defer cancel()
		err = server.Shutdown(within)
		if serving := <-served; err == nil {
			err = serving
		}
	}
	stopSweeping()
	<-swept
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}

// welcome tells where the server is and what to try.
func welcome(w io.Writer, addr, url string, c *config.Config) {
	limit := "token-bucket 5/1m"
	if len(c.Limits) > 0 {
		limit = c.Limits[0].Name()
	}
	fmt.Fprintf(w, "headgate listens on http://%s and keeps its state in %s\n\n", addr, shown(url))
	fmt.Fprintf(w, "  curl -d '{\"limit\":\"%s\",\"key\":\"alice\"}' http://%s/v1/take\n\n", limit, addr)
	if host, _, _ := net.SplitHostPort(addr); !strings.HasPrefix(host, "127.") && host != "::1" {
		fmt.Fprintln(w, "anyone who reaches this address can take, reset and block: let only those who may")
	}
}

// sweep removes dead rows in the background, a batch at a time, at moments
// that differ between servers. It also lets the store write, and logs a
// failure, so that one is noticed while no request comes in.
func sweep(ctx context.Context, s store.Store, healthy func(context.Context) error, log *slog.Logger) {
	for {
		pause := sweepEvery/2 + rand.N(sweepEvery)
		removed, err := s.Sweep(ctx, sweepMax)
		if err == nil && removed < sweepMax {
			err = healthy(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			log.Warn("the store is not well", "error", err)
		case removed == sweepMax: // there is more
			pause = 100 * time.Millisecond
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}
