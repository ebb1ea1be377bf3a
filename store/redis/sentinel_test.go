package redis

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/tier"
)

// hasHealthyReplica reports whether a Sentinel knows a healthy replica of its primary.
func hasHealthyReplica(addr string) bool {
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

func TestSentinelFailsOverToTheReplica(t *testing.T) {
	tier.Engines(t)
	portOf := func(s *dbtest.Server) string {
		_, port, _ := net.SplitHostPort(strings.TrimSuffix(strings.TrimPrefix(s.DSN, "redis://"), "/0"))
		return port
	}
	primary := startServer(t, "--repl-diskless-sync-delay", "0")
	startServer(t, "--replicaof", "127.0.0.1", portOf(primary))
	addr := dbtest.Sentinel(t, portOf(primary))
	var s *Store
	await.NoError(t, "a primary that Sentinel names", func() (err error) {
		s, err = Open(context.Background(), "redis://"+addr+"/?master=main", nil)
		return err
	})
	defer s.Close()
	replication := func() map[string]string {
		info, err := readInfo(context.Background(), s.client, "replication")
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	await.Until(t, "a replica", func() bool { return strings.Contains(replication()["slave0"], "state=online") })
	mustWrite(t, s, 0, limitItem(0), overrideItem(0))
	writtenOffset := parseInt(t, replication()["master_repl_offset"])
	await.Until(t, "a replica that has what was written", func() bool {
		_, offset, _ := strings.Cut(replication()["slave0"], "offset=")
		offset, _, _ = strings.Cut(offset, ",")
		return parseInt(t, offset) >= writtenOffset
	})
	// Sentinel asks a primary for its replicas every ten seconds.
	await.Until(t, "a replica that Sentinel knows", func() bool { return hasHealthyReplica(addr) })
	newCallers(s, newAsker(t, "k", 1, 10)).loseAndRecover(t, primary.Stop, func() {})
	if got := mustRead(t, s, 0, 1); len(got) != 1 || got[0] != limitItem(0) {
		t.Errorf("the next primary has %+v, want the limit that the first one got", got)
	}
	mustWrite(t, s, 1, limitItem(1))
}

func parseInt(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
