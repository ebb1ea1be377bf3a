package memory_test

import (
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// slow is a limit of one unit, which does not drain within a test.
var slow = law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 1000, Step: 3_600_000_000, Drain: 1000}

func takeOp(limit, key string, p law.Params) law.Op {
	return law.Op{Verb: law.Take, Cell: law.Cell{Limit: limit, Key: key}, Params: p, Cost: 1000, Count: 1}
}

func countOf(t *testing.T, s *memory.Store, limit string) store.KeyCount {
	t.Helper()
	counts, err := s.KeyCounts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range counts {
		if c.Limit == limit {
			return c
		}
	}
	return store.KeyCount{Limit: limit}
}

// TestAFloodOfKeysIsRefused invents as many keys of a slow limit as a store holds, and
// more. New keys fail, no memory is taken for them, and other limits and keys go on.
func TestAFloodOfKeysIsRefused(t *testing.T) {
	tier.Engines(t)
	const most, more = 10_000, 60_000
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	now := t0
	s := memory.New(&memory.Config{Clock: func() int64 { return now }, MaxKeys: most})
	for i := range most {
		if b, ok := s.TakeOne(t.Context(), law.Cell{Limit: "slow", Key: fmt.Sprint(i)}, &slow, 1000); !ok ||
			!b.Granted {
			t.Fatalf("key %d: %+v, %v", i, b, ok)
		}
	}
	before := heap()
	for i := range more {
		if out := apply(t, s, takeOp("slow", fmt.Sprint("new ", i), slow)); !errors.Is(out.Err, store.ErrFull) {
			t.Fatalf("new key %d: %+v", i, out)
		}
	}
	if grown := int64(heap()) - int64(before); grown > 1<<20 {
		t.Errorf("%d bytes more are in use after %d new keys", grown, more)
	}
	if got, want := countOf(t, s, "slow"), (store.KeyCount{Limit: "slow", Keys: most, Max: most, At: t0}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if out := apply(t, s, takeOp("another", "k", slow)); out.Granted != 1 {
		t.Errorf("another limit: %+v", out)
	}
	if b, ok := s.TakeOne(t.Context(), law.Cell{Limit: "slow", Key: "7"}, &slow, 1000); !ok || b.Granted {
		t.Errorf("a key that was there before: %+v, %v", b, ok)
	}

	now += slow.Step + 1 // no charge counts any more
	for i := range 1000 {
		for n := range 2 {
			if out := apply(t, s, takeOp("slow", fmt.Sprint("new ", i), slow)); out.Granted != int64(1-n) {
				t.Fatalf("key %d after room was made, take %d: %+v", i, n+1, out)
			}
		}
	}
}

// TestNewKeysOfAFullLimit calls every verb with a key without a cell. Verbs that would make a cell fail, and
// the rest of their group is not done.
func TestNewKeysOfAFullLimit(t *testing.T) {
	t.Parallel()
	s := memory.New(&memory.Config{Clock: func() int64 { return t0 }, MaxKeys: 2, Names: true})
	apply(t, s, takeOp("l", "a", slow))
	apply(t, s, takeOp("l", "b", slow))
	verb := func(v law.Verb, ttl int64) law.Op {
		op := takeOp("l", "new", slow)
		op.Verb, op.TTL = v, ttl
		return op
	}
	id := takeOp("l", "new", slow)
	id.ID, id.TTL = "id", 1000
	settle := verb(law.Settle, 0)
	settle.ID = "id"
	for name, tt := range map[string]struct {
		op      law.Op
		granted int64
		err     error
	}{
		"take":         {takeOp("l", "new", slow), 0, store.ErrFull},
		"with an id":   {id, 0, store.ErrFull},
		"block":        {verb(law.Block, 1000), 0, store.ErrFull},
		"lift a block": {verb(law.Block, 0), 1, nil},
		"check":        {verb(law.Check, 0), 1, nil},
		"reset":        {verb(law.Reset, 0), 0, nil},
		"settle":       {settle, 0, law.ErrUnknownID},
	} {
		out := apply(t, s, tt.op)
		if out.Granted != tt.granted || !errors.Is(out.Err, tt.err) || out.Err != nil && tt.err == nil {
			t.Errorf("%s: %+v", name, out)
		}
		if _, ok := s.TakeOne(t.Context(), tt.op.Cell, &slow, 1000); ok {
			t.Errorf("%s: then TakeOne has decided", name)
		}
	}
	ops := []law.Op{takeOp("other", "k", slow), takeOp("l", "new", slow)}
	outs := make([]law.Outcome, 2)
	if err := s.Apply(t.Context(), ops, outs); err != nil || !errors.Is(outs[0].Err, store.ErrFull) ||
		!errors.Is(outs[1].Err, store.ErrFull) {
		t.Errorf("a group: %+v, %v", outs, err)
	}
	if cells, _, err := s.Cells(t.Context(), store.Query{}); err != nil || len(cells) != 2 {
		t.Errorf("%+v, %v", cells, err)
	}
	if all := countOf(t, s, ""); all.Keys != 2 {
		t.Errorf("%+v", all)
	}
}

// TestDeadKeysMakeNoTableGrow makes 60,000 keys that die soon, without a sweep: later keys take their places,
// by every way to make a cell.
func TestDeadKeysMakeNoTableGrow(t *testing.T) {
	t.Parallel()
	brief := law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 1000, Step: 100_000, Drain: 1000} // empty after 0.1 s
	const keys, every = 60_000, 600
	for name, ask := range map[string]func(s *memory.Store, key string) bool{
		"one": func(s *memory.Store, key string) bool {
			b, ok := s.TakeOne(t.Context(), law.Cell{Limit: "brief", Key: key}, &brief, 1000)
			return ok && b.Granted
		},
		"a group of two": func(s *memory.Store, key string) bool {
			ops := []law.Op{takeOp("brief", key, brief), takeOp("brief", key+"b", brief)}
			ops[0].Group, ops[1].Group = 1, 1
			outs := make([]law.Outcome, 2)
			return s.Apply(t.Context(), ops, outs) == nil && outs[0].Granted == 1 && outs[1].Granted == 1
		},
	} {
		now := t0
		s := memory.New(&memory.Config{Clock: func() int64 { return now }})
		for i := range keys {
			if i%every == 0 {
				now += 2 * brief.Step
			}
			if !ask(s, fmt.Sprint(i)) {
				t.Fatalf("%s: key %d was refused", name, i)
			}
		}
		if count := countOf(t, s, "brief"); count.Keys > keys/2 { // each table keeps a few dead cells
			t.Errorf("%s: %d keys are held, of which %d can count", name, count.Keys, 2*every)
		}
	}
}

