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

// hourly is a limit of one unit, which drains in an hour.
var hourly = law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 1000, Step: 3_600_000_000, Drain: 1000}

// takeOp returns an op that takes 1000 credits.
func takeOp(limit, key string, p law.Params) law.Op {
	return law.Op{Verb: law.Take, Cell: law.Cell{Limit: limit, Key: key}, Params: p, Cost: 1000, Count: 1}
}

// countOf returns the count of a limit's keys; of the keys of all limits if limit is empty.
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

// TestAFloodOfKeysIsRefused charges 60,000 keys more than MaxKeys. They fail, and take next to no memory. Other limits,
// and the keys that have a cell, are decided as before. New keys pass once no charge counts any more.
func TestAFloodOfKeysIsRefused(t *testing.T) {
	tier.Engines(t)
	const maxKeys, newKeys = 10_000, 60_000
	heapBytes := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	now := t0
	s := memory.New(&memory.Config{Clock: func() int64 { return now }, MaxKeys: maxKeys})
	for i := range maxKeys {
		if b, ok := s.TakeOne(t.Context(), law.Cell{Limit: "slow", Key: fmt.Sprint(i)}, &hourly, 1000); !ok ||
			!b.Granted {
			t.Fatalf("key %d: got %+v, %v; want it admitted", i, b, ok)
		}
	}
	before := heapBytes()
	for i := range newKeys {
		if out := apply(t, s, takeOp("slow", fmt.Sprint("new ", i), hourly)); !errors.Is(out.Err, store.ErrFull) {
			t.Fatalf("new key %d: got %+v, want ErrFull", i, out)
		}
	}
	if growth := int64(heapBytes()) - int64(before); growth > 1<<20 {
		t.Errorf("got %d bytes more after %d new keys, want 1 MiB at most", growth, newKeys)
	}
	want := store.KeyCount{Limit: "slow", Keys: maxKeys, Max: maxKeys, At: t0}
	if got := countOf(t, s, "slow"); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if out := apply(t, s, takeOp("another", "k", hourly)); out.Granted != 1 {
		t.Errorf("another limit: got %+v, want it admitted", out)
	}
	if b, ok := s.TakeOne(t.Context(), law.Cell{Limit: "slow", Key: "7"}, &hourly, 1000); !ok || b.Granted {
		t.Errorf("a key with a cell: got %+v, %v; want it refused", b, ok)
	}

	now += hourly.Step + 1 // no charge counts any more
	for i := range 1000 {
		for n := range 2 {
			if out := apply(t, s, takeOp("slow", fmt.Sprint("new ", i), hourly)); out.Granted != int64(1-n) {
				t.Fatalf("new key %d when no charge counts, take %d: got %+v", i, n+1, out)
			}
		}
	}
}

// TestAFullLimitMakesNoCell checks that a verb which would make a cell fails, and its whole group with it.
func TestAFullLimitMakesNoCell(t *testing.T) {
	t.Parallel()
	s := memory.New(&memory.Config{Clock: func() int64 { return t0 }, MaxKeys: 2, Names: true})
	apply(t, s, takeOp("l", "a", hourly))
	apply(t, s, takeOp("l", "b", hourly))
	newKeyOp := func(v law.Verb, ttl int64) law.Op {
		op := takeOp("l", "new", hourly)
		op.Verb, op.TTL = v, ttl
		return op
	}
	takeWithID := takeOp("l", "new", hourly)
	takeWithID.ID, takeWithID.TTL = "id", 1000
	settle := newKeyOp(law.Settle, 0)
	settle.ID = "id"
	for name, tt := range map[string]struct {
		op      law.Op
		granted int64
		wantErr error
	}{
		"take":         {takeOp("l", "new", hourly), 0, store.ErrFull},
		"with an id":   {takeWithID, 0, store.ErrFull},
		"block":        {newKeyOp(law.Block, 1000), 0, store.ErrFull},
		"lift a block": {newKeyOp(law.Block, 0), 1, nil},
		"check":        {newKeyOp(law.Check, 0), 1, nil},
		"reset":        {newKeyOp(law.Reset, 0), 0, nil},
		"settle":       {settle, 0, law.ErrUnknownID},
	} {
		out := apply(t, s, tt.op)
		if out.Granted != tt.granted || !errors.Is(out.Err, tt.wantErr) {
			t.Errorf("%s: got %+v, want %d granted and error %v", name, out, tt.granted, tt.wantErr)
		}
		if _, ok := s.TakeOne(t.Context(), tt.op.Cell, &hourly, 1000); ok {
			t.Errorf("%s: TakeOne has decided the new key, want it left to Apply", name)
		}
	}
	ops := []law.Op{takeOp("other", "k", hourly), takeOp("l", "new", hourly)}
	outs := make([]law.Outcome, 2)
	if err := s.Apply(t.Context(), ops, outs); err != nil || !errors.Is(outs[0].Err, store.ErrFull) ||
		!errors.Is(outs[1].Err, store.ErrFull) {
		t.Errorf("a group: got %+v, %v; want ErrFull for both ops", outs, err)
	}
	if cells, _, err := s.Cells(t.Context(), store.Query{}); err != nil || len(cells) != 2 {
		t.Errorf("got cells %+v, %v; want two", cells, err)
	}
	if total := countOf(t, s, ""); total.Keys != 2 {
		t.Errorf("got %+v, want two keys of all limits", total)
	}
}

