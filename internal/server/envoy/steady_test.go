package envoy_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/envoy"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store/memory"
)

// TestASteadyCallerIsNotRefused takes at exactly the rate of a limit, with the default algorithms of Envoy's files and
// of notations, for limits of 1 to 1,000 a minute. It begins within a window.
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
			refused, asked := 0, 3*limitPerMinute+10
			begin := now
			for i := range asked {
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
			if int64(refused)*100 > asked {
				t.Errorf("%s: %d of %d are refused", limit, refused, asked)
			}
		}
	}
}
