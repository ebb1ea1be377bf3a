package rivals

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/encoding/protowire"
)

// EnvoyName is the name of envoyproxy/ratelimit with its version: the last commit when this was written.
const EnvoyName = "envoy ratelimit 3fb70258"

// envoyLimits has a limit that never refuses. Headgate reads the same text.
const envoyLimits = `domain: bench
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 4294967295}
`

// StartEnvoy builds and starts envoyproxy/ratelimit on the Redis at an address, its statistics switched off.
func StartEnvoy(ctx context.Context, redis string) (*Server, error) {
	return startWithLimits(ctx, func(dir, _ string) (addr string, stop func(), err error) {
		file, err := program(ctx, "github.com/envoyproxy/ratelimit/src/service_cmd",
			"v1.4.1-0.20260122083618-3fb702589d36")
		if err != nil {
			return "", nil, err
		}
		return start(ctx, file, func(addr string) (args, env []string) {
			_, port, _ := net.SplitHostPort(addr)
			return nil, []string{
				"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1", "GRPC_PORT=" + port, "PORT=0",
				"DEBUG_PORT=0", "USE_STATSD=false", "DISABLE_STATS=true", "LOG_LEVEL=error", "RUNTIME_ROOT=" + dir,
				"RUNTIME_SUBDIRECTORY=bench", "RUNTIME_WATCH_ROOT=false", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis,
			}
		})
	})
}

// StartHeadgateForEnvoy starts the command headgate with the same limits.
func StartHeadgateForEnvoy(ctx context.Context) (*Server, error) {
	return startWithLimits(ctx, func(_, config string) (addr string, stop func(), err error) {
		return StartHeadgate(ctx, "--envoy", config, "--http", "127.0.0.1:0", "--grpc")
	})
}

// startWithLimits writes envoyLimits to a file, starts a server with it, and connects to the server.
func startWithLimits(ctx context.Context, start func(dir, config string) (string, func(), error)) (*Server, error) {
	dir, err := os.MkdirTemp("", "headgate-bench-")
	if err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "bench", "config", "bench.yaml")
	err = errors.Join(os.MkdirAll(filepath.Dir(config), 0o755), os.WriteFile(config, []byte(envoyLimits), 0o644))
	var addr string
	var end func()
	if err == nil {
		addr, end, err = start(dir, config)
	}
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	return connect(ctx, addr, func() { end(); os.RemoveAll(dir) }, (*conns).allowByEnvoy)
}

// allowByEnvoy makes a decision for the first key by Envoy's rate limit service.
func (c *conns) allowByEnvoy(ctx context.Context, keys ...string) (bool, error) {
	entry := appendField(appendField(nil, 1, "user"), 2, keys[0])
	request := appendField(appendField(nil, 1, "bench"), 2, appendField(nil, 1, entry))
	reply, err := c.invoke(ctx, "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", request)
	if err != nil {
		return false, err
	}
	code := uint64(0)
	if err := eachField(reply, func(n protowire.Number, number uint64, _ []byte) {
		if n == 1 {
			code = number
		}
	}); err != nil {
		return false, err
	}
	if code == 0 {
		return false, errors.New("the rate limit service answered with the code 0")
	}
	return code == 1, nil
}
