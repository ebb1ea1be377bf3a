package main

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sqlite3 "modernc.org/sqlite"

	"github.com/headgate/headgate/server/config"
)

// The limit of a file in pages, for the connection of a server in this process that
// writes to a file of this name.
const (
	cappedFile  = "capped.db"
	cappedPages = 40
)

func init() {
	sqlite3.RegisterConnectionHook(func(c sqlite3.ExecQuerierContext, dsn string) error {
		if !strings.Contains(dsn, cappedFile) || !strings.Contains(dsn, "_txlock=immediate") {
			return nil
		}
		_, err := c.ExecContext(context.Background(), fmt.Sprintf("pragma max_page_count = %d", cappedPages), nil)
		return err
	})
}

// TestAFullDiskAdmitsNobody serves on a real file system that is full.
func TestAFullDiskAdmitsNobody(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("a file system of 600 kB cannot be mounted here, which needs root: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", "-l", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	s := start(t, dir)
	fullDisk(t, s, func() {
		if out, err := exec.Command("mount", "-o", "remount,size=16m", dir).CombinedOutput(); err != nil {
			t.Fatalf("remount: %v: %s", err, out)
		}
	})
}

// TestAFullFileAdmitsNobody serves on a file that may have so many pages at most, and
// needs no rights.
func TestAFullFileAdmitsNobody(t *testing.T) {
	path := filepath.Join(t.TempDir(), cappedFile)
	ctx, stop := context.WithCancel(t.Context())
	stderr, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- serve(ctx, in, serving{config: &config.Config{}, store: "sqlite:" + path, addr: "127.0.0.1:0"})
		in.Close()
	}()
	r := bufio.NewReader(stderr)
	line, err := r.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	_, rest, _ := strings.Cut(line, "http://")
	addr, _, _ := strings.Cut(rest, " ")
	fullDisk(t, &server{url: "http://" + addr}, func() {
		db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(10000)")
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.Exec("delete from cells where key like 'filler%'"); err != nil {
			t.Fatal(err)
		}
	})
}

// fullDisk fills a server's disk, and asks 300 times for one key: at most 5 pass,
// everything else is refused or 503, and health is not 200. Then there is room.
func fullDisk(t *testing.T, s *server, makeRoom func()) {
	t.Helper()
	ask := func(limit, key string) (allowed bool, status int) {
		d, status, err := s.take(http.DefaultClient, fmt.Sprintf(`{"limit":%q,"key":%q}`, limit, key))
		if err != nil {
			t.Fatalf("take: %v", err)
		}
		return d.Allowed, status
	}
	health := func() int {
		res, err := http.Get(s.url + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		return res.StatusCode
	}
	if got := health(); got != http.StatusOK {
		t.Fatalf("health is %d at first", got)
	}
	full := false
	for i := 0; i < 5000 && !full; i++ {
		_, status := ask("token-bucket 5/1h", fmt.Sprintf("filler %d %s", i, strings.Repeat("x", 400)))
		full = status == http.StatusServiceUnavailable
	}
	if !full {
		t.Fatal("the disk never was full")
	}
	unwell := func() {
		t.Helper()
		got := http.StatusOK
		// What is left of a page has room for a few probes, of which one answers for a while.
		for end := time.Now().Add(time.Minute); got == http.StatusOK && time.Now().Before(end); {
			time.Sleep(20 * time.Millisecond)
			got = health()
		}
		if got != http.StatusServiceUnavailable {
			t.Errorf("health on a full disk: %d, want 503", got)
		}
	}
	unwell()
	const limit = "fixed-window 5/30d"
	key := strings.Repeat("one", 150)
	admitted, refused, away := 0, 0, 0
	for range 300 {
		switch allowed, status := ask(limit, key); {
		case status == http.StatusServiceUnavailable:
			away++
		case status != http.StatusOK:
			t.Fatalf("status %d", status)
		case allowed:
			admitted++
		default:
			refused++
		}
	}
	t.Logf("on a full disk: %d admitted, %d refused, %d times 503", admitted, refused, away)
	if admitted > 5 {
		t.Errorf("%d of 5 were admitted on a full disk", admitted)
	}
	unwell()
	makeRoom()
	well := false
	for end := time.Now().Add(time.Minute); !well && time.Now().Before(end); {
		well = health() == http.StatusOK
	}
	if !well {
		t.Fatal("health did not recover with room again")
	}
	for range 20 {
		allowed, status := ask(limit, key)
		if status != http.StatusOK {
			t.Fatalf("with room again: status %d", status)
		}
		if allowed {
			admitted++
		}
	}
	if admitted != 5 {
		t.Errorf("%d of 5 were admitted in all", admitted)
	}
}

// TestHealthNoticesAFileThatIsGone deletes the file under a server.
func TestHealthNoticesAFileThatIsGone(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir)
	const body = `{"limit":"fixed-window 5/30d","key":"k"}`
	if d, status, err := s.take(http.DefaultClient, body); err != nil || !d.Allowed {
		t.Fatalf("%+v, %d, %v", d, status, err)
	}
	for _, name := range []string{"headgate.db", "headgate.db-wal", "headgate.db-shm"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	res, err := http.Get(s.url + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("health without a file: %d, want 503", res.StatusCode)
	}
	if d, status, err := s.take(http.DefaultClient, body); err != nil || status != http.StatusServiceUnavailable {
		t.Errorf("a take without a file: %+v, %d, %v; want 503", d, status, err)
	}
}
