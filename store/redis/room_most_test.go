package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// TestALimitsOwnMaximumHolds in place of the store's, and where the store has none.
func TestALimitsOwnMaximumHolds(t *testing.T) {
	for _, most := range []int{0, 3, 100} {
		s, _ := bounded(t, most)
		p := hourly
		p.MaxKeys = 10
		fill(t, s, "l", "own", 9, p)
		sweep(t, s)
		if room := roomOf(t, s, "l"); room.Sharing || room.Max != 10 || room.Keys != 9 {
			t.Errorf("store's maximum %d: %+v; want 9 of 10", most, room)
		}
		fill(t, s, "l", "own", 10, p)
		sweep(t, s)
		if room := roomOf(t, s, "l"); !room.Sharing {
			t.Errorf("store's maximum %d: %+v; want it full", most, room)
		}
	}
}

func TestTheMaximumIsTheStores(t *testing.T) {
	url := OwnDatabase(t)
	a := &listened{t: t}
	config := a.config()
	config.MaxKeys = 10
	a.Store = openTest(t, url, config)
	a.quiet()
	b := &listened{t: t}
	config = b.config()
	config.MaxKeys = 20
	b.Store = openTest(t, url, config)
	b.quiet()
	if text := b.said(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, "before=10 now=20") {
		t.Errorf("the second process: %q; want one warning", text)
	}
	a.expect("another process has set another maximum", "WARN")
	a.expect("still")
	fill(t, a.Store, "l", "own", 15, hourly)
	sweep(t, a.Store)
	if room := roomOf(t, a.Store, "l"); room.Sharing || room.Max != 20 {
		t.Errorf("%+v; want the later maximum", room)
	}
	fill(t, a.Store, "l", "own", 20, hourly)
	sweep(t, a.Store)
	if !roomOf(t, b.Store, "l").Sharing {
		t.Error("the limit does not share")
	}
	// Without a maximum sharing goes on while the shared cell is in use, and then all
	// that is kept of it goes.
	apply(t, a.Store, takeOne("l", "new", hourly, 0))
	openTest(t, url, &Config{MaxKeys: -1})
	if out := apply(t, a.Store, takeOne("l", "newer", hourly, 0))[0]; !out.Shared {
		t.Errorf("%+v; want the shared cell", out)
	}
	reset := takeOne("l", law.SharedCell("l", roomOf(t, a.Store, "l").Generation).Key, hourly, 0)
	reset.Verb = law.Reset
	apply(t, a.Store, reset)
	await.Until(t, "the end of what is kept of sharing", func() bool {
		sweep(t, a.Store)
		n, _ := admin(t, a.Store, "EXISTS", a.roomKey()).AsInt64()
		return n == 0
	})
	if out := apply(t, a.Store, takeOne("l", "newer", quick, 0))[0]; out.Shared {
		t.Errorf("%+v; want a cell of its own", out)
	}
}

// TestAMaximumIsBackAfterAFlush, unless somebody wanted none.
func TestAMaximumIsBackAfterAFlush(t *testing.T) {
	server := own(t)
	s := openTest(t, server.DSN, &Config{MaxKeys: 10})
	admin(t, s, "FLUSHALL")
	sweep(t, s)
	fill(t, s, "l", "own", 10, hourly)
	sweep(t, s)
	if room := roomOf(t, s, "l"); !room.Sharing || room.Max != 10 {
		t.Errorf("%+v; want it full", room)
	}
	openTest(t, server.DSN, &Config{MaxKeys: -1})
	for range 3 {
		sweep(t, s)
	}
	if n, _ := admin(t, s, "EXISTS", s.roomKey()).AsInt64(); n != 0 {
		t.Error("a maximum that was taken away is back")
	}
	openTest(t, server.DSN, &Config{MaxKeys: 20})
	fill(t, s, "l", "own", 10, hourly)
	sweep(t, s)
	if room := roomOf(t, s, "l"); room.Sharing || room.Max != 20 || room.Keys != 10 {
		t.Errorf("%+v; want 10 keys of 20", room)
	}
}

func TestAClusterRefusesAMaximum(t *testing.T) {
	tier.Engines(t)
	if _, err := Open(context.Background(), dbtest.RedisCluster(t), &Config{MaxKeys: 10}); !errors.Is(
		err, store.ErrInvalid) || !strings.Contains(err.Error(), "noeviction") {
		t.Errorf("%v; want ErrInvalid that says what to do", err)
	}
	s := openTest(t, dbtest.RedisCluster(t), nil)
	p := hourly
	p.MaxKeys = 1
	if own := fill(t, s, "l", "k", 10, p); own != 10 {
		t.Errorf("%d keys with cells of their own, want all", own)
	}
	if list, err := s.Fullness(context.Background()); err != nil || len(list) != 0 {
		t.Errorf("%v, %v; want nothing", list, err)
	}
}

// TestAFloodOfNewKeysIsBounded: the limit is full, and many more keys come at once.
// Nobody sweeps.
func TestAFloodOfNewKeysIsBounded(t *testing.T) {
	tier.Engines(t)
	const most = 10_000
	url := own(t).DSN
	s, other := openTest(t, url, &Config{MaxKeys: most}), openTest(t, url, nil)
	own := fill(t, s, "l", "own", most, hourly)
	if own != most {
		t.Errorf("%d of the first keys have cells of their own, want all", own)
	}
	own += fill(t, other, "l", "new", 2*most, hourly)
	if own > most*3/2 {
		t.Errorf("%d keys got cells of their own, want little more than %d", own, most)
	}
	list, _, err := s.Cells(context.Background(), store.Query{Limit: "l", Max: 10 * most})
	if err != nil || len(list) != own+1 {
		t.Errorf("%d cells, %v; want %d and the shared one", len(list), err, own)
	}
	for i := range 100 {
		if out := apply(t, other, takeOne("l", fmt.Sprint("own", i), hourly, 0))[0]; out.Shared || out.Used != 2000 {
			t.Fatalf("a key with a cell: %+v", out)
		}
	}
	t.Logf("%d keys got cells of their own, at most %d may have", own, most)
}

// TestABoundHoldsWithoutCounts: where nobody can count keys, the server lets a limit
// share that may have a quarter more than it may, and a few.
func TestABoundHoldsWithoutCounts(t *testing.T) {
	server := own(t)
	root := openTest(t, server.DSN, nil)
	list, _ := rights(t) // without +scan
	s := openTest(t, limitedUser(t, root, server.DSN, list...), &Config{MaxKeys: 400})
	got := 0
	for i := range 2000 {
		if out := apply(t, s, takeOne("l", fmt.Sprint(i), hourly, 0))[0]; !out.Shared {
			got++
		}
	}
	if got != 564 {
		t.Errorf("%d keys got cells of their own, want 564", got)
	}
	if _, err := s.Sweep(context.Background(), 10); !errors.Is(err, store.ErrSetup) {
		t.Errorf("a sweep that cannot count: %v, want ErrSetup", err)
	}
	sweep(t, root)
	if room := roomOf(t, root, "l"); !room.Sharing || room.Keys != 564 || room.Since == 0 ||
		room.Generation != room.Since {
		t.Errorf("%+v", room)
	}
}