func TestDefaultMaxKeys(t *testing.T) {
	t.Parallel()
	s := memory.New(nil)
	apply(t, s, takeOp("slow", "k", slow))
	if count := countOf(t, s, "slow"); count.Max != memory.DefaultMaxKeys {
		t.Errorf("%+v, want %d keys at most", count, memory.DefaultMaxKeys)
	}
}

// TestAllLimitsTogetherAreBounded invents limits as well as keys.
func TestAllLimitsTogetherAreBounded(t *testing.T) {
	t.Parallel()
	const total = 100
	now := t0
	s := memory.New(&memory.Config{Clock: func() int64 { return now }, MaxTotal: total})
	for i := range total {
		if out := apply(t, s, takeOp(fmt.Sprint("limit ", i%7), fmt.Sprint(i), slow)); out.Granted != 1 {
			t.Fatalf("key %d: %+v", i, out)
		}
	}
	for i := range 12_000 {
		if out := apply(t, s, takeOp(fmt.Sprint("new limit ", i), "k", slow)); !errors.Is(out.Err, store.ErrFull) {
			t.Fatalf("limit %d: %+v", i, out)
		}
	}
	if got, want := countOf(t, s, ""), (store.KeyCount{Keys: total, Max: total, At: t0}); got != want {
		t.Errorf("all together: %+v, want %+v", got, want)
	}
	now += slow.Step + 1
	for range 3 { // a sweep stops at its bound; the next one removes the rest
		if _, err := s.Sweep(t.Context(), 100_000); err != nil {
			t.Fatal(err)
		}
	}
	if counts, err := s.KeyCounts(t.Context()); err != nil || len(counts) != 1 || counts[0].Keys != 0 {
		t.Errorf("nothing counts any more, and yet: %+v, %v", counts, err)
	}
}

