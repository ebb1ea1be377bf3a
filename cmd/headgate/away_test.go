package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/rueidis"

	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/tier"
)

// get requests a path of the server. p is what a problem in the answer says.
func (s *server) get(t *testing.T, path string) (status int, p api.Problem, head http.Header) {
	t.Helper()
	res, err := http.Get(s.url + path)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	_ = json.Unmarshal(text, &p)
	return res.StatusCode, p, res.Header
}

// waitReady waits until /readyz answers with the status want.
func (s *server) waitReady(t *testing.T, want int) {
	t.Helper()
	s.waitUntil(t, "status of /readyz "+http.StatusText(want), func() bool {
		status, _, _ := s.get(t, "/readyz")
		return status == want
	})
}

// countStoreLines counts the log lines that say that the store is not available, and those that say that it is again.
func (s *server) countStoreLines() (awayLines, backLines int) {
	text := s.out.String()
	return strings.Count(text, `msg="the store is not available"`), strings.Count(text, `msg="the store is available"`)
}

// redisClient returns a plain client of a Redis server.
func redisClient(t *testing.T, url string) rueidis.Client {
	t.Helper()
	options, err := rueidis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	client, err := rueidis.NewClient(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// TestReadyzReportsRedisOutOfMemory checks that /readyz and /v1/me name the full store, until it has room.
func TestReadyzReportsRedisOutOfMemory(t *testing.T) {
	t.Parallel()
	redis, url := database(t, newRedis) // not shared: the test changes its settings
	s := startReady(t, t.TempDir(), "--store", url)
	client := redisClient(t, url)
	setMaxMemory := func(maxMemory string) {
		t.Helper()
		set := client.B().ConfigSet().ParameterValue().ParameterValue("maxmemory", maxMemory).Build()
		if err := client.Do(t.Context(), set).Error(); err != nil {
			t.Fatal(err)
		}
	}
	setMaxMemory("1")
	s.waitReady(t, http.StatusServiceUnavailable)
	host := strings.TrimPrefix(strings.TrimSuffix(redis.DSN, "/0"), "redis://")
	_, p, _ := s.get(t, "/readyz")
	if p.Type != api.Full || !strings.Contains(p.Detail, host) || !strings.Contains(p.Detail, "its memory is full") {
		t.Errorf("/readyz: got %+v, want that the memory of %s is full", p, host)
	}
	s.waitUntil(t, "the away store in /v1/me", func() bool { // /readyz may find the store full before the server does
		var me api.Me
		s.requestUntilOK(t, http.MethodGet, "/v1/me", "", &me)
		return me.Away != nil && strings.Contains(me.Away.Store, host)
	})
	setMaxMemory("0")
	s.waitReady(t, http.StatusOK)
}

// databases start servers that a test may stop, since no other test uses them.
var databases = map[string]func(context.Context) (*dbtest.Server, error){
	"PostgreSQL": new(dbtest.Config).Postgres,
	"MariaDB":    new(dbtest.Config).MariaDB,
}

// newRedis starts a Redis that a test may stop.
func newRedis(ctx context.Context) (*dbtest.Server, error) { return new(dbtest.Config).Redis(ctx) }

// database starts a server, which the test may crash, and makes a database in it; a Redis needs none.
func database(t *testing.T, start func(context.Context) (*dbtest.Server, error)) (db *dbtest.Server, url string) {
	t.Helper()
	db, err := start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Stop)
	switch url = db.DSN; {
	case strings.HasPrefix(url, "mysql"):
		url = dbtest.MariaDBAt(t, db.DSN)[0]
	case strings.HasPrefix(url, "postgres"):
		url = dbtest.PostgresAt(t, db.DSN)
	}
	return db, url
}

// migrate makes the schema of a database; a Redis needs none.
func migrate(t *testing.T, url string) {
	t.Helper()
	var out bytes.Buffer
	if strings.HasPrefix(url, "redis") {
		return
	}
	if code := runMain(t.Context(), []string{"migrate", "--store", url}, nil, &out, &out); code != exitOK {
		t.Fatal(out.String())
	}
}

// TestServeStartsBeforeRedis starts a server before its store, which then starts, crashes, and starts again.
func TestServeStartsBeforeRedis(t *testing.T) {
	t.Parallel()
	testServeStartsBeforeStore(t, newRedis)
}

func TestServeStartsBeforeDatabase(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	for name, startDB := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testServeStartsBeforeStore(t, startDB)
		})
	}
}

