package mysql

import (
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

// transport is a store's way to its servers.
type transport struct {
	nodes    []*node
	tx       *sql.Tx // of the caller; nil outside one
	own      bool    // the pools were opened here
	retryFor time.Duration
	observer store.Observer // nil: none
	repeats  atomic.Int64

	*facts
	turns    atomic.Int64 // of statements that commit by themselves
	makes    atomic.Int64 // how many batches are to be decided by sums in the form that makes cells
	unsummed atomic.Int64 // how many batches are not to be decided by sums, since one could not be
}

// facts are known of the servers, also in a transaction of the caller's.
type facts struct {
	checked atomic.Bool // server and schema are such as this binary needs
	galera  atomic.Bool // the server is a node of a cluster
	group   atomic.Bool // the server is a member of a Group Replication
	// snapshots: it knows innodb_snapshot_isolation, as MariaDB from 10.6.18 on
	snapshots atomic.Bool
	returning atomic.Bool // it knows INSERT .. RETURNING, as MariaDB does
	uncalled  atomic.Bool // the procedure for a lone charge is not there, or may not be called
}

// node is a server of a cluster, or the only one.
type node struct {
	db   *sql.DB
	name string
	away atomic.Int64 // in ns since the start of the process: not to be asked before
	view view         // of a cluster of Galera
}

// awayFor is how long a node that could not be reached, or had no quorum, is
// passed over.
const awayFor = time.Second

var start = time.Now() //nolint:forbidigo // a pause, not a decision

func (n *node) leave()       { n.away.Store(int64(time.Since(start) + awayFor)) }
func (n *node) isAway() bool { return n.away.Load() > int64(time.Since(start)) }

// pick returns the i-th node, or the next that is not known to be away.
func (s *transport) pick(i int) *node {
	for k := range s.nodes {
		if n := s.nodes[(i+k)%len(s.nodes)]; !n.isAway() {
			return n
		}
	}
	return s.nodes[i%len(s.nodes)]
}

// anywhere does what may be done on any node, and on the next one where a node
// cannot be reached, or may not write: reading and administration.
func (s *transport) anywhere(do func(querier) error) error {
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
func (s *transport) retry(ctx context.Context, n *node, do func(*node) error) error {
	if s.tx != nil {
		return do(n)
	}
	failovers := 0
	repeated, err := store.Retry(ctx, s.retryFor, func() error {
		err := do(n)
		for err != nil && failovers < 2*len(s.nodes) && otherNodeMay(err) && ctx.Err() == nil {
			failovers++
			if len(s.nodes) > 1 {
				n.leave()
			} else if !errors.Is(err, errBadConn) {
				break
			}
			n = s.pick(slices.Index(s.nodes, n) + 1)
			err = do(n)
		}
		return err
	}, again)
	s.repeats.Add(int64(repeated))
	store.Observe(s.observer, repeated, err)
	return err
}

// otherNodeMay reports whether another node or connection may answer. A node
// whose certificate is not accepted is as good as away.
func otherNodeMay(err error) bool {
	c := class(err)
	return tlsFailed(err) || errors.Is(c, store.ErrUnavailable) || errors.Is(c, store.ErrReadOnly)
}

// because returns the error of a text, or what is wrong with the session if that is
// why its guard failed.
func (s *transport) because(ctx context.Context, db querier, err error) error {
	if number, _ := numberOf(err); number != errOutOfRange || s.own {
		return err
	}
	var at session
	if db.QueryRowContext(context.WithoutCancel(ctx), "SELECT "+sessionColumns).Scan(&at.mode, &at.client,
		&at.connection, &at.results) != nil {
		return err
	}
	if wrong := at.check(); wrong != nil {
		return wrong
	}
	return err
}

// route hands a batch to the nodes that its keys prefer. In a Galera cluster
// every node takes writes, but two that write the same row at once conflict
// when they commit: so each key has one preferred writer, whichever process
// asks. Ops that share a cell, or a group, stay together and in order.
func (s *transport) route(ops []law.Op, outs []law.Outcome, apply func([]law.Op, []law.Outcome, *node) error) error {
	if len(s.nodes) == 1 || len(ops) == 0 {
		return apply(ops, outs, s.nodes[0])
	}
	parts := make(map[*node][]int)
	groups := make([]uint32, len(ops)) // other numbers: two groups with one number must not come to stand together
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
	var errs []error
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
			wrap.Join(outs, answers, part, err)
			errs = append(errs, err)
		})
	}
	wg.Wait()
	if slices.Contains(errs, nil) {
		return nil
	}
	// Of several, the one that leaves the most in doubt.
	return errs[max(0, slices.IndexFunc(errs, func(err error) bool { return errors.Is(err, store.ErrUnknownOutcome) }))]
}

