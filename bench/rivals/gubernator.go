package rivals

import (
	"context"
	"errors"
	"os"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Newer versions are published as github.com/gubernator-io/gubernator, whose checksum is not available everywhere.
const gubernatorVersion = "v2.4.0"

// GubernatorName is the name of gubernator with its version.
const GubernatorName = "gubernator " + gubernatorVersion

// StartGubernator builds and starts one daemon in memory, its own only peer: its best case, as it forwards nothing.
func StartGubernator(ctx context.Context) (*Server, error) {
	file, err := program(ctx, "github.com/mailgun/gubernator/v2/cmd/gubernator", gubernatorVersion)
	if err != nil {
		return nil, err
	}
	addr, stop, err := start(ctx, file, func(addr string) (args, env []string) {
		// Gubernator requires a settings file, and listens for peers at this port whatever its configuration says.
		const peers = "127.0.0.1:7946"
		return []string{"--config", os.DevNull}, []string{
			"GUBER_GRPC_ADDRESS=" + addr, "GUBER_ADVERTISE_ADDRESS=" + addr, "GUBER_HTTP_ADDRESS=127.0.0.1:0",
			"GUBER_PEER_DISCOVERY_TYPE=member-list", "GUBER_MEMBERLIST_ADDRESS=" + peers,
			"GUBER_MEMBERLIST_ADVERTISE_ADDRESS=" + addr,
			"GUBER_MEMBERLIST_KNOWN_NODES=" + peers, "GUBER_CACHE_SIZE=200000", "GUBER_LOG_LEVEL=error",
		}
	})
	if err != nil {
		return nil, err
	}
	return connect(ctx, addr, stop, (*conns).allowByGubernator)
}

// allowByGubernator makes one decision for each key in one call.
func (c *conns) allowByGubernator(ctx context.Context, keys ...string) (allowed bool, err error) {
	var request, hit []byte
	for _, key := range keys {
		hit = appendField(hit[:0], 1, "bench")
		hit = appendField(hit, 2, key)
		hit = appendInt(hit, 3, 1) // hits
		hit = appendInt(hit, 4, 1_000_000_000)
		hit = appendInt(hit, 5, time.Hour.Milliseconds())
		request = appendField(request, 1, hit)
	}
	reply, err := c.invoke(ctx, "/pb.gubernator.V1/GetRateLimits", request)
	if err != nil {
		return false, err
	}
	allowed = true
	answers := 0
	var failed error
	err = eachField(reply, func(n protowire.Number, _ uint64, response []byte) {
		if n != 1 {
			return
		}
		answers++
		err := eachField(response, func(n protowire.Number, number uint64, text []byte) {
			switch {
			case n == 1 && number == 1: // over the limit
				allowed = false
			case n == 5 && len(text) > 0:
				failed = errors.New(string(text))
			}
		})
		failed = errors.Join(failed, err)
	})
	if answers != len(keys) {
		failed = errors.Join(failed, errors.New("gubernator: answers are missing"))
	}
	return allowed, errors.Join(failed, err)
}
