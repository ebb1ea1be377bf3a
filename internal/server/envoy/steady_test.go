package envoy_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/envoy"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store/memory"
)

// TestASteadyCallerIsNotRefused asks at exactly the rate of a limit, by the algorithm of Envoy's files and by that of a
// limit that names none, for limits of 1 to 1,000 a minute, from a time within a window on.
func TestASteadyCallerIsNotRefused(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []string{envoy.DefaultAlgorithm, "token-bucket"} {
		for most := int64(1); most <= 1000; most += tier.Pick(1+most/16, 1, 1) {
			now := time.Date(2026, 11, 28, 12, 0, 7, 123_000, time.UTC).UnixMicro()
			s := memory.New(&memory.Config{Clock: func() int64 { return now }})
			limit, err := headgate.ParseNamed("l", algorithm+" "+headgate.Units(most).String()+"/1m")
			if err != nil {
				t.Fatal(err)
			}
			l := headgate.New(s, nil)
			refused, asked := 0, 3*most+10
			begin := now
			for i := range asked {
				now = begin + (i*60_000_000+most-1)/most // rounded up
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
