package redis

import (
	"context"
	"errors"
	"fmt"
	neturl "net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

var hourly = law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 10_000, Step: 3_600_000_000, Drain: 10_000}

func takeOne(limit, key string, p law.Params, now int64) law.Op {
	return law.Op{
		Verb: law.Take, Group: 1, Cell: law.Cell{Limit: limit, Key: key}, Params: p, Cost: p.Unit,
		Count: 1, Now: now,
	}
}

// admin sends any command, and fails the test if the server answers with an error.
func admin(tb testing.TB, s *Store, words ...string) rueidis.RedisResult {
	tb.Helper()
	res := s.client.Do(context.Background(), s.client.B().Arbitrary(words[0]).Args(words[1:]...).Build())
	if err := res.Error(); err != nil && !rueidis.IsRedisNil(err) {
		tb.Fatalf("%v: %v", words, err)
	}
	return res
}

// startServer starts a server for this test alone.
func startServer(tb testing.TB, args ...string) *dbtest.Server {
	tb.Helper()
	server, err := (&dbtest.Config{Args: args}).Redis(context.Background())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(server.Stop)
	return server
}

// clock returns the time of the server in microseconds.
func clock(tb testing.TB, s *Store) int64 {
	tb.Helper()
	now, err := admin(tb, s, "TIME").AsIntSlice()
	if err != nil || len(now) != 2 {
		tb.Fatalf("TIME: %v, %v", now, err)
	}
	return now[0]*1_000_000 + now[1]
}

// expiryOf returns when a key expires, by the clock of the server in microseconds.
func expiryOf(tb testing.TB, s *Store, key string) int64 {
	tb.Helper()
	ms, err := admin(tb, s, "PEXPIRETIME", key).AsInt64()
	if err != nil {
		tb.Fatal(err)
	}
	return ms * 1000
}

func TestScriptsAreReloadedAfterScriptFlush(t *testing.T) {
	s := openTest(t, startServer(t).DSN, nil)
	apply(t, s, takeOne("l", "k", hourly, 0))
	admin(t, s, "SCRIPT", "FLUSH")
	if out := apply(t, s, takeOne("l", "k", hourly, 0))[0]; out.Used != 2000 {
		t.Errorf("used %d after SCRIPT FLUSH, want 2000: two charges of 1000", out.Used)
	}
	admin(t, s, "FLUSHALL")
	if out := apply(t, s, takeOne("l", "k", hourly, 0))[0]; out.Used != 1000 {
		t.Errorf("used %d after FLUSHALL, want 1000", out.Used)
	}
}

func TestConcurrentCallersOfANewKeyGetExactlyTheCapacity(t *testing.T) {
	s := openTest(t, dbtest.Redis(t), nil)
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			outs := make([]law.Outcome, 1)
			if err := s.Apply(context.Background(), []law.Op{takeOne("l", "new", hourly, 0)}, outs); err != nil {
				t.Error(err)
			}
			admitted.Add(outs[0].Granted)
		})
	}
	wg.Wait()
	if admitted.Load() != 10 {
		t.Errorf("got %d of 200 admitted, want 10", admitted.Load())
	}
}

