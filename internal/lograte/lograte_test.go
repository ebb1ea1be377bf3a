package lograte_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/lograte"
	"github.com/headgate/headgate/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// buffer collects the lines that timers write concurrently.
type buffer struct {
	mu  sync.Mutex
	out bytes.Buffer // guarded by mu
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.String()
}

func (b *buffer) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.out.Reset()
}

// newLogger returns a logger, the buffer it writes to, and its handler. Lines are written without the time.
func newLogger() (*slog.Logger, *buffer, *lograte.Handler) {
	out := new(buffer)
	h := lograte.New(slog.NewTextHandler(
		out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
	return slog.New(h), out, h
}

// lines returns the lines of an output.
func lines(out *buffer) []string {
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

// TestAFloodIsALineASecond logs 5000 records of one class in 5 s, then one of Info. The counts of the lines must add up
// to 5001.
func TestAFloodIsALineASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, out, h := newLogger()
		for i := range 5000 { // in 5 s
			log.Error("request failed", "class", "store unavailable", "n", i)
			time.Sleep(time.Millisecond)
		}
		log.Info("stopping")
		h.Close()
		got := lines(out)
		sum := 0
		for _, line := range got {
			n := 1
			if i := strings.Index(line, "count="); i >= 0 {
				if _, err := fmt.Sscanf(line[i:], "count=%d", &n); err != nil {
					t.Fatal(line, err)
				}
			}
			sum += n
		}
		if len(got) > 8 || len(got) < 6 || got[0] != `level=ERROR msg="request failed" class="store unavailable" n=0` {
			t.Errorf("got %d lines, want 6 to 8: %q", len(got), got)
		}
		if strings.Count(out.String(), "stopping") != 1 || sum != 5001 {
			t.Errorf("got lines for %d records, want 5001: %q", sum, got)
		}
	})
}

func TestEachClassHasItsOwnRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, out, h := newLogger()
		defer h.Close()
		for range 3 {
			log.Error("request failed", "class", "a")
			log.Error("request failed", "class", "b", "count", 10)
			log.With("class", "c").Error("request failed")
			log.Warn("request failed", "class", "a")
			log.Warn("http: TLS handshake error from 10.1.2.3:4567: EOF")
			log.Warn("http: TLS handshake error from 10.1.2.4:4568: EOF")
			log.Info("each of these", "class", "a")
		}
		if got := lines(out); len(got) != 5+3 {
			t.Errorf("got %q at once, want 5 classes, and 3 lines of Info", got)
		}
		out.Reset()
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		want := []string{
			"class=a count=2", "class=b count=20", "class=c count=2",
			"WARN msg=\"request failed\" class=a count=2", "EOF\" count=5",
		}
		for _, w := range want {
			if !strings.Contains(out.String(), w+"\n") {
				t.Errorf("after a second: %s is missing in\n%s", w, out)
			}
		}
		// A class that was quiet for a second is logged at once again.
		time.Sleep(2 * time.Second)
		synctest.Wait()
		out.Reset()
		log.Error("request failed", "class", "a")
		if got := out.String(); got != "level=ERROR msg=\"request failed\" class=a\n" {
			t.Errorf("after a quiet second: got %s, want the line at once", got)
		}
	})
}

func TestTheNumberOfClassesIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, out, h := newLogger()
		for i := range 10_000 {
			log.Error("request failed", "class", fmt.Sprint("class ", i))
		}
		if got := lines(out); len(got) != 101 { // the first of 100 classes, and of the other class
			t.Errorf("got %d lines, want 101", len(got))
		}
		h.Close()
		if got := lines(out); !strings.HasSuffix(got[len(got)-1], "count=9899") {
			t.Errorf("got last line %s of %d, want a count of 9899", got[len(got)-1], len(got)) // 10,000 less 101
		}
		out.Reset()
		log.Error("after the end", "class", "a")
		log.Error("after the end", "class", "a")
		if got := lines(out); len(got) != 2 {
			t.Errorf("after Close: got %q, want both lines", got)
		}
	})
}
