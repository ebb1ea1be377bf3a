package storetest

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// question and answer are an operation of a history.
type question struct {
	key string
	op  law.Op
}

type answer struct {
	granted, clock, level int64
}

// linearizable records short concurrent histories, by the store's own clock,
// and looks for an order that explains them: each answer follows from package
// law applied to the state before it at the time that the store says.
func linearizable(t *testing.T, s store.Store) {
	params := []law.Params{
		bucket(2000, 3),
		slidingWindow(4, 5000),
		fixedWindow(4, 4000),
	}
	model := porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			byKey := map[string][]porcupine.Operation{}
			for _, op := range history {
				key := op.Input.(question).key
				byKey[key] = append(byKey[key], op)
			}
			return slices.Collect(maps.Values(byKey))
		},
		Init: func() any { return law.State{} },
		Step: func(state, input, output any) (bool, any) {
			in, out := input.(question), output.(answer)
			d := law.Decide(state.(law.State), &in.op, out.clock, 0, nil)
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
	var history []porcupine.Operation
	var order atomic.Int64 // of calls and returns
	const callers, asks = 6, 15
	crowd(callers, asks, func(caller, n int) {
		p := params[n%len(params)]
		key := fmt.Sprint(n % len(params))
		op := take("linear "+key, key, p, 1, 0)
		call := order.Add(1)
		out := try(t, s, op)[0]
		ret := order.Add(1)
		mu.Lock()
		defer mu.Unlock()
		history = append(history, porcupine.Operation{
			ClientId: caller, Input: question{key, op}, Call: call,
			Output: answer{out.Granted, out.Clock, out.State.Level}, Return: ret,
		})
	})
	if !porcupine.CheckOperations(model, history) {
		t.Errorf("no order of these %d operations explains their outcomes", len(history))
	}
}
