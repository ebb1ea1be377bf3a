package rivals

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

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
	conns *conns
	stop  func()
}

// StartGubernator builds and starts it.
func StartGubernator(ctx context.Context) (*Gubernator, error) {
	addr, err := freeAddr(ctx)
	if err != nil {
		return nil, err
	}
	http, err := freeAddr(ctx)
	if err != nil {
		return nil, err
	}
	file, err := gubernatorProgram.build(ctx)
	if err != nil {
		return nil, err
	}
	// It insists on a file with its settings, and listens for peers at this port
	// whatever its configuration says.
	const peers = "127.0.0.1:7946"
	stop, err := start(ctx, file, addr, []string{"--config", os.DevNull},
		"GUBER_GRPC_ADDRESS="+addr, "GUBER_ADVERTISE_ADDRESS="+addr, "GUBER_HTTP_ADDRESS="+http,
		"GUBER_PEER_DISCOVERY_TYPE=member-list", "GUBER_MEMBERLIST_ADDRESS="+peers,
		"GUBER_MEMBERLIST_ADVERTISE_ADDRESS="+addr,
		"GUBER_MEMBERLIST_KNOWN_NODES="+peers, "GUBER_CACHE_SIZE=200000", "GUBER_LOG_LEVEL=error")
	if err != nil {
		return nil, err
	}
	c, err := dial(addr)
	if err != nil {
		stop()
		return nil, err
	}
	g := &Gubernator{c, stop}
	// It listens before it has met itself.
	for try := 0; ; try++ {
		if _, err = g.Allow(ctx, "ready"); err == nil {
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
	g.conns.close()
	g.stop()
}

// Allow asks about some keys in one call, with a limit that never binds, and reports whether all may pass.
func (g *Gubernator) Allow(ctx context.Context, keys ...string) (allowed bool, err error) {
	var question, one []byte
	for _, key := range keys {
		one = put(one[:0], 1, "bench")
		one = put(one, 2, key)
		one = putInt(one, 3, 1) // hits
		one = putInt(one, 4, 1_000_000_000)
		one = putInt(one, 5, time.Hour.Milliseconds())
		question = put(question, 1, one)
	}
	answer, err := g.conns.invoke(ctx, "/pb.gubernator.V1/GetRateLimits", question)
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
