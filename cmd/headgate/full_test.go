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

// fullDeadline is the deadline of decisions in these tests.
const fullDeadline = 2 * time.Second

// fullStore is a server over a store whose disk gets full, with counts of its answers.
type fullStore struct {
	*server
	database   string             // URL of the database
	fill, free func(t *testing.T) // fill may be called again while the disk is full
	crash      func()             // kills the process that keeps the state
	restart    func() error       // starts that process again; it may fail while the disk is full
	ended      func() bool        // whether that process has ended by itself

	mu                sync.Mutex
	admitted, unknown map[string]int // number of admitted requests, and of unknown outcomes, by key
	statuses          map[string]int
	titles            map[string]int // titles of the problems of /readyz
}

func newFullStore(s *server) *fullStore {
	return &fullStore{
		server: s, admitted: map[string]int{}, unknown: map[string]int{}, statuses: map[string]int{},
		titles: map[string]int{},
	}
}

// fullDisks start each store on a small disk.
var fullDisks = []struct {
	name, says string // says: what /readyz says beside that the store is not available
	size       int
	start      func(t *testing.T, d *dbtest.Disk) *fullStore
}{
	{"SQLite", "its disk is full", 4 << 20, func(t *testing.T, d *dbtest.Disk) *fullStore {
		c := newFullStore(start(t, d.Path, "--deadline", fullDeadline.String()))
		c.crash = func() { _ = c.cmd.Process.Kill(); _ = c.cmd.Wait() }
		c.restart = func() error { c.server = start(t, d.Path, "--deadline", fullDeadline.String()); return nil }
		c.ended = func() bool { return false }
		return c
	}},
	{"PostgreSQL", "its disk is full", 128 << 20, func(t *testing.T, d *dbtest.Disk) *fullStore {
		return startOverDatabase(t, (&dbtest.Config{Data: d.Path}).Postgres)
	}},
	{"log of PostgreSQL", "", 12 << 20, func(t *testing.T, d *dbtest.Disk) *fullStore {
		c := startOverDatabase(t, (&dbtest.Config{Log: d.Path}).Postgres)
		c.fill = func(t *testing.T) {
			d.Fill(t)
			c.useUpLog(t)
		}
		return c
	}},
	{"MariaDB", "its disk is full", 192 << 20, func(t *testing.T, d *dbtest.Disk) *fullStore {
		return startOverDatabase(t, (&dbtest.Config{Data: d.Path}).MariaDB)
	}},
	{"Redis", "", 16 << 20, func(t *testing.T, d *dbtest.Disk) *fullStore {
		args := []string{"--appendonly", "yes", "--appendfsync", "always"}
		return startOverDatabase(t, (&dbtest.Config{Data: d.Path, Args: args}).Redis)
	}},
}

// startOverDatabase starts a database, and a server that keeps its state there.
func startOverDatabase(t *testing.T, begin func(context.Context) (*dbtest.Server, error)) *fullStore {
	t.Helper()
	db, url := database(t, begin)
	migrate(t, url)
	c := newFullStore(startReady(t, t.TempDir(), "--store", url, "--deadline", fullDeadline.String()))
	c.database = url
	c.crash = db.Crash
	c.restart = func() error { return db.Restart(t.Context()) }
	c.ended = db.Ended
	return c
}

// useUpLog makes PostgreSQL use all but the last file of the write-ahead log that it has reserved.
func (c *fullStore) useUpLog(t *testing.T) {
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

// TestAFullDiskAdmitsNobody fills the real file systems of stores twice. The first time there is room again; the second
// time the process that keeps the state is killed before that. At the end the store has to have every admitted request.
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
			c.fillDisk(t)
			if !c.readySaid(tt.says) {
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
			c.waitRecovered(t)
			t.Logf("ready %s after there was room; the store had ended: %v", time.Since(begin).Round(time.Millisecond), ended)
			c.fillDisk(t)
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
			c.waitRecovered(t)
			t.Logf("ready %s after the crash", time.Since(begin).Round(time.Millisecond))
			c.compareWithStore(t)
		})
	}
}

const fullLimit = "fixed-window 5/30d"

// fullKeys are charged again and again. The first is in use before the disk is full.
var fullKeys = []string{strings.Repeat("one", 150), strings.Repeat("two", 150)}

