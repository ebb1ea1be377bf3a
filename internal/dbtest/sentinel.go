package dbtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Sentinel starts one that watches a Redis at a port of 127.0.0.1 by the name of main, for as long as the test runs.
func Sentinel(tb testing.TB, primaryPort string) (addr string) {
	tb.Helper()
	port := FreePort(tb)
	addr = fmt.Sprintf("127.0.0.1:%d", port)
	file := filepath.Join(tb.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("port %d\nbind 127.0.0.1\nprotected-mode no\nsentinel monitor main 127.0.0.1 %s 1\n"+
		"sentinel down-after-milliseconds main 1000\nsentinel failover-timeout main 5000\n", port, primaryPort)
	must(tb, os.WriteFile(file, []byte(text), 0o600))
	server, err := RedisProgram("redis-server")
	must(tb, err)
	Start(tb, func() *exec.Cmd {
		return exec.CommandContext(context.Background(), server, file, "--sentinel")
	}, func() error { return pingRedis(addr) })
	return addr
}
