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
)

// takeSums charges sorted keys once each by headgate_internal.take_sums. It returns the indexes of the granted keys.
func takeSums(conn *pgx.Conn, keys []string, capacity int64) (granted []int, err error) {
	var res []int64
	err = conn.QueryRow(context.Background(), `select array(select unnest(headgate_internal.take_sums_2($1, '{1}', '{l}', '{0}', '{1000}', $2,
		'{3600000000}', '{1}', '{1000}', 0)))`, keys, []int64{capacity}).Scan(&res)
	for row := range len(res) / 5 { // row 0 has the number of granted keys, in its second column
		if row > 0 && int64(row) <= res[1] {
			granted = append(granted, int(res[5*row])-1)
		}
	}
	return granted, err
}

// TestContendedBatchesAdmitExactlyTheCapacity charges overlapping keys by take_sums in eight sessions. Each key must
// admit exactly its capacity, and no sessions may deadlock, also when keys are at their capacity.
func TestContendedBatchesAdmitExactlyTheCapacity(t *testing.T) {
	t.Parallel()
	const sessions, keys, batchSize, capacity = 8, 120, 60, 150
	dsn := migrated.Postgres(t)
	setup := connect(t, dsn)
	mustExec(t, setup, `insert into headgate.cells (limit_name, key, law, unit, step)
		select 'l', 'k' || n, 1, 1000, 3600000000 from generate_series(100, 99 + $1::int) n`, keys)
	var admitted [keys]atomic.Int64
	chargeRandomKeys := func(conn *pgx.Conn) {
		for range 2 * capacity * keys / batchSize / sessions { // twice as many charges as all keys can admit
			batch := rand.Perm(keys)[:batchSize]
			slices.Sort(batch)
			names := make([]string, batchSize)
			for i, k := range batch {
				names[i] = fmt.Sprint("k", 100+k) // of three digits, so names sort as numbers do
			}
			granted, err := takeSums(conn, names, capacity*1000)       // nothing drains within the test
			for err != nil && strings.Contains(err.Error(), "55P03") { // a lock timeout: the machine is slow
				granted, err = takeSums(conn, names, capacity*1000)
			}
			if err != nil {
				t.Error(err)
				return
			}
			for _, i := range granted {
				admitted[batch[i]].Add(1)
			}
		}
	}
	var wg sync.WaitGroup
	for range sessions {
		conn := connect(t, dsn)
		wg.Go(func() { chargeRandomKeys(conn) })
	}
	wg.Wait()
	for k := range admitted {
		if n := admitted[k].Load(); n != capacity {
			t.Errorf("key %d admitted %d, want %d", k, n, capacity)
		}
	}
}
