package gate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/daemon"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/load"
)

// Serve builds the command and starts it as a server of its own over the memory
// store. stop ends it.
func Serve(ctx context.Context) (url string, stop func(), err error) {
	home, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/headgate/headgate").Output()
	if err != nil {
		return "", nil, fmt.Errorf("gate: find the module: %w", err)
	}
	dir, err := os.MkdirTemp("", "headgate-bench-")
	if err != nil {
		return "", nil, err
	}
	file := filepath.Join(dir, "headgate")
	build := exec.CommandContext(ctx, "go", "build", "-o", file, "./cmd/headgate")
	build.Dir = strings.TrimSpace(string(home))
	if out, err := build.CombinedOutput(); err != nil {
		os.RemoveAll(dir)
		return "", nil, fmt.Errorf("gate: build the server: %w: %s", err, out)
	}
	addr, err := daemon.FreeAddr(ctx)
	if err != nil {
		os.RemoveAll(dir)
		return "", nil, err
	}
	end, err := daemon.Start(ctx, file, addr, []string{"serve", "--store", "memory:", "--http", addr})
	if err != nil {
		os.RemoveAll(dir)
		return "", nil, err
	}
	return "http://" + addr, func() {
		end()
		os.RemoveAll(dir)
	}, nil
}

// AskServer returns a question to a server about one of some keys at random.
func AskServer(c *client.Client, limit headgate.Limit, keys []string) load.Ask {
	return func(ctx context.Context, _ int, rng *rand.Rand) (bool, error) {
		d, err := c.Allow(ctx, limit, keys[rng.IntN(len(keys))])
		return d.Allowed, err
	}
}
