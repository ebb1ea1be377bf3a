package main

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store"
)

// TestAlternativesAreExactThroughKill9 has many callers use up a plan and then credits while servers are killed. Half
// of the requests have an id, and are sent until they are answered; the others are sent once.
func TestAlternativesAreExactThroughKill9(t *testing.T) {
	alternativesThroughKill9(t, "sqlite:"+t.TempDir()+"/alternatives.db", 1)
}

func TestAlternativesInDatabasesAreExactThroughKill9(t *testing.T) {
	tier.Engines(t)
	for name, url := range map[string]func(testing.TB) string{
		"postgres": migrated.Postgres, "mariadb": migrated.MariaDB, "redis": dbtest.Redis,
	} {
		t.Run(name, func(t *testing.T) { alternativesThroughKill9(t, url(t), 2) })
	}
}

func alternativesThroughKill9(t *testing.T, url string, servers int) {
	t.Helper()
	capacities := [2]int64{tier.Pick[int64](200, 1000, 1000), tier.Pick[int64](100, 500, 500)}
	var limits [2]headgate.Limit
	for i, notation := range []string{"fixed-window %d/30d from-first", "sliding-log %d/30d"} {
		limits[i] = headgate.MustParse(fmt.Sprintf(notation, capacities[i]))
	}
	clients := make([]atomic.Pointer[client.Client], servers)
	var told [2]atomic.Int64
	var unknown atomic.Int64
	var small [maxCallers]bool // the caller has been refused, and asks for 1 from then on
	throughKill9(t, url, clients, int(capacities[0]+capacities[1])/7, func(rng *rand.Rand, caller, n int) bool {
		cost := 1 + 2*rng.Int64N(5)
		if small[caller] {
			cost = 1
		}
		var alternatives [2][]headgate.Charge
		for i := range alternatives {
			alternatives[i] = []headgate.Charge{{Limit: limits[i], Key: "k", Cost: headgate.Units(cost)}}
		}
		request := headgate.FirstOf(alternatives[:]...)
		var d headgate.Decision
		var err error
		if attempts := 0; rng.IntN(2) == 0 {
			await.NoError(t, "an answer to a request with an id", func() error {
				once := clients[attempts%servers].Load().Once(fmt.Sprint("id ", caller, " ", n), time.Hour)
				attempts++
				d, err = once.Take(t.Context(), request...)
				return err
			})
		} else if d, err = clients[caller%servers].Load().Take(t.Context(), request...); err != nil {
			if !store.NothingDone(err) {
				unknown.Add(cost)
			}
			return true
		}
		switch {
		case d.Allowed:
			told[d.Alternative-1].Add(cost)
			if d.Alternative == 2 && !d.Replayed && d.Each[0].Remaining >= cost {
				t.Errorf("a credit is used while the plan has room: %+v", d)
			}
			return true
		case small[caller]:
			return false
		default:
			small[caller] = true
			return true
		}
	})
	for i, limit := range limits {
		st, err := clients[0].Load().Inspect(t.Context(), limit, "k")
		if err != nil {
			t.Fatal(err)
		}
		used, least := st.Used.String(), told[i].Load()
		most := least + unknown.Load()
		if used != fmt.Sprint(capacities[i]) || least > capacities[i] || most < capacities[i] {
			t.Errorf("%s: got %s in use, and %d to %d told; want %d", limit, used, least, most, capacities[i])
		}
	}
	t.Logf("told %d and %d, unknown %d", told[0].Load(), told[1].Load(), unknown.Load())
}
