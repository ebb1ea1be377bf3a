package redis_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/storetest"
)

// adminClient sends any command to a server, as an administrator does.
type adminClient struct {
	t       *testing.T
	client  rueidis.Client
	address string
}

func newAdminClient(t *testing.T, dsn string) *adminClient {
	t.Helper()
	option, err := rueidis.ParseURL(dsn)
	if err != nil {
		t.Fatal(err)
	}
	c, err := rueidis.NewClient(option)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &adminClient{t, c, option.InitAddress[0]}
}

func (c *adminClient) do(words ...string) rueidis.RedisResult {
	c.t.Helper()
	answer := c.client.Do(c.t.Context(), c.client.B().Arbitrary(words...).Build())
	if err := answer.Error(); err != nil {
		c.t.Fatalf("%.100q: %v", words, err)
	}
	return answer
}

// TestDoctor changes one setting of its server after another, and checks what Examine finds.
func TestDoctor(t *testing.T) {
	t.Parallel()
	args := []string{"--appendonly", "yes", "--dbfilename", snapshotFile}
	server, err := (&dbtest.Config{Args: args}).Redis(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	s, c := open(t, server.DSN), newAdminClient(t, server.DSN)
	storetest.FindsNothing(t, s)
	for _, tt := range []struct {
		severity                  store.Severity
		check, remedy             string
		setting, value, goodValue string
	}{
		{store.Note, "eviction", "noeviction", "maxmemory-policy", "allkeys-lru", "noeviction"},
		{store.Wrong, "memory", "maxmemory", "maxmemory", "1000000", "0"},
		{store.Note, "durability", "appendonly yes", "appendonly", "no", "yes"},
		{store.Wrong, "connections", "maxclients", "maxclients", "2", "10000"},
	} {
		c.do("CONFIG", "SET", tt.setting, tt.value)
		storetest.Finds(t, s, tt.severity, tt.check, tt.remedy)
		c.do("CONFIG", "SET", tt.setting, tt.goodValue)
	}
	c.do("ACL", "SETUSER", "poor", "on", "nopass", "~*", "&*", "+@all", "-info")
	poor := open(t, strings.Replace(server.DSN, "redis://", "redis://poor:any@", 1))
	storetest.Finds(t, poor, store.Note, "rights", "+info")
	expectReplicaFindings(t, s, c)
	expectSnapshotFindings(t, s, c)
	c.do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	c.do("CONFIG", "SET", "maxmemory", "20000000")
	storetest.Finds(t, s, store.Wrong, "eviction", "noeviction")
	for i := range 300 {
		c.do("SET", strconv.Itoa(i), strings.Repeat("x", 100_000))
	}
	storetest.Finds(t, s, store.Wrong, "evicted", "maxmemory-policy noeviction")
}

// expectReplicaFindings gives the server a replica for a while, and examines both.
func expectReplicaFindings(t *testing.T, s store.Doctor, c *adminClient) {
	t.Helper()
	replica, err := (&dbtest.Config{Args: []string{"--appendonly", "yes"}}).Redis(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer replica.Stop()
	host, port, err := net.SplitHostPort(c.address)
	if err != nil {
		t.Fatal(err)
	}
	newAdminClient(t, replica.DSN).do("REPLICAOF", host, port)
	waitForInfo(t, c, "connected_slaves:1")
	storetest.Finds(t, s, store.Note, "replication", "min-replicas-to-write")
	storetest.Finds(t, open(t, replica.DSN), store.Wrong, "primary", "name the primary")
}

// expectSnapshotFindings examines the server while a folder stands where it puts its snapshots.
func expectSnapshotFindings(t *testing.T, s store.Doctor, c *adminClient) {
	t.Helper()
	config, err := c.do("CONFIG", "GET", "dir").AsStrMap()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(config["dir"], snapshotFile)
	if err := errors.Join(os.RemoveAll(path), os.MkdirAll(filepath.Join(path, "x"), 0o700)); err != nil {
		t.Fatal(err)
	}
	c.do("BGSAVE", "SCHEDULE")
	waitForInfo(t, c, "rdb_last_bgsave_status:err")
	storetest.Finds(t, s, store.Wrong, "snapshots", "make room on its disk")
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	c.do("BGSAVE", "SCHEDULE")
	waitForInfo(t, c, "rdb_last_bgsave_status:ok")
}

// snapshotFile is the file that the server saves to.
const snapshotFile = "snapshot.rdb"

// waitForInfo waits until INFO contains a line.
func waitForInfo(t *testing.T, c *adminClient, line string) {
	t.Helper()
	await.Until(t, line+" in INFO", func() bool {
		info, err := c.do("INFO").ToString()
		return err == nil && strings.Contains(info, line+"\r\n")
	})
}

// TestDoctorOfACluster checks that Examine finds a primary that was killed, and then one that is paused.
func TestDoctorOfACluster(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	c, err := dbtest.StartRedisCluster(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	s := open(t, c.URL())
	storetest.FindsNothing(t, s)
	expectAway := func(node int) {
		t.Helper()
		findings, err := s.Examine(t.Context())
		want := c.Addrs()[node] + " cannot be asked: "
		if err != nil || !slices.ContainsFunc(findings, func(f store.Finding) bool {
			return f.Check == "node" && f.Severity == store.Wrong && strings.HasPrefix(f.Found, want) &&
				strings.Contains(f.Remedy, "have it join the others")
		}) {
			t.Errorf("Examine: got %+v, %v; want the finding %q", findings, err, want)
		}
	}
	c.Kill(0)
	expectAway(0)
	c.Pause(1)
	defer c.Resume(1)
	expectAway(1)
}
