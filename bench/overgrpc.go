package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/headgate/headgate/bench/compare"
	"github.com/headgate/headgate/bench/daemon"
	"github.com/headgate/headgate/bench/gate"
	"github.com/headgate/headgate/bench/rawgrpc"
	"github.com/headgate/headgate/bench/rivals"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/load"
)

// asking measures how many calls a server answers to so many callers.
type asking func(addr string, call *rawgrpc.Call, callers int, keys []string) func(context.Context, time.Duration) (
	compare.Sample, error,
)

// overGRPC compares unary calls and streams with servers of grpc: one that decides nothing, and rivals.
//
// Calls are measured twice. ghz takes one to two times the CPU of the server that it calls, so on a machine of few
// cores it hides a part of how servers differ: the column of CPU says how much. The rows with -wire- are therefore
// measured by callers who write and read bytes, who take less.
func (b *bench) overGRPC() (list []compare.Comparison) {
	twice := []compare.Goal{
		compare.TimesOf(rivals.GubernatorName, 2), compare.TimesOf(rivals.EnvoyName, 2),
	}
	for _, by := range []struct {
		name, title string
		ask         asking
	}{{"take", "by ghz", byGHZ}, {"wire", "by callers of bytes", byBytes}} {
		for _, callers := range []int{1, 64, 512} {
			list = append(list, compare.Comparison{
				Name: fmt.Sprintf("grpc-%s-%d", by.name, callers),
				Title: fmt.Sprintf("Server, unary Take over gRPC %s, 100,000 keys, %s", by.title,
					count(callers, "caller")),
				Goals: append([]compare.Goal{compare.Within(1.25)}, twice...),
				Cells: func(ctx context.Context) ([]compare.Cell, error) { return b.unaryCells(ctx, by.ask, callers) },
			})
		}
	}
	list = append(list, compare.Comparison{
		Name: "envoy-512", Title: "Server, Envoy's rate limit service, 100,000 keys, 512 callers",
		Goals: []compare.Goal{compare.Times(2)},
		Cells: func(ctx context.Context) ([]compare.Cell, error) { return b.envoyCells(ctx, 512) },
	})
	for _, s := range []struct {
		name, title string
		callers     int
		cell        func(ctx context.Context) compare.Cell
	}{
		{"client-512", "the Go client over gRPC", 512, b.clientOverGRPC},
		{"stream-512", "a Take in a message of the stream", 512, b.stream(512, 1)},
		{"stream-64", "a batch of a hundred in a message of the stream", 64, b.stream(64, hundred)},
	} {
		list = append(list, compare.Comparison{
			Name:  "grpc-" + s.name,
			Title: fmt.Sprintf("Server, %s, 100,000 keys, %s", s.title, count(s.callers, "caller")),
			Goals: []compare.Goal{compare.Times(2)},
			Cells: func(ctx context.Context) ([]compare.Cell, error) {
				cells := []compare.Cell{s.cell(ctx)}
				g, err := rivals.StartGubernator(ctx)
				if err != nil {
					return append(cells, failed(compare.Rival, rivals.GubernatorName, err)), nil
				}
				c := gubernatorHundred(g, 64, b.many)
				c.Close, c.Meter = g.Close, meterServers
				return append(cells, c), nil
			},
		})
	}
	return list
}

// meterServers reads the CPU of all servers that were started.
func meterServers(context.Context) (compare.Reading, error) {
	return compare.Reading{CPU: daemon.CPU(), Log: -1, Calls: -1}, nil
}

// byBytes measures a call by callers who write and read bytes.
func byBytes(addr string, call *rawgrpc.Call, callers int, keys []string) func(context.Context, time.Duration) (
	compare.Sample, error,
) {
	return func(ctx context.Context, d time.Duration) (s compare.Sample, err error) {
		conns, err := rawgrpc.Dial(addr, callers)
		if err != nil {
			return s, err
		}
		defer conns.Close()
		return compare.Callers(callers, func(ctx context.Context, _ int, rng *rand.Rand) (bool, error) {
			return conns.Ask(ctx, call, keys[rng.IntN(len(keys))])
		})(ctx, d)
	}
}

