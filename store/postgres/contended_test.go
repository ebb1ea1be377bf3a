package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/law"
)

// contended are the two functions that decide about batches: how they are asked for one charge of each
// of some keys, and which of these are granted by one update, and which otherwise.
var contended = map[string]func(conn *pgx.Conn, names []string, capacity int64) (fast, late []int, err error){
	"take_plain": func(conn *pgx.Conn, names []string, capacity int64) (fast, late []int, err error) {
		var granted, rest []int
		var outcomes []int64
		err = conn.QueryRow(context.Background(),
			`select granted, rest, outcomes from headgate.take_plain_1($1, '{1}', '{l}', '{0}', '{1000}', $2, '{3600000000}',
				'{1}', '{0}', '{1000}', '{0}', $3, null, null, null, null, false,
				null, null, null, null, null)`,
			names, []int64{capacity}, len(names)).Scan(&granted, &rest, &outcomes)
		for i, n := range rest {
			if outcomes[i*law.Width] > 0 {
				late = append(late, n-1)
			}
		}
		for _, n := range granted {
			fast = append(fast, n-1)
		}
		return fast, late, err
	},
	"take_sums": func(conn *pgx.Conn, names []string, capacity int64) (fast, late []int, err error) {
		var res []int64
		err = conn.QueryRow(context.Background(), `select array(select unnest(headgate.take_sums_1($1, '{1}', '{l}', '{0}', '{1000}', $2,
			'{3600000000}', '{1}', '{1000}', 0)))`, names, []int64{capacity}).Scan(&res)
		for k := range len(res) / 4 {
			if k > 0 && int64(k) <= res[1] {
				fast = append(fast, int(res[4*k])-1)
			}
		}
		return fast, nil, err
	},
}

// TestContendedBatchesStayOnTheFastPath lets sessions ask for overlapping keys at
// once. A row that another session has just updated must still be granted by the one
// update, not left to headgate.apply; each key still admits exactly what it may; and no session
// waits for another in a circle, also when keys have no room.
func TestContendedBatchesStayOnTheFastPath(t *testing.T) {
	t.Parallel()
	for function, ask := range contended {
		t.Run(function, func(t *testing.T) {
			t.Parallel()
			contend(t, ask)
		})
	}
}

func contend(t *testing.T, ask func(*pgx.Conn, []string, int64) (fast, late []int, err error)) {
	t.Helper()
	const sessions, keys, size, capacity = 8, 120, 60, 150
	dsn := migrated.Postgres(t)
	setup := connect(t, dsn)
	if _, err := setup.Exec(t.Context(), `insert into headgate.cells (limit_name, key, law, unit, step)
		select 'l', 'k' || n, 1, 1000, 3600000000 from generate_series(100, 99 + $1::int) n`, keys); err != nil {
		t.Fatal(err)
	}
	var asked, room, fast atomic.Int64
	var admitted [keys]atomic.Int64
	session := func(conn *pgx.Conn) {
		for range 2 * capacity * keys / size / sessions {
			of := rand.Perm(keys)[:size]
			slices.Sort(of)
			names := make([]string, size)
			for i, k := range of {
				names[i] = fmt.Sprint("k", 100+k)
			}
			atOnce, late, err := ask(conn, names, capacity*1000)       // nothing drains within the test
			for err != nil && strings.Contains(err.Error(), "55P03") { // the machine is slow
				atOnce, late, err = ask(conn, names, capacity*1000)
			}
			if err != nil {
				t.Error(err)
				return
			}
			for _, i := range slices.Concat(atOnce, late) {
				admitted[of[i]].Add(1)
			}
			asked.Add(size)
			fast.Add(int64(len(atOnce)))
			room.Add(int64(len(atOnce) + len(late)))
		}
	}
	var wg sync.WaitGroup
	for range sessions {
		conn := connect(t, dsn)
		wg.Go(func() { session(conn) })
	}
	wg.Wait()
	t.Logf("of %d charges %d had room, %d of them were granted at once", asked.Load(), room.Load(), fast.Load())
	if fast.Load()*100 < room.Load()*95 {
		t.Errorf("%d of the %d charges that had room were granted at once, want 95 %%", fast.Load(), room.Load())
	}
	for k := range admitted {
		if n := admitted[k].Load(); n != capacity {
			t.Errorf("key %d admitted %d, want %d", k, n, capacity)
		}
	}
}
