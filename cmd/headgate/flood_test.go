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
	const most = 300 << 10 // KiB
	s := start(t, t.TempDir(), "--store", "memory:")
	peakMemory(t, s) // or there is nothing to see here
	calm := answers(t, s, 200*time.Millisecond)
	// A slow machine takes 50 ms for few answers, and may pause, so the best of three tries is what counts.
	soon := max(50*time.Millisecond, 20*calm[len(calm)/2])
	for try := 1; ; try++ {
		took := flooded(t, s)
		peak, p99, worst := peakMemory(t, s), took[len(took)*99/100], took[len(took)-1]
		t.Logf("peak memory %d MB; another caller asked %d times: p50 %v, p99 %v, at most %v; without a flood p50 %v",
			peak>>10, len(took), took[len(took)/2], p99, worst, calm[len(calm)/2])
		if peak > most {
			t.Fatalf("the server took %d KiB at its peak, want at most %d", peak, most)
		}
		if p99 <= soon && worst <= 20*soon {
			break
		}
		if try == 3 {
			t.Fatalf("another caller was answered after %v at p99 and %v at most, want %v", p99, worst, soon)
		}
	}
}

// flooded stalls bodies and sends batches, and returns how long the answers to another caller took meanwhile, sorted.
func flooded(t *testing.T, s *server) []time.Duration {
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
	took := answers(t, s, 3*time.Second)
	flood.Wait()
	return took
}

// answers asks again and again as another caller, and returns how long the answers took, sorted.
func answers(t *testing.T, s *server, lasts time.Duration) (took []time.Duration) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{}}
	end := time.Now().Add(lasts)
	for len(took) < 100 || time.Now().Before(end) {
		start := time.Now()
		d, status, err := s.take(client, `{"limit":"token-bucket 1000/s","key":"another"}`)
		if err != nil || status != http.StatusOK || !d.Allowed {
			t.Fatalf("another caller: status %d, %+v, %v", status, d, err)
		}
		took = append(took, time.Since(start))
		time.Sleep(2 * time.Millisecond)
	}
	slices.Sort(took)
	return took
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
	begin := time.Now()
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
	<-s.over // it has said all: Wait closes the pipe, and what was not read by then is lost
	_ = s.cmd.Wait()
	took := int(time.Since(begin)/time.Second) + 1 // more than 3 s where the machine pauses
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
	if count == 0 || count > 3*(took+1) || int64(counted) < failed.Load() {
		t.Errorf("%d lines stand for %d of %d failed requests", count, counted, failed.Load())
	}
}
