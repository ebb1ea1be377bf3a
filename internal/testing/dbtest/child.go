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

// Task returns, for TestMain, the task with which [StartChild] started this process; "" in any other process.
func Task() string { return os.Getenv(taskEnv) }

// Child is a process that runs the binary of the test again, for tests with several processes, or with one that is
// killed. It shares the test's stderr.
type Child struct {
	In  io.WriteCloser
	Out io.ReadCloser // ends when the process does

	cmd  *exec.Cmd
	wait func() error
}

// StartChild starts a child with a task, which is not "". The child is killed when the test ends.
func StartChild(tb testing.TB, task string) *Child {
	tb.Helper()
	defer failTest(tb)
	c := &Child{cmd: exec.CommandContext(context.Background(), must(os.Executable()))}
	c.cmd.Env = append(os.Environ(), taskEnv+"="+task)
	c.cmd.Stderr = os.Stderr
	c.In = must(c.cmd.StdinPipe())
	// StdoutPipe would lose unread output once Wait is called.
	out, in, err := os.Pipe()
	check(err)
	defer in.Close()
	tb.Cleanup(func() { out.Close() })
	c.Out, c.cmd.Stdout = out, in
	check(c.cmd.Start())
	c.wait = sync.OnceValue(c.cmd.Wait)
	tb.Cleanup(func() {
		c.Kill()
		_ = c.Wait()
	})
	return c
}

func (c *Child) Kill() { _ = c.cmd.Process.Kill() }

func (c *Child) Wait() error { return c.wait() }
