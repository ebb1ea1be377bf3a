package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/server/api"
)

// get asks one path.
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

// ready waits until /readyz has a status.
func (s *server) ready(t *testing.T, want int) {
	t.Helper()
	s.until(t, time.Minute, "status of /readyz "+http.StatusText(want), func() bool {
		status, _, _ := s.get(t, "/readyz")
		return status == want
	})
}

// lines are the log lines about whether the store is available.
func (s *server) lines() (away, back int) {
	text := s.out.String()
	return strings.Count(text, `msg="the store is not available"`), strings.Count(text, `msg="the store is available"`)
}

// away are the database servers that can be away. With options they are never those of
// the environment.
var away = map[string]func(context.Context) (*dbtest.Server, error){
	"PostgreSQL": dbtest.NewPostgres,
	"MariaDB": func(ctx context.Context) (*dbtest.Server, error) {
		return dbtest.StartMariaDB(ctx, "--max-connections=100")
	},
	"Redis": func(ctx context.Context) (*dbtest.Server, error) { return dbtest.StartRedis(ctx, "--timeout", "0") },
}

// database starts a server that may crash, and makes a database in it.
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
	if code := run(t.Context(), []string{"migrate", "--store", url}, nil, &out, &out); code != exitOK {
		t.Fatal(out.String())
	}
}

// TestAServerStartsBeforeItsStore, which comes later, crashes, and comes back.
func TestAServerStartsBeforeItsStore(t *testing.T) {
	t.Parallel()
	const body = `{"limit":"fixed-window 1000/30d","key":"k"}`
	for name, begin := range away {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
			s.ready(t, http.StatusOK)
			if d, _, err := s.take(http.DefaultClient, body); err != nil || !d.Allowed || d.Remaining != 999 {
				t.Errorf("the first take: %+v, %v", d, err)
			}
			lines := func(gone, back int) {
				t.Helper()
				s.until(t, time.Minute, "a line about the store", func() bool { g, b := s.lines(); return g >= gone && b >= back })
				if g, b := s.lines(); g != gone || b != back {
					t.Errorf("%d lines that it went away, %d that it is back, want %d and %d: %s", g, b, gone, back, s.out.String())
				}
			}
			lines(1, 1)
			db.Crash()
			s.ready(t, http.StatusServiceUnavailable)
			if status, _, _ := s.get(t, "/livez"); status != http.StatusOK {
				t.Errorf("/livez after a crash of the store: %d", status)
			}
			lines(2, 1)
			if err := db.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.ready(t, http.StatusOK)
			lines(2, 2)
			if d, status, err := s.take(http.DefaultClient, body); err != nil || status != http.StatusOK || !d.Allowed {
				t.Errorf("a take after the return: %d, %+v, %v", status, d, err)
			}
			lines(2, 2) // also where several requests found it away
			if said := s.stop(t); strings.Contains(said, "the store is away") {
				t.Errorf("another line says the same: %s", said)
			}
		})
	}
}

// TestAServerWaitsForItsSchema: what can be put right at the store is waited for.
func TestAServerWaitsForItsSchema(t *testing.T) {
	t.Parallel()
	url := dbtest.Postgres(t)
	s := start(t, t.TempDir(), "--store", url)
	s.ready(t, http.StatusServiceUnavailable)
	s.until(t, time.Minute, "what is missing",
		func() bool { return strings.Contains(s.out.String(), "run headgate migrate") })
	time.Sleep(2 * time.Second)
	if away, _ := s.lines(); away != 1 {
		t.Errorf("%d lines: %s", away, s.out.String())
	}
	migrate(t, url)
	s.ready(t, http.StatusOK)
	s.stop(t)
}

// TestTheWaitEnds by its limit with status 2, and by SIGTERM with 0, at once.
func TestTheWaitEnds(t *testing.T) {
	t.Parallel()
	db, url := database(t, away["PostgreSQL"])
	db.Crash()
	for _, wait := range []time.Duration{2 * time.Second, 10 * time.Second, 30 * time.Second} {
		asked, beyond := waitEnds(t, url, wait)
		if asked && beyond <= 4*time.Second {
			break
		}
		if wait == 30*time.Second { // until then, the machine may have paused
			t.Errorf("a wait of %s ended %s late; it listened meanwhile: %v", wait, beyond, asked)
		}
	}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		var took []time.Duration
		for len(took) < 3 && (len(took) == 0 || took[len(took)-1] > 2*time.Second) {
			s := start(t, t.TempDir(), "--store", url)
			s.ready(t, http.StatusServiceUnavailable)
			begin := time.Now()
			if err := s.cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			<-s.over
			if err := s.cmd.Wait(); err != nil {
				t.Errorf("%s: %v", sig, err)
			}
			took = append(took, time.Since(begin))
		}
		if slices.Min(took) > 2*time.Second {
			t.Errorf("%s: it ended after %v", sig, took)
		}
	}
}

// waitEnds starts a server that waits for a store that is away. It returns whether the server
// answered meanwhile, and how long after the wait it ended.
func waitEnds(t *testing.T, url string, wait time.Duration) (asked bool, beyond time.Duration) {
	t.Helper()
	begin := time.Now()
	s := launch(t, t.TempDir(), "--store", url, "--wait-store", wait.String())
	for ended := false; !ended; {
		select {
		case <-s.over:
			ended = true
		case <-time.After(20 * time.Millisecond):
		}
		if asked || !s.listens() {
			continue
		}
		if res, err := http.Get(s.url + "/readyz"); err == nil {
			res.Body.Close()
			if asked = true; res.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("while it waits: %d", res.StatusCode)
			}
		}
	}
	_ = s.cmd.Wait()
	took := time.Since(begin)
	if took < wait || s.cmd.ProcessState.ExitCode() != exitError {
		t.Errorf("it ended after %s with status %d", took, s.cmd.ProcessState.ExitCode())
	}
	if said := s.out.String(); !strings.Contains(said, "headgate serve: the store was not available within "+
		wait.String()+": postgres: connect: store unavailable") {
		t.Errorf("it said %q", said)
	}
	return asked, took - wait
}

// TestASchemaThatIsNewerIsNotWaitedFor: waiting cures it as little as a wrong URL.
func TestASchemaThatIsNewerIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	url := dbtest.Postgres(t)
	migrate(t, url)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), "update headgate.installed set state = 999"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var out output
	begin := time.Now()
	if code := run(ctx, []string{"serve", "--http", "127.0.0.1:0", "--store", url}, nil, &out,
		&out); code != exitError || time.Since(begin) > 20*time.Second {
		t.Errorf("code %d after %s", code, time.Since(begin))
	}
	if said := out.String(); !strings.Contains(said, "headgate serve: postgres: schema is newer than this binary") {
		t.Errorf("it said %q", said)
	}
}
