package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/dbtest"
)

// TestAFloodTakesLittleMemoryAndKeepsNobodyWaiting announces 2,000 bodies that never
// come and sends three batches of 1.4 million empty requests meanwhile, to a server
// process. Before, it took 5 GB, and others waited 7 s.
func TestAFloodTakesLittleMemoryAndKeepsNobodyWaiting(t *testing.T) {
	const stalled, most = 2000, 300 << 10 // KiB
	s := start(t, t.TempDir(), "--store", "memory:")
	peakMemory(t, s) // or there is nothing to see here
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
	var took []time.Duration
	client := &http.Client{Transport: &http.Transport{}}
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		start := time.Now()
		d, status, err := s.take(client, `{"limit":"token-bucket 1000/s","key":"another"}`)
		if err != nil || status != http.StatusOK || !d.Allowed {
			t.Fatalf("another caller: status %d, %+v, %v", status, d, err)
		}
		took = append(took, time.Since(start))
	}
	flood.Wait()
	slices.Sort(took)
	peak, p99, worst := peakMemory(t, s), took[len(took)*99/100], took[len(took)-1]
	t.Logf("peak memory %d MB; another caller asked %d times: p50 %v, p99 %v, at most %v", peak>>10, len(took),
		took[len(took)/2], p99, worst)
	if peak > most {
		t.Errorf("the server took %d KiB at its peak, want at most %d", peak, most)
	}
	// What runs beside the test counts too, so that a single answer may be late.
	if p99 > 50*time.Millisecond || worst > time.Second {
		t.Errorf("another caller was answered after %v at p99 and %v at most, want 50ms", p99, worst)
	}
}

// peakMemory returns the most memory that a process has had, in KiB.
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

// TestAStoreThatIsAwayIsALineASecond stops Redis under 50 callers. Before, it was a line
// for each of them: 11,555 in 5 s.
func TestAStoreThatIsAwayIsALineASecond(t *testing.T) {
	redis, err := dbtest.StartRedis(t.Context(), "--io-threads", "1") // one of our own
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, t.TempDir(), "--store", redis.DSN)
	redis.Stop()
	const seconds = 3
	var failed atomic.Int64
	var callers sync.WaitGroup
	for i := range 50 {
		path, body := "/v1/take", `{"limit":"token-bucket 5/1h","key":"k"}`
		if i%2 == 0 {
			path, body = "/v1/batch", `{"requests":[`+strings.Repeat(body+",", 9)+body+`]}`
		}
		callers.Go(func() {
			for end := time.Now().Add(seconds * time.Second); time.Now().Before(end); {
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
				failed.Add(1)
			}
		})
	}
	callers.Wait()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait()
	lines := strings.Split(strings.TrimSpace(s.out.String()), "\n")
	count, counted := 0, 0
	for _, line := range lines {
		if strings.Contains(line, `msg="request failed"`) {
			n := 1
			if _, text, ok := strings.Cut(line, " count="); ok {
				_, _ = fmt.Sscan(text, &n)
			}
			count, counted = count+1, counted+n
		}
	}
	t.Logf("%d requests failed; %d lines stand for %d:\n%s", failed.Load(), count, counted, strings.Join(lines, "\n"))
	// A few classes at most: nothing done, not known, and perhaps no answer in time.
	if count == 0 || count > 3*(seconds+2) || int64(counted) < failed.Load() {
		t.Errorf("%d lines stand for %d of %d failed requests", count, counted, failed.Load())
	}
}
