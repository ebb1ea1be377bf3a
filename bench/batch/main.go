// Command batch compares batches with single calls on a real PostgreSQL, both
// in one run: rounds of each in turn, medians of the rounds. fsync is on.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store/postgres"
)

func main() {
	rounds := flag.Int("rounds", 5, "rounds, of which the median counts")
	each := flag.Duration("each", time.Second, "how long a cell of a round takes")
	keys := flag.Int("keys", 100_000, "keys, present before the start")
	flag.Parse()
	if err := run(context.Background(), *rounds, *each, *keys); err != nil {
		log.Fatal(err)
	}
}

// cell is one figure: ops in a call, on so many connections.
type cell struct{ ops, clients int }

func run(ctx context.Context, rounds int, each time.Duration, keys int) error {
	server, err := dbtest.StartPostgres(ctx)
	if err != nil {
		return err
	}
	defer server.Stop()
	dsn, drop, err := server.Database(ctx)
	if err != nil {
		return err
	}
	defer drop()
	s, err := postgres.Open(ctx, dsn+"?pool_max_conns=8", nil)
	if err != nil {
		return err
	}
	defer s.Close()
	if _, err := s.Migrate(ctx); err != nil {
		return err
	}
	if err := fill(ctx, s, keys); err != nil {
		return err
	}
	cells := []cell{{1, 1}, {128, 1}, {1, 4}, {16, 4}, {128, 4}}
	rates := map[cell][]float64{}
	for range rounds {
		for _, c := range cells {
			rate, err := measure(ctx, s, c, each, keys)
			if err != nil {
				return err
			}
			rates[c] = append(rates[c], rate)
		}
	}
	median := func(c cell) float64 {
		slices.Sort(rates[c])
		return rates[c][len(rates[c])/2]
	}
	fmt.Println("ops a call  connections  keys/s (median)  against single calls")
	for _, c := range cells {
		fmt.Printf("%10d  %11d  %15.0f  %20.1f\n", c.ops, c.clients, median(c), median(c)/median(cell{1, c.clients}))
	}
	return nil
}

var params = law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 1e12, Step: 1, Drain: 1}

// batch fills ops with takes of distinct random keys.
func batch(ops []law.Op, keys int) {
	first, stride := rand.IntN(keys), 1+2*rand.IntN(keys/4)
	for i := range ops {
		ops[i] = law.Op{
			Verb: law.Take, Group: uint32(i), Params: params, Cost: 1000, Count: 1,
			Cell: law.Cell{Limit: "bench", Key: fmt.Sprint("user:", (first+i*stride)%keys)},
		}
	}
}

func fill(ctx context.Context, s *postgres.Store, keys int) error {
	ops, outs := make([]law.Op, 0, 500), make([]law.Outcome, 500)
	for k := 0; k < keys; k += len(ops) {
		ops = ops[:0]
		for i := k; i < min(k+500, keys); i++ {
			ops = append(ops, law.Op{Verb: law.Take, Group: uint32(i), Params: params, Cost: 1, Count: 1, Cell: law.Cell{Limit: "bench", Key: fmt.Sprint("user:", i)}})
		}
		if err := s.Apply(ctx, ops, outs[:len(ops)]); err != nil {
			return err
		}
	}
	return nil
}

func measure(ctx context.Context, s *postgres.Store, c cell, each time.Duration, keys int) (float64, error) {
	var decided atomic.Int64
	var failed atomic.Value
	var wg sync.WaitGroup
	begin := time.Now()
	for range c.clients {
		wg.Go(func() {
			ops, outs := make([]law.Op, c.ops), make([]law.Outcome, c.ops)
			for time.Since(begin) < each {
				batch(ops, keys)
				if err := s.Apply(ctx, ops, outs); err != nil {
					failed.Store(err)
					return
				}
				decided.Add(int64(c.ops))
			}
		})
	}
	wg.Wait()
	if err, ok := failed.Load().(error); ok {
		return 0, err
	}
	return float64(decided.Load()) / time.Since(begin).Seconds(), nil
}
