package mysql_test

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/storetest"
)

// readLevel sets the session's clock to now, and returns the level that headgate_levels then shows for a cell.
func readLevel(t *testing.T, conn *sql.Conn, cell law.Cell, now int64) (used string) {
	t.Helper()
	text := fmt.Sprintf("SET SESSION timestamp = %d.%06d", now/1_000_000, now%1_000_000)
	mustExec(t, conn, text)
	if err := conn.QueryRowContext(t.Context(), "SELECT used FROM headgate_levels WHERE limit_name = ? AND `key` = ?",
		cell.Limit, cell.Key).Scan(&used); err != nil {
		t.Fatal(err)
	}
	return used
}

// millionths returns credits in units as text, rounded up to millionths.
func millionths(credits, unit int64) string {
	whole, remainder := credits/unit, credits%unit
	n := (remainder*1_000_000 + unit - 1) / unit
	return fmt.Sprintf("%d.%06d", whole+n/1_000_000, n%1_000_000)
}

// TestLevelsViewAgreesWithCheck checks that headgate_levels shows the level that a check returns, at random times after
// charges, for limits of every kind, by name and by notation.
func TestLevelsViewAgreesWithCheck(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	s := openStore(t, url)
	conn := openSession(t, url)
	seed := tier.Seed()
	rng := rand.New(rand.NewPCG(seed, 0))
	begin := time.Date(2033, 3, 3, 3, 3, 3, 0, time.UTC).UnixMicro() // on most servers a TIMESTAMP ends in 2038
	for i, rule := range []string{
		"token-bucket 100/s burst 200", "token-bucket 1/1h burst 3", "token-bucket 3/1m burst 7",
		"token-bucket 150001/1d burst 10", "gcra 10/s burst 5",
		"leaky-bucket 1.5/s capacity 3", "interval 100/10s burst 350", "interval 2/1m burst 3",
		"interval 0.5/150ms burst 9", "fixed-window 100/1m", "fixed-window 100/1m from-first",
		"fixed-window 9/minute", "fixed-window 9/day Europe/Berlin", "fixed-window 9/month", "sliding-window 100/1m",
		"sliding-window 3/1h", "sliding-log 5/1m", "concurrency 5 ttl 30s",
	} {
		limit := headgate.MustParse(rule)
		name := fmt.Sprint("limit-", i)
		storetest.Define(t, s, store.Item{Name: name, Text: limit.String()})
		p := limit.Params()
		for range tier.Pick(3, 12, 50) {
			cell := law.Cell{Limit: []string{name, limit.String()}[rng.IntN(2)], Key: fmt.Sprint(rng.Uint32())}
			op := law.Op{Verb: law.Take, Cell: cell, Params: p, Count: 1, Now: begin + rng.Int64N(p.Step)}
			if p.Anchor == law.Calendar {
				op.Window = [4]int64{begin - p.Step, begin - 1, begin + p.Step, begin + 2*p.Step}
			}
			for range 1 + rng.IntN(4) {
				op.Cost = 1 + rng.Int64N(p.Capacity/2)
				apply(t, s, op)
				op.Now += rng.Int64N(p.Step)
			}
			for range 6 {
				op.Verb, op.Cost = law.Check, 1
				out := apply(t, s, op)[0]
				got, want := readLevel(t, conn, cell, op.Now), millionths(out.Used-out.Granted, p.Unit)
				if got != want {
					t.Errorf("seed %d: %s at %d: got %s, want %s", seed, rule, op.Now, got, want)
				}
				op.Now += rng.Int64N(p.Step)
			}
		}
	}
}

// TestLevelsOfUnknownLimitsAreNeverTooLow checks that headgate_levels shows a level from the true one to the level
// after the charge, for limits whose parameters SQL cannot know.
func TestLevelsOfUnknownLimitsAreNeverTooLow(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	s := openStore(t, url)
	conn := openSession(t, url)
	begin := time.Date(2033, 3, 3, 3, 3, 3, 0, time.UTC).UnixMicro()
	for _, rule := range []string{
		"token-bucket 100/s burst 200", "interval 100/10s burst 350", "interval 2/1m burst 3",
		"fixed-window 100/1m", "fixed-window 9/day Europe/Berlin",
	} {
		p := headgate.MustParse(rule).Params()
		for _, limit := range []string{
			"in-a-file", "interval 7/3s burst 9", "interval", "token-bucket x/y",
			"token-bucket 1/0s", "gcra 5/", "gcra 99999999999999999999999999999999999/1us",
		} {
			op := law.Op{
				Verb: law.Take, Cell: law.Cell{Limit: limit, Key: rule}, Params: p, Cost: p.Capacity / 2,
				Count: 1, Now: begin, Window: [4]int64{begin - p.Step, begin - 1, begin + p.Step, begin + 2*p.Step},
			}
			charged := apply(t, s, op)[0].Used
			for range 10 {
				op.Verb, op.Cost = law.Check, 1
				out := apply(t, s, op)[0]
				var got, minLevel, maxLevel float64
				fmt.Sscan(readLevel(t, conn, op.Cell, op.Now), &got)
				fmt.Sscan(millionths(out.Used-out.Granted, p.Unit), &minLevel)
				if fmt.Sscan(millionths(charged, p.Unit), &maxLevel); got < minLevel || got > maxLevel {
					t.Errorf("%s as %q after %v: got %v, want from %v to %v", rule, limit,
						time.Duration(op.Now-begin)*1000, got, minLevel, maxLevel)
				}
				if op.Now += p.Step / 3; p.Step == 10_000 { // of 100/s: it drains within ten checks
					op.Now += 300_000
				}
			}
		}
	}
}

// TestLevelsViewUsesTheClockOfTheSession checks that headgate_levels shows a level at the session's timestamp, and at
// the present time in a session without one.
func TestLevelsViewUsesTheClockOfTheSession(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	conn := openSession(t, url)
	take, err := callTake(t, openPlainDB(t, url), "headgate_take", "token-bucket 10/s burst 10", "a", "10")
	if err != nil {
		t.Fatal(err)
	}
	cell := law.Cell{Limit: take.limit, Key: "a"}
	for _, tt := range []struct {
		after time.Duration
		want  string
	}{{0, "10.000000"}, {300 * time.Millisecond, "7.000000"}, {time.Second, "0.000000"}, {time.Hour, "0.000000"}} {
		if got := readLevel(t, conn, cell, take.at.Add(tt.after).UnixMicro()); got != tt.want {
			t.Errorf("%v later: got level %s, want %s", tt.after, got, tt.want)
		}
	}
	mustExec(t, conn, "SET SESSION timestamp = DEFAULT")
	var used float64
	now := serverClock(t, openPlainDB(t, url))
	err = conn.QueryRowContext(t.Context(), "SELECT used FROM headgate_levels WHERE `key` = 'a'").Scan(&used)
	if err != nil {
		t.Fatal(err)
	}
	if maxLevel := max(0, 10-10*time.UnixMicro(now).Sub(take.at).Seconds()); used > maxLevel+1e-6 {
		t.Errorf("now: got level %v, want at most %v", used, maxLevel)
	}
}
