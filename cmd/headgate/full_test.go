package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/tier"
)

// patient is the deadline of decisions where a disk gets full.
const patient = 2 * time.Second

// crowded is a server over a store whose disk gets full, and what the server has told about each key.
type crowded struct {
	*server
	database   string             // its URL
	fill, free func(t *testing.T) // fill may be called again while the disk is full
	crash      func()             // ends the process that keeps the state, at once
	restart    func() error       // starts it again; that fails while there is no room, maybe
	ended      func() bool        // whether that process has ended by itself

	mu            sync.Mutex
	told, unknown map[string]int // by key: how often it was admitted, and how often nobody knows
	statuses      map[string]int
	titles        map[string]int // of what /readyz says, asked by one
}

func newCrowded(s *server) *crowded {
	return &crowded{
		server: s, told: map[string]int{}, unknown: map[string]int{}, statuses: map[string]int{},
		titles: map[string]int{},
	}
}

// fullDisks are the stores, and how each is started on a small disk.
var fullDisks = []struct {
	name, says string // what /readyz says, beside that the store is not available
	size       int
	start      func(t *testing.T, d *dbtest.Disk) *crowded
}{
	{"SQLite", "its disk is full", 4 << 20, func(t *testing.T, d *dbtest.Disk) *crowded {
		c := newCrowded(start(t, d.Path, "--deadline", patient.String()))
		c.crash = func() { _ = c.cmd.Process.Kill(); _ = c.cmd.Wait() }
		c.restart = func() error { c.server = start(t, d.Path, "--deadline", patient.String()); return nil }
		c.ended = func() bool { return false }
		return c
	}},
	{"PostgreSQL", "its disk is full", 128 << 20, func(t *testing.T, d *dbtest.Disk) *crowded {
		return before(t, (&dbtest.Config{Data: d.Path}).Postgres)
	}},
	{"log of PostgreSQL", "", 12 << 20, func(t *testing.T, d *dbtest.Disk) *crowded {
		c := before(t, (&dbtest.Config{Log: d.Path}).Postgres)
		c.fill = func(t *testing.T) {
			d.Fill(t)
			c.lastLog(t)
		}
		return c
	}},
	{"MariaDB", "its disk is full", 192 << 20, func(t *testing.T, d *dbtest.Disk) *crowded {
		return before(t, (&dbtest.Config{Data: d.Path}).MariaDB)
	}},
	{"Redis", "", 16 << 20, func(t *testing.T, d *dbtest.Disk) *crowded {
		args := []string{"--appendonly", "yes", "--appendfsync", "always"}
		return before(t, (&dbtest.Config{Data: d.Path, Args: args}).Redis)
	}},
}

// before starts a server before a database.
func before(t *testing.T, begin func(context.Context) (*dbtest.Server, error)) *crowded {
	t.Helper()
	db, url := database(t, begin)
	migrate(t, url)
	c := newCrowded(startReady(t, t.TempDir(), "--store", url, "--deadline", patient.String()))
	c.database = url
	c.crash = db.Crash
	c.restart = func() error { return db.Restart(t.Context()) }
	c.ended = db.Ended
	return c
}