// TestDeadKeysMakeNoTableGrow makes 60,000 keys, or pairs, that die after 0.1 s, without a sweep: later keys must
// replace them.
func TestDeadKeysMakeNoTableGrow(t *testing.T) {
	t.Parallel()
	shortLimit := law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 1000, Step: 100_000, Drain: 1000} // 0.1 s
	const keys, keysPerStep = 60_000, 600
	for name, takeKey := range map[string]func(s *memory.Store, key string) bool{
		"one": func(s *memory.Store, key string) bool {
			b, ok := s.TakeOne(t.Context(), law.Cell{Limit: "brief", Key: key}, &shortLimit, 1000)
			return ok && b.Granted
		},
		"a group of two": func(s *memory.Store, key string) bool {
			ops := []law.Op{takeOp("brief", key, shortLimit), takeOp("brief", key+"b", shortLimit)}
			ops[0].Group, ops[1].Group = 1, 1
			outs := make([]law.Outcome, 2)
			return s.Apply(t.Context(), ops, outs) == nil && outs[0].Granted == 1 && outs[1].Granted == 1
		},
	} {
		now := t0
		s := memory.New(&memory.Config{Clock: func() int64 { return now }})
		for i := range keys {
			if i%keysPerStep == 0 {
				now += 2 * shortLimit.Step
			}
			if !takeKey(s, fmt.Sprint(i)) {
				t.Fatalf("%s: key %d was refused", name, i)
			}
		}
		if count := countOf(t, s, "brief"); count.Keys > keys/2 { // each table keeps a few dead cells
			t.Errorf("%s: got %d cells, want %d at most: %d can count", name, count.Keys, keys/2, 2*keysPerStep)
		}
	}
}

func TestDefaultMaxKeys(t *testing.T) {
	t.Parallel()
	s := memory.New(nil)
	apply(t, s, takeOp("slow", "k", hourly))
	if count := countOf(t, s, "slow"); count.Max != memory.DefaultMaxKeys {
		t.Errorf("got %+v, want Max %d", count, memory.DefaultMaxKeys)
	}
}

// TestAllLimitsTogetherAreBounded charges more limits and keys than MaxTotal.
func TestAllLimitsTogetherAreBounded(t *testing.T) {
	t.Parallel()
	const maxTotal = 100
	now := t0
	s := memory.New(&memory.Config{Clock: func() int64 { return now }, MaxTotal: maxTotal})
	for i := range maxTotal {
		if out := apply(t, s, takeOp(fmt.Sprint("limit ", i%7), fmt.Sprint(i), hourly)); out.Granted != 1 {
			t.Fatalf("key %d: got %+v, want it admitted", i, out)
		}
	}
	for i := range 12_000 {
		if out := apply(t, s, takeOp(fmt.Sprint("new limit ", i), "k", hourly)); !errors.Is(out.Err, store.ErrFull) {
			t.Fatalf("limit %d: got %+v, want ErrFull", i, out)
		}
	}
	if got, want := countOf(t, s, ""), (store.KeyCount{Keys: maxTotal, Max: maxTotal, At: t0}); got != want {
		t.Errorf("all limits: got %+v, want %+v", got, want)
	}
	now += hourly.Step + 1
	for range 3 { // the first sweep removes all, two more change nothing
		if _, err := s.Sweep(t.Context(), 100_000); err != nil {
			t.Fatal(err)
		}
	}
	if counts, err := s.KeyCounts(t.Context()); err != nil || len(counts) != 1 || counts[0].Keys != 0 {
		t.Errorf("no charge counts any more: got %+v, %v; want no keys", counts, err)
	}
}

