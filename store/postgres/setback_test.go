package postgres_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/store/front"
	"github.com/headgate/headgate/store/storetest"
)

// TestAChargeThatWaitsWhileTheClockIsSetBack checks that the clock from before a wait does not decide a charge.
func TestAChargeThatWaitsWhileTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	server, err := (&dbtest.Config{Faults: true}).Postgres(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	s := openAt(t, server.DSN)
	if _, err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.New(t.Context(), server.DSN)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	storetest.RunSetBack(t, s, newHold(s, pool), server.ShiftClock)
	t.Run("through the whole stack", func(t *testing.T) {
		wrappedStore := front.New(s, &front.Config{SweepEvery: -1, Guard: &front.GuardConfig{Deadline: time.Minute}})
		storetest.RunSetBack(t, wrappedStore, newHold(s, pool), server.ShiftClock)
	})
}
