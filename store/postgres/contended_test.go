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

// takeSums charges some keys once each by headgate_internal.take_sums, and returns which are granted.
func takeSums(conn *pgx.Conn, names []string, capacity int64) (fast []int, err error) {
	var res []int64
	err = conn.QueryRow(context.Background(), `select array(select unnest(headgate_internal.take_sums_1($1, '{1}', '{l}', '{0}', '{1000}', $2,
		'{3600000000}', '{1}', '{1000}', 0)))`, names, []int64{capacity}).Scan(&res)
	for k := range len(res) / 5 {
		if k > 0 && int64(k) <= res[1] {
			fast = append(fast, int(res[5*k])-1)
		}
	}
	return fast, err
}

// TestContendedBatchesAdmitWhatTheyMay charges overlapping keys by several sessions at once. Each key admits
// exactly its capacity, by take_sums alone, and no sessions deadlock, also when keys have no room.
func TestContendedBatchesAdmitWhatTheyMay(t *testing.T) {
	t.Parallel()
	const sessions, keys, size, capacity = 8, 120, 60, 150
	dsn := migrated.Postgres(t)
	setup := connect(t, dsn)
	if _, err := setup.Exec(t.Context(), `insert into headgate.cells (limit_name, key, law, unit, step)
		select 'l', 'k' || n, 1, 1000, 3600000000 from generate_series(100, 99 + $1::int) n`, keys); err != nil {
		t.Fatal(err)
	}
	var admitted [keys]atomic.Int64
	session := func(conn *pgx.Conn) {
		for range 2 * capacity * keys / size / sessions {
			of := rand.Perm(keys)[:size]
			slices.Sort(of)
			names := make([]string, size)
			for i, k := range of {
				names[i] = fmt.Sprint("k", 100+k)
			}
			granted, err := takeSums(conn, names, capacity*1000)       // nothing drains within the test
			for err != nil && strings.Contains(err.Error(), "55P03") { // the machine is slow
				granted, err = takeSums(conn, names, capacity*1000)
			}
			if err != nil {
				t.Error(err)
				return
			}
			for _, i := range granted {
				admitted[of[i]].Add(1)
			}
		}
	}
	var wg sync.WaitGroup
	for range sessions {
		conn := connect(t, dsn)
		wg.Go(func() { session(conn) })
	}
	wg.Wait()
	for k := range admitted {
		if n := admitted[k].Load(); n != capacity {
			t.Errorf("key %d admitted %d, want %d", k, n, capacity)
		}
	}
}