// lastLog lets PostgreSQL come to the last files of the write-ahead log that it has.
func (c *crowded) lastLog(t *testing.T) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), c.database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	const ahead = `select count(*) from pg_ls_waldir() where name ~ '^[0-9A-F]{24}$'
		and name > pg_walfile_name(pg_current_wal_lsn())`
	for {
		var files int
		if err := conn.QueryRow(t.Context(), ahead).Scan(&files); err != nil {
			t.Fatal(err)
		}
		if files <= 1 {
			return
		}
		if _, err := conn.Exec(t.Context(), "select pg_logical_emit_message(false, 'a', 'b'), pg_switch_wal()"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAFullDiskAdmitsNobody serves over stores on real file systems that are full, twice: the first time there
// is room again, the second time the process that keeps the state ends before. Whatever a caller was told has to
// be in the store at the end.
func TestAFullDiskAdmitsNobody(t *testing.T) {
	tier.Nightly(t)
	if !dbtest.Namespace(t) {
		return
	}
	for _, tt := range fullDisks {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			disk := dbtest.NewDisk(t, tt.size)
			c := tt.start(t, disk)
			if c.fill == nil {
				c.fill = func(t *testing.T) { disk.Fill(t) }
			}
			c.free = func(t *testing.T) { disk.Free(t) }
			c.getsFull(t)
			if !c.saysReady(tt.says) {
				t.Errorf("/readyz says %v, want %q", c.titles, tt.says)
			}
			c.free(t)
			begin := time.Now()
			ended := c.ended()
			if ended {
				if err := c.restart(); err != nil {
					t.Fatalf("with room again: %v", err)
				}
			}
			c.recovers(t)
			t.Logf("ready %s after there was room; the store had ended: %v", time.Since(begin).Round(time.Millisecond), ended)
			c.getsFull(t)
			c.crash()
			if err := c.restart(); err != nil { // the disk is full
				t.Logf("while the disk is full it does not start: %.300s", err)
			}
			c.crash()
			c.free(t)
			begin = time.Now()
			if err := c.restart(); err != nil {
				t.Fatalf("with room again: %v", err)
			}
			c.recovers(t)
			t.Logf("ready %s after the crash", time.Since(begin).Round(time.Millisecond))
			c.stays(t)
		})
	}
}

const crowdedLimit = "fixed-window 5/30d"

// crowdedKeys are requested again and again. The first is in use before the disk is full.
var crowdedKeys = []string{strings.Repeat("one", 150), strings.Repeat("two", 150)}

// ask takes, and keeps what came of it.
func (c *crowded) ask(t *testing.T, key string) (status int) {
	t.Helper()
	body := fmt.Sprintf(`{"limit":%q,"key":%q}`, crowdedLimit, key)
	res, err := http.Post(c.url+"/v1/take", "application/json", strings.NewReader(body))
	if err != nil {
		t.Errorf("take: %v", err)
		return 0
	}
	defer res.Body.Close()
	var d api.Decision
	var p api.Problem
	into := any(&p)
	if res.StatusCode == http.StatusOK {
		into = &d
	}
	if err := json.NewDecoder(res.Body).Decode(into); err != nil {
		t.Errorf("take: %v", err)
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	what := map[bool]string{true: "admitted", false: "refused"}[d.Allowed]
	switch {
	case d.Allowed:
		c.told[key]++
	case p.Type == api.OutcomeUnknown:
		c.unknown[key]++
		what = "unknown"
	case res.StatusCode == http.StatusServiceUnavailable:
		what = "not available"
	case res.StatusCode != http.StatusOK:
		t.Errorf("status %d: %+v", res.StatusCode, p)
	}
	c.statuses[what]++
	return res.StatusCode
}

// askReady asks /readyz, and keeps what it says.
func (c *crowded) askReady(t *testing.T) (status int) {
	t.Helper()
	status, p, _ := c.get(t, "/readyz")
	if status != http.StatusOK {
		c.titles[p.Title]++
	}
	return status
}

func (c *crowded) saysReady(text string) bool {
	for title := range c.titles {
		if strings.Contains(title, text) {
			return true
		}
	}
	return false
}

// getsFull fills the disk, and asks 300 times for each of two keys, and for new ones, while it is full.
func (c *crowded) getsFull(t *testing.T) {
	t.Helper()
	if status := c.askReady(t); status != http.StatusOK {
		t.Fatalf("/readyz at first: %d", status)
	}
	if len(c.told) == 0 {
		c.ask(t, crowdedKeys[0])
	}
	clear(c.statuses)
	clear(c.titles)
	c.fill(t)
	var asked atomic.Int64
	another := func() int {
		return c.ask(t, fmt.Sprint("new ", time.Now().UnixNano(), asked.Add(1), strings.Repeat("x", 400)))
	}
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for another() == http.StatusOK {
				if asked.Load() > 20_000 {
					t.Error("the disk never was full")
					return
				}
			}
		})
	}
	callers.Wait()
	c.unwell(t)
	ready, rounds := 0, 0
	const all = 75
	// With pauses, so that the store is called some times, which is away.
	await.Until(t, "decisions on a full disk", func() bool {
		if rounds++; c.askReady(t) == http.StatusOK {
			ready++
		}
		for range 4 {
			callers.Go(func() {
				for _, key := range crowdedKeys {
					c.ask(t, key)
				}
				another()
			})
		}
		callers.Wait()
		return rounds == all
	})
	c.unwell(t)
	t.Logf("on a full disk: %v; /readyz was 200 %d of %d times, and said %v", c.statuses, ready, all, c.titles)
	c.bounded(t)
}