func TestKeysExpireWhenTheyNoLongerMatter(t *testing.T) {
	s := openTest(t, dbtest.Redis(t), nil)
	second := law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 10_000, Step: 1_000_000, Drain: 1000}
	history := law.Params{Kind: law.Log, Unit: 1000, Capacity: 1000, Step: 1_000_000, History: 600_000_000}
	slow := second
	slow.Step = 100_000_000
	forever := law.Params{Kind: law.Bucket, Unit: 1, Capacity: 1 << 52, Step: 1, Drain: 1}
	block := takeOne("blocked", "k", second, 0)
	block.Verb, block.TTL = law.Block, 7_200_000_000
	takeAll := takeOne("forever", "k", forever, 0)
	takeAll.Cost = 1 << 52
	begin := map[string]int64{} // the time of the first charge, by limit
	for _, tt := range []struct {
		op               law.Op
		minLife, maxLife time.Duration
	}{
		{takeOne("drains", "k", slow, 0), 100 * time.Second, 103 * time.Second},
		{takeOne("drains", "k", slow, 0), 200 * time.Second, 204 * time.Second},
		{takeOne("history", "k", history, 0), 600 * time.Second, 603 * time.Second},
		{block, 2 * time.Hour, 2*time.Hour + 3*time.Second},
		{takeOne("test time", "k", second, testTime), time.Hour, time.Hour + 3*time.Second},
		{takeAll, 142 * 365 * 24 * time.Hour, 150 * 365 * 24 * time.Hour},
	} {
		before := clock(t, s)
		apply(t, s, tt.op)
		after := clock(t, s)
		if begin[tt.op.Cell.Limit] == 0 {
			begin[tt.op.Cell.Limit] = before
		}
		keys := []string{s.cellKey(tt.op.Cell)}
		if tt.op.Params.Kind == law.Log {
			keys = append(keys, s.logKey(tt.op.Cell))
		}
		for _, key := range keys {
			minEnd, maxEnd := begin[tt.op.Cell.Limit]+tt.minLife.Microseconds(), after+tt.maxLife.Microseconds()
			if end := expiryOf(t, s, key); end < minEnd-1000 || end > maxEnd {
				t.Errorf("%s expires at %d, want %d to %d", key, end, minEnd, maxEnd)
			}
		}
	}
	// A cell lives at least as long as its log, also if a later op writes the cell.
	block = takeOne("history", "k", history, 0)
	block.Verb, block.TTL = law.Block, 1000
	apply(t, s, block)
	if end, from := expiryOf(t, s, s.cellKey(block.Cell)), begin["history"]; end < from+599_000_000 {
		t.Errorf("a cell with a history of 600 s lives for %d us, want 599 s at least", end-from)
	}
}

func TestHistoryHasABoundedNumberOfEntries(t *testing.T) {
	s := openTest(t, dbtest.Redis(t), nil)
	s.maxEntries = 50
	p := law.Params{Kind: law.Log, Unit: 1000, Capacity: 20_000, Step: 1_000_000, History: 3_600_000_000}
	var ops []law.Op
	for i := range 400 {
		op := takeOne("l", "k", p, testTime+int64(i)*1000)
		op.Group, op.ID, op.TTL = uint32(i), fmt.Sprint(i), 1000
		ops = append(ops, op)
	}
	apply(t, s, ops...)
	list, err := s.Entries(context.Background(), law.Cell{Limit: "l", Key: "k"}, 1000)
	if err != nil {
		t.Fatal(err)
	}
	countingEntries := 0
	for _, e := range list {
		if e.Granted && e.ExpiresAt > testTime {
			countingEntries++
		}
	}
	if len(list) > 50 || countingEntries != 20 || list[0].ID != "399" {
		t.Errorf("got %d entries, of which %d count, the newest %+v; want at most 50, of which 20 count, and 399",
			len(list), countingEntries, list[0])
	}
	// New attempts remove entries that no longer matter.
	p.History = 0
	for i := range 100 {
		apply(t, s, takeOne("short", "k", p, testTime+int64(i)*100_000))
	}
	if list, err = s.Entries(context.Background(), law.Cell{Limit: "short", Key: "k"}, 1000); err != nil ||
		len(list) > 15 {
		t.Errorf("got %d entries, %v; want at most 15, of which ten count", len(list), err)
	}
}

// docRights returns the rights of an ACL user that docs/stores.md lists, except ~prefix*: first the rights that every
// user needs, then the text about the optional ones.
func docRights(tb testing.TB) (list []string, optional string) {
	tb.Helper()
	text, err := os.ReadFile("../../docs/stores.md")
	if err != nil {
		tb.Fatal(err)
	}
	_, itemText, hasItem := strings.Cut(string(text), "- An ACL user needs")
	item, _, hasEnd := strings.Cut(itemText, "\n- ")
	required, optional, hasBoth := strings.Cut(item, ";")
	list = regexp.MustCompile(`\+[a-z|]+`).FindAllString(required, -1)
	if !hasItem || !hasEnd || !hasBoth || len(list) < 20 {
		tb.Fatalf("docs/stores.md does not list the rights of a user: %q", item)
	}
	return list, optional
}

// limitedUser gives the user "few" these rights and no others, and returns the URL with this user.
func limitedUser(tb testing.TB, root *Store, url string, rights ...string) string {
	tb.Helper()
	admin(tb, root, append([]string{"ACL", "SETUSER", "few", "reset", "on", ">p@ss:/word", "~headgate:*", "-@all"},
		rights...)...)
	return strings.Replace(url, "redis://", "redis://few:"+neturl.QueryEscape("p@ss:/word")+"@", 1)
}

