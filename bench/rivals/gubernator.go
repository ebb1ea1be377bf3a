package rivals

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/headgate/headgate/bench/daemon"
	"google.golang.org/protobuf/encoding/protowire"
)

var gubernatorProgram = program{
	"github.com/mailgun/gubernator/v2", "v2.4.0",
	"github.com/mailgun/gubernator/v2/cmd/gubernator",
}

// GubernatorName is its name with the version. Newer ones are published as
// github.com/gubernator-io/gubernator; the checksum of that is not to be had
// everywhere.
var GubernatorName = "gubernator " + gubernatorProgram.version

// Gubernator is one daemon, itself its only peer, in memory: its best case,
// since nothing is forwarded.
type Gubernator struct {
	wire *wire
	stop func()
}

// StartGubernator builds and starts it.
func StartGubernator(ctx context.Context) (*Gubernator, error) {
	var addrs [2]string
	for i := range addrs {
		var err error
		if addrs[i], err = daemon.FreeAddr(ctx); err != nil {
			return nil, err
		}
	}
	// It insists on a file with its settings, and listens for peers at this port
	// whatever it is told.
	const peers = "127.0.0.1:7946"
	stop, err := gubernatorProgram.start(ctx, addrs[0], []string{"--config", os.DevNull},
		"GUBER_GRPC_ADDRESS="+addrs[0], "GUBER_ADVERTISE_ADDRESS="+addrs[0], "GUBER_HTTP_ADDRESS="+addrs[1],
		"GUBER_PEER_DISCOVERY_TYPE=member-list", "GUBER_MEMBERLIST_ADDRESS="+peers,
		"GUBER_MEMBERLIST_ADVERTISE_ADDRESS="+addrs[0],
		"GUBER_MEMBERLIST_KNOWN_NODES="+peers, "GUBER_CACHE_SIZE=200000", "GUBER_LOG_LEVEL=error")
	if err != nil {
		return nil, err
	}
	w, err := dial(addrs[0])
	if err != nil {
		stop()
		return nil, err
	}
	g := &Gubernator{w, stop}
	// It listens before it has met itself.
	for try := 0; ; try++ {
		if _, err = g.Many(ctx, Always, []string{"ready"}); err == nil {
			return g, nil
		}
		if try == 50 {
			g.Close()
			return nil, fmt.Errorf("gubernator does not answer: %w", err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// Close stops it.
func (g *Gubernator) Close() {
	g.wire.close()
	g.stop()
}

// Limiter returns one that asks about one decision in a call.
func (g *Gubernator) Limiter(q Quota) Limiter {
	return Func(func(ctx context.Context, key string) (bool, error) {
		return g.Many(ctx, q, []string{key})
	})
}

// Many asks about many keys in one call, and reports whether all may pass.
func (g *Gubernator) Many(ctx context.Context, q Quota, keys []string) (bool, error) {
	var question, one []byte
	for _, key := range keys {
		one = putString(one[:0], 1, "bench")
		one = putString(one, 2, key)
		one = putInt(one, 3, 1) // hits
		one = putInt(one, 4, int64(q.Tokens))
		one = putInt(one, 5, q.Period.Milliseconds())
		question = putBytes(question, 1, one)
	}
	answer, err := g.wire.call(ctx, "/pb.gubernator.V1/GetRateLimits", question)
	if err != nil {
		return false, err
	}
	allowed, answers := true, 0
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
