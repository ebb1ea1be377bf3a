package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/config"
)

// exitCode makes the command exit with a code of its own, without a message.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// exitNotStarted is EX_TEMPFAIL of sysexits.h: try again later.
const exitNotStarted = 75

func newRunCommand() *cobra.Command {
	var path, url, limit, key, cost string
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "run --limit LIMIT --key KEY -- COMMAND [ARGUMENT...]",
		Short: "Wait for a turn, then run a command",
		Long: "Wait for a turn, then run a command. All who name the same limit and key of the same\n" +
			"store share it, on however many hosts. Signals go to the command, and its exit code is\n" +
			"this one's; 75 says that it was not started, since its turn comes after --wait.\n\n" + notations(),
		Example: "  headgate run --limit 'token-bucket 5/s' --key deploy -- ./deploy.sh web\n" +
			"  headgate run --limit 'fixed-window 1/1h' --key report --wait 0s --store postgres://db/app -- ./report",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			program, err := exec.LookPath(args[0])
			if err != nil {
				return err // before anything is taken
			}
			charge, closeStore, err := chargeOf(cmd.Context(), path, url, limit, key, cost)
			if err != nil {
				return err
			}
			err = waitFor(cmd.Context(), charge, wait, cmd.Flags().Changed("wait"))
			if closing := closeStore(); err == nil {
				err = closing
			}
			if errors.Is(err, headgate.ErrDenied) {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s: not started: %v\n", cmd.CommandPath(), err)
				return exitCode(exitNotStarted)
			}
			if err != nil {
				return err
			}
			return runProgram(cmd, program, args)
		},
	}
	f := cmd.Flags()
	f.StringVar(&path, "config", "", "config file (HEADGATE_CONFIG)")
	f.StringVar(&url, "store", "", "URL of the store (HEADGATE_STORE; default "+config.DefaultStore+")")
	f.StringVar(&limit, "limit", "", "the limit")
	f.StringVar(&key, "key", "", "who shares a turn")
	f.StringVar(&cost, "cost", "1", "what it costs, a decimal")
	f.DurationVar(&wait, "wait", 0, "for how long to wait at most; without it, for as long as it takes")
	f.SetInterspersed(false) // what follows the command is the command's
	_ = cmd.MarkFlagRequired("limit")
	_ = cmd.MarkFlagRequired("key")
	return cmd
}

// waiter is a charge that can be waited for.
type waiter struct {
	limiter *headgate.Limiter
	charge  headgate.Charge
}

// chargeOf opens the store, and makes a charge of what the command line says.
func chargeOf(ctx context.Context, path, url, limit, key, cost string) (w waiter, closeStore func() error, err error) {
	c, err := loadConfig(path)
	if err != nil {
		return w, nil, err
	}
	if w.charge.Limit, err = c.Resolve(limit); err != nil {
		return w, nil, err
	}
	w.charge.Key = key
	if w.charge.Cost, err = headgate.ParseCost(cost); err != nil {
		return w, nil, err
	}
	s, err := openStore(ctx, config.Settle(url, "HEADGATE_STORE", c.Store, config.DefaultStore), storeOptions{})
	if err != nil {
		return w, nil, err
	}
	w.limiter = headgate.New(s, nil)
	return w, s.Close, nil
}

// waitFor waits for the start of a charge, for so long at most if bounded.
func waitFor(ctx context.Context, w waiter, wait time.Duration, bounded bool) error {
	if bounded {
		if wait < 0 {
			return fmt.Errorf("%w: wait: %s is negative", headgate.ErrInvalid, wait)
		}
		// The time that the store takes to answer is not part of the wait.
		asking, cancel := context.WithTimeout(ctx, askWithin)
		defer cancel()
		r, err := w.limiter.Reserve(asking, wait, w.charge)
		if err != nil {
			return err
		}
		if r.Decision.Allowed {
			return r.Sleep(ctx)
		}
		if retry := r.Decision.RetryAfter; retry == headgate.Never || retry > wait {
			return &headgate.DeniedError{Decision: r.Decision}
		}
		var end context.CancelFunc
		ctx, end = context.WithTimeout(ctx, wait)
		defer end()
	}
	return w.limiter.Wait(ctx, w.charge)
}

// askWithin is how long a store may take to answer.
const askWithin = 10 * time.Second

// runProgram runs a command to its end.
func runProgram(cmd *cobra.Command, program string, args []string) error {
	c := exec.Command(program, args[1:]...) //nolint:noctx // signals go to it; it ends by itself
	c.Args[0] = args[0]
	c.Stdin, c.Stdout, c.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2)
	defer signal.Stop(signals)
	if err := c.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-signals:
				_ = c.Process.Signal(s)
			case <-ended:
				return
			}
		}
	}()
	err := c.Wait()
	close(ended)
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		if status, ok := failed.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return exitCode(128 + int(status.Signal())) // as shells say it
		}
		return exitCode(failed.ExitCode())
	}
	return err
}
