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
			"this one's; 75 says that it was not started, since its turn comes after --wait.\n\n" +
			"With a concurrency limit the turn lasts until the command has ended, or this host is gone\n" +
			"for the limit's ttl. Should the store be away for longer than that, others may have the\n" +
			"turn: then the command gets SIGTERM.\n\n" + notations(),
		Example: "  headgate run --limit 'token-bucket 5/s' --key deploy -- ./deploy.sh web\n" +
			"  headgate run --limit 'fixed-window 1/1h' --key report --wait 0s --store postgres://db/app -- ./report\n" +
			"  headgate run --limit 'concurrency 1 ttl 30s' --key backup --store postgres://db/app -- ./backup",
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
			turn, err := charge.start(cmd.Context(), wait, cmd.Flags().Changed("wait"))
			if turn == nil { // nothing is held: the store is needed no more
				if closing := closeStore(); err == nil {
					err = closing
				}
			} else {
				defer func() { _ = closeStore() }()
			}
			if errors.Is(err, headgate.ErrDenied) {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s: not started: %v\n", cmd.CommandPath(), err)
				return exitCode(exitNotStarted)
			}
			if err != nil {
				return err
			}
			if turn == nil {
				return runProgram(cmd, program, args, nil)
			}
			err = runProgram(cmd, program, args, turn.Lost())
			within, cancel := context.WithTimeout(context.Background(), askWithin)
			defer cancel()
			if failed := turn.Release(within); failed != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s: release: %v\n", cmd.CommandPath(), failed)
			}
			return err
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

// runProgram runs a command to its end, and asks it to end when lost is closed.
func runProgram(cmd *cobra.Command, program string, args []string, lost <-chan struct{}) error {
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
			case <-lost:
				fmt.Fprintf(cmd.ErrOrStderr(), "%s: %v: asking the command to end\n", cmd.CommandPath(), headgate.ErrLeaseLost)
				_ = c.Process.Signal(syscall.SIGTERM)
				lost = nil
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
