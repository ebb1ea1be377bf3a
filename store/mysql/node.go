package mysql

import (
	"context"
	"database/sql"
	"errors"
	"hash/fnv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// node is a server of a cluster, or the only one.
type node struct {
	db   *sql.DB
	name string
	away atomic.Int64 // in ns since the start of the process: not to be asked before
}

// awayFor is how long a node that could not be reached, or had no quorum, is
// passed over.
const awayFor = time.Second

var start = time.Now() //nolint:forbidigo // a pause, not a decision

func (n *node) leave()       { n.away.Store(int64(time.Since(start) + awayFor)) }
func (n *node) isAway() bool { return n.away.Load() > int64(time.Since(start)) }

// pick returns the i-th node, or the next that is not known to be away.
func (s *Store) pick(i int) *node {
	for k := range s.nodes {
		if n := s.nodes[(i+k)%len(s.nodes)]; !n.isAway() {
			return n
		}
	}
	return s.nodes[i%len(s.nodes)]
}

// after returns the node to ask when n cannot be.
func (s *Store) after(n *node) *node {
	for i := range s.nodes {
		if s.nodes[i] == n {
			return s.pick(i + 1)
		}
	}
	return n
}

// anywhere does what may be done on any node, and on the next one where a node
// cannot be reached, or may not write: reading and administration.
func (s *Store) anywhere(do func(querier) error) error {
	if s.tx != nil {
		return do(s.tx)
	}
	var err error
	for i := range s.nodes {
		n := s.pick(i)
		if err = do(n.db); err == nil || !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrReadOnly) {
			return err
		}
		n.leave()
	}
	return err
}

// retry repeats do while it conflicts with others, and on the next node where
// this one cannot be reached. Nothing that may have been done is repeated.
func (s *Store) retry(ctx context.Context, n *node, do func(*node) error) error {
	if s.tx != nil {
		return do(n)
	}
	failovers := 0
	repeated, err := store.Retry(ctx, s.cfg.RetryFor, func() error {
		err := do(n)
		for err != nil && failovers < 2*len(s.nodes) && elsewhere(err) && ctx.Err() == nil {
			failovers++
			if len(s.nodes) > 1 {
				n.leave()
			} else if !errors.Is(err, errBadConn) {
				break
			}
			n = s.after(n)
			err = do(n)
		}
		return err
	}, again)
	s.repeats.Add(int64(repeated))
	return err
}

// elsewhere tells whether another node, or another connection, may answer. A node
// whose certificate is not accepted is as good as away.
func elsewhere(err error) bool {
	c := class(err)
	return tlsFailed(err) || errors.Is(c, store.ErrUnavailable) || errors.Is(c, store.ErrReadOnly)
}

// route hands a batch to the nodes that its keys prefer. In a Galera cluster
// every node takes writes, but two that write the same row at once conflict
// when they commit: so each key has one preferred writer, whichever process
// asks. Ops that share a cell, or a group, stay together and in order.
func (s *Store) route(ops []law.Op, outs []law.Outcome, apply func([]law.Op, []law.Outcome, *node) error) error {
	if len(s.nodes) == 1 || len(ops) == 0 {
		return apply(ops, outs, s.nodes[0])
	}
	parts := make(map[*node][]int)
	groups := make([]uint32, len(ops)) // numbered anew: what was apart must not come to stand together as one
	for i := range ops[1:] {
		if groups[i+1] = groups[i]; ops[i+1].Group != ops[i].Group {
			groups[i+1]++
		}
	}
	for i, cell := range law.Components(ops) {
		h := fnv.New32a()
		h.Write([]byte(ops[cell].Cell.Key))
		n := s.pick(int(h.Sum32() % uint32(len(s.nodes))))
		parts[n] = append(parts[n], i)
	}
	if len(parts) == 1 {
		for n := range parts {
			return apply(ops, outs, n)
		}
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var first error
	failed := 0
	for n, part := range parts {
		wg.Go(func() {
			some, answers := make([]law.Op, len(part)), make([]law.Outcome, len(part))
			for k, i := range part {
				some[k] = ops[i]
				some[k].Group = groups[i]
			}
			err := apply(some, answers, n)
			mu.Lock()
			defer mu.Unlock()
			store.Join(outs, answers, part, err)
			if err != nil {
				failed++
				if first == nil || errors.Is(err, store.ErrUnknownOutcome) {
					first = err // of several, the one that leaves the most in doubt
				}
			}
		})
	}
	wg.Wait()
	if failed == len(parts) {
		return first
	}
	return nil
}