// TestLimitsWithoutKeysAreForgotten charges one new limit after another.
func TestLimitsWithoutKeysAreForgotten(t *testing.T) {
	t.Parallel()
	now := t0
	s := memory.New(&memory.Config{Clock: func() int64 { return now }})
	ids := slow
	for i := range 20_000 {
		ids.Capacity = 1000 + int64(i) // so that the numbers of definitions are soon used up
		apply(t, s, takeOp(fmt.Sprint("limit ", i), "k", ids))
		if i%100 == 0 {
			now += 2 * slow.Step
			if _, err := s.Sweep(t.Context(), 1000); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := s.Limits(); n > 6000 {
		t.Errorf("%d limits are known, nearly all without a key", n)
	}
	for i := range 20_000 { // no limit was mixed up with another
		ids.Capacity = 1000 + int64(i)
		if out := apply(t, s, takeOp(fmt.Sprint("limit ", i), "new", ids)); out.Granted != 1 {
			t.Fatalf("limit %d: %+v", i, out)
		}
	}
}

// TestABoundOfBytes fills a store with requests that have ids, and with attempts of a log, up to Config.MaxBytes.
// Requests that would add bytes fail. Other requests go on, and so do ops that end a charge. When the charges no longer
// count, there is room again.
func TestABoundOfBytes(t *testing.T) {
	t.Parallel()
	now := t0
	s := memory.New(&memory.Config{Clock: func() int64 { return now }, MaxBytes: 100_000})
	log := law.Params{Kind: law.Log, Unit: 1, Capacity: 1 << 40, Step: 60_000_000, Drain: 1}
	attempt := func(key string) law.Op {
		op := takeOp("log", key, log)
		op.Cost = 1
		return op
	}
	request := func(i int) law.Op {
		op := takeOp("l", fmt.Sprint(i), slow)
		op.ID, op.TTL = fmt.Sprintf("request %4d", i), 60_000_000
		return op
	}
	fill := func() (requests, attempts int) {
		for requests = 0; apply(t, s, request(requests)).Err == nil; requests++ {
			if requests%2 == 0 {
				continue
			}
			if out := apply(t, s, attempt(fmt.Sprint(requests))); out.Err == nil {
				attempts++
			}
		}
		return requests, attempts
	}
	requests, attempts := fill()
	if bytes := requests*462 + attempts*100; bytes > 100_000 || bytes < 98_000 {
		t.Errorf("%d requests and %d attempts took %d bytes, of 100,000", requests, attempts, bytes)
	}
	for name, tt := range map[string]struct {
		op   law.Op
		want error
	}{
		"a request":      {request(10_000), store.ErrFull},
		"no id":          {takeOp("l", "x", slow), nil},
		"a repetition":   {request(0), nil},
		"a cancellation": {law.Op{Verb: law.Settle, Cell: request(0).Cell, Params: slow, ID: request(0).ID, Count: 1}, nil},
		"a reset":        {law.Op{Verb: law.Reset, Cell: attempt("1").Cell, Params: log}, nil},
	} {
		if out := apply(t, s, tt.op); !errors.Is(out.Err, tt.want) {
			t.Errorf("%s: %v, want %v", name, out.Err, tt.want)
		}
	}
	now += 2 * slow.Step
	if again, _ := fill(); again < requests {
		t.Errorf("%d requests when the others were over, %d before", again, requests)
	}
}

// TestCellsStayForAMomentAfterTheirDeath checks that the keys of a limit that is empty at once are still there when they
// come again soon, and that new keys take the places of those that are long dead.
func TestCellsStayForAMomentAfterTheirDeath(t *testing.T) {
	const keys = 20_000
	now := t0
	s := memory.New(&memory.Config{Clock: func() int64 { return now }})
	takeAll := func(prefix string) {
		t.Helper()
		for i := range keys {
			cell := law.Cell{Limit: "fast", Key: fmt.Sprint(prefix, i)}
			if b, ok := s.TakeOne(t.Context(), cell, &generous, 1000); !ok || !b.Granted {
				t.Fatalf("key %d: got %+v, %v", i, b, ok)
			}
		}
	}
	takeAll("a")
	now += 50_000
	takeAll("a")
	if got := countOf(t, s, "fast").Keys; got != keys {
		t.Errorf("%d cells after 50 ms, want %d", got, keys)
	}
	for round := range 10 {
		now += 200_000
		takeAll(fmt.Sprint(round))
	}
	if got := countOf(t, s, "fast").Keys; got > 2*keys {
		t.Errorf("%d cells after ten times %d new keys, want at most %d", got, keys, 2*keys)
	}
}
