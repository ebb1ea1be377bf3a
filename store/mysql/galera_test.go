package mysql_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/history"
	"github.com/headgate/headgate/internal/testing/history/record"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/mysql"
	"github.com/headgate/headgate/store/storetest"
)

// clusterHistories is the number of random histories for a cluster, on which each takes ten times as long as on one
// server.
const clusterHistories = 200

// alternatingStore sends batches to two stores in turn, over different nodes of one cluster.
type alternatingStore struct {
	*mysql.Store
	second  *mysql.Store
	batches atomic.Int64
}

func (a *alternatingStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if a.batches.Add(1)%2 == 0 {
		return a.second.Apply(ctx, ops, outs)
	}
	return a.Store.Apply(ctx, ops, outs)
}

func (a *alternatingStore) Close() error { return errors.Join(a.second.Close(), a.Store.Close()) }

// TestGaleraConformance runs the conformance suite over two nodes in turn. Reads wait for the commits of other nodes
// (wsrep_sync_wait), since the suite compares refusals bit by bit; admissions are exact without it.
func TestGaleraConformance(t *testing.T) {
	storetest.Run(t, func(tb testing.TB) store.Store {
		urls := dbtest.Galera(tb)
		first := openAndMigrate(tb, urls[0]+"?wsrep_sync_wait=15")
		return &alternatingStore{Store: first, second: openAndMigrate(tb, urls[1]+"?wsrep_sync_wait=15")}
	}, &storetest.Options{Histories: clusterHistories})
}

// joinURLs returns one URL with the hosts of several URLs.
func joinURLs(urls []string) string {
	hosts := make([]string, len(urls))
	for i, u := range urls {
		hosts[i], _, _ = strings.Cut(strings.TrimPrefix(u, "mysql://root@"), "/")
	}
	return "mysql://root@" + strings.Join(hosts, ",") + urls[0][strings.LastIndex(urls[0], "/"):]
}

// TestGaleraNodeKilledUnderLoad checks that decisions on a hot key go on after the node that writes it is killed, and
// that no more is admitted than the bound.
func TestGaleraNodeKilledUnderLoad(t *testing.T) {
	dbtest.NeedEngine(t, dbtest.GaleraEngine)
	g, err := dbtest.StartGalera(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Stop()
	url := joinURLs(dbtest.MariaDBAt(t, g.Servers()...))
	openAndMigrate(t, url)
	const callers, rate, burst = 8, 200, 20
	asker := record.NewAsker(headgate.MustParse("token-bucket 200/s burst 20"), "hot", history.Limit{
		Algorithm: history.TokenBucket, Amount: "200", Burst: "20", Period: time.Second.Microseconds(),
	})
	load := startLoad(t, callers, asker, url)
	await.Until(t, "charges", func() bool { return load.admissions() >= 300 })
	killed := busiestGaleraNode(t, g)
	asker.Recorder.Fault("db", history.Fault{Kind: history.Kill})
	g.Kill(killed)
	before := load.admissions()
	await.Until(t, "charges after a node was killed", func() bool { return load.admissions() >= before+600 })
	load.end()
	// A store that is opened now uses the two nodes that still run.
	s, err := mysql.Open(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, _, err := s.Cells(t.Context(), store.Query{}); err != nil {
		t.Errorf("Cells with one node away: got %v, want no error", err)
	}
	if report, err := s.Migrate(t.Context()); err != nil || !strings.Contains(report[0], "nothing to do") {
		t.Errorf("Migrate with one node away: got %q, %v; want nothing to do", report, err)
	}
	load.checkHistory(t, s)
	elapsed := load.lastAt.Sub(load.firstAt)
	bound := burst + int(elapsed.Seconds()*rate) // the nodes of the test share one clock
	t.Logf("node %d killed: no decision for %v, at most %d in %v, %+v", killed+1, load.Gap, bound, elapsed, &load.Answers)
	if load.Allowed > bound {
		t.Errorf("got %d admissions, want at most %d", load.Allowed, bound)
	}
}

// busiestGaleraNode returns the index of the node that has committed most transactions of its own clients.
func busiestGaleraNode(t *testing.T, g *dbtest.GaleraCluster) int {
	t.Helper()
	busiest, maxCommits := 0, -1
	for i, u := range g.Servers() {
		n, err := dbtest.MariaDBCount(u, "SHOW GLOBAL STATUS LIKE 'wsrep_local_commits'")
		if err != nil {
			t.Fatal(err)
		}
		if n > maxCommits {
			busiest, maxCommits = i, n
		}
	}
	if maxCommits <= 0 {
		t.Fatal("no node has committed anything")
	}
	return busiest
}
