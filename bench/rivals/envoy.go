package rivals

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/headgate/headgate/bench/daemon"
	"google.golang.org/protobuf/encoding/protowire"
)

var envoyProgram = program{
	"github.com/envoyproxy/ratelimit", "v1.4.1-0.20260122083618-3fb702589d36",
	"github.com/envoyproxy/ratelimit/src/service_cmd",
}

// EnvoyName is its name with the version: the last commit when this was written.
const EnvoyName = "envoy ratelimit 3fb70258"

// Envoy is envoyproxy/ratelimit on a Redis, its statistics switched off.
type Envoy struct {
	wire *wire
	stop func()
}

// envoyLimit never binds.
const envoyLimit = `domain: bench
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 4294967295}
`

// StartEnvoy builds and starts it on the Redis of a URL.
func StartEnvoy(ctx context.Context, redisURL string) (*Envoy, error) {
	u, err := url.Parse(redisURL)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "headgate-bench-")
	if err != nil {
		return nil, err
	}
	stop := func() { os.RemoveAll(dir) }
	config := filepath.Join(dir, "bench", "config")
	if err = os.MkdirAll(config, 0o755); err == nil {
		err = os.WriteFile(filepath.Join(config, "bench.yaml"), []byte(envoyLimit), 0o644)
	}
	var ports [3]string
	var addrs [3]string
	for i := range ports {
		if err == nil {
			if addrs[i], err = daemon.FreeAddr(ctx); err == nil {
				_, ports[i], err = net.SplitHostPort(addrs[i])
			}
		}
	}
	var end func()
	if err == nil {
		end, err = envoyProgram.start(ctx, addrs[0], nil,
			"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1", "GRPC_PORT="+ports[0], "PORT="+ports[1],
			"DEBUG_PORT="+ports[2],
			"USE_STATSD=false", "DISABLE_STATS=true", "LOG_LEVEL=error", "RUNTIME_ROOT="+dir,
			"RUNTIME_SUBDIRECTORY=bench", "RUNTIME_WATCH_ROOT=false",
			"REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+u.Host)
	}
	if err != nil {
		stop()
		return nil, err
	}
	w, err := dial(addrs[0])
	if err != nil {
		end()
		stop()
		return nil, err
	}
	e := &Envoy{w, func() { end(); stop() }}
	// It listens before it has read its limits.
	for try := 0; ; try++ {
		if _, err = e.Limiter().Allow(ctx, "ready"); err == nil {
			return e, nil
		}
		if try == 50 {
			e.Close()
			return nil, fmt.Errorf("envoy ratelimit does not answer: %w", err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// Close stops it.
func (e *Envoy) Close() {
	e.wire.close()
	e.stop()
}

// Limiter returns one that asks about one decision in a call.
func (e *Envoy) Limiter() Limiter {
	return Func(func(ctx context.Context, key string) (bool, error) {
		entry := putString(putString(nil, 1, "user"), 2, key)
		question := putBytes(putString(nil, 1, "bench"), 2, putBytes(nil, 1, entry))
		answer, err := e.wire.call(ctx, "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", question)
		if err != nil {
			return false, err
		}
		code := uint64(0)
		err = fields(answer, func(n protowire.Number, number uint64, _ []byte) {
			if n == 1 {
				code = number
			}
		})
		if err == nil && code == 0 {
			err = fmt.Errorf("envoy ratelimit answered with the code %d", code)
		}
		return code == 1, err
	})
}
