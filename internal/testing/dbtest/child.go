package dbtest

import (
	"context"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
)

const taskEnv = "HEADGATE_TEST_TASK"

// Task returns the task of a process that [StartChild] started, for its TestMain; "" in any other.
func Task() string { return os.Getenv(taskEnv) }

// Child is a process of the test's own binary, for tests of several processes, or of one that is killed. It shares
// the test's stderr.
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
	defer fatal(tb)
	c := &Child{cmd: exec.CommandContext(context.Background(), get(os.Executable()))}
	c.cmd.Env = append(os.Environ(), taskEnv+"="+task)
	c.cmd.Stderr = os.Stderr
	c.In = get(c.cmd.StdinPipe())
	// Not StdoutPipe, which loses what is unread when the process is waited for.
	out, in, err := os.Pipe()
	do(err)
	defer in.Close()
	tb.Cleanup(func() { out.Close() })
	c.Out, c.cmd.Stdout = out, in
	do(c.cmd.Start())
	c.wait = sync.OnceValue(c.cmd.Wait)
	tb.Cleanup(func() {
		c.Kill()
		_ = c.Wait()
	})
	return c
}

func (c *Child) Kill() { _ = c.cmd.Process.Kill() }

func (c *Child) Wait() error { return c.wait() }
