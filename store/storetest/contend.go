package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// runAtOnce starts a number of callers at once, each of which calls do several times.
func runAtOnce(callers, times int, do func(caller, time int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for caller := range callers {
		wg.Go(func() {
			<-start
			for time := range times {
				do(caller, time)
			}
		})
	}
	close(start)
	wg.Wait()
}

// testFirstCharge lets many callers charge a new key at once, under each law: exactly the capacity is admitted.
func testFirstCharge(t *testing.T, s store.Store) {
	const callers, capacity = 200, 10
	for _, p := range []law.Params{
		bucket(1, capacity), fixedWindow(capacity, hour), slidingWindow(capacity, hour), slidingLog(capacity, hour),
	} {
		for key := range 2 {
			var admitted atomic.Int64
			runAtOnce(callers, 1, func(_, _ int) {
				op := take(fmt.Sprint("new ", p.Kind, p.Anchor), fmt.Sprint(key), p, 1, T0)
				admitted.Add(try(t, s, op)[0].Granted)
			})
			if got := admitted.Load(); got != capacity {
				t.Errorf("%+v: got %d of %d callers admitted, want %d", p, got, callers, capacity)
			}
		}
	}
}

// testContendedKey lets many callers charge a key by the store's own clock. Package law, applied again at the times of
// the decisions in their order, has to admit as many. The clock of a refusal may be behind these times: another caller
// may charge the cell after the store has read the clock and before it reads the cell.
func testContendedKey(t *testing.T, s store.Store) {
	const rate, burst, callers, calls = 500, 20, 16, 60
	op := take("old", "k", bucket(rate, burst), 1, 0)
	var mu sync.Mutex
	var clocks []int64
	var admitted int64
	runAtOnce(callers, calls, func(_, _ int) {
		out := try(t, s, op)[0]
		mu.Lock()
		defer mu.Unlock()
		clocks = append(clocks, op.DecidedAt(&out))
		admitted += out.Granted
	})
	slices.Sort(clocks)
	var state law.State
	var want int64
	for _, clock := range clocks {
		d := law.Decide(state, &op, clock, 0, nil)
		if d.Outcome.Granted > 0 {
			state = d.Outcome.State
		}
		want += d.Outcome.Granted
	}
	elapsed := clocks[len(clocks)-1] - clocks[0]
	if admitted != want || admitted > burst+elapsed*rate/1_000_000 {
		t.Errorf("got %d of %d admitted in %d us, want %d", admitted, len(clocks), elapsed, want)
	}
}

// testOverlappingGroups takes from random sets of few keys in random order, at once. The level of each key must be the
// sum of its admitted charges. A store that charges groups on trial may also keep the charges of refused groups.
func testOverlappingGroups(t *testing.T, s store.Store, onTrial bool) {
	const callers, calls, keys = 8, 40, 5
	p := bucket(1, 1_000_000)
	var charged, refused [keys]atomic.Int64
	runAtOnce(callers, calls, func(_, _ int) {
		groupKeys, count := rand.Perm(keys)[:2+rand.IntN(3)], &charged
		var ops []law.Op
		for _, k := range groupKeys {
			ops = append(ops, take("group", fmt.Sprint(k), p, 1, T0))
		}
		if rand.IntN(3) == 0 { // a charge that can never pass refuses them all
			ops, count = append(ops, take("small", "refuses", bucket(1, 1), 2, T0)), &refused
		}
		try(t, s, ops...)
		for _, k := range groupKeys {
			count[k].Add(1)
		}
	})
	for k := range keys {
		op := check(take("group", fmt.Sprint(k), p, 1, T0))
		minLevel := charged[k].Load() * p.Unit
		maxLevel := minLevel
		if onTrial {
			maxLevel += refused[k].Load() * p.Unit
		}
		if got := applyOne(t, s, op).State.Level; got < minLevel || got > maxLevel {
			t.Errorf("key %d: got level %d, want %d to %d", k, got, minLevel, maxLevel)
		}
	}
}

// answer is the output of an operation of a history.
type answer struct{ granted, clock, level int64 }

// testLinearizable records short concurrent histories, by the store's own clock, and looks for an order that explains
// them: each answer must follow from package law, applied to the state before it at the time in the outcome.
func testLinearizable(t *testing.T, s store.Store) {
	params := [...]law.Params{bucket(2000, 3), slidingWindow(4, 5000), fixedWindow(4, 4000)}
	model := porcupine.Model{
		Init: func() any { return law.State{} },
		Step: func(state, input, output any) (bool, any) {
			op, out := input.(law.Op), output.(answer)
			d := law.Decide(state.(law.State), &op, out.clock, 0, nil)
			next := d.Base
			if d.Outcome.Granted > 0 {
				next = d.Outcome.State
			} else if !d.Moved {
				next = state.(law.State)
			}
			return d.Outcome.Granted == out.granted && next.Level == out.level, next
		},
	}
	var mu sync.Mutex
	var histories [len(params)][]porcupine.Operation // one history for each cell
	var lastEvent atomic.Int64                       // number of the latest call or return
	const callers, calls = 6, 15
	runAtOnce(callers, calls, func(caller, n int) {
		n %= len(params)
		op := take(fmt.Sprint("linear ", n), "k", params[n], 1, 0)
		call := lastEvent.Add(1)
		out := try(t, s, op)[0]
		ret := lastEvent.Add(1)
		mu.Lock()
		defer mu.Unlock()
		histories[n] = append(histories[n], porcupine.Operation{
			ClientId: caller, Input: op, Call: call,
			Output: answer{out.Granted, out.Clock, out.State.Level}, Return: ret,
		})
	})
	for _, history := range histories {
		if !porcupine.CheckOperations(model, history) {
			t.Errorf("got %d operations that are not linearizable", len(history))
		}
	}
}
