package dbtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"path/filepath"
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

var sharedRedis = sync.OnceValues(func() (*Server, error) { return StartSharedRedis(context.Background()) })

var prefixes atomic.Int64

// Redis returns the URL of the shared server with a key prefix that no other test has.
func Redis(tb testing.TB) string {
	tb.Helper()
	return withPrefix(sharedDSN(tb, sharedRedis, redisKind, redisVersion))
}

func redisVersion(dsn string) (string, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return "", err
	}
	// Valkey names the Redis that it took over from as well.
	text, err := callRedis(u.Host, "INFO", "server")
	for _, name := range []string{"Valkey", "Redis"} {
		if _, rest, found := strings.Cut(text, "\n"+strings.ToLower(name)+"_version:"); found {
			version, _, _ := strings.Cut(rest, "\r")
			return name + " " + version, err
		}
	}
	return "Redis", err
}

func withPrefix(dsn string) string {
	return fmt.Sprintf("%s?prefix=t%s_%d:", dsn, thisRun, prefixes.Add(1))
}

// StartSharedRedis returns a running server for many tests.
func StartSharedRedis(ctx context.Context) (*Server, error) {
	return serverFrom(ctx, RedisDSN, new(Config).Redis)
}

// startRedis starts a server that speaks TLS alone, or does not.
func (c *Config) startRedis(ctx context.Context, secure bool) *Server {
	return c.start(ctx, "redis", "redis", func(f *folder, port int) *Server {
		args := c.Args
		if secure {
			args = append([]string{"--port", "0", "--tls-port", strconv.Itoa(port)}, args...)
		}
		launch := func(ctx context.Context) *process { return launchRedis(ctx, f, loopback, port, args...) }
		return &Server{DSN: fmt.Sprintf("redis://127.0.0.1:%d/0", port), polite: syscall.SIGTERM, launch: launch}
	})
}

// RedisProgram returns the path of redis-server or redis-cli, those of the engine
// to test with.
func RedisProgram(name string) (path string, err error) {
	defer rescue(&err)
	return redisProgram(name), nil
}

func redisProgram(name string) string {
	if e, mine := chosen(redisKind); mine {
		return e.program(name)
	}
	return program(name, RedisDSN, "redis-server")
}

// launchRedis starts a server that writes to a folder what little it writes.
func launchRedis(ctx context.Context, f *folder, host string, port int, args ...string) *process {
	socket := filepath.Join(f.path, strconv.Itoa(port)+".sock") // without TLS
	cmd := f.command(context.WithoutCancel(ctx), redisProgram("redis-server"), append([]string{
		"--port", strconv.Itoa(port), "--bind", host, "--unixsocket", socket, "--dir", f.data, "--save", "",
		"--appendonly", "no", "--protected-mode", "no", "--daemonize", "no",
	}, args...)...)
	f.network.within(host, cmd)
	return f.launch(ctx, cmd, time.Minute, func() error { return pingRedis(socket) })
}

// pingRedis returns why a server at an address, or at the path of a socket, cannot be used yet.
func pingRedis(addr string) error {
	answer, err := callRedis(addr, "PING")
	if err == nil && !strings.HasPrefix(answer, "PONG") && !strings.HasPrefix(answer, "NOAUTH") {
		err = errors.New(answer)
	}
	return err
}

// callRedis sends a command to a server, at an address or at the path of a socket, one thing and
// returns the first line, or the bulk string, of its answer.
func callRedis(addr string, words ...string) (string, error) {
	network := "tcp"
	if filepath.IsAbs(addr) {
		network = "unix"
	}
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), network, addr)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
	question := fmt.Sprintf("*%d\r\n", len(words))
	for _, word := range words {
		question += fmt.Sprintf("$%d\r\n%s\r\n", len(word), word)
	}
	if _, err := conn.Write([]byte(question)); err != nil {
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
