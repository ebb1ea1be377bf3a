package mysql_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/store"
)

// TestSeveralChargesByLimitsThatEnd has a request wait for a cell until an override has ended: it is decided by the
// limit itself, for all its charges.
func TestSeveralChargesByLimitsThatEnd(t *testing.T) {
	t.Parallel()
	db, s := client(t)
	for key, tt := range map[string]struct{ columns, call, before, want string }{
		"all": {
			"capacity remaining",
			"take_all('" + charges("user", "all", "1", "org", "all", "1", "user", "all", "1") + "')",
			"30 29, 20 19, 30 28", "10 7, 20 18, 10 6",
		},
		"once": {
			"capacity remaining",
			"reserve_all('" + charges("user", "once", "1", "org", "once", "1") + "', 60, NULL, 0)",
			"30 29, 20 19", "10 8, 20 18",
		},
		"up to": {"capacity accepted", "take_up_to('user', 'up to', 1)", "30 1.000000", "10 1.000000"},
	} {
		override := store.Item{Kind: store.KindOverride, Name: "user", Key: key, Text: "fixed-window 30/30d"}
		override.Until = time.Now().Add(time.Hour).UnixMicro()
		define(t, s, store.Item{Name: "user", Text: "fixed-window 10/30d"},
			store.Item{Name: "org", Text: "fixed-window 20/30d"}, override)
		if got := answers(t, db, tt.columns, "CALL headgate_"+tt.call); got != tt.before {
			t.Errorf("%s: while the override holds: %s, want %s", key, got, tt.before)
		}
		override.Until = time.Now().Add(time.Second).UnixMicro()
		define(t, s, override)
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.ExecContext(t.Context(), "UPDATE headgate_cells SET reason = 'held' WHERE cell_key = ?", key); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			time.Sleep(1100 * time.Millisecond)
			_, err := tx.ExecContext(context.Background(), "DO 0")
			if err == nil {
				err = tx.Commit()
			}
			ended <- err
		}()
		got := answers(t, db, tt.columns, "CALL headgate_"+tt.call)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if got != tt.want {
			t.Errorf("%s: after the override: %s, want %s", key, got, tt.want)
		}
	}
}

// TestOneOfManyRequestsOfAnIDCharges lets eight callers send the same request of several charges.
func TestOneOfManyRequestsOfAnIDCharges(t *testing.T) {
	t.Parallel()
	db, _ := client(t)
	asked := charges("fixed-window 10/30d", "a", "2", "sliding-log 10/30d", "b", "3")
	var charged atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			switch got := answers(t, db, "allowed replayed", "CALL headgate_take_all_once('i', ?, 0)", asked); got {
			case "1 0, 1 0":
				charged.Add(1)
			case "1 1, 1 1":
			default:
				t.Error(got)
			}
		})
	}
	wg.Wait()
	left := answers(t, db, "remaining", "CALL headgate_take_all(?)",
		charges("fixed-window 10/30d", "a", "1", "sliding-log 10/30d", "b", "1"))
	if charged.Load() != 1 || left != "7, 6" {
		t.Errorf("%d were charged, then %s are left", charged.Load(), left)
	}
}
