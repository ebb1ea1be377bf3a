package dbtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// RedisDSN is the environment variable that names a Redis or Valkey to use: a
// URL redis://user:password@host:port/0.
const RedisDSN = "HEADGATE_TEST_REDIS_DSN"

var sharedRedis = sync.OnceValues(func() (*Server, error) { return StartRedis(context.Background()) })

var prefixes atomic.Int64

// Redis returns the URL of a server with a key prefix that no other test has.
// The server is shared by the tests of the process, and ends with it.
func Redis(tb testing.TB) string {
	tb.Helper()
	s, err := sharedRedis()
	if err != nil {
		tb.Fatalf("dbtest: %v", err)
	}
	return withPrefix(s.DSN)
}

func withPrefix(dsn string) string {
	return fmt.Sprintf("%s?prefix=t%d_%d:", dsn, os.Getpid(), prefixes.Add(1))
}

// StartRedis returns a running server, with more options for redis-server if
// wanted; see the package comment for where it comes from. It keeps nothing on
// disk. The server dies with this process.
func StartRedis(ctx context.Context, args ...string) (*Server, error) {
	if dsn := os.Getenv(RedisDSN); dsn != "" && len(args) == 0 {
		return &Server{DSN: dsn}, nil
	}
	owner, err := unprivileged("redis")
	if err != nil {
		return nil, err
	}
	dir, err := folder("redis", owner)
	if err != nil {
		return nil, err
	}
	port, err := freePort("127.0.0.1")
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	p, err := launchRedis(ctx, dir, owner, "127.0.0.1", port, args...)
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	return &Server{DSN: fmt.Sprintf("redis://127.0.0.1:%d/0", port), stop: stopper(func() {
		p.end(syscall.SIGTERM)
		os.RemoveAll(dir)
	})}, nil
}

// launchRedis starts a server that keeps its files in dir.
func launchRedis(ctx context.Context, dir string, owner *syscall.Credential, host string, port int, args ...string) (*process, error) {
	server, err := program("redis-server", RedisDSN, "redis-server")
	if err != nil {
		return nil, err
	}
	cmd := command(ctx, dir, owner, server, append([]string{
		"--port", strconv.Itoa(port), "--bind", host, "--dir", dir, "--save", "", "--appendonly", "no", "--protected-mode", "no", "--daemonize", "no",
	}, args...)...)
	addr := net.JoinHostPort(host, strconv.Itoa(port))
	return launch(cmd, 10*time.Second, func() error {
		answer, err := askRedis(addr, "PING")
		if err == nil && !strings.HasPrefix(answer, "PONG") && !strings.HasPrefix(answer, "NOAUTH") {
			err = errors.New(answer)
		}
		return err
	})
}

// askRedis asks a server one thing in the inline form and returns the first
// line, or the bulk string, of its answer.
func askRedis(addr, question string) (string, error) {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "tcp", addr)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
	if _, err := fmt.Fprintf(conn, "%s\r\n", question); err != nil {
		return "", err
	}
	r := bufio.NewReader(conn)
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimRight(line, "\r\n")
	if n, err := strconv.Atoi(strings.TrimPrefix(line, "$")); strings.HasPrefix(line, "$") && err == nil && n >= 0 {
		bulk := make([]byte, n)
		_, err := io.ReadFull(r, bulk)
		return string(bulk), err
	}
	return strings.TrimLeft(line, "+-:"), nil
}