// TestTheListedRightsSufficeForApply checks also that Apply is ErrSetup without a right that it uses.
func TestTheListedRightsSufficeForApply(t *testing.T) {
	server := startServer(t)
	root := openTest(t, server.DSN, nil)
	list, _ := docRights(t)
	dsn := limitedUser(t, root, server.DSN, list...)
	s := openTest(t, dsn, nil)
	smallLog := law.Params{Kind: law.Log, Unit: 1000, Capacity: 2000, Step: 1_000_000, History: 1_000_000}
	for i := range 6 {
		apply(t, s, takeOne("l", "k", hourly, 0), takeOne("log", "k", smallLog, testTime+int64(i)*400_000))
	}
	smallLog.Step, smallLog.History = 3_600_000_000, 3_600_000_000 // longer than the test
	take := takeOne("log", "back", smallLog, 0)
	out := apply(t, s, take)[0]
	for range 2 { // the first half of the charge, then the second
		if got := apply(t, s, law.Back(&take, &out, take.Cost/2))[0]; got.Granted != take.Cost/2 {
			t.Errorf("a return: got %+v, want half of the charge", got)
		}
	}
	takeWithID := takeOne("log", "named", smallLog, 0)
	takeWithID.ID, takeWithID.TTL = "id", 60_000_000
	out = apply(t, s, takeWithID)[0]
	settle, renew := takeWithID, takeWithID
	settle.Verb, settle.Cost = law.Settle, takeWithID.Cost/2
	renew.Verb, renew.EntryNumber = law.Renew, out.EntryNumber
	settle.Group, renew.Group = 2, 3
	if got := apply(t, s, settle, takeWithID, renew); got[0].Granted != takeWithID.Cost/2 || !got[1].Replayed ||
		got[2].Granted != 1 {
		t.Errorf("settled, retried and renewed: got %+v", got)
	}
	reset := takeOne("log", "named", smallLog, 0)
	reset.Verb = law.Reset
	apply(t, s, reset)
	if _, err := s.Entries(context.Background(), law.Cell{Limit: "log", Key: "k"}, 10); err != nil {
		t.Error(err)
	}
	if _, err := s.Sweep(context.Background(), 10); err != nil {
		t.Error(err)
	}

	outs := make([]law.Outcome, 1)
	for _, right := range []string{"+evalsha", "+time", "+get", "+set", "+pttl", "+zadd", "+zcard", "+zrangebyscore"} {
		admin(t, root, "ACL", "SETUSER", "few", "-"+right[1:])
		if err := s.Apply(context.Background(), []law.Op{takeOne("log", "new"+right, smallLog, 0)}, outs); !errors.Is(
			err, store.ErrSetup) {
			t.Errorf("without %s: got %v, want ErrSetup", right, err)
		}
		admin(t, root, "ACL", "SETUSER", "few", right)
	}
	admin(t, root, "ACL", "SETUSER", "few", "resetkeys", "~other:*")
	if err := s.Apply(context.Background(), []law.Op{takeOne("l", "k", hourly, 0)}, outs); !errors.Is(
		err, store.ErrSetup) {
		t.Errorf("without a right to the keys: got %v, want ErrSetup", err)
	}
	_, err := Open(context.Background(), strings.Replace(dsn, "word", "wr0ng", 1), nil)
	if !errors.Is(err, store.ErrSetup) || strings.Contains(fmt.Sprint(err), "wr0ng") {
		t.Errorf("wrong password: got %v, want ErrSetup without the password", err)
	}
}

func TestTheListedOptionalRightsSuffice(t *testing.T) {
	server := startServer(t)
	root := openTest(t, server.DSN, nil)
	list, optional := docRights(t)
	for _, right := range []string{"+select", "+role", "+scan", "+info"} {
		if !strings.Contains(optional, right) {
			t.Errorf("docs/stores.md does not say what %s is for", right)
		}
	}
	s := openTest(t, limitedUser(t, root, server.DSN, append(list, "+scan")...), nil)
	for i := range 6 {
		apply(t, s, takeOne("l", fmt.Sprint("own ", i), hourly, 0))
	}
	if counts, err := s.countKeys(t.Context()); err != nil || len(counts) != 1 || counts[0].Keys != 6 {
		t.Errorf("got %+v, %v; want 6 keys of one limit", counts, err)
	}
	s = openTest(t, limitedUser(t, root, server.DSN, append(list, "+scan", "+role")...), nil)
	if cells, _, err := s.Cells(context.Background(), store.Query{}); err != nil || len(cells) != 6 {
		t.Errorf("got %d cells, %v; want 6", len(cells), err)
	}
	url := strings.TrimSuffix(server.DSN, "/0") + "/1"
	if _, err := Open(context.Background(), limitedUser(t, root, url, list...), nil); !errors.Is(err, store.ErrSetup) {
		t.Errorf("without +select: got %v, want ErrSetup", err)
	}
	apply(t, openTest(t, limitedUser(t, root, url, append(list, "+select")...), nil), takeOne("l", "k", hourly, 0))
}

