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

// get requests a path of the server.
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

// lines counts the log lines that say that the store is not available, and that it is available again.
func (s *server) lines() (away, back int) {
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

// TestReadyzNamesARedisWithoutMemory: /readyz and GET /v1/me name the store and what it lacks, until there is room.
func TestReadyzNamesARedisWithoutMemory(t *testing.T) {
	t.Parallel()
	redis, url := database(t, newRedis) // not shared: the test changes its settings
	s := startReady(t, t.TempDir(), "--store", url)
	client := redisClient(t, url)
	memory := func(maxMemory string) {
		t.Helper()
		set := client.B().ConfigSet().ParameterValue().ParameterValue("maxmemory", maxMemory).Build()
		if err := client.Do(t.Context(), set).Error(); err != nil {
			t.Fatal(err)
		}
	}
	memory("1")
	s.waitReady(t, http.StatusServiceUnavailable)
	host := strings.TrimPrefix(strings.TrimSuffix(redis.DSN, "/0"), "redis://")
	_, p, _ := s.get(t, "/readyz")
	if p.Type != api.Full || !strings.Contains(p.Detail, host) || !strings.Contains(p.Detail, "its memory is full") {
		t.Errorf("/readyz %+v", p)
	}
	s.waitUntil(t, "a store that is away in /v1/me", func() bool { // /readyz may find it before the server has
		var me api.Me
		s.ask(t, http.MethodGet, "/v1/me", "", &me)
		return me.Away != nil && strings.Contains(me.Away.Store, host)
	})
	memory("0")
	s.waitReady(t, http.StatusOK)
}

// databases start servers that a test may stop, since no other test uses them.
var databases = map[string]func(context.Context) (*dbtest.Server, error){
	"PostgreSQL": new(dbtest.Config).Postgres,
	"MariaDB":    new(dbtest.Config).MariaDB,
}

// newRedis starts a Redis that a test may stop.
func newRedis(ctx context.Context) (*dbtest.Server, error) { return new(dbtest.Config).Redis(ctx) }

// database starts a server that a test may crash, and makes a database in it.
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

// TestAServerStartsBeforeItsStore starts a server whose store comes later, crashes, and comes back.
func TestAServerStartsBeforeItsStore(t *testing.T) {
	t.Parallel()
	serverStartsBeforeStore(t, newRedis)
}

func TestAServerStartsBeforeItsDatabase(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	for name, begin := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			serverStartsBeforeStore(t, begin)
		})
	}
}

func serverStartsBeforeStore(t *testing.T, begin func(context.Context) (*dbtest.Server, error)) {
	t.Helper()
	const body = `{"limit":"fixed-window 1000/30d","key":"k"}`
	db, url := database(t, begin)
	migrate(t, url)
	db.Crash()
	s := start(t, t.TempDir(), "--store", url)
	if status, _, _ := s.get(t, "/livez"); status != http.StatusOK {
		t.Errorf("/livez without a store: %d", status)
	}
	for _, path := range []string{"/readyz", "/healthz", "/v1/cells"} {
		status, p, head := s.get(t, path)
		if status != http.StatusServiceUnavailable || p.Type != api.Unavailable ||
			head.Get("Retry-After") == "" {
			t.Errorf("%s without a store: %d, %+v, Retry-After %q", path, status, p, head.Get("Retry-After"))
		}
	}
	if d, status, err := s.take(http.DefaultClient, body); err != nil ||
		status != http.StatusServiceUnavailable || d.Allowed {
		t.Errorf("a take without a store: %d, %+v, %v", status, d, err)
	}
	if err := db.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.waitReady(t, http.StatusOK)
	if d, _, err := s.take(http.DefaultClient, body); err != nil || !d.Allowed || d.Remaining != "999" {
		t.Errorf("the first take: %+v, %v", d, err)
	}
	lines := func(gone, back int) {
		t.Helper()
		s.waitUntil(t, "a line about the store", func() bool { g, b := s.lines(); return g >= gone && b >= back })
		if g, b := s.lines(); g != gone || b != back {
			t.Errorf("%d lines that it went away, %d that it is back, want %d and %d: %s", g, b, gone, back, s.out.String())
		}
	}
	lines(1, 1)
	db.Crash()
	s.waitReady(t, http.StatusServiceUnavailable)
	if status, _, _ := s.get(t, "/livez"); status != http.StatusOK {
		t.Errorf("/livez after a crash of the store: %d", status)
	}
	lines(2, 1)
	if err := db.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.waitReady(t, http.StatusOK)
	lines(2, 2)
	if d, status, err := s.take(http.DefaultClient, body); err != nil || status != http.StatusOK || !d.Allowed {
		t.Errorf("a take after the return: %d, %+v, %v", status, d, err)
	}
	lines(2, 2) // one line each, though several requests failed
	if said := s.stop(t); strings.Contains(said, "the store is away") {
		t.Errorf("another line says the same: %s", said)
	}
}

// TestAServerWaitsForItsSchema: a server waits for what can be put right at the store.
func TestAServerWaitsForItsSchema(t *testing.T) {
	t.Parallel()
	url := dbtest.Postgres(t)
	link := newTunnel(t, url)
	s := start(t, t.TempDir(), "--store", link.url)
	s.waitReady(t, http.StatusServiceUnavailable)
	s.waitUntil(t, "what is missing",
		func() bool { return strings.Contains(s.out.String(), "run headgate migrate") })
	begin := link.accepted.Load()
	s.waitUntil(t, "that it has tried again", func() bool { return link.accepted.Load() > begin+2 })
	if away, _ := s.lines(); away != 1 {
		t.Errorf("%d lines: %s", away, s.out.String())
	}
	migrate(t, url)
	s.waitReady(t, http.StatusOK)
	s.stop(t)
}

// TestTheWaitForAStoreEnds: after --wait-store a server exits with 2, whether it listens already or not; after a signal
// it exits with 0.
func TestTheWaitForAStoreEnds(t *testing.T) {
	t.Parallel()
	const url = "postgres://nobody@127.0.0.1:1/none"
	for _, wait := range []time.Duration{time.Millisecond, 3 * pauses.Welcome} {
		if code, said := serveUntilExit(t, "--store", url, "--wait-store", wait.String()); code != exitError ||
			!strings.Contains(said, "headgate serve: the store was not available within "+wait.String()+": ") ||
			!strings.Contains(said, "store unavailable") {
			t.Errorf("after %s it ended with %d: %q", wait, code, said)
		}
	}
	for _, sig := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		s := start(t, t.TempDir(), "--store", url)
		s.waitReady(t, http.StatusServiceUnavailable)
		s.end(t, sig)
	}
}

// TestASchemaThatIsNewerIsNotWaitedFor: such a server exits at once, since waiting does not help.
func TestASchemaThatIsNewerIsNotWaitedFor(t *testing.T) {
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
	if code, said := serveUntilExit(t, "--store", url); code != exitError ||
		!strings.Contains(said, "headgate serve: postgres: schema is newer than this binary") {
		t.Errorf("code %d; it said %q", code, said)
	}
}