// unwell waits until /readyz and /healthz are 503. What is left of a page has room for a few probes, of which one
// answers for a while. /livez is 200 meanwhile.
func (c *crowded) unwell(t *testing.T) {
	t.Helper()
	health := func() int { status, _, _ := c.get(t, "/healthz"); return status }
	await.Until(t, "/readyz and /healthz of a full disk", func() bool {
		return c.askReady(t) != http.StatusOK && health() != http.StatusOK
	})
	if status, _, _ := c.get(t, "/livez"); status != http.StatusOK {
		t.Errorf("/livez on a full disk: %d", status)
	}
}

// recovers waits until /readyz is 200.
func (c *crowded) recovers(t *testing.T) {
	t.Helper()
	await.Until(t, "/readyz with room again", func() bool { return c.askReady(t) == http.StatusOK })
	c.bounded(t)
}

func (c *crowded) bounded(t *testing.T) {
	t.Helper()
	for key, n := range c.told {
		if n > 5 {
			t.Errorf("%d of 5 were admitted for %.10s", n, key)
		}
	}
}

// stays compares what callers were told with what the store has, and asks for what is left.
func (c *crowded) stays(t *testing.T) {
	t.Helper()
	admitted, unknown := 0, 0
	asked := maps.Clone(c.told)
	maps.Copy(asked, c.unknown)
	for key := range asked {
		told, perhaps, used := c.told[key], c.unknown[key], c.used(t, key)
		if admitted, unknown = admitted+told, unknown+perhaps; used < told || used > told+perhaps {
			t.Errorf("%.40s: %d were admitted, of %d nobody knows, and the store has %d", key, told, perhaps, used)
		}
	}
	t.Logf("compared with the store: %d that were admitted, for %d keys; of %d nobody knew", admitted, len(c.told),
		unknown)
	for _, key := range crowdedKeys {
		for range 20 {
			if status := c.ask(t, key); status != http.StatusOK {
				t.Fatalf("with room again: status %d", status)
			}
		}
		if used := c.used(t, key); used != 5 || c.told[key]+c.unknown[key] < 5 {
			t.Errorf("%.10s: %d used, %d admitted, of %d nobody knows", key, used, c.told[key], c.unknown[key])
		}
	}
	c.bounded(t)
}

// used returns how much of a key the store has.
func (c *crowded) used(t *testing.T, key string) int {
	t.Helper()
	res, err := http.Post(c.url+"/v1/inspect", "application/json",
		strings.NewReader(fmt.Sprintf(`{"limit":%q,"key":%q}`, crowdedLimit, key)))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var s api.Status
	if err := json.NewDecoder(res.Body).Decode(&s); err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("inspect: %d, %v", res.StatusCode, err)
	}
	used, err := strconv.Atoi(string(s.Used))
	if err != nil {
		t.Fatal(err)
	}
	return used
}
