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

// heap returns how many bytes are in use.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what the first one has finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestAMillionKeys takes once for each of many keys, a million with make engines without the race detector, and half as
// many times by each of two limits for keys of a Zipf distribution. It compares the top 20 with what was counted for each key, and looks at what a scrape
// and the memory take.
func TestAMillionKeys(t *testing.T) {
	keys := tier.Pick(20_000, 50_000, 50_000)
	if !raced {
		keys = tier.Pick(50_000, 1_000_000, 1_000_000)
	}
	most := min(100, keys/500) // of the second limit, which is less than the first 20 keys have of the other
	counts, drawn := make([]int, keys), make([]int, keys)
	quiet := slog.New(slog.DiscardHandler)
	before := heap()
	s := memory.New(&memory.Config{Names: true})
	m := metrics.New(&metrics.Config{Log: quiet})
	limits, err := catalog.Open(t.Context(), s, &catalog.Config{Observer: m, Logger: quiet, Every: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	m.Watch(nil, limits)
	wide, _ := headgate.ParseNamed("wide", "fixed-window 1000000/300d")
	narrow, _ := headgate.ParseNamed("narrow", fmt.Sprintf("fixed-window %d/300d", most))
	_, err = limits.Set(t.Context(), catalog.By{}, catalog.Definition{Limit: wide}, catalog.Definition{Limit: narrow})
	if err == nil {
		err = limits.Refresh(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(func(name string) bool { _, ok := limits.Lookup(name); return ok })
	l := headgate.New(s, &headgate.Config{Names: limits, Observer: service.Observers{m, r}})
	random := rand.New(rand.NewPCG(7, 7))
	zipf := rand.NewZipf(random, 1.05, 1, uint64(keys-1))
	take := func(limit headgate.Limit, k int, counts []int) {
		if _, err := l.Allow(t.Context(), limit, "user-"+strconv.Itoa(k)); err != nil {
			t.Fatal(err)
		}
		counts[k]++
	}
	wide, narrow = headgate.MustNamed("wide"), headgate.MustNamed("narrow")
	for i, k := range random.Perm(keys) {
		take(wide, k, counts)
		if i%2 == 0 {
			k = int(zipf.Uint64())
			take(wide, k, counts)
			take(narrow, k, drawn)
		}
		if i%(keys/200) == 0 {
			r.pass(time.Second)
		}
	}
	full := heap()

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
		for i, k := range r.Top(by, 20, all) {
			n := k.Used
			if by == traffic.Refused {
				n = k.Refused
			}
			if exact, ok := want[k.Key]; !ok || n > float64(exact) || n < 0.99*float64(exact) {
				t.Errorf("place %d: %s has %v, and had %d", i+1, k.Key, n, exact)
			}
		}
	}
	compare(traffic.Admitted, func(k int) int { return counts[k] })
	compare(traffic.Refused, func(k int) int { return max(0, drawn[k]-most) })

	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, metrics.Path, http.NoBody))
	if w.Code != http.StatusOK || w.Body.Len() > 1<<20 {
		t.Errorf("status %d, a scrape of %d bytes", w.Code, w.Body.Len())
	}
	limits.Close()
	s.Close()
	m.Watch(nil, nil)
	s, l, limits = nil, nil, nil //nolint:wastedassign // so that they are collected
	rest := heap() - before
	if rest > 8<<20 {
		t.Errorf("metrics and traffic hold %d bytes", rest)
	}
	t.Logf("a scrape of %d bytes; %.1f MB in use with the store, %.1f MB without",
		w.Body.Len(), float64(full-before)/1e6, float64(rest)/1e6)
	runtime.KeepAlive(r)
	runtime.KeepAlive(m)
	runtime.KeepAlive(counts)
	runtime.KeepAlive(drawn)
}
