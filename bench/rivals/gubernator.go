package rivals

import (
	"context"
	"errors"
	"os"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Newer ones are published as github.com/gubernator-io/gubernator; the checksum of that is not to be had everywhere.
const gubernatorVersion = "v2.4.0"

// GubernatorName is its name with the version.
const GubernatorName = "gubernator " + gubernatorVersion

// StartGubernator builds and starts one daemon, itself its only peer, in memory: its best case, since nothing is
// forwarded.
func StartGubernator(ctx context.Context) (*Server, error) {
	file, err := program(ctx, "github.com/mailgun/gubernator/v2/cmd/gubernator", gubernatorVersion)
	if err != nil {
		return nil, err
	}
	addr, stop, err := start(ctx, file, func(addr string) (args, env []string) {
		// It insists on a file with its settings, and listens for peers at this port
		// whatever its configuration says.
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

// allowByGubernator asks about some keys in one call.
func (c *conns) allowByGubernator(ctx context.Context, keys ...string) (allowed bool, err error) {
	var question, one []byte
	for _, key := range keys {
		one = put(one[:0], 1, "bench")
		one = put(one, 2, key)
		one = putInt(one, 3, 1) // hits
		one = putInt(one, 4, 1_000_000_000)
		one = putInt(one, 5, time.Hour.Milliseconds())
		question = put(question, 1, one)
	}
	answer, err := c.invoke(ctx, "/pb.gubernator.V1/GetRateLimits", question)
	if err != nil {
		return false, err
	}
	allowed = true
	answers := 0
	var failed error
	err = fields(answer, func(n protowire.Number, _ uint64, response []byte) {
		if n != 1 {
			return
		}
		answers++
		err := fields(response, func(n protowire.Number, number uint64, text []byte) {
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
