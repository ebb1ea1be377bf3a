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

// fullDeadline is the deadline of decisions in the tests of full disks.
const fullDeadline = 2 * time.Second

// fullStore is a server over a store whose disk gets full, and counts the answers of the server.
type fullStore struct {
	*server
	database   string             // URL of the database
	fill, free func(t *testing.T) // fill may be called again while the disk is full
	crash      func()             // kills the process that keeps the state
	restart    func() error       // starts that process again; it may fail while the disk is full
	hasEnded   func() bool        // whether that process has ended by itself

	mu                sync.Mutex     // for the counts, while several callers take
	admitted, unknown map[string]int // numbers of admitted requests, and of unknown outcomes, by key
	outcomes          map[string]int // numbers of requests by outcome
	titles            map[string]int // numbers of problems of /readyz by title; only for the test's goroutine
}

func newFullStore(s *server) *fullStore {
	return &fullStore{
		server: s, admitted: map[string]int{}, unknown: map[string]int{}, outcomes: map[string]int{},
		titles: map[string]int{},
	}
}

// fullDisks start each store on a small disk.
var fullDisks = []struct {
	name, readyText string // readyText: what /readyz says beside that the store is not available
	size            int
	start           func(t *testing.T, d *dbtest.Disk) *fullStore
}{
	{"SQLite", "its disk is full", 4 << 20, func(t *testing.T, d *dbtest.Disk) *fullStore {
		f := newFullStore(start(t, d.Path, "--deadline", fullDeadline.String()))
		f.crash = func() { _ = f.cmd.Process.Kill(); _ = f.cmd.Wait() }
		f.restart = func() error { f.server = start(t, d.Path, "--deadline", fullDeadline.String()); return nil }
		f.hasEnded = func() bool { return false }
		return f
	}},
	{"PostgreSQL", "its disk is full", 128 << 20, func(t *testing.T, d *dbtest.Disk) *fullStore {
		return startOverDatabase(t, (&dbtest.Config{Data: d.Path}).Postgres)
	}},
	{"log of PostgreSQL", "", 12 << 20, func(t *testing.T, d *dbtest.Disk) *fullStore {
		f := startOverDatabase(t, (&dbtest.Config{Log: d.Path}).Postgres)
		f.fill = func(t *testing.T) {
			d.Fill(t)
			f.useUpLog(t)
		}
		return f
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
func startOverDatabase(t *testing.T, startDB func(context.Context) (*dbtest.Server, error)) *fullStore {
	t.Helper()
	db, url := database(t, startDB)
	migrate(t, url)
	f := newFullStore(startReady(t, t.TempDir(), "--store", url, "--deadline", fullDeadline.String()))
	f.database = url
	f.crash = db.Crash
	f.restart = func() error { return db.Restart(t.Context()) }
	f.hasEnded = db.Ended
	return f
}

// useUpLog makes PostgreSQL use all but the last file of the write-ahead log that it has reserved.
func (f *fullStore) useUpLog(t *testing.T) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), f.database)
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

// TestAFullDiskLosesNoAdmission fills the file system of each store twice, and frees it. The second time it kills the
// process that keeps the state before. At the end the store has to have every admitted request.
func TestAFullDiskLosesNoAdmission(t *testing.T) {
	tier.Nightly(t)
	if !dbtest.Namespace(t) {
		return
	}
	for _, tt := range fullDisks {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			disk := dbtest.NewDisk(t, tt.size)
			f := tt.start(t, disk)
			if f.fill == nil {
				f.fill = func(t *testing.T) { disk.Fill(t) }
			}
			f.free = func(t *testing.T) { disk.Free(t) }
			f.fillDisk(t)
			if !f.hasTitle(tt.readyText) {
				t.Errorf("the titles of /readyz are %v, want %q", f.titles, tt.readyText)
			}
			f.free(t)
			freedAt := time.Now()
			hasEnded := f.hasEnded()
			if hasEnded {
				if err := f.restart(); err != nil {
					t.Fatalf("with room again: %v", err)
				}
			}
			f.waitRecovered(t)
			t.Logf("ready %s after there was room; the store had ended: %v", time.Since(freedAt).Round(time.Millisecond), hasEnded)
			f.fillDisk(t)
			f.crash()
			if err := f.restart(); err != nil { // the disk is full
				t.Logf("while the disk is full it does not start: %.300s", err)
			}
			f.crash()
			f.free(t)
			freedAt = time.Now()
			if err := f.restart(); err != nil {
				t.Fatalf("with room again: %v", err)
			}
			f.waitRecovered(t)
			t.Logf("ready %s after the crash", time.Since(freedAt).Round(time.Millisecond))
			f.compareWithStore(t)
		})
	}
}

const fullLimit = "fixed-window 5/30d"

// fullKeys are charged again and again. The first is in use before the disk is full.
var fullKeys = []string{strings.Repeat("one", 150), strings.Repeat("two", 150)}

// takeKey charges a key, and counts the outcome.
func (f *fullStore) takeKey(t *testing.T, key string) (status int) {
	t.Helper()
	body := fmt.Sprintf(`{"limit":%q,"key":%q}`, fullLimit, key)
	res, err := http.Post(f.url+"/v1/take", "application/json", strings.NewReader(body))
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
	f.mu.Lock()
	defer f.mu.Unlock()
	outcome := map[bool]string{true: "admitted", false: "refused"}[d.Allowed]
	switch {
	case d.Allowed:
		f.admitted[key]++
	case p.Type == api.OutcomeUnknown:
		f.unknown[key]++
		outcome = "unknown"
	case res.StatusCode == http.StatusServiceUnavailable:
		outcome = "not available"
	case res.StatusCode != http.StatusOK:
		t.Errorf("status %d: %+v", res.StatusCode, p)
	}
	f.outcomes[outcome]++
	return res.StatusCode
}

