package traffic_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/server/metrics"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/internal/server/traffic"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store/memory"
)

// heap returns how many bytes of the heap are in use.
func heap() int64 {
	runtime.GC()
	runtime.GC() // collects what the first one has finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestAMillionKeys takes once from a wide limit for each key, and meanwhile half as often from the wide and a narrow
// limit for keys of a Zipf distribution. With make engines, without the race detector, there are a million keys. It
// compares the top 20 keys with the exact counts, and checks the size of a scrape and the memory in use.
func TestAMillionKeys(t *testing.T) {
	keys := tier.Pick(20_000, 50_000, 50_000)
	if !raceDetector {
		keys = tier.Pick(50_000, 1_000_000, 1_000_000)
	}
	narrowCapacity := min(100, keys/500) // so that the narrow limit refuses each of the top 20 keys
	wideCounts, narrowCounts := make([]int, keys), make([]int, keys)
	log := slog.New(slog.DiscardHandler)
	heapBefore := heap()
	s := memory.New(&memory.Config{Names: true})
	m := metrics.New(&metrics.Config{Log: log})
	limits, err := catalog.Open(t.Context(), s, &catalog.Config{Observer: m, Logger: log, Every: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	m.Watch(nil, limits)
	wide, _ := headgate.ParseNamed("wide", "fixed-window 1000000/300d")
	narrow, _ := headgate.ParseNamed("narrow", fmt.Sprintf("fixed-window %d/300d", narrowCapacity))
	_, err = limits.Set(t.Context(), catalog.By{}, catalog.Definition{Limit: wide}, catalog.Definition{Limit: narrow})
	if err == nil {
		err = limits.Refresh(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(func(name string) bool { _, ok := limits.Lookup(name); return ok })
	l := headgate.New(s, &headgate.Config{Names: limits, Observer: service.Observers{m, r}})
	rng := rand.New(rand.NewPCG(7, 7))
	zipf := rand.NewZipf(rng, 1.05, 1, uint64(keys-1))
	take := func(limit headgate.Limit, k int, counts []int) {
		if _, err := l.Allow(t.Context(), limit, "user-"+strconv.Itoa(k)); err != nil {
			t.Fatal(err)
		}
		counts[k]++
	}
	wide, narrow = headgate.MustNamed("wide"), headgate.MustNamed("narrow")
	for i, k := range rng.Perm(keys) {
		take(wide, k, wideCounts)
		if i%2 == 0 {
			k = int(zipf.Uint64())
			take(wide, k, wideCounts)
			take(narrow, k, narrowCounts)
		}
		if i%(keys/200) == 0 {
			r.advance(time.Second)
		}
	}
	heapFull := heap()

	compare := func(by traffic.Outcome, exact func(k int) int) {
		order := make([]int, keys)
		for k := range order {
			order[k] = k
		}
		slices.SortFunc(order, func(a, b int) int { return exact(b) - exact(a) })
		want := map[string]int{}
		for _, k := range order[:20] {
			want["user-"+strconv.Itoa(k)] = exact(k)
		}
		for i, k := range r.Top(by, 20, allLimits) {
			n := k.Used
			if by == traffic.Refused {
				n = k.Refused
			}
			if exact, ok := want[k.Key]; !ok || n > float64(exact) || n < 0.99*float64(exact) {
				t.Errorf("place %d: %s has %v, want at least 99%% of %d", i+1, k.Key, n, exact)
			}
		}
	}
	compare(traffic.Admitted, func(k int) int { return wideCounts[k] })
	compare(traffic.Refused, func(k int) int { return max(0, narrowCounts[k]-narrowCapacity) })

	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, metrics.Path, http.NoBody))
	if w.Code != http.StatusOK || w.Body.Len() > 1<<20 {
		t.Errorf("status %d, a scrape of %d bytes, want at most 1 MiB", w.Code, w.Body.Len())
	}
	limits.Close()
	s.Close()
	m.Watch(nil, nil)
	s, l, limits = nil, nil, nil //nolint:wastedassign // lets the collector free them
	heapRest := heap() - heapBefore
	if heapRest > 8<<20 {
		t.Errorf("metrics and traffic hold %d bytes, want at most 8 MiB", heapRest)
	}
	t.Logf("a scrape of %d bytes; %.1f MB in use with the store, %.1f MB without",
		w.Body.Len(), float64(heapFull-heapBefore)/1e6, float64(heapRest)/1e6)
	runtime.KeepAlive(r)
	runtime.KeepAlive(m)
	runtime.KeepAlive(wideCounts)
	runtime.KeepAlive(narrowCounts)
}
