package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	testcommand "github.com/headgate/headgate/internal/testing/command"
	"github.com/headgate/headgate/internal/testing/tier"
)

// TestBatchFloodTakesLittleMemory announces 2,000 bodies that never come, and sends three batches of 1.4 million empty
// requests, all this three times. The server answers another caller meanwhile. Without bounds it took 5 GB.
func TestBatchFloodTakesLittleMemory(t *testing.T) {
	tier.Nightly(t)
	const maxPeakKiB = 300 << 10
	// This binary may have the race detector, which takes more memory than the server.
	path, err := testcommand.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(t, t.TempDir(), "--store", "memory:")
	s.cmd.Path = path
	s.startProcess(t)
	s.waitUntil(t, "that it listens", s.listens)
	peakMemory(t, s) // skips the test where the peak is unknown
	for range 3 {
		floodServer(t, s)
	}
	peak := peakMemory(t, s)
	t.Logf("peak memory %d MB", peak>>10)
	if peak > maxPeakKiB {
		t.Errorf("the server took %d KiB at its peak, want at most %d", peak, maxPeakKiB)
	}
}

// floodServer stalls bodies and sends batches, while another caller takes.
func floodServer(t *testing.T, s *server) {
	t.Helper()
	const stalledBodies = 2000
	addr := strings.TrimPrefix(s.url, "http://")
	for range stalledBodies {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST /v1/batch HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1048575\r\n\r\n")
	}
	var flood sync.WaitGroup
	body := []byte(`{"requests":[` + strings.Repeat("{},", 1_397_999) + `{}]}`)
	for range 3 {
		flood.Go(func() {
			res, err := http.Post(s.url+"/v1/batch", "application/json", bytes.NewReader(body))
			if err != nil {
				t.Errorf("a batch: %v", err)
				return
			}
			defer res.Body.Close()
			if text, _ := io.ReadAll(res.Body); res.StatusCode != http.StatusBadRequest ||
				!strings.Contains(string(text), "more than 10000") {
				t.Errorf("a batch: got status %d, %.200s, want 400", res.StatusCode, text)
			}
		})
	}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for range 1000 {
		d, status, err := s.take(client, `{"limit":"token-bucket 100000/s","key":"another"}`)
		if err != nil || status != http.StatusOK || !d.Allowed {
			t.Fatalf("another caller: got status %d, %+v, %v, want an admission", status, d, err)
		}
	}
	flood.Wait()
}

// peakMemory returns the peak memory of a server process, in KiB.
func peakMemory(t *testing.T, s *server) (peak int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		t.Skipf("the memory of a process is not known here: %v", err)
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	if _, err := fmt.Sscan(rest, &peak); err != nil {
		t.Fatal(err)
	}
	return peak
}

// TestFailedRequestsAreLoggedOnceASecond has 50 callers take, half of them in batches, while Redis is stopped. With a
// line for each failure there were 11,555 in 5 s.
func TestFailedRequestsAreLoggedOnceASecond(t *testing.T) {
	t.Parallel()
	redis, err := newRedis(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := startReady(t, t.TempDir(), "--store", redis.DSN)
	redis.Stop()
	const callers, requestsEach = 50, 20
	var group sync.WaitGroup
	for i := range callers {
		path, body := "/v1/take", `{"limit":"token-bucket 5/1h","key":"k"}`
		if i%2 == 0 {
			path, body = "/v1/batch", `{"requests":[`+strings.Repeat(body+",", 9)+body+`]}`
		}
		group.Go(func() {
			for range requestsEach {
				res, err := http.Post(s.url+path, "application/json", strings.NewReader(body))
				if err != nil {
					t.Errorf("%s: %v", path, err)
					return
				}
				text, _ := io.ReadAll(res.Body)
				res.Body.Close()
				if res.StatusCode != http.StatusServiceUnavailable && !strings.Contains(string(text), `"status":503`) {
					t.Errorf("%s: got status %d, %s, want 503", path, res.StatusCode, text)
				}
			}
		})
	}
	group.Wait()
	output := s.stop(t)
	lineCount, failureCount := 0, 0
	var stamps []time.Time
	for line := range strings.Lines(output) {
		if _, rest, ok := strings.Cut(line, "time="); ok {
			text, _, _ := strings.Cut(rest, " ")
			stamp, err := time.Parse(time.RFC3339Nano, text)
			if err != nil {
				t.Fatal(err)
			}
			stamps = append(stamps, stamp)
		}
		if strings.Contains(line, `msg="request failed"`) {
			n := 1
			if _, text, ok := strings.Cut(line, " count="); ok {
				_, _ = fmt.Sscan(text, &n)
			}
			lineCount, failureCount = lineCount+1, failureCount+n
		}
	}
	seconds := int(stamps[len(stamps)-1].Sub(stamps[0])/time.Second) + 1 // the last line is about the stop
	t.Logf("%d requests failed within %d seconds; %d lines stand for %d:\n%s", callers*requestsEach, seconds, lineCount, failureCount, output)
	// Each class of error has a line a second, and there are three classes at most.
	if lineCount == 0 || lineCount > 3*(seconds+2) || failureCount < callers*requestsEach {
		t.Errorf("got %d lines for %d of %d failed requests", lineCount, failureCount, callers*requestsEach)
	}
}
