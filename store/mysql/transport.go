package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"hash/fnv"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/wrap"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// transport connects a store to its servers.
type transport struct {
	nodes    []*node
	tx       *sql.Tx // the caller's transaction; nil: none
	ownPools bool    // Open has made the pools
	retryFor time.Duration
	observer store.Observer // nil: none
	retries  atomic.Int64   // how many attempts were repeated

	*facts
	turns       atomic.Int64 // numbers the statements that commit by themselves
	makeBatches atomic.Int64 // above 0: how many of the next batches begin with the form of sums that makes cells
	skipSums    atomic.Int64 // how many of the next batches do not use sums, since sums failed for a batch
}

// facts are what a store has learned of its servers. Stores of InTx share them.
type facts struct {
	checked           atomic.Bool // this binary can use the server and the schema
	galera            atomic.Bool // the server is a node of a Galera cluster
	groupRepl         atomic.Bool // the server is a member of a Group Replication
	snapshotIsolation atomic.Bool // the server has innodb_snapshot_isolation, as MariaDB from 10.6.18 on
	hasReturning      atomic.Bool // the server has INSERT .. RETURNING, as MariaDB does
	noDirectCall      atomic.Bool // the procedure for a single charge does not exist, or may not be called
}

// node is a server of a cluster, or the only one.
type node struct {
	db        *sql.DB
	name      string
	awayUntil atomic.Int64 // until when the node is passed over, in ns since processStart
	view      view         // the node's view of its Galera cluster
}

// awayFor is how long a node is passed over that could not be reached, had no quorum or took no writes.
const awayFor = time.Second

var processStart = time.Now() //nolint:forbidigo // a pause, not a decision

func (n *node) markAway()    { n.awayUntil.Store(int64(time.Since(processStart) + awayFor)) }
func (n *node) isAway() bool { return n.awayUntil.Load() > int64(time.Since(processStart)) }

// pick returns the i-th node, or the next one that does not count as away; if all are away, the i-th.
func (s *transport) pick(i int) *node {
	for k := range s.nodes {
		if n := s.nodes[(i+k)%len(s.nodes)]; !n.isAway() {
			return n
		}
	}
	return s.nodes[i%len(s.nodes)]
}

// onAnyNode calls do, a read or administration, on one node, and on the next one if a node cannot be reached or takes
// no writes. In a transaction of the caller it calls do on that alone.
func (s *transport) onAnyNode(do func(querier) error) error {
	if s.tx != nil {
		return do(s.tx)
	}
	var err error
	for i := range s.nodes {
		n := s.pick(i)
		if err = do(n.db); err == nil || !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrReadOnly) {
			return err
		}
		n.markAway()
	}
	return err
}

// retry repeats do while it conflicts with others, and on the next node if a node cannot be reached or takes no writes.
// It repeats nothing that may have been done, and nothing in a transaction of the caller.
func (s *transport) retry(ctx context.Context, n *node, do func(*node) error) error {
	if s.tx != nil {
		return do(n)
	}
	failovers := 0
	repeated, err := store.Retry(ctx, s.retryFor, func() error {
		err := do(n)
		for err != nil && failovers < 2*len(s.nodes) && otherNodeMayAnswer(err) && ctx.Err() == nil {
			failovers++
			if len(s.nodes) > 1 {
				n.markAway()
			} else if !errors.Is(err, errBadConn) {
				break
			}
			n = s.pick(slices.Index(s.nodes, n) + 1)
			err = do(n)
		}
		return err
	}, isRetryable)
	s.retries.Add(int64(repeated))
	store.Observe(s.observer, repeated, err)
	return err
}

// otherNodeMayAnswer reports whether another node or connection may answer after an error. A node whose certificate is
// not accepted counts as one that cannot be reached.
func otherNodeMayAnswer(err error) bool {
	c := class(err)
	return tlsFailed(err) || errors.Is(c, store.ErrUnavailable) || errors.Is(c, store.ErrReadOnly)
}

// explain returns the error of a text; if the guard of the text failed, it returns what is wrong with the session.
func (s *transport) explain(ctx context.Context, db querier, err error) error {
	if number, _ := numberOf(err); number != errOutOfRange || s.ownPools {
		return err
	}
	var got session
	if db.QueryRowContext(context.WithoutCancel(ctx), "SELECT "+sessionColumns).Scan(&got.mode, &got.client,
		&got.connection, &got.results) != nil {
		return err
	}
	return cmp.Or(got.check(), err)
}

