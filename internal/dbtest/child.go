package dbtest

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
)

const taskEnv = "HEADGATE_TEST_TASK"

// Task returns what a process that [StartChild] started is to do; "" in any other.
// It is for the TestMain of packages that start some.
func Task() string { return os.Getenv(taskEnv) }

// Child is a process of the test's own binary, for tests of what several processes
// do, and of one that is killed. Its errors go to the test's.
type Child struct {
	In  io.WriteCloser
	Out io.ReadCloser // ends when the process does

	cmd  *exec.Cmd
	wait func() error
}

// StartChild starts a child with a task, which is not "". It is killed when the test
// ends, unless it has ended.
func StartChild(tb testing.TB, task string) *Child {
	tb.Helper()
	c, err := startChild(task)
	if err != nil {
		tb.Fatal(fmt.Errorf("start a child: %w", err))
	}
	tb.Cleanup(func() {
		c.Kill()
		_ = c.Wait()
		c.Out.Close()
	})
	return c
}

func startChild(task string) (*Child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &Child{cmd: exec.CommandContext(context.Background(), self)}
	c.cmd.Env = append(os.Environ(), taskEnv+"="+task)
	c.cmd.Stderr = os.Stderr
	if c.In, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	// Not StdoutPipe, which loses what is unread when the process is waited for.
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	c.Out, c.cmd.Stdout = out, in
	err = c.cmd.Start()
	in.Close()
	if err != nil {
		out.Close()
		return nil, err
	}
	c.wait = sync.OnceValue(c.cmd.Wait)
	return c, nil
}

// Kill ends the process as kill -9 does.
func (c *Child) Kill() { _ = c.cmd.Process.Kill() }

// Wait returns when the process has ended, and how.
func (c *Child) Wait() error { return c.wait() }