// execAlone sends a node a statement that commits by itself. When it fails, the server says
// so in the place of the end of its rows: before or after it has committed.
func execAlone(ctx context.Context, n *node, turn string, ask func(*ownConn) error) error {
	conn, err := n.db.Conn(ctx)
	if err != nil {
		return notSent.of(err)
	}
	defer conn.Close()
	err = conn.Raw(func(c any) error { return ask(c.(*ownConn)) })
	if number, _ := numberOf(err); number == errTableFull || number != 0 && errors.Is(class(err),
		store.ErrUnknownOutcome) && !begun(ctx, conn, turn) {
		err = undone.of(err)
	}
	return err
}

// begun reports whether a statement that assigns a turn may have done all that it has to do
// before it commits. When it was killed, for example, it may have waited for the lock of a
// row. A server that is silent may have.
func begun(ctx context.Context, conn *sql.Conn, turn string) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	var last string
	err := conn.QueryRowContext(ctx, "SELECT @hg_one_turn").Scan(&last)
	return err != nil || last == turn
}

// each executes statements one at a time, since each of them is answered, also where it
// is killed.
func each(ctx context.Context, conn *sql.Conn, statements ...string) error {
	for _, statement := range statements {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// A node of a Galera cluster whose transaction loses against another's says so by a deadlock
// at its COMMIT, and then nothing is done. It says the same, or that it is not prepared for
// use, when it loses the cluster while it waits for its COMMIT: and then the other nodes may
// have the transaction, and it too, once it is back. So such an answer is believed only if the
// membership of the cluster is what it was before the text was sent.

// readView reads which membership of the cluster a node knows, and whether that has a quorum.
const readView = `SELECT GROUP_CONCAT(VARIABLE_VALUE ORDER BY VARIABLE_NAME) FROM INFORMATION_SCHEMA.GLOBAL_STATUS
	WHERE VARIABLE_NAME IN ('WSREP_CLUSTER_CONF_ID', 'WSREP_CLUSTER_STATUS', 'WSREP_CLUSTER_STATE_UUID')`

// view is the membership of the cluster that a node was seen to have last. The zero value has seen none.
type view struct{ last atomic.Pointer[string] }

// before returns the membership for a text that is to be sent to the node. It asks once; later texts
// get what was seen last, which may be of a while ago: then one deadlock is taken for more than it is.
func (v *view) before(ctx context.Context, conn *sql.Conn) (*string, error) {
	if known := v.last.Load(); known != nil {
		return known, nil
	}
	return v.see(ctx, conn)
}

// see reads the membership and keeps it.
func (v *view) see(ctx context.Context, conn querier) (*string, error) {
	var now sql.NullString
	if err := conn.QueryRowContext(ctx, readView).Scan(&now); err != nil {
		return nil, err
	}
	v.last.Store(&now.String)
	return &now.String, nil
}

// doubt returns an error of a COMMIT, marked if it may have been done: if the membership is not what it
// was before the text was sent, or cannot be read. It is read by a connection of the pool: the one that got the
// error may report the same deadlock once more.
func (v *view) doubt(ctx context.Context, pool *sql.DB, before *string, err error) error {
	if now, failed := v.see(ctx, pool); failed != nil || *now != *before {
		return unsure.of(err)
	}
	return err
}
