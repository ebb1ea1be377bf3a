// Servers runs a command beside one PostgreSQL, one MariaDB and one Redis, which the tests of all packages share, and
// exits with the status of the command:
//
//	go run ./internal/testing/servers go test ./...
//
// Package dbtest finds these servers by its environment variables, and starts none if they are set. A server that the
// environment names already is not started here.
//
// The servers put their files in memory, if /dev/shm has room and TMPDIR names no other place: on a disk the run took a
// fifth more time.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"

	"github.com/headgate/headgate/internal/testing/dbtest"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: servers command [argument ...]")
		os.Exit(2)
	}
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "servers:", err)
	}
	os.Exit(code)
}

// run runs the command beside the servers, and returns the exit status.
func run(command []string) (code int, err error) {
	// An interrupt goes to the command as well, which then prints its state.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if os.Getenv("TMPDIR") == "" {
		if folder := newMemoryFolder("/dev/shm"); folder != "" {
			defer os.RemoveAll(folder)
			if err := os.Setenv("TMPDIR", folder); err != nil {
				return 1, err
			}
			defer func() { _ = os.Unsetenv("TMPDIR") }() // the folder is gone
		}
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = os.Environ()
	var stops []func()
	var starting sync.WaitGroup
	var mu sync.Mutex
	for env, start := range map[string]func(context.Context) (*dbtest.Server, error){
		dbtest.PostgresDSNEnv: dbtest.StartSharedPostgres, dbtest.MySQLDSNEnv: dbtest.StartSharedMariaDB,
		dbtest.RedisDSNEnv: dbtest.StartSharedRedis,
	} {
		starting.Go(func() {
			s, startErr := start(ctx)
			mu.Lock()
			defer mu.Unlock()
			if err = errors.Join(err, startErr); startErr == nil {
				stops, cmd.Env = append(stops, s.Stop), append(cmd.Env, env+"="+s.DSN)
			}
		})
	}
	starting.Wait()
	for _, stop := range stops {
		defer stop()
	}
	if err != nil {
		return 1, err
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	err = cmd.Run()
	if status := new(exec.ExitError); errors.As(err, &status) && status.ExitCode() > 0 {
		return status.ExitCode(), nil
	} else if err != nil {
		return 1, err
	}
	return 0, nil
}

// minFreeBytes is how much memory the tests need: three times the maximum that they were seen to use.
const minFreeBytes = 4 << 30

// newMemoryFolder makes a folder in a file system, which every user can enter; "" if less than minFreeBytes is free.
func newMemoryFolder(mount string) (folder string) {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(mount, &stat); err != nil || stat.Bavail*uint64(stat.Bsize) < minFreeBytes {
		return ""
	}
	folder, err := os.MkdirTemp(mount, "headgate-test-")
	if err != nil {
		return ""
	}
	if err := os.Chmod(folder, 0o755); err != nil { //nolint:gosec // a server may run as another user
		return ""
	}
	return folder
}
