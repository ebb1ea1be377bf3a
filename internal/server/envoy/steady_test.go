package envoy_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/envoy"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store/memory"
)

// TestASteadyCallerIsNotRefused checks that at most 1 percent is refused of a caller at exactly the rate of its limit,
// for limits from 1 to 1,000 a minute, with the default algorithms of Envoy's files and of notations.
func TestASteadyCallerIsNotRefused(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []string{envoy.DefaultAlgorithm, "token-bucket"} {
		for limitPerMinute := int64(1); limitPerMinute <= 1000; limitPerMinute += tier.Pick(1+limitPerMinute/16, 1, 1) {
			now := time.Date(2026, 11, 28, 12, 0, 7, 123_000, time.UTC).UnixMicro()
			s := memory.New(&memory.Config{Clock: func() int64 { return now }})
			limit, err := headgate.ParseNamed("l", algorithm+" "+headgate.Units(limitPerMinute).String()+"/1m")
			if err != nil {
				t.Fatal(err)
			}
			l := headgate.New(s, nil)
			refused, requests := 0, 3*limitPerMinute+10
			begin := now
			for i := range requests {
				now = begin + (i*60_000_000+limitPerMinute-1)/limitPerMinute // rounded up
				d, err := l.Allow(t.Context(), limit, "k")
				if err != nil {
					t.Fatal(err)
				}
				if !d.Allowed {
					refused++
				}
			}
			s.Close()
			if int64(refused)*100 > requests {
				t.Errorf("%s: %d of %d are refused, want at most 1 percent", limit, refused, requests)
			}
		}
	}
}