func TestTheListedRightsSufficeForACluster(t *testing.T) {
	tier.Engines(t)
	cluster, err := dbtest.StartRedisCluster(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Stop)
	list, _ := docRights(t)
	url := ""
	for address := range strings.SplitSeq(strings.TrimSuffix(strings.TrimPrefix(cluster.URL(), "redis://"), "/0"),
		",") {
		node, err := rueidis.NewClient(rueidis.ClientOption{
			InitAddress: []string{address}, ForceSingleClient: true,
			DisableCache: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		url = limitedUser(t, &Store{client: node}, cluster.URL(), append(list, "+scan", "+role")...)
		node.Close()
	}
	s := openTest(t, url, nil)
	for i := range 50 {
		apply(t, s, takeOne("l", fmt.Sprint("k ", i), hourly, 0))
	}
	if _, err := s.Sweep(t.Context(), 10); err != nil {
		t.Error(err)
	}
	if cells, _, err := s.Cells(context.Background(), store.Query{}); err != nil || len(cells) != 50 {
		t.Errorf("got %d cells, %v; want 50", len(cells), err)
	}
}

func TestAFullServerAdmitsNothing(t *testing.T) {
	s := openTest(t, startServer(t, "--maxmemory", "3mb", "--maxmemory-policy", "noeviction").DSN, nil)
	// Ever smaller values fill what is left: a server may count also the value of the command that it executes.
	for _, size := range []int{100_000, 1000, 10} {
		var err error
		for i := 0; err == nil; i++ {
			if i == 100_000 {
				t.Fatal("the server does not get full")
			}
			err = s.client.Do(context.Background(), s.client.B().Set().Key(fmt.Sprint(size, "filler", i)).Value(
				strings.Repeat("x", size)).Build()).Error()
		}
	}
	smallLog := law.Params{Kind: law.Log, Unit: 1000, Capacity: 2000, Step: 1_000_000}
	for _, p := range []law.Params{hourly, smallLog} {
		outs := make([]law.Outcome, 1)
		if err := s.Apply(context.Background(), []law.Op{takeOne("l", "k", p, 0)}, outs); !errors.Is(
			err, store.ErrFull) {
			t.Errorf("got %v, want ErrFull", err)
		}
	}
}

func TestAReplicaIsErrReadOnly(t *testing.T) {
	primary := startServer(t)
	_, port, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(primary.DSN, "redis://"), "/0"), ":")
	replica := startServer(t, "--replicaof", "127.0.0.1", port, "--repl-diskless-sync-delay", "0")
	s := openTest(t, replica.DSN, &Config{RetryFor: 50 * time.Millisecond})
	await.Until(t, "ErrReadOnly", func() bool {
		err := s.Apply(context.Background(), []law.Op{takeOne("l", "k", hourly, 0)}, make([]law.Outcome, 1))
		return errors.Is(err, store.ErrReadOnly)
	})
}

// TestALargeBatchKeepsTheOrderOfEachKey checks a batch that makes several calls, and one of requests that share a key,
// which makes one. They are repeated because the server does not know the script.
func TestALargeBatchKeepsTheOrderOfEachKey(t *testing.T) {
	s := openTest(t, startServer(t).DSN, nil)
	p := hourly
	p.Capacity = 1_000_000
	for _, size := range []int{1, 3} {
		admin(t, s, "FLUSHALL")
		admin(t, s, "SCRIPT", "FLUSH")
		var ops []law.Op
		for i := range 500 {
			key := "hot"
			if i%2 == 0 {
				key = fmt.Sprint(i % 90)
			}
			ops = append(ops, takeOne("l", key, p, testTime))
			ops[i].Group = uint32(i / size)
		}
		used := map[string]int64{}
		for i, out := range apply(t, s, ops...) {
			key := ops[i].Cell.Key
			if used[key] += p.Unit; out.Used != used[key] {
				t.Fatalf("op %d on %s: got used %d, want %d", i, key, out.Used, used[key])
			}
		}
	}
}
