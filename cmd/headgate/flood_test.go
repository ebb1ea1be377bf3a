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

// TestAFloodTakesLittleMemory announces 2,000 bodies that never come and sends three batches of 1.4 million empty
// requests meanwhile. The server answers other callers all the while. Before, it took 5 GB.
func TestAFloodTakesLittleMemory(t *testing.T) {
	tier.Nightly(t)
	const maxPeak = 300 << 10 // KiB
	// The race detector takes more memory than the server.
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
	if peak > maxPeak {
		t.Errorf("the server took %d KiB at its peak, want at most %d", peak, maxPeak)
	}
}

// floodServer stalls bodies and sends batches, while another caller takes.
func floodServer(t *testing.T, s *server) {
	t.Helper()
	const stalled = 2000
	addr := strings.TrimPrefix(s.url, "http://")
	for range stalled {
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
				t.Error(err)
				return
			}
			defer res.Body.Close()
			if text, _ := io.ReadAll(res.Body); res.StatusCode != http.StatusBadRequest ||
				!strings.Contains(string(text), "more than 10000") {
				t.Errorf("a batch: status %d, %.200s", res.StatusCode, text)
			}
		})
	}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for range 1000 {
		d, status, err := s.take(client, `{"limit":"token-bucket 100000/s","key":"another"}`)
		if err != nil || status != http.StatusOK || !d.Allowed {
			t.Fatalf("another caller: status %d, %+v, %v", status, d, err)
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

// TestAStoreThatIsAwayIsLoggedOnceASecond has 50 callers take while the Redis is stopped. Before, each
// failure was a line: 11,555 in 5 s.
func TestAStoreThatIsAwayIsLoggedOnceASecond(t *testing.T) {
	t.Parallel()
	redis, err := newRedis(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := startReady(t, t.TempDir(), "--store", redis.DSN)
	redis.Stop()
	const callers, times = 50, 20
	var asking sync.WaitGroup
	for i := range callers {
		path, body := "/v1/take", `{"limit":"token-bucket 5/1h","key":"k"}`
		if i%2 == 0 {
			path, body = "/v1/batch", `{"requests":[`+strings.Repeat(body+",", 9)+body+`]}`
		}
		asking.Go(func() {
			for range times {
				res, err := http.Post(s.url+path, "application/json", strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				text, _ := io.ReadAll(res.Body)
				res.Body.Close()
				if res.StatusCode != http.StatusServiceUnavailable && !strings.Contains(string(text), `"status":503`) {
					t.Errorf("%s: status %d, %s", path, res.StatusCode, text)
				}
			}
		})
	}
	asking.Wait()
	said := s.stop(t)
	count, counted := 0, 0
	var stamps []time.Time
	for line := range strings.Lines(said) {
		if _, rest, ok := strings.Cut(line, "time="); ok {
			text, _, _ := strings.Cut(rest, " ")
			at, err := time.Parse(time.RFC3339Nano, text)
			if err != nil {
				t.Fatal(err)
			}
			stamps = append(stamps, at)
		}
		if strings.Contains(line, `msg="request failed"`) {
			n := 1
			if _, text, ok := strings.Cut(line, " count="); ok {
				_, _ = fmt.Sscan(text, &n)
			}
			count, counted = count+1, counted+n
		}
	}
	took := int(stamps[len(stamps)-1].Sub(stamps[0])/time.Second) + 1 // the last line says that it stops
	t.Logf("%d requests failed within %d seconds; %d lines stand for %d:\n%s", callers*times, took, count, counted, said)
	// Lines are counted for each class of error, and there are three at most.
	if count == 0 || count > 3*(took+2) || counted < callers*times {
		t.Errorf("%d lines stand for %d of %d failed requests", count, counted, callers*times)
	}
}
