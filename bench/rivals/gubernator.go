package rivals

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/headgate/headgate/bench/daemon"
	"github.com/headgate/headgate/bench/rawgrpc"
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
	Addr  string
	conns *rawgrpc.Conns
	stop  func()
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
	w, err := rawgrpc.Dial(addrs[0], rawgrpc.MaxConns)
	if err != nil {
		stop()
		return nil, err
	}
	g := &Gubernator{addrs[0], w, stop}
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
	g.conns.Close()
	g.stop()
}

// Limiter returns one that asks about one decision in a call.
func (g *Gubernator) Limiter(q Quota) Limiter {
	call := GetRateLimit(q)
	return Func(func(ctx context.Context, key string) (bool, error) { return g.conns.Ask(ctx, call, key) })
}

// getRateLimits is its only call for callers.
const getRateLimits = "/pb.gubernator.V1/GetRateLimits"

// GetRateLimit is the call of gubernator about one key.
func GetRateLimit(q Quota) *rawgrpc.Call {
	return &rawgrpc.Call{
		Method:   getRateLimits,
		Question: func(key string) []byte { return gubernatorQuestion(q, key) },
		Allowed:  func(answer []byte) (bool, error) { return gubernatorAnswer(answer, 1) },
	}
}

// Many asks about many keys in one call, and reports whether all may pass.
func (g *Gubernator) Many(ctx context.Context, q Quota, keys []string) (bool, error) {
	answer, err := g.conns.Invoke(ctx, getRateLimits, gubernatorQuestion(q, keys...))
	if err != nil {
		return false, err
	}
	return gubernatorAnswer(answer, len(keys))
}

func gubernatorQuestion(q Quota, keys ...string) (question []byte) {
	var one []byte
	for _, key := range keys {
		one = rawgrpc.PutString(one[:0], 1, "bench")
		one = rawgrpc.PutString(one, 2, key)
		one = rawgrpc.PutInt(one, 3, 1) // hits
		one = rawgrpc.PutInt(one, 4, int64(q.Tokens))
		one = rawgrpc.PutInt(one, 5, q.Period.Milliseconds())
		question = rawgrpc.PutBytes(question, 1, one)
	}
	return question
}

// gubernatorAnswer reports whether all of so many keys may pass.
func gubernatorAnswer(answer []byte, keys int) (allowed bool, err error) {
	allowed = true
	answers := 0
	var failed error
	err = rawgrpc.Fields(answer, func(n protowire.Number, _ uint64, response []byte) {
		if n != 1 {
			return
		}
		answers++
		err := rawgrpc.Fields(response, func(n protowire.Number, number uint64, text []byte) {
			switch {
			case n == 1 && number == 1: // over the limit
				allowed = false
			case n == 5 && len(text) > 0:
				failed = errors.New(string(text))
			}
		})
		failed = errors.Join(failed, err)
	})
	if answers != keys {
		failed = errors.Join(failed, errors.New("gubernator: answers are missing"))
	}
	return allowed, errors.Join(failed, err)
}
