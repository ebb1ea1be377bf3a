package main

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sqlite3 "modernc.org/sqlite"

	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/run"
)

// The SQLite file cappedFile of a server in this process may have up to cappedPages pages.
const (
	cappedFile  = "capped.db"
	cappedPages = 40
)

func init() {
	sqlite3.RegisterConnectionHook(func(c sqlite3.ExecQuerierContext, dsn string) error {
		if !strings.Contains(dsn, cappedFile) || !strings.Contains(dsn, "_txlock=immediate") { // the one that writes
			return nil
		}
		_, err := c.ExecContext(context.Background(), fmt.Sprintf("pragma max_page_count = %d", cappedPages), nil)
		return err
	})
}

// TestAFullFileLosesNoAdmission serves from a file of bounded size. Unlike a small disk this needs no rights.
func TestAFullFileLosesNoAdmission(t *testing.T) {
	path := filepath.Join(t.TempDir(), cappedFile)
	ctx, stop := context.WithCancel(t.Context())
	logReader, logWriter := io.Pipe()
	serveErr := make(chan error, 1)
	go func() {
		flags := func(name string) (string, bool) {
			value := map[string]string{
				"store": "sqlite:" + path, "http": "127.0.0.1:0", "deadline": "1m", // for slow disks
			}[name]
			return value, value != ""
		}
		c := run.Config{File: &config.Config{}, ReadFile: config.ReadFile, Log: logWriter, Flags: flags}
		serveErr <- run.Serve(ctx, c)
		logWriter.Close()
	}()
	lines := bufio.NewReader(logReader)
	line := ""
	for !strings.Contains(line, "http://") { // a line of the log may come first
		var err error
		if line, err = lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	t.Cleanup(func() {
		stop()
		if err := <-serveErr; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	_, rest, _ := strings.Cut(line, "http://")
	addr, _, _ := strings.Cut(rest, " ")
	f := newFullStore(&server{url: "http://" + addr})
	f.fill = func(*testing.T) {} // new keys fill the file
	f.free = func(t *testing.T) {
		db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(10000)")
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.Exec("delete from cells where key like 'new%'"); err != nil {
			t.Fatal(err)
		}
		maps.DeleteFunc(f.admitted, func(key string, _ int) bool { return strings.HasPrefix(key, "new") })
	}
	f.fillDisk(t)
	f.free(t)
	f.waitRecovered(t)
	f.compareWithStore(t)
}

// TestHealthzFailsAfterTheFileIsDeleted deletes the SQLite file of a server: /healthz and take get 503.
func TestHealthzFailsAfterTheFileIsDeleted(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir)
	const body = `{"limit":"fixed-window 5/30d","key":"k"}`
	if d, status, err := s.take(http.DefaultClient, body); err != nil || !d.Allowed {
		t.Fatalf("got %+v, %d, %v, want an admission", d, status, err)
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
		t.Errorf("/healthz without a file: %d, want 503", res.StatusCode)
	}
	if d, status, err := s.take(http.DefaultClient, body); err != nil || status != http.StatusServiceUnavailable {
		t.Errorf("a take without a file: %+v, %d, %v; want 503", d, status, err)
	}
}