// checkReady requests /readyz, and counts the titles of its problems.
func (f *fullStore) checkReady(t *testing.T) (status int) {
	t.Helper()
	status, p, _ := f.get(t, "/readyz")
	if status != http.StatusOK {
		f.titles[p.Title]++
	}
	return status
}

// hasTitle reports whether a problem of /readyz had a title with the text.
func (f *fullStore) hasTitle(text string) bool {
	for title := range f.titles {
		if strings.Contains(title, text) {
			return true
		}
	}
	return false
}

// fillDisk fills the disk, and then takes 300 times for each of two keys and for new ones.
func (f *fullStore) fillDisk(t *testing.T) {
	t.Helper()
	if status := f.checkReady(t); status != http.StatusOK {
		t.Fatalf("/readyz at first: %d", status)
	}
	if len(f.admitted) == 0 {
		f.takeKey(t, fullKeys[0])
	}
	clear(f.outcomes)
	clear(f.titles)
	f.fill(t)
	var newKeys atomic.Int64
	takeNewKey := func() int {
		return f.takeKey(t, fmt.Sprint("new ", time.Now().UnixNano(), newKeys.Add(1), strings.Repeat("x", 400)))
	}
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for takeNewKey() == http.StatusOK { // until the disk is full
				if newKeys.Load() > 20_000 {
					t.Error("the disk never was full")
					return
				}
			}
		})
	}
	callers.Wait()
	f.waitUnhealthy(t)
	ready, rounds := 0, 0
	const maxRounds = 75 // of 4 callers: 300 takes for each key
	// The pauses of await.Until let the breaker try the store some times.
	await.Until(t, "decisions on a full disk", func() bool {
		if rounds++; f.checkReady(t) == http.StatusOK {
			ready++
		}
		for range 4 {
			callers.Go(func() {
				for _, key := range fullKeys {
					f.takeKey(t, key)
				}
				takeNewKey()
			})
		}
		callers.Wait()
		return rounds == maxRounds
	})
	f.waitUnhealthy(t)
	t.Logf("on a full disk: %v; /readyz was 200 %d of %d times, and said %v", f.outcomes, ready, maxRounds, f.titles)
	f.checkBound(t)
}

// waitUnhealthy waits until /readyz and /healthz are not 200, while /livez is. It takes a while: the last page on the
// disk has room for a few probes.
func (f *fullStore) waitUnhealthy(t *testing.T) {
	t.Helper()
	health := func() int { status, _, _ := f.get(t, "/healthz"); return status }
	await.Until(t, "/readyz and /healthz of a full disk", func() bool {
		return f.checkReady(t) != http.StatusOK && health() != http.StatusOK
	})
	if status, _, _ := f.get(t, "/livez"); status != http.StatusOK {
		t.Errorf("/livez on a full disk: %d", status)
	}
}

// waitRecovered waits until /readyz is 200.
func (f *fullStore) waitRecovered(t *testing.T) {
	t.Helper()
	await.Until(t, "/readyz with room again", func() bool { return f.checkReady(t) == http.StatusOK })
	f.checkBound(t)
}

// checkBound checks that no key was admitted more than the 5 times of fullLimit.
func (f *fullStore) checkBound(t *testing.T) {
	t.Helper()
	for key, n := range f.admitted {
		if n > 5 {
			t.Errorf("got %d admitted for %.10s, want at most 5", n, key)
		}
	}
}

// compareWithStore compares the admitted requests with the usage in the store, and then uses up each of fullKeys.
func (f *fullStore) compareWithStore(t *testing.T) {
	t.Helper()
	sumAdmitted, sumUnknown := 0, 0
	keys := maps.Clone(f.admitted)
	maps.Copy(keys, f.unknown)
	for key := range keys {
		admitted, unknown, used := f.admitted[key], f.unknown[key], f.used(t, key)
		sumAdmitted, sumUnknown = sumAdmitted+admitted, sumUnknown+unknown
		if used < admitted || used > admitted+unknown {
			t.Errorf("%.40s: got %d used, want %d admitted and up to %d unknown", key, used, admitted, unknown)
		}
	}
	t.Logf("compared with the store: %d admitted for %d keys, %d unknown", sumAdmitted, len(f.admitted), sumUnknown)
	for _, key := range fullKeys {
		for range 20 {
			if status := f.takeKey(t, key); status != http.StatusOK {
				t.Fatalf("with room again: status %d", status)
			}
		}
		if used := f.used(t, key); used != 5 || f.admitted[key]+f.unknown[key] < 5 {
			t.Errorf("%.10s: got %d used, want 5; %d admitted, %d unknown", key, used, f.admitted[key], f.unknown[key])
		}
	}
	f.checkBound(t)
}

// used returns how much of fullLimit the store has charged to a key.
func (f *fullStore) used(t *testing.T, key string) int {
	t.Helper()
	res, err := http.Post(f.url+"/v1/inspect", "application/json",
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
