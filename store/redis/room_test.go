package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// bounded returns a store whose limits may have so many keys, and a second one on the same
// server that has no opinion on that.
func bounded(t *testing.T, most int) (s, other *Store) {
	t.Helper()
	url := OwnDatabase(t)
	return openTest(t, url, &Config{MaxKeys: most}), openTest(t, url, nil)
}

// sweep sweeps until the keys have been counted that are there now, if any limit has a
// maximum. It removes the note that the last count took long, after which a sweep would
// leave the next one out.
func sweep(tb testing.TB, s *Store) {
	tb.Helper()
	ctx := context.Background()
	if s.cluster { // counts nothing
		if _, err := s.Sweep(ctx, 10); err != nil {
			tb.Fatal(err)
		}
		return
	}
	begin := int64(0)
	for {
		r, err := s.readRooms(ctx)
		if err != nil {
			tb.Fatal(err)
		}
		if begin == 0 {
			begin = r.now
		} else if !r.bounded() || r.at-r.took >= begin {
			return
		}
		if err := s.client.Do(ctx, s.client.B().Hdel().Key(s.roomKey()).Field("took").Build()).Error(); err != nil {
			tb.Fatal(err)
		}
		if _, err := s.Sweep(ctx, 10); err != nil {
			tb.Fatal(err)
		}
	}
}

// fill takes one of each of n keys, and returns how many were answered by a cell of
// their own.
func fill(tb testing.TB, s *Store, limit, prefix string, n int, p law.Params) (own int) {
	tb.Helper()
	for from := 0; from < n; from += 1000 {
		var ops []law.Op
		for i := from; i < min(n, from+1000); i++ {
			op := takeOne(limit, fmt.Sprint(prefix, i), p, 0)
			op.Group = uint32(i)
			ops = append(ops, op)
		}
		for _, out := range apply(tb, s, ops...) {
			if !out.Shared {
				own++
			}
		}
	}
	return own
}

func roomOf(tb testing.TB, s *Store, limit string) store.Room {
	tb.Helper()
	list, err := s.Fullness(context.Background())
	if err != nil {
		tb.Fatal(err)
	}
	i := slices.IndexFunc(list, func(r store.Room) bool { return r.Limit == limit })
	if i < 0 {
		return store.Room{}
	}
	return list[i]
}

var quick = law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 3000, Step: 20_000, Drain: 1000} // 3 in 60 ms

func TestNewKeysOfAFullLimitShareACell(t *testing.T) {
	for name, slot := range map[string]func(string) string{
		"no tags": nil, "a tag": func(string) string { return "}{k:" },
	} {
		t.Run(name, func(t *testing.T) {
			url := OwnDatabase(t)
			sharesACell(t, openTest(t, url, &Config{MaxKeys: 20, Slot: slot}), openTest(t, url, &Config{Slot: slot}))
		})
	}
}

// sharesACell fills a limit of 20 keys, and has another process use it.
func sharesACell(t *testing.T, s, other *Store) {
	t.Helper()
	fill(t, s, "l", "own", 20, hourly)
	sweep(t, s)
	room := roomOf(t, other, "l")
	if !room.Sharing || room.Keys != 20 || room.Max != 20 || room.Generation == 0 || room.Since == 0 ||
		room.CountedAt == 0 {
		t.Fatalf("%+v; want one that is full and shares", room)
	}
	for i := range 12 {
		out := apply(t, other, takeOne("l", fmt.Sprint("new", i), hourly, 0))[0]
		if !out.Shared || (out.Granted == 1) != (i < 10) || out.Full != 0 {
			t.Errorf("new key %d: %+v; want ten admitted, in common", i, out)
		}
	}
	if out := apply(t, other, takeOne("l", "own3", hourly, 0))[0]; out.Shared || out.Used != 2000 {
		t.Errorf("a key with a cell: %+v; want it charged there", out)
	}
	if out := apply(t, other, takeOne("another", "new", hourly, 0))[0]; out.Shared {
		t.Errorf("another limit: %+v; want a cell of its own", out)
	}
	if got := roomOf(t, other, "l").Shared; got != 12 {
		t.Errorf("%d answers of the shared cell, want 12", got)
	}
	list, _, err := s.Cells(context.Background(), store.Query{Limit: "l"})
	if err != nil || len(list) != 21 {
		t.Errorf("%d cells, %v; want 20 and the shared one", len(list), err)
	}
}