func testServeStartsBeforeStore(t *testing.T, startDB func(context.Context) (*dbtest.Server, error)) {
	t.Helper()
	const body = `{"limit":"fixed-window 1000/30d","key":"k"}`
	db, url := database(t, startDB)
	migrate(t, url)
	db.Crash()
	s := start(t, t.TempDir(), "--store", url)
	if status, _, _ := s.get(t, "/livez"); status != http.StatusOK {
		t.Errorf("/livez without a store: status %d, want 200", status)
	}
	for _, path := range []string{"/readyz", "/healthz", "/v1/cells"} {
		status, p, head := s.get(t, path)
		if status != http.StatusServiceUnavailable || p.Type != api.Unavailable ||
			head.Get("Retry-After") == "" {
			t.Errorf("%s without a store: got status %d, %+v, Retry-After %q, want 503", path, status, p, head.Get("Retry-After"))
		}
	}
	if d, status, err := s.take(http.DefaultClient, body); err != nil ||
		status != http.StatusServiceUnavailable || d.Allowed {
		t.Errorf("a take without a store: got status %d, %+v, %v, want 503", status, d, err)
	}
	if err := db.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.waitReady(t, http.StatusOK)
	if d, _, err := s.take(http.DefaultClient, body); err != nil || !d.Allowed || d.Remaining != "999" {
		t.Errorf("the first take: got %+v, %v, want 999 remaining", d, err)
	}
	checkStoreLines := func(wantAway, wantBack int) {
		t.Helper()
		s.waitUntil(t, "a line about the store", func() bool { a, b := s.countStoreLines(); return a >= wantAway && b >= wantBack })
		if away, back := s.countStoreLines(); away != wantAway || back != wantBack {
			t.Errorf("got %d lines of an away store, %d of its return, want %d and %d", away, back, wantAway, wantBack)
		}
	}
	checkStoreLines(1, 1)
	db.Crash()
	s.waitReady(t, http.StatusServiceUnavailable)
	if status, _, _ := s.get(t, "/livez"); status != http.StatusOK {
		t.Errorf("/livez after a crash of the store: status %d, want 200", status)
	}
	checkStoreLines(2, 1)
	if err := db.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.waitReady(t, http.StatusOK)
	checkStoreLines(2, 2)
	if d, status, err := s.take(http.DefaultClient, body); err != nil || status != http.StatusOK || !d.Allowed {
		t.Errorf("a take after the return: got status %d, %+v, %v, want an admission", status, d, err)
	}
	checkStoreLines(2, 2) // one line for each change, though several requests failed
	if output := s.stop(t); strings.Contains(output, "the store is away") {
		t.Errorf("got a second line about the away store: %s", output)
	}
}

// TestServeWaitsForMigrate checks that a server waits for its schema, and says so once.
func TestServeWaitsForMigrate(t *testing.T) {
	t.Parallel()
	url := dbtest.Postgres(t)
	storeTunnel := newTunnel(t, url)
	s := start(t, t.TempDir(), "--store", storeTunnel.url)
	s.waitReady(t, http.StatusServiceUnavailable)
	s.waitUntil(t, "the missing schema in the log",
		func() bool { return strings.Contains(s.out.String(), "run headgate migrate") })
	connections := storeTunnel.accepted.Load()
	s.waitUntil(t, "further attempts", func() bool { return storeTunnel.accepted.Load() > connections+2 })
	if away, _ := s.countStoreLines(); away != 1 {
		t.Errorf("got %d lines about the store, want 1: %s", away, s.out.String())
	}
	migrate(t, url)
	s.waitReady(t, http.StatusOK)
	s.stop(t)
}

// TestWaitStoreTimeout checks that a server exits with 2 after --wait-store, whether it listens already or not, and
// with 0 after a signal while it waits.
func TestWaitStoreTimeout(t *testing.T) {
	t.Parallel()
	const url = "postgres://nobody@127.0.0.1:1/none"
	for _, wait := range []time.Duration{time.Millisecond, 3 * pauses.Welcome} {
		if code, output := serveUntilExit(t, "--store", url, "--wait-store", wait.String()); code != exitError ||
			!strings.Contains(output, "headgate serve: the store was not available within "+wait.String()+": ") ||
			!strings.Contains(output, "store unavailable") {
			t.Errorf("with --wait-store %s: got exit %d, %q, want %d", wait, code, output, exitError)
		}
	}
	for _, sig := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		s := start(t, t.TempDir(), "--store", url)
		s.waitReady(t, http.StatusServiceUnavailable)
		s.stopWith(t, sig)
	}
}

// TestServeExitsIfTheSchemaIsNewer checks that a server does not wait for a schema that is newer.
func TestServeExitsIfTheSchemaIsNewer(t *testing.T) {
	t.Parallel()
	url := dbtest.Postgres(t) // the test changes its schema
	migrate(t, url)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), "update headgate.installed set state = 999"); err != nil {
		t.Fatal(err)
	}
	if code, output := serveUntilExit(t, "--store", url); code != exitError ||
		!strings.Contains(output, "headgate serve: postgres: schema is newer than this binary") {
		t.Errorf("got code %d, %q, want %d and a schema that is newer", code, output, exitError)
	}
}