// TestLimitsWithoutKeysAreForgotten charges 20,000 limits, and sweeps when their charges no longer count.
func TestLimitsWithoutKeysAreForgotten(t *testing.T) {
	t.Parallel()
	now := t0
	s := memory.New(&memory.Config{Clock: func() int64 { return now }})
	p := hourly
	for i := range 20_000 {
		p.Capacity = 1000 + int64(i) // so the numbers of definitions are soon used up
		apply(t, s, takeOp(fmt.Sprint("limit ", i), "k", p))
		if i%100 == 0 {
			now += 2 * hourly.Step
			if _, err := s.Sweep(t.Context(), 1000); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := s.CountLimits(); n > 6000 {
		t.Errorf("got %d limits, want 6000 at most: nearly all have no key", n)
	}
	for i := range 20_000 { // each limit has its own cells
		p.Capacity = 1000 + int64(i)
		if out := apply(t, s, takeOp(fmt.Sprint("limit ", i), "new", p)); out.Granted != 1 {
			t.Fatalf("limit %d: got %+v, want a new key admitted", i, out)
		}
	}
}

// TestAStoreIsFullAtMaxBytes fills a store with requests that have ids, and with attempts of a log. Then requests that
// would add bytes fail, others are decided, and so are ops that end a charge. When no charge counts, there is room.
func TestAStoreIsFullAtMaxBytes(t *testing.T) {
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
		op := takeOp("l", fmt.Sprint(i), hourly)
		op.ID, op.TTL = fmt.Sprintf("request %4d", i), 60_000_000
		return op
	}
	fillBytes := func() (requests, attempts int) {
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
	requests, attempts := fillBytes()
	// A receipt takes 450 bytes and 12 for its id, a log entry 100.
	if bytes := requests*462 + attempts*100; bytes > 100_000 || bytes < 98_000 {
		t.Errorf("got %d requests and %d attempts in %d bytes, want 98,000 to 100,000", requests, attempts, bytes)
	}
	oldRequest := request(0)
	settle := law.Op{Verb: law.Settle, Cell: oldRequest.Cell, Params: hourly, ID: oldRequest.ID, Count: 1}
	for name, tt := range map[string]struct {
		op   law.Op
		want error
	}{
		"a request":    {request(10_000), store.ErrFull},
		"no id":        {takeOp("l", "x", hourly), nil},
		"a repetition": {oldRequest, nil},
		"a settlement": {settle, nil},
		"a reset":      {law.Op{Verb: law.Reset, Cell: attempt("1").Cell, Params: log}, nil},
	} {
		if out := apply(t, s, tt.op); !errors.Is(out.Err, tt.want) {
			t.Errorf("%s: got %v, want %v", name, out.Err, tt.want)
		}
	}
	now += 2 * hourly.Step
	if newRequests, _ := fillBytes(); newRequests < requests {
		t.Errorf("got %d requests when no charge counts any more, want %d as before", newRequests, requests)
	}
}

// TestCellsStayForAMomentAfterTheirDeath checks that the keys of a limit that is empty at once are still there if they
// come again soon, and that new keys take the places of cells that are long dead.
func TestCellsStayForAMomentAfterTheirDeath(t *testing.T) {
	const keys = 20_000
	now := t0
	s := memory.New(&memory.Config{Clock: func() int64 { return now }})
	takeAll := func(prefix string) {
		t.Helper()
		for i := range keys {
			cell := law.Cell{Limit: "fast", Key: fmt.Sprint(prefix, i)}
			if b, ok := s.TakeOne(t.Context(), cell, &fastLimit, 1000); !ok || !b.Granted {
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