// expire removes the cells of keys, as a server does once they are empty.
func expire(tb testing.TB, s *Store, limit, prefix string, n int) {
	tb.Helper()
	for i := range n {
		admin(tb, s, "DEL", s.cellKey(law.Cell{Limit: limit, Key: fmt.Sprint(prefix, i)}))
	}
}

// untilSharingEnds sweeps until a limit does not share a cell any more, and returns when that was over.
func untilSharingEnds(t *testing.T, s *Store, limit string) (ended int64) {
	t.Helper()
	await.Until(t, "the end of sharing", func() bool {
		sweep(t, s)
		return !roomOf(t, s, limit).Sharing
	})
	return clock(t, s)
}

func TestSharingEndsWhenTheSharedCellIsEmpty(t *testing.T) {
	s, other := bounded(t, 10)
	fill(t, s, "l", "own", 10, hourly)
	sweep(t, other)
	slow := quick
	slow.Step = 300_000 // of the last unit
	first := apply(t, s, takeOne("l", "new", slow, 0))[0]
	if !first.Shared || !roomOf(t, s, "l").Sharing {
		t.Fatalf("%+v; want it shared", first)
	}
	expire(t, s, "l", "own", 10)
	last := apply(t, s, takeOne("l", "newer", slow, 0))[0]
	generation := roomOf(t, s, "l").Generation
	if !last.Shared {
		t.Errorf("%+v: nobody has counted since there is room", last)
	}
	if ended := untilSharingEnds(t, s, "l"); ended < last.State.EmptyAt {
		t.Errorf("sharing ended at %d, and the shared cell was in use until %d", ended, last.State.EmptyAt)
	}
	if out := apply(t, other, takeOne("l", "new", slow, 0))[0]; out.Shared || out.Used != 1000 {
		t.Errorf("%+v; want a cell of its own", out)
	}
	// What comes late for the shared cell of that period finds it gone.
	op := takeOne("l", law.SharedCell("l", generation).Key, slow, 0)
	outs := make([]law.Outcome, 1)
	if err := s.apply(context.Background(), []law.Op{op}, outs); err != nil || outs[0].Full != law.Ended {
		t.Errorf("%+v, %v; want Ended", outs[0], err)
	}
	fill(t, s, "l", "again", 10, hourly)
	sweep(t, s)
	if room := roomOf(t, s, "l"); !room.Sharing || room.Generation <= generation {
		t.Errorf("%+v; want a later generation than %d", room, generation)
	}
}

// TestABlockOfTheSharedCellKeepsIt: sharing does not end while it is blocked.
func TestABlockOfTheSharedCellKeepsIt(t *testing.T) {
	s, _ := bounded(t, 1)
	fill(t, s, "l", "own", 1, hourly)
	sweep(t, s)
	block := takeOne("l", law.SharedCell("l", roomOf(t, s, "l").Generation).Key, quick, 0)
	block.Verb, block.TTL = law.Block, 300_000
	out := apply(t, s, block)[0]
	expire(t, s, "l", "own", 1)
	if ended := untilSharingEnds(t, s, "l"); out.State.BlockedUntil == 0 || ended < out.State.BlockedUntil {
		t.Errorf("sharing ended at %d, and the shared cell was blocked until %d", ended, out.State.BlockedUntil)
	}
}

