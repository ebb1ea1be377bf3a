package gate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/daemon"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/load"
)

// Serve builds the command and starts it as a server of its own over the memory
// store. stop ends it.
func Serve(ctx context.Context) (url string, stop func(), err error) {
	addr, stop, err := serve(ctx, "--http")
	return "http://" + addr, stop, err
}

// ServeGRPC is Serve for gRPC, with further arguments.
func ServeGRPC(ctx context.Context, args ...string) (addr string, stop func(), err error) {
	return serve(ctx, append(args, "--http", "127.0.0.1:0", "--grpc")...)
}

// serve starts the command; its last argument is the address that it returns.
func serve(ctx context.Context, args ...string) (addr string, stop func(), err error) {
	home, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/headgate/headgate").Output()
	if err != nil {
		return "", nil, fmt.Errorf("gate: find the module: %w", err)
	}
	file, remove, err := daemon.Build(ctx, strings.TrimSpace(string(home)), "./cmd/headgate")
	if err != nil {
		return "", nil, err
	}
	if addr, err = daemon.FreeAddr(ctx); err != nil {
		remove()
		return "", nil, err
	}
	end, err := daemon.Start(ctx, file, addr, append(append([]string{"serve", "--store", "memory:"}, args...), addr))
	if err != nil {
		remove()
		return "", nil, err
	}
	return addr, func() { end(); remove() }, nil
}

// AskServer returns a question to a server about one of some keys at random.
func AskServer(c *client.Client, limit headgate.Limit, keys []string) load.Ask {
	return func(ctx context.Context, _ int, rng *rand.Rand) (bool, error) {
		d, err := c.Allow(ctx, limit, keys[rng.IntN(len(keys))])
		return d.Allowed, err
	}
}