// unaryCells are Headgate, the server that decides nothing, and the rivals.
func (b *bench) unaryCells(ctx context.Context, ask asking, callers int) ([]compare.Cell, error) {
	addr, stop, err := gate.ServeGRPC(ctx)
	if err != nil {
		return nil, err
	}
	call := gate.TakeCall(always)
	answer, err := firstAnswer(ctx, addr, call)
	if err != nil {
		stop()
		return nil, err
	}
	plain, end, err := startPlain(ctx, "plaingrpc", "-answer", base64.StdEncoding.EncodeToString(answer))
	if err != nil {
		stop()
		return nil, err
	}
	cell := func(side compare.Side, name, addr string, call *rawgrpc.Call, done func()) compare.Cell {
		return compare.Cell{
			Side: side, Name: name, At: count(callers, "caller"), Close: done, Meter: meterServers,
			Measure: ask(addr, call, callers, b.many),
		}
	}
	cells := []compare.Cell{
		cell(compare.Ours, gate.Name, addr, call, stop),
		cell(compare.Ceiling, "a server of grpc with the same messages", plain, call, end),
	}
	if g, err := rivals.StartGubernator(ctx); err != nil {
		cells = append(cells, failed(compare.Rival, rivals.GubernatorName, err))
	} else {
		one := rivals.GetRateLimit(rivals.Always)
		cells = append(cells, cell(compare.Rival, rivals.GubernatorName, g.Addr, one, g.Close))
	}
	e, err := b.startEnvoy(ctx)
	if err != nil {
		return append(cells, failed(compare.Rival, rivals.EnvoyName, err)), nil
	}
	one := rivals.ShouldRateLimit()
	return append(cells, cell(compare.Rival, rivals.EnvoyName+", on Redis", e.Addr, one, e.Close)), nil
}

// firstAnswer returns the bytes of an answer that allows.
func firstAnswer(ctx context.Context, addr string, call *rawgrpc.Call) ([]byte, error) {
	conns, err := rawgrpc.Dial(addr, 1)
	if err != nil {
		return nil, err
	}
	defer conns.Close()
	answer, err := conns.Invoke(ctx, call.Method, call.Question("user:1"))
	if err != nil {
		return nil, err
	}
	if allowed, err := call.Allowed(answer); err != nil || !allowed {
		return nil, fmt.Errorf("%s: allowed: %t, error: %w", call.Method, allowed, err)
	}
	return answer, nil
}

// startEnvoy starts envoyproxy/ratelimit on Redis.
func (b *bench) startEnvoy(ctx context.Context) (*rivals.Envoy, error) {
	url, err := b.redis(ctx)
	if err != nil {
		return nil, err
	}
	return rivals.StartEnvoy(ctx, strings.TrimSuffix(url, "/0"))
}

// envoyCells are Headgate and envoyproxy/ratelimit, with the same limits and the same questions.
func (b *bench) envoyCells(ctx context.Context, callers int) ([]compare.Cell, error) {
	dir, err := os.MkdirTemp("", "headgate-bench-")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "bench.yaml")
	var addr string
	var stop func()
	if err = os.WriteFile(file, []byte(rivals.EnvoyLimits), 0o600); err == nil {
		addr, stop, err = gate.ServeGRPC(ctx, "--envoy", file)
	}
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	call, at := rivals.ShouldRateLimit(), count(callers, "caller")
	cells := []compare.Cell{{
		Side: compare.Ours, Name: gate.Name, At: at, Meter: meterServers, Measure: byBytes(addr, call, callers, b.many),
		Close: func() { stop(); os.RemoveAll(dir) },
	}}
	e, err := b.startEnvoy(ctx)
	if err != nil {
		return append(cells, failed(compare.Rival, rivals.EnvoyName, err)), nil
	}
	return append(cells, compare.Cell{
		Side: compare.Rival, Name: rivals.EnvoyName + ", on Redis", At: at, Meter: meterServers, Close: e.Close,
		Measure: byBytes(e.Addr, call, callers, b.many),
	}), nil
}

// clientOverGRPC is Headgate's cell by the Go client, which sends what its callers ask in batches.
func (b *bench) clientOverGRPC(ctx context.Context) compare.Cell {
	const callers = 512
	return cellOverGRPC(ctx, callers, 1, func(addr string) (load.Ask, func(), error) {
		c, err := client.New("grpc://"+addr, nil)
		if err != nil {
			return nil, nil, err
		}
		return gate.AskServer(c, always, b.many), func() { c.Close() }, nil
	})
}

// stream returns Headgate's cell by the stream, with so many decisions in a message.
func (b *bench) stream(callers, batch int) func(context.Context) compare.Cell {
	return func(ctx context.Context) compare.Cell {
		return cellOverGRPC(ctx, callers, batch, func(addr string) (load.Ask, func(), error) {
			s, err := gate.DialStreams(ctx, addr)
			if err != nil {
				return nil, nil, err
			}
			return gate.AskStream(s, always, b.many, batch), s.Close, nil
		})
	}
}

// cellOverGRPC is Headgate's cell for questions that are so many decisions each.
func cellOverGRPC(ctx context.Context, callers, decisions int,
	dial func(addr string) (ask load.Ask, hang func(), err error),
) compare.Cell {
	cell := compare.Cell{Side: compare.Ours, Name: gate.Name, At: count(callers, "caller"), Meter: meterServers}
	addr, stop, err := gate.ServeGRPC(ctx)
	if err != nil {
		cell.Err = err
		return cell
	}
	ask, hang, err := dial(addr)
	if err != nil {
		stop()
		cell.Err = err
		return cell
	}
	cell.Close = func() { hang(); stop() }
	cell.Measure = compare.Weighted(callers, decisions, ask)
	return cell
}
