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

// RedisDSNEnv is the environment variable that names a Redis or Valkey to use: a URL redis://user:password@host:port/0.
const RedisDSNEnv = "HEADGATE_TEST_REDIS_DSN"

var sharedRedis = sync.OnceValues(func() (*Server, error) { return StartSharedRedis(context.Background()) })

var prefixCount atomic.Int64

// Redis returns the URL of the shared server with a key prefix that no other test has.
func Redis(tb testing.TB) string {
	tb.Helper()
	return addKeyPrefix(sharedDSN(tb, sharedRedis, redisKind, redisVersion))
}

func redisVersion(dsn string) (string, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return "", err
	}
	// Valkey also reports the version of Redis with which it is compatible.
	text, err := callRedis(u.Host, "INFO", "server")
	for _, name := range []string{"Valkey", "Redis"} {
		if _, rest, found := strings.Cut(text, "\n"+strings.ToLower(name)+"_version:"); found {
			version, _, _ := strings.Cut(rest, "\r")
			return name + " " + version, err
		}
	}
	return "Redis", err
}

func addKeyPrefix(dsn string) string {
	return fmt.Sprintf("%s?prefix=t%s_%d:", dsn, runID, prefixCount.Add(1))
}

// StartSharedRedis returns the server that RedisDSNEnv names, or starts one for many tests.
func StartSharedRedis(ctx context.Context) (*Server, error) {
	return serverFrom(ctx, RedisDSNEnv, new(Config).Redis)
}

// startRedis starts a server that speaks only TLS, or no TLS.
func (c *Config) startRedis(ctx context.Context, withTLS bool) *Server {
	return c.start(ctx, "redis", "redis", func(f *folder, port int) *Server {
		args := c.Args
		if withTLS {
			args = append([]string{"--port", "0", "--tls-port", strconv.Itoa(port)}, args...)
		}
		launch := func(ctx context.Context) *process { return launchRedis(ctx, f, loopback, port, args...) }
		return &Server{DSN: fmt.Sprintf("redis://127.0.0.1:%d/0", port), stopSignal: syscall.SIGTERM, launch: launch}
	})
}

// RedisProgram returns the path of redis-server or redis-cli of the engine to test with.
func RedisProgram(name string) (path string, err error) {
	defer returnFailure(&err)
	return redisProgram(name), nil
}

func redisProgram(name string) string {
	if e, ok := engineFor(redisKind); ok {
		return e.program(name)
	}
	return program(name, RedisDSNEnv, "redis-server")
}

// launchRedis starts a server whose files are in a folder, and waits until it answers.
func launchRedis(ctx context.Context, f *folder, host string, port int, args ...string) *process {
	socket := filepath.Join(f.path, strconv.Itoa(port)+".sock") // without TLS
	cmd := f.command(context.WithoutCancel(ctx), redisProgram("redis-server"), append([]string{
		"--port", strconv.Itoa(port), "--bind", host, "--unixsocket", socket, "--dir", f.data, "--save", "",
		"--appendonly", "no", "--protected-mode", "no", "--daemonize", "no",
	}, args...)...)
	f.network.runAt(host, cmd)
	return f.launch(ctx, cmd, time.Minute, func() error { return pingRedis(socket) })
}

// pingRedis returns an error if a server, at an address or the path of a socket, cannot be used.
func pingRedis(addr string) error {
	answer, err := callRedis(addr, "PING")
	if err == nil && !strings.HasPrefix(answer, "PONG") && !strings.HasPrefix(answer, "NOAUTH") {
		err = errors.New(answer)
	}
	return err
}

// callRedis sends a command to a server, at an address or the path of a socket. It returns the first line of the
// answer, or the bulk string if the answer is one.
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
	request := fmt.Sprintf("*%d\r\n", len(words))
	for _, word := range words {
		request += fmt.Sprintf("$%d\r\n%s\r\n", len(word), word)
	}
	if _, err := conn.Write([]byte(request)); err != nil {
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
