package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/leaktest"
	"github.com/headgate/headgate/store/memory"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestRequestsKeepTheQuota: 8 requests of 20/s and one repetition take 0.4 s, and the second
// for which the server asked.
func TestRequestsKeepTheQuota(t *testing.T) {
	for _, url := range []string{"memory:", "sqlite:" + filepath.Join(t.TempDir(), "quota.db")} {
		var out bytes.Buffer
		begin := time.Now()
		if err := run(t.Context(), &out, []string{
			"-store", url, "-limit", "token-bucket 20/s burst 1", "-calls",
			"8",
		}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took < 1300*time.Millisecond {
			t.Errorf("%s: took %v", url, took)
		}
		if strings.Count(out.String(), "200 OK") != 8 ||
			strings.Count(out.String(), "answers 429: hold back for 1s") != 1 {
			t.Errorf("%s: got\n%s", url, &out)
		}
	}
}

// TestARefusedRequestIsNotSent: one that would have to wait for more than a minute fails.
func TestARefusedRequestIsNotSent(t *testing.T) {
	server := busyServer()
	defer server.Close()
	client, err := newClient(headgate.New(memory.New(nil), nil), headgate.MustParse("fixed-window 1/365d"), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := get(t.Context(), client, server.URL); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if _, err := get(t.Context(), client, server.URL); err == nil || !strings.Contains(err.Error(), "refuses") {
		t.Errorf("got %v", err)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
}