func TestWhatAsksForACellOfItsOwnFindsTheLimitFull(t *testing.T) {
	s, _ := bounded(t, 2)
	id := func(key, id string) law.Op {
		op := takeOne("l", key, hourly, 0)
		op.ID, op.TTL = id, 60_000_000
		return op
	}
	apply(t, s, id("own", "first"), func() law.Op { op := takeOne("l", "other", hourly, 0); op.Group = 2; return op }())
	sweep(t, s)
	outs := make([]law.Outcome, 2)
	second := id("new", "second")
	second.Group = 2
	if err := s.Apply(context.Background(), []law.Op{id("own", "first"), second}, outs); err != nil ||
		!outs[0].Replayed || !errors.Is(outs[1].Err, store.ErrFull) {
		t.Errorf("%+v, %v; want the first as before, and ErrFull", outs, err)
	}
	// A group of a key that has a cell and one that has none: nothing of it is done.
	both := []law.Op{id("own", "third"), id("new", "third")}
	if err := s.Apply(context.Background(), both, outs); err != nil || !errors.Is(outs[0].Err, store.ErrFull) ||
		!errors.Is(outs[1].Err, store.ErrFull) {
		t.Errorf("%+v, %v; want ErrFull", outs, err)
	}
	check := takeOne("l", "own", hourly, 0)
	check.Verb = law.Check
	if out := apply(t, s, check)[0]; out.Used != 2000 {
		t.Errorf("%+v; want the first charge alone", out)
	}
}

// TestACostThatIsCorrectedUpwardsMakesNoCell, nor one that is extended: an id is known for longer than its cell
// is there.
func TestACostThatIsCorrectedUpwardsMakesNoCell(t *testing.T) {
	s, _ := bounded(t, 2)
	op := takeOne("l", "k", quick, 0)
	op.ID, op.TTL = "id", 60_000_000
	apply(t, s, op)
	admin(t, s, "DEL", s.cellKey(op.Cell)) // as it expires
	fill(t, s, "l", "own", 2, hourly)
	sweep(t, s)
	extend, settle := op, op
	extend.Verb, settle.Verb = law.Extend, law.Settle
	for _, tt := range []struct {
		cost int64
		want error
	}{{3000, store.ErrFull}, {1000, nil}, {500, nil}} {
		extend.Cost = tt.cost
		if out := outcomes(t, s, extend)[0]; !errors.Is(out.Err, tt.want) || tt.want == nil && out.Granted != 1000 {
			t.Errorf("extended to %d: %+v; want %v", tt.cost, out, tt.want)
		}
	}
	for _, tt := range []struct {
		cost int64
		want error
	}{{3000, store.ErrFull}, {500, nil}, {500, nil}} {
		settle.Cost = tt.cost
		outs := make([]law.Outcome, 1)
		if err := s.Apply(context.Background(), []law.Op{settle}, outs); err != nil ||
			!errors.Is(outs[0].Err, tt.want) {
			t.Errorf("settled for %d: %+v, %v; want %v", tt.cost, outs[0], err, tt.want)
		}
	}
	if n, _ := admin(t, s, "EXISTS", s.cellKey(op.Cell)).AsInt64(); n != 0 {
		t.Error("the key has a cell")
	}
}

// TestEntriesOfKeysAndSharedCellsHaveOtherNumbers: what is given back or renewed
// later never meets an entry of somebody else.
func TestEntriesOfKeysAndSharedCellsHaveOtherNumbers(t *testing.T) {
	s, _ := bounded(t, 1)
	logged := law.Params{Kind: law.Log, Unit: 1000, Capacity: 100_000, Step: 3_600_000_000}
	for i := range 5 {
		if out := apply(t, s, takeOne("l", "own", logged, 0))[0]; out.EntryNumber%2 != 0 || out.EntryNumber == 0 {
			t.Errorf("entry %d of a key: %d, want an even number", i, out.EntryNumber)
		}
	}
	sweep(t, s)
	last := int64(0)
	for i := range 5 {
		op := takeOne("l", fmt.Sprint("new", i), logged, 0)
		out := apply(t, s, op)[0]
		if !out.Shared || out.EntryNumber%2 != 1 || out.EntryNumber <= last {
			t.Errorf("entry %d of the shared cell: %d after %d, want a larger odd number", i, out.EntryNumber, last)
		}
		last = out.EntryNumber
		if back := apply(t, s, law.Back(&op, &out, 400))[0]; !back.Shared || back.Granted != 400 {
			t.Errorf("given back: %+v", back)
		}
		renew := op
		renew.Verb, renew.EntryNumber = law.Renew, out.EntryNumber
		if got := apply(t, s, renew)[0]; !got.Shared || got.Granted != 1 {
			t.Errorf("renewed: %+v", got)
		}
	}
}
