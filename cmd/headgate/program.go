package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
)

// runProgram runs a command to its end, and asks it to end when lost is closed; nil:
// it holds nothing.
func runProgram(cmd *cobra.Command, program string, args []string, lost <-chan struct{}) error {
	c := exec.Command(program, args[1:]...) //nolint:noctx // signals go to it; it ends by itself
	c.Args[0] = args[0]
	c.Stdin, c.Stdout, c.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	if lost != nil {
		runtime.LockOSThread() // with which the command ends
		defer runtime.UnlockOSThread()
		c.SysProcAttr = endsWithThread()
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, heeded(passedOn...)...)
	defer signal.Stop(signals)
	if s := interrupted(cmd.Context()); s != 0 {
		return notStarted(cmd, exitCode(128+int(s)), fmt.Errorf("%s before it began", s))
	}
	if err := c.Start(); err != nil {
		return notStarted(cmd, exitNotRunnable, err)
	}
	ended := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-signals:
				if !hasItself(s) {
					_ = c.Process.Signal(s)
				}
			case <-lost:
				fmt.Fprintf(cmd.ErrOrStderr(), "%s: %v: asking the command to end\n", cmd.CommandPath(),
					headgate.ErrLeaseLost)
				_ = askToEnd(c.Process)
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

// interrupted returns the signal that ended a context of main, 0 if none has.
func interrupted(ctx context.Context) syscall.Signal {
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
