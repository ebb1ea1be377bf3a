package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/store/front"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/sqlite"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestRequestsKeepTheQuota checks that 8 requests at 20/s, of which one is sent again after 1 s, take 1.3 s at least.
func TestRequestsKeepTheQuota(t *testing.T) {
	for _, url := range []string{"sqlite::memory:", "sqlite:" + filepath.Join(t.TempDir(), "quota.db")} {
		db, err := sqlite.Open(t.Context(), url, nil)
		if err != nil {
			t.Fatal(err)
		}
		s := front.New(db, nil)
		server := busyServer()
		limiter := headgate.New(s, &headgate.Config{Timeout: time.Minute}) // a busy machine may need more than 250 ms
		var out bytes.Buffer
		err = call(t.Context(), &out, limiter, headgate.MustParse("token-bucket 20/s burst 1"), server.URL, 8)
		server.Close()
		s.Close()
		var took float64
		if _, end, found := strings.Cut(out.String(), "request 7: 200 OK\n"); found {
			_, _ = fmt.Sscanf(end, "%fs: request 8: 200 OK", &took)
		}
		if err != nil || took < 1.3 || strings.Count(out.String(), "200 OK") != 8 ||
			strings.Count(out.String(), "answers 429: hold back for 1s") != 1 {
			t.Errorf("%s: got %v, %.1f s, want 1.3 s at least:\n%s", url, err, took, &out)
		}
	}
}

func TestRunCallsItsOwnServer(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), &out, "memory:", "", 1); err != nil ||
		!strings.HasSuffix(out.String(), "s: request 1: 200 OK\n") {
		t.Errorf("got %v,\n%s, want one request", err, &out)
	}
}

// TestRequestBeyondMaxWaitIsNotSent checks that a request fails if it would have to wait for more than MaxWait.
func TestRequestBeyondMaxWaitIsNotSent(t *testing.T) {
	server := busyServer()
	defer server.Close()
	client, err := newClient(headgate.New(memory.New(nil), &headgate.Config{Timeout: time.Minute}),
		headgate.MustParse("fixed-window 1/365d"), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := get(t.Context(), client, server.URL); err != nil {
		t.Fatal(err)
	}
	if _, err := get(t.Context(), client, server.URL); err == nil || !strings.Contains(err.Error(), "refuses") {
		t.Errorf("got %v, want a refusal", err)
	}
}