// ask takes for a key, and counts the outcome.
func (c *fullStore) ask(t *testing.T, key string) (status int) {
	t.Helper()
	body := fmt.Sprintf(`{"limit":%q,"key":%q}`, fullLimit, key)
	res, err := http.Post(c.url+"/v1/take", "application/json", strings.NewReader(body))
	if err != nil {
		t.Errorf("take: %v", err)
		return 0
	}
	defer res.Body.Close()
	var d api.Decision
	var p api.Problem
	answer := any(&p)
	if res.StatusCode == http.StatusOK {
		answer = &d
	}
	if err := json.NewDecoder(res.Body).Decode(answer); err != nil {
		t.Errorf("take: %v", err)
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	what := map[bool]string{true: "admitted", false: "refused"}[d.Allowed]
	switch {
	case d.Allowed:
		c.admitted[key]++
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

// askReady requests /readyz, and counts the titles of its problems.
func (c *fullStore) askReady(t *testing.T) (status int) {
	t.Helper()
	status, p, _ := c.get(t, "/readyz")
	if status != http.StatusOK {
		c.titles[p.Title]++
	}
	return status
}

func (c *fullStore) readySaid(text string) bool {
	for title := range c.titles {
		if strings.Contains(title, text) {
			return true
		}
	}
	return false
}

// fillDisk fills the disk, and then takes 300 times for each of two keys and for new ones.
func (c *fullStore) fillDisk(t *testing.T) {
	t.Helper()
	if status := c.askReady(t); status != http.StatusOK {
		t.Fatalf("/readyz at first: %d", status)
	}
	if len(c.admitted) == 0 {
		c.ask(t, fullKeys[0])
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
	c.waitUnhealthy(t)
	ready, rounds := 0, 0
	const maxRounds = 75
	// The pauses let the breaker try the store some times.
	await.Until(t, "decisions on a full disk", func() bool {
		if rounds++; c.askReady(t) == http.StatusOK {
			ready++
		}
		for range 4 {
			callers.Go(func() {
				for _, key := range fullKeys {
					c.ask(t, key)
				}
				another()
			})
		}
		callers.Wait()
		return rounds == maxRounds
	})
	c.waitUnhealthy(t)
	t.Logf("on a full disk: %v; /readyz was 200 %d of %d times, and said %v", c.statuses, ready, maxRounds, c.titles)
	c.checkBound(t)
}

// waitUnhealthy waits until /readyz and /healthz are 503, while /livez is 200. It takes a while: what is left of a page
// has room for a few probes.
func (c *fullStore) waitUnhealthy(t *testing.T) {
	t.Helper()
	health := func() int { status, _, _ := c.get(t, "/healthz"); return status }
	await.Until(t, "/readyz and /healthz of a full disk", func() bool {
		return c.askReady(t) != http.StatusOK && health() != http.StatusOK
	})
	if status, _, _ := c.get(t, "/livez"); status != http.StatusOK {
		t.Errorf("/livez on a full disk: %d", status)
	}
}

// waitRecovered waits until /readyz is 200.
func (c *fullStore) waitRecovered(t *testing.T) {
	t.Helper()
	await.Until(t, "/readyz with room again", func() bool { return c.askReady(t) == http.StatusOK })
	c.checkBound(t)
}

func (c *fullStore) checkBound(t *testing.T) {
	t.Helper()
	for key, n := range c.admitted {
		if n > 5 {
			t.Errorf("%d of 5 were admitted for %.10s", n, key)
		}
	}
}

// compareWithStore compares the admitted requests with what the store has, and uses up the rest.
func (c *fullStore) compareWithStore(t *testing.T) {
	t.Helper()
	admitted, unknown := 0, 0
	asked := maps.Clone(c.admitted)
	maps.Copy(asked, c.unknown)
	for key := range asked {
		sure, perhaps, used := c.admitted[key], c.unknown[key], c.used(t, key)
		if admitted, unknown = admitted+sure, unknown+perhaps; used < sure || used > sure+perhaps {
			t.Errorf("%.40s: %d were admitted, of %d nobody knows, and the store has %d", key, sure, perhaps, used)
		}
	}
	t.Logf("compared with the store: %d that were admitted, for %d keys; of %d nobody knew", admitted, len(c.admitted),
		unknown)
	for _, key := range fullKeys {
		for range 20 {
			if status := c.ask(t, key); status != http.StatusOK {
				t.Fatalf("with room again: status %d", status)
			}
		}
		if used := c.used(t, key); used != 5 || c.admitted[key]+c.unknown[key] < 5 {
			t.Errorf("%.10s: %d used, %d admitted, of %d nobody knows", key, used, c.admitted[key], c.unknown[key])
		}
	}
	c.checkBound(t)
}

// used returns how much of a key the store has.
func (c *fullStore) used(t *testing.T, key string) int {
	t.Helper()
	res, err := http.Post(c.url+"/v1/inspect", "application/json",
		strings.NewReader(fmt.Sprintf(`{"limit":%q,"key":%q}`, fullLimit, key)))
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
