package headgate_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
)

// TestLeaseKeepsItsTTLAfterAChangeOfTheLimit checks that a lease is renewed by its own hour, not the new 30 s.
func TestLeaseKeepsItsTTLAfterAChangeOfTheLimit(t *testing.T) {
	for _, detached := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := headgate.New(memory.New(nil), nil)
			jobs := parseNamed(t, "jobs", "concurrency 1 ttl 30s")
			hourLimit, err := parseNamed(t, "jobs", "concurrency 1 ttl 1h").Until(time.Now().Add(time.Minute), jobs)
			if err != nil {
				t.Fatal(err)
			}
			charge := headgate.Charge{Limit: hourLimit, Key: "k"}
			lease, err := l.Acquire(t.Context(), charge)
			if err != nil || !lease.Decision.Allowed {
				t.Fatalf("got %+v, %v; want a lease", lease, err)
			}
			var tokens []headgate.LeaseToken
			if detached {
				tokens = lease.Detach()
			}
			for range 10 {
				time.Sleep(20 * time.Minute)
				if detached {
					if err := l.Renew(t.Context(), tokens...); err != nil {
						t.Fatal(err)
					}
					time.Sleep(39 * time.Minute) // less than the hour for which the lease was renewed
				}
				other, err := l.Acquire(t.Context(), charge)
				if err != nil || other.Decision.Allowed {
					t.Fatalf("a second lease: got %+v, %v; want a refusal", other, err)
				}
			}
			if !detached {
				err = lease.Release(t.Context())
			} else {
				err = l.Release(t.Context(), tokens...)
			}
			if err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second) // lets a renewal end that began with the release
		})
	}
}
