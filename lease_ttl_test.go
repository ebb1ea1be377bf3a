package headgate_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
)

// TestALeaseKeepsTheTimeToLiveThatItWasAcquiredWith changes the limit while a lease is held: its holder counts on the
// time to live that it acquired.
func TestALeaseKeepsTheTimeToLiveThatItWasAcquiredWith(t *testing.T) {
	for _, detached := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := headgate.New(memory.New(nil), nil)
			jobs := parseNamed(t, "jobs", "concurrency 1 ttl 30s")
			long, err := parseNamed(t, "jobs", "concurrency 1 ttl 1h").Until(time.Now().Add(time.Minute), jobs)
			if err != nil {
				t.Fatal(err)
			}
			charge := headgate.Charge{Limit: long, Key: "k"}
			lease, err := l.Acquire(t.Context(), charge)
			if err != nil || !lease.Decision.Allowed {
				t.Fatalf("%+v, %v", lease, err)
			}
			var held []headgate.LeaseToken
			if detached {
				held = lease.Detach()
			}
			for range 10 {
				time.Sleep(20 * time.Minute)
				if detached {
					if err := l.Renew(t.Context(), held...); err != nil {
						t.Fatal(err)
					}
					time.Sleep(39 * time.Minute) // and less than an hour later it is held still
				}
				other, err := l.Acquire(t.Context(), charge)
				if err != nil || other.Decision.Allowed {
					t.Fatalf("somebody else has it: %+v, %v", other, err)
				}
			}
			if !detached {
				err = lease.Release(t.Context())
			} else {
				err = l.Release(t.Context(), held...)
			}
			if err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second) // a renewal began at the same time
		})
	}
}
