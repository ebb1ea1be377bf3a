package mysql_test

import (
	"context"
	"errors"
	"fmt"
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

// clusterHistories is the number of random histories for a cluster, each of which takes ten times as long as on a
// server.
const clusterHistories = 200

// twoWriters sends each batch to the next of two stores, over different nodes of one cluster.
type twoWriters struct {
	*mysql.Store
	other *mysql.Store
	turn  atomic.Int64
}

func (w *twoWriters) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if w.turn.Add(1)%2 == 0 {
		return w.other.Apply(ctx, ops, outs)
	}
	return w.Store.Apply(ctx, ops, outs)
}

func (w *twoWriters) Close() error { return errors.Join(w.other.Close(), w.Store.Close()) }

// TestGaleraConformance writes on two nodes at once. Reads wait for what other nodes have committed (wsrep_sync_wait),
// since the suite compares refusals bit by bit; admissions are exact without it.
func TestGaleraConformance(t *testing.T) {
	storetest.Run(t, func(tb testing.TB) store.Store {
		urls := dbtest.Galera(tb)
		first := openAt(tb, urls[0]+"?wsrep_sync_wait=15")
		return &twoWriters{Store: first, other: openAt(tb, urls[1]+"?wsrep_sync_wait=15")}
	}, &storetest.Options{Histories: clusterHistories})
}

// oneURL joins the URLs of nodes.
func oneURL(urls []string) string {
	hosts := make([]string, len(urls))
	for i, u := range urls {
		hosts[i], _, _ = strings.Cut(strings.TrimPrefix(u, "mysql://root@"), "/")
	}
	return "mysql://root@" + strings.Join(hosts, ",") + urls[0][strings.LastIndex(urls[0], "/"):]
}

// TestGaleraNodeKilledUnderLoad kills the preferred writer of a hot key under load: decisions must go on, and no more
// may be admitted than the bound.
func TestGaleraNodeKilledUnderLoad(t *testing.T) {
	dbtest.NeedEngine(t, dbtest.GaleraEngine)
	g, err := dbtest.StartGalera(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Stop()
	url := oneURL(dbtest.MariaDBAt(t, g.Servers()...))
	openAt(t, url)
	const callers, rate, burst = 8, 200, 20
	ask := record.NewAsker(headgate.MustParse("token-bucket 200/s burst 20"), "hot", history.Limit{
		Algorithm: history.TokenBucket, Amount: "200", Burst: "20", Period: time.Second.Microseconds(),
	})
	load := startPressure(t, callers, ask, url)
	await.Until(t, "charges", func() bool { return load.passed() >= 300 })
	killed := preferredNode(t, g, url)
	ask.Recorder.Fault("db", history.Fault{Kind: history.Kill})
	g.Kill(killed)
	before := load.passed()
	await.Until(t, "charges after a node was killed", func() bool { return load.passed() >= before+600 })
	load.end()
	// Who comes now finds the nodes that are left.
	late, err := mysql.Open(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	if _, _, err := late.Cells(t.Context(), store.Query{}); err != nil {
		t.Errorf("with a node away: %v", err)
	}
	if report, err := late.Migrate(t.Context()); err != nil || !strings.Contains(report[0], "nothing to do") {
		t.Errorf("with a node away: %q, %v", report, err)
	}
	load.checked(t, late)
	elapsed := load.last.Sub(load.first)
	most := burst + int(elapsed.Seconds()*rate) // the nodes of the test share one clock
	t.Logf("node %d killed: no decision for %v, at most %d in %v, %+v", killed+1, load.Gap, most, elapsed, &load.Answers)
	if load.Allowed > most {
		t.Errorf("admitted %d, at most %d", load.Allowed, most)
	}
}

// preferredNode returns the node that has written most since the last call.
func preferredNode(t *testing.T, g *dbtest.GaleraCluster, url string) int {
	t.Helper()
	best, most := 0, -1
	for i, u := range g.Servers() {
		n, err := dbtest.MariaDBCount(u, "SHOW GLOBAL STATUS LIKE 'wsrep_local_commits'")
		if err != nil {
			t.Fatal(err)
		}
		if n > most {
			best, most = i, n
		}
	}
	if most <= 0 {
		t.Fatal(fmt.Errorf("no node of %s has written anything", url))
	}
	return best
}
