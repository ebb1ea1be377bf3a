package redis

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/dbtest"
)

// knowsAReplica reports whether a Sentinel knows a replica of its primary, and finds it well.
func knowsAReplica(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	fmt.Fprint(conn, "SENTINEL REPLICAS main\r\nQUIT\r\n")
	text, _ := io.ReadAll(conn)
	return strings.HasPrefix(string(text), "*1\r\n") && strings.Contains(string(text), "master-link-status\r\n$2\r\nok")
}

func TestSentinelNamesTheNextPrimary(t *testing.T) {
	tries(t, func() (late string) {
		if gap := losesItsPrimary(t); gap > 7*time.Second {
			return fmt.Sprintf("no answer for %v", gap)
		}
		return ""
	})
}

// losesItsPrimary stops the primary that a Sentinel watches, and returns for how long there was no answer.
func losesItsPrimary(t *testing.T) time.Duration {
	t.Helper()
	portOf := func(s *dbtest.Server) string {
		_, port, _ := net.SplitHostPort(strings.TrimSuffix(strings.TrimPrefix(s.DSN, "redis://"), "/0"))
		return port
	}
	primary := own(t, "--repl-diskless-sync-delay", "0")
	own(t, "--replicaof", "127.0.0.1", portOf(primary))
	addr := dbtest.Sentinel(t, portOf(primary))
	var s *Store
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		var err error
		if s, err = Open(context.Background(), "redis://"+addr+"/?master=main", &Config{MaxKeys: 5}); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	defer s.Close()
	// until the replica is known and in step
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		info, err := s.info(context.Background(), "replication")
		if err == nil && strings.Contains(info["slave0"], "state=online") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("no replica: %v, %v", info, err)
		}
	}
	fill(t, s, "full", "own", 5, hourly)
	sweep(t, s)
	full := roomOf(t, s, "full")
	if !full.Sharing {
		t.Errorf("a limit of 5 keys: %+v, want it full", full)
	}
	write(t, s, 0, limitItem(0), overrideItem(0))
	// Sentinel asks a primary for its replicas every ten seconds.
	for deadline := time.Now().Add(2 * time.Minute); !knowsAReplica(addr); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("Sentinel knows no replica")
		}
	}
	time.Sleep(time.Second) // so long Sentinel may take to hear from it
	h := startHammer(s, asker(t, "k", 1, 10))
	time.Sleep(500 * time.Millisecond)
	h.lost(primary.Stop)
	h.end(t)
	if h.Gap < 500*time.Millisecond {
		t.Errorf("no answer for %v", h.Gap)
	}
	if out := apply(t, s, takeOne("full", "new", hourly, 0))[0]; !out.Shared ||
		roomOf(t, s, "full").Generation != full.Generation {
		t.Errorf("the next primary: %+v, want the same shared cell", out)
	}
	if got := read(t, s, 0, 1); len(got) != 1 || got[0] != limitItem(0) {
		t.Errorf("the next primary has %+v, want the limit that was written before", got)
	}
	write(t, s, 1, limitItem(1))
	return h.Gap
}