// route applies each part of a batch on the node that its keys prefer. In a Galera cluster every node takes writes, but
// two nodes that write a row at once conflict when they commit. So each key has one preferred node, the same for all
// processes with this URL. Ops that share a cell or a group stay together, on the node of the first, and in order.
func (s *transport) route(ops []law.Op, outs []law.Outcome, apply func([]law.Op, []law.Outcome, *node) error) error {
	if len(s.nodes) == 1 || len(ops) == 0 {
		return apply(ops, outs, s.nodes[0])
	}
	parts := make(map[*node][]int)
	groups := make([]uint32, len(ops)) // new numbers, since two groups with the same number may become neighbours
	for i := range ops[1:] {
		if groups[i+1] = groups[i]; ops[i+1].Group != ops[i].Group {
			groups[i+1]++
		}
	}
	for i, first := range law.Components(ops) {
		h := fnv.New32a()
		h.Write([]byte(ops[first].Cell.Key))
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
	var errs []error
	for n, part := range parts {
		wg.Go(func() {
			partOps, answers := make([]law.Op, len(part)), make([]law.Outcome, len(part))
			for k, i := range part {
				partOps[k] = ops[i]
				partOps[k].Group = groups[i]
			}
			err := apply(partOps, answers, n)
			mu.Lock()
			defer mu.Unlock()
			wrap.Join(outs, answers, part, err)
			errs = append(errs, err)
		})
	}
	wg.Wait()
	if slices.Contains(errs, nil) {
		return nil
	}
	// Of several errors, an unknown outcome matters most.
	return errs[max(0, slices.IndexFunc(errs, func(err error) bool { return errors.Is(err, store.ErrUnknownOutcome) }))]
}

// execAlone calls send, which sends a statement that commits by itself. The server's error, in the place of the end of
// the rows, may come after the commit. If it cannot have, execAlone marks it as undone.
func execAlone(ctx context.Context, n *node, turn string, send func(*openedConn) error) error {
	conn, err := n.db.Conn(ctx)
	if err != nil {
		return notSent.wrap(err)
	}
	defer conn.Close()
	err = conn.Raw(func(c any) error { return send(c.(*openedConn)) })
	if number, _ := numberOf(err); number == errTableFull || number != 0 && errors.Is(class(err),
		store.ErrUnknownOutcome) && !mayBeComplete(ctx, conn, turn) {
		err = undone.wrap(err)
	}
	return err
}

// mayBeComplete reports whether a statement may have done all its work before its commit: it has assigned its turn, as
// it does once it has its last lock, or the server does not tell.
func mayBeComplete(ctx context.Context, conn *sql.Conn, turn string) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
	defer cancel()
	var lastTurn string
	err := conn.QueryRowContext(ctx, "SELECT @hg_one_turn").Scan(&lastTurn)
	return err != nil || lastTurn == turn
}

// execEach executes statements one at a time, so that the server answers each of them, even if it is killed.
func execEach(ctx context.Context, db querier, statements ...string) error {
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// If a transaction of a Galera node loses against another node's, its COMMIT returns a deadlock, and nothing is done. A
// node that loses the cluster during a COMMIT returns the same error, or that it is not prepared for use: then the
// other nodes may have the transaction, and so may this node once it is back. So a deadlock is believed only if the
// cluster's membership has not changed since before the text was sent.

// readView selects the membership of the cluster as a node sees it, and whether the node has a quorum.
const readView = `SELECT GROUP_CONCAT(VARIABLE_VALUE ORDER BY VARIABLE_NAME) FROM INFORMATION_SCHEMA.GLOBAL_STATUS
	WHERE VARIABLE_NAME IN ('WSREP_CLUSTER_CONF_ID', 'WSREP_CLUSTER_STATUS', 'WSREP_CLUSTER_STATE_UUID')`

// view caches the membership of a cluster as a node saw it last: the answer to readView. The zero view has none.
type view struct{ cached atomic.Pointer[string] }

// cachedOrRead returns the cached membership, or reads it if there is none. If the cached one is out of date, one
// deadlock is taken for an unknown outcome.
func (v *view) cachedOrRead(ctx context.Context, conn *sql.Conn) (*string, error) {
	if cached := v.cached.Load(); cached != nil {
		return cached, nil
	}
	return v.read(ctx, conn)
}

// read reads the membership and caches it.
func (v *view) read(ctx context.Context, conn querier) (*string, error) {
	var membership sql.NullString
	if err := conn.QueryRowContext(ctx, readView).Scan(&membership); err != nil {
		return nil, err
	}
	v.cached.Store(&membership.String)
	return &membership.String, nil
}

// markUnsure marks the error of a COMMIT as unsure if the membership has changed since before the text was sent, or
// cannot be read. It reads by another connection of the pool, since the connection with the error may report the same
// deadlock once more.
func (v *view) markUnsure(ctx context.Context, pool *sql.DB, before *string, err error) error {
	if now, readErr := v.read(ctx, pool); readErr != nil || *now != *before {
		return unsure.wrap(err)
	}
	return err
}
