package redis

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// maxOps is about how many ops a call has at most on a server without a
// cluster, so that other clients do not wait for it longer than 2 ms: 128 plain
// charges take 0.6 ms, others 1.1 ms. Of 16 ops a call, each takes the server
// 4.0 to 4.9 us, of 64 and 128 4.0 to 4.6 us, alone 16 us.
const maxOps = 128

// Apply implements store.Store. Ops are handed to the server in calls of a
// script: all of a batch that is in one slot in one call, all calls at once.
// Groups whose call failed have the error in their outcomes; only when every
// call failed is an error returned, the one that leaves the most in doubt.
func (s *Store) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	if decided, err := s.alone(ctx, ops, outs); decided {
		return err
	}
	calls, trials := s.plan(ops, outs)
	var failures []error
	for i, err := range s.do(ctx, calls, ops, outs) {
		if err == nil {
			continue
		}
		err = classify(fmt.Sprintf("apply %d ops", len(calls[i].index)), err)
		failures = append(failures, err)
		failAll(outs, calls[i].index, err)
	}
	units := len(calls)
	for _, groups := range trials {
		for _, group := range groups {
			units++
			err := s.try(ctx, ops, outs, group)
			if err == nil {
				continue
			}
			err = classify("apply a request", err)
			failures = append(failures, err)
			failAll(outs, group, err)
		}
	}
	if len(failures) < units {
		return nil
	}
	return worst(failures)
}

// errApart is of a reservation that may start later, of keys in several slots: a start in
// common cannot be settled by scripts of which each sees one slot.
var errApart = fmt.Errorf("redis: %w: a reservation that may start later, of keys in several slots of a "+
	"Redis Cluster; give these keys one hash tag by redis.Config.Slot", store.ErrUnsupported)

// refusal returns why nothing may be sent of a request, or nil.
func (s *Store) refusal(ops []law.Op) error {
	if err := law.ValidGroup(ops); err != nil || !s.cluster || !ops[0].Deferred {
		return err
	}
	for i := range ops {
		if s.slotOf(ops[i].Cell) != s.slotOf(ops[0].Cell) {
			return errApart
		}
	}
	return nil
}

// plan cuts a batch into calls. Groups that are refused are left out, and outs says so.
// trials are the parts of a batch that no single slot can decide: their groups
// in order, of which some are in several slots.
func (s *Store) plan(ops []law.Op, outs []law.Outcome) (calls []*call, trials [][][]int) {
	valid := make([]int, 0, len(ops))
	for i := 0; i < len(ops); {
		j := law.GroupEnd(ops, i)
		err := s.refusal(ops[i:j])
		for ; i < j; i++ {
			if err != nil {
				outs[i] = law.Outcome{Err: err}
			} else {
				valid = append(valid, i)
			}
		}
	}
	if len(valid) == 0 {
		return nil, nil
	}
	if !s.cluster && len(valid) <= maxOps {
		return []*call{s.encode(ops, valid, forGood)}, nil
	}
	// What hangs together by cells and requests goes together, in its order.
	component := law.Components(ops)
	bundle := s.bundles(ops, valid, component)
	indexes := map[int][]int{}
	var order []int
	byComponent := map[int][][]int{}
	for n := 0; n < len(valid); {
		m := requestEnd(ops, valid, n)
		group := valid[n:m]
		n = m
		c := component[group[0]]
		b := bundle[c]
		if b == several {
			byComponent[c] = append(byComponent[c], group)
			continue
		}
		if indexes[b] == nil {
			order = append(order, b)
		}
		indexes[b] = append(indexes[b], group...)
	}
	for _, n := range order {
		calls = append(calls, s.encode(ops, indexes[n], forGood))
	}
	return calls, slices.Collect(maps.Values(byComponent))
}

// several is the bundle of a component that no single call can decide.
const several = -1

// bundles says for each component which others it shares a call with: those in
// its slot of a cluster, or on a single server those before and after it.
func (s *Store) bundles(ops []law.Op, valid, component []int) map[int]int {
	bundle := make(map[int]int)
	if s.cluster {
		for _, i := range valid {
			here := int(s.slotOf(ops[i].Cell))
			if was, ok := bundle[component[i]]; ok && was != here {
				here = several
			}
			bundle[component[i]] = here
		}
		return bundle
	}
	size := make(map[int]int)
	for _, i := range valid {
		size[component[i]]++
	}
	n, filled := 0, 0
	for _, i := range valid {
		c := component[i]
		if _, ok := bundle[c]; ok {
			continue
		}
		if filled > 0 && filled+size[c] > maxOps {
			n, filled = n+1, 0
		}
		bundle[c] = n
		filled += size[c]
	}
	return bundle
}

// do makes calls, all at once, and repeats those that found nothing done.
func (s *Store) do(ctx context.Context, calls []*call, ops []law.Op, outs []law.Outcome) []error {
	return s.repeat(ctx, calls, func(i int, res rueidis.RedisResult) error {
		v, err := res.ToString()
		if err == nil {
			err = calls[i].decode(v, ops, outs)
		}
		return err
	})
}

// repeat makes calls, all at once, and repeats those that found nothing done. read reads the answer of call i. The
// errors are the last ones of each call.
func (s *Store) repeat(ctx context.Context, calls []*call, read func(i int, res rueidis.RedisResult) error) []error {
	errs, open := make([]error, len(calls)), make([]int, len(calls))
	for i := range calls {
		open[i] = i
	}
	repeated, err := store.Retry(ctx, s.cfg.RetryFor, func() error {
		some := make([]*call, len(open))
		for k, i := range open {
			some[k] = calls[i]
		}
		var left []int
		for k, res := range s.send(ctx, some) {
			i := open[k]
			if errs[i] = read(i, res); again(errs[i]) {
				left = append(left, i)
			}
		}
		if open = left; len(open) > 0 {
			return errs[open[0]]
		}
		return nil
	}, again)
	s.repeated(repeated, err)
	return errs
}

// repeated counts repetitions, and passes them to the observer.
func (s *Store) repeated(n int, err error) {
	s.repeats.Add(int64(n))
	store.Observe(s.cfg.Observer, n, err)
}

// send makes calls by the scripts' names, and again with their texts where a
// server does not know them: after a flush, a restart or a failover.
func (s *Store) send(ctx context.Context, calls []*call) []rueidis.RedisResult {
	if len(calls) == 0 {
		return nil
	}
	commands := make([]rueidis.Completed, len(calls))
	for i, c := range calls {
		commands[i] = c.command(s.client.B(), false)
	}
	results := s.client.DoMulti(ctx, commands...)
	var unknown []int
	commands = nil
	for i := range results {
		if noScript(results[i].Error()) {
			unknown = append(unknown, i)
			commands = append(commands, calls[i].command(s.client.B(), true))
		}
	}
	if len(unknown) > 0 {
		for k, res := range s.client.DoMulti(ctx, commands...) {
			results[unknown[k]] = res
		}
	}
	return results
}

// slack is how much longer a cell is kept than it can matter: as much as the
// server's clock may step back without a cell following it.
const slack = 2 * time.Second
