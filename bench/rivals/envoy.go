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
	"github.com/headgate/headgate/bench/rawgrpc"
)

var envoyProgram = program{
	"github.com/envoyproxy/ratelimit", "v1.4.1-0.20260122083618-3fb702589d36",
	"github.com/envoyproxy/ratelimit/src/service_cmd",
}

// EnvoyName is its name with the version: the last commit when this was written.
const EnvoyName = "envoy ratelimit 3fb70258"

// Envoy is envoyproxy/ratelimit on a Redis, its statistics switched off.
type Envoy struct {
	Addr  string
	conns *rawgrpc.Conns
	stop  func()
}

// EnvoyLimits never bind. Headgate reads the same text.
const EnvoyLimits = `domain: bench
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
		err = os.WriteFile(filepath.Join(config, "bench.yaml"), []byte(EnvoyLimits), 0o644)
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
	w, err := rawgrpc.Dial(addrs[0], rawgrpc.MaxConns)
	if err != nil {
		end()
		stop()
		return nil, err
	}
	e := &Envoy{addrs[0], w, func() { end(); stop() }}
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
	e.conns.Close()
	e.stop()
}

// Limiter returns one that asks about one decision in a call.
func (e *Envoy) Limiter() Limiter {
	call := ShouldRateLimit()
	return Func(func(ctx context.Context, key string) (bool, error) { return e.conns.Ask(ctx, call, key) })
}

// ShouldRateLimit is the call of Envoy's rate limit service, for the limits of EnvoyLimits.
func ShouldRateLimit() *rawgrpc.Call {
	return &rawgrpc.Call{
		Method: "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
		Question: func(key string) []byte {
			entry := rawgrpc.PutString(rawgrpc.PutString(nil, 1, "user"), 2, key)
			return rawgrpc.PutBytes(rawgrpc.PutString(nil, 1, "bench"), 2, rawgrpc.PutBytes(nil, 1, entry))
		},
		Allowed: func(answer []byte) (bool, error) {
			code, err := rawgrpc.Number(answer, 1)
			if err == nil && code == 0 {
				err = fmt.Errorf("envoy's rate limit service answered with the code %d", code)
			}
			return code == 1, err
		},
	}
}
