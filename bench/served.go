package main

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/headgate/headgate/bench/compare"
	"github.com/headgate/headgate/bench/gate"
	"github.com/headgate/headgate/bench/rivals"
	"github.com/headgate/headgate/client"
)

// served compares servers, each with its state in memory but for envoy's.
func (b *bench) served() []compare.Comparison {
	goals := []compare.Goal{
		compare.TimesOf(rivals.GubernatorName+" one a call", 10),
		compare.TimesOf(rivals.GubernatorName+" hundred a call", 2),
	}
	return []compare.Comparison{
		{Name: "server-hot-512", Title: "Server, one hot key, 512 callers", Goals: goals, Cells: b.serving(b.one)},
		{Name: "server-100k-512", Title: "Server, 100,000 keys, 512 callers", Goals: goals, Cells: b.serving(b.many)},
	}
}

func (b *bench) serving(keys []string) func(context.Context) ([]compare.Cell, error) {
	return func(ctx context.Context) (cells []compare.Cell, _ error) {
		const callers = 512
		cells = append(cells, ourServer(ctx, callers, keys))
		if g, err := rivals.StartGubernator(ctx); err != nil {
			cells = append(cells, failed(compare.Rival, rivals.GubernatorName, err))
		} else {
			one := rival(rivals.GubernatorName+" one a call", callers, g.Limiter(rivals.Always), keys)
			one.Close = g.Close
			if len(keys) == 1 {
				one = counted(one, callers, g.Limiter(rivals.Tight))
			}
			many := gubernatorHundred(g, callers/8, keys)
			cells = append(cells, one, many)
		}
		e, err := b.startEnvoy(ctx)
		if err == nil {
			c := rival(rivals.EnvoyName+", on Redis", callers, e.Limiter(), keys)
			c.Close = e.Close
			return append(cells, c), nil
		}
		return append(cells, failed(compare.Rival, rivals.EnvoyName, err)), nil
	}
}

// hundred is how many questions gubernator is asked in a call, where it is asked about several.
const hundred = 100

// gubernatorHundred is the cell of gubernator with a hundred questions a call.
func gubernatorHundred(g *rivals.Gubernator, clients int, keys []string) compare.Cell {
	c := rival(rivals.GubernatorName+" hundred a call", clients, nil, keys)
	c.Measure = compare.Weighted(clients, hundred, func(ctx context.Context, _ int, rng *rand.Rand) (bool, error) {
		list := make([]string, hundred)
		for i := range list {
			list[i] = keys[rng.IntN(len(keys))]
		}
		return g.Many(ctx, rivals.Always, list)
	})
	return c
}

// ourServer is Headgate's cell: the command over the memory store, asked by the
// Go client.
func ourServer(ctx context.Context, callers int, keys []string) compare.Cell {
	cell := compare.Cell{Side: compare.Ours, Name: gate.Name, At: fmt.Sprintf("%d callers", callers)}
	url, stop, err := gate.Serve(ctx)
	if err != nil {
		cell.Err = err
		return cell
	}
	c, err := client.New(url, nil)
	if err != nil {
		stop()
		cell.Err = err
		return cell
	}
	cell.Close = func() {
		c.Close()
		stop()
	}
	cell.Measure = compare.Callers(callers, gate.AskServer(c, always, keys))
	if len(keys) == 1 {
		cell.Exact = compare.Bucket(callers, 1000, 1000, gate.AskServer(c, tight, []string{fresh()}))
	}
	return cell
}
