package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/law"
)

// TestContendedBatchesStayOnTheFastPath lets sessions ask for overlapping keys at
// once. A row that another session has just updated must still be granted by
// headgate.take_plain itself, not left to headgate.apply; and each key still admits
// exactly what it may.
func TestContendedBatchesStayOnTheFastPath(t *testing.T) {
	t.Parallel()
	const sessions, keys, size, capacity = 8, 120, 60, 150
	dsn := dbtest.Postgres(t)
	openAt(t, dsn)
	setup := connect(t, dsn)
	if _, err := setup.Exec(t.Context(), `insert into headgate.cells (limit_name, key, law, unit, step)
		select 'l', 'k' || n, 1, 1000, 3600000000 from generate_series(100, 99 + $1::int) n`, keys); err != nil {
		t.Fatal(err)
	}
	var asked, room, fast atomic.Int64
	var admitted [keys]atomic.Int64
	end := time.Now().Add(2 * time.Minute)
	session := func(conn *pgx.Conn) {
		for range 2 * capacity * keys / size / sessions {
			of := rand.Perm(keys)[:size]
			slices.Sort(of)
			names := make([]string, size)
			for i, k := range of {
				names[i] = fmt.Sprint("k", 100+k)
			}
			var granted, rest []int32
			var outcomes []int64
			// Nothing drains within the test.
			err := conn.QueryRow(context.Background(),
				`select granted, rest, outcomes from headgate.take_plain_1($1, '{1}', '{l}', '{0}', '{1000}', $2, '{3600000000}',
					'{1}', '{0}', '{1000}', '{0}', $3, false, null, null, null, null, false,
					null, null, null, null, null)`,
				names, []int64{capacity * 1000}, size).Scan(&granted, &rest, &outcomes)
			if err != nil {
				t.Error(err)
				return
			}
			late := 0
			for i, n := range rest {
				if outcomes[i*law.Width] > 0 {
					admitted[of[n-1]].Add(1)
					late++
				}
			}
			for _, n := range granted {
				admitted[of[n-1]].Add(1)
			}
			asked.Add(size)
			fast.Add(int64(len(granted)))
			room.Add(int64(len(granted) + late))
			if time.Now().After(end) {
				t.Error("the sessions are not done in time")
				return
			}
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
