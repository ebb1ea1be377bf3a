package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/config"
)

// exitCode is an error that makes the command exit with that code, without a message.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// The exit codes of run if it did not start its command. env and timeout have the same codes, except 75, which is
// EX_TEMPFAIL of sysexits.h: try again later.
const (
	exitNoTurn      = 75
	exitNotStarted  = 125
	exitNotRunnable = 126
	exitNotFound    = 127
)

func newRunCommand() *cobra.Command {
	var limit, key string
	var chargeOpts chargeFlags
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "run --limit LIMIT --key KEY -- COMMAND [ARGUMENT...]",
		Short: "Wait for a turn, then run a command",
		Long: "Wait for a turn, then run a command. Commands that name the same limit and key of the same\n" +
			"store share it: of a database server, on all hosts that reach it; of a file, on this\n" +
			"host. Without --store the file is headgate.db in the present folder, which only commands\n" +
			"that run in this folder share, or a file of this user where the folder cannot be written.\n" +
			"Signals go to the command, and its exit code is this one's. Some say that it was not started:\n" +
			"75, its turn comes after --wait; 2 or 125, it can have none, as an error tells; 126 and 127, there is\n" +
			"no such program; 128 and more, a signal came before. A terminal sends Ctrl-C to the command itself.\n\n" +
			"With a concurrency limit the turn lasts until the command has ended, or this host is gone\n" +
			"for the limit's ttl. Should the store be away for longer than that, others may have the\n" +
			"turn: then the command gets SIGTERM; so it does if this process is killed, on Linux. What\n" +
			"the command has started itself gets nothing, unless it passes that on.\n\n" + aboutLimit,
		Example: "  headgate run --limit 'token-bucket 5/s' --key deploy -- ./deploy.sh web\n" +
			"  headgate run --limit 'fixed-window 1/1h' --key report --wait 0s -- ./report\n" +
			"  headgate run --limit 'concurrency 1 ttl 30s' --key backup --store postgres://db/app -- ./backup",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			defer func() {
				if _, ok := errors.AsType[exitCode](err); err != nil && !ok {
					err = reportNotStarted(cmd, exitNotStarted, err)
				}
			}()
			program, err := exec.LookPath(args[0])
			switch { // a program that cannot be found is not charged
			case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
				return reportNotStarted(cmd, exitNotFound, err)
			case err != nil:
				return reportNotStarted(cmd, exitNotRunnable, err)
			}
			waiter, closeStore, err := openWaiter(cmd, limit, key, &chargeOpts)
			if s := interruptSignal(cmd.Context()); s != 0 && err != nil {
				return reportNotStarted(cmd, exitCode(128+int(s)), fmt.Errorf("%s while the store was opened", s))
			}
			if err != nil {
				return err
			}
			warnIfFewShare(cmd, waiter.place)
			turn, err := waiter.waitForTurn(cmd.Context(), wait, cmd.Flags().Changed("wait"))
			if turn == nil { // there is no lease, so the store is not needed any more
				err = cmp.Or(err, closeStore())
			} else {
				defer func() { _ = closeStore() }()
			}
			if s := interruptSignal(cmd.Context()); s != 0 && err != nil {
				return reportNotStarted(cmd, exitCode(128+int(s)), fmt.Errorf("%s while it waited", s))
			}
			if denied, ok := errors.AsType[*headgate.DeniedError](err); ok &&
				denied.Decision.RetryAfter != headgate.Never {
				return reportNotStarted(cmd, exitNoTurn, err)
			}
			if err != nil {
				return err
			}
			if turn == nil {
				return runProgram(cmd, program, args, nil)
			}
			err = runProgram(cmd, program, args, turn.Lost())
			ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
			defer cancel()
			if failed := turn.Release(ctx); failed != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s: release: %v\n", cmd.CommandPath(), failed)
			}
			return err
		},
	}
	addSettings(cmd, config.File, config.Store)
	f := cmd.Flags()
	chargeOpts.addFlags(cmd)
	f.StringVar(&limit, "limit", "", "the `limit`: a name or a one-line notation")
	f.StringVar(&key, "key", "", "who shares a turn, a `text`")
	f.DurationVar(&wait, "wait", 0, "for how long to wait at most; without it, for as long as it takes")
	f.SetInterspersed(false) // what follows the command is the command's
	_ = cmd.MarkFlagRequired("limit")
	_ = cmd.MarkFlagRequired("key")
	return cmd
}

// warnIfFewShare prints a warning if fewer processes share the limit than the user may expect.
func warnIfFewShare(cmd *cobra.Command, p config.Place) {
	switch {
	case p.Kind() == "memory":
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: nobody shares this turn: the store is the memory of this process; "+
			"--store or HEADGATE_STORE names one that others reach\n", cmd.CommandPath())
	case !p.Configured:
		sharers := "in this folder"
		if !p.InCurrentFolder() {
			sharers = "that use the same file"
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: only processes %s share this turn: the store is %s; --store "+
			"or HEADGATE_STORE names one for all hosts\n", cmd.CommandPath(), sharers, p)
	}
}

// reportNotStarted prints why the command was not started, and returns the exit code as an error.
func reportNotStarted(cmd *cobra.Command, code exitCode, err error) error {
	reason := redactSecrets(err.Error(), cmd.Flags().Args())
	fmt.Fprintf(cmd.ErrOrStderr(), "%s: not started: %s\n", cmd.CommandPath(), reason)
	return code
}

// runProgram runs a command until it ends, and returns a failure of it as an exitCode. When lost, the channel of its
// lease, is closed, it terminates the command. lost is nil if the command needs no lease.
func runProgram(cmd *cobra.Command, program string, args []string, lost <-chan struct{}) error {
	c := exec.Command(program, args[1:]...) //nolint:noctx // it gets the signals, and ends by itself
	c.Args[0] = args[0]
	c.Stdin, c.Stdout, c.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	if lost != nil {
		runtime.LockOSThread() // the command ends with this thread
		defer runtime.UnlockOSThread()
		c.SysProcAttr = parentDeathAttr()
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, notIgnored(forwardedSignals...)...)
	defer signal.Stop(signals)
	if s := interruptSignal(cmd.Context()); s != 0 {
		return reportNotStarted(cmd, exitCode(128+int(s)), fmt.Errorf("%s before it began", s))
	}
	if err := c.Start(); err != nil {
		return reportNotStarted(cmd, exitNotRunnable, err)
	}
	ended := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-signals:
				if !alreadyDelivered(s) {
					_ = c.Process.Signal(s)
				}
			case <-lost:
				fmt.Fprintf(cmd.ErrOrStderr(), "%s: %v: asking the command to end\n", cmd.CommandPath(),
					headgate.ErrLeaseLost)
				_ = terminate(c.Process)
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
			return exitCode(128 + int(status.Signal())) // as shells do
		}
		return exitCode(failed.ExitCode())
	}
	return err
}

// interruptSignal returns the signal that ended a context of main, SIGTERM if unknown, or 0 if it has not ended.
func interruptSignal(ctx context.Context) syscall.Signal {
	if ctx.Err() == nil {
		return 0
	}
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGHUP} {
		if cause := context.Cause(ctx); cause != nil && strings.HasPrefix(cause.Error(), s.String()) {
			return s
		}
	}
	return syscall.SIGTERM
}

// releaseTimeout is how long a store may take to release a lease.
const releaseTimeout = 10 * time.Second
