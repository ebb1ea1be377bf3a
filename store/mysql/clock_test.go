package mysql_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/mysql"
)

// TestADecisionThatWaitedReadsTheClockAfterwards has a charge wait for its row for longer than a cell follows a
// clock that is set back. Another charge is committed before it. By the clock from before the wait the cell would go
// back in time, and forget that charge.
func TestADecisionThatWaitedReadsTheClockAfterwards(t *testing.T) {
	t.Parallel()
	decidesAfterTheWait(t, dbtest.MariaDB(t))
}

// TestGaleraDecisionThatWaitedReadsTheClockAfterwards is the same on a node of Galera, where the statements of one
// text all see the time at which the text began.
func TestGaleraDecisionThatWaitedReadsTheClockAfterwards(t *testing.T) {
	decidesAfterTheWait(t, dbtest.Galera(t)[0])
}

// TestAServerWhoseSYSDATEStandsStillIsRefused: what a statement has waited would not be known.
func TestAServerWhoseSYSDATEStandsStillIsRefused(t *testing.T) {
	t.Parallel()
	server, err := dbtest.StartMariaDB(t.Context(), "--sysdate-is-now")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	url := dbtest.MariaDBAt(t, server.DSN)[0]
	s, err := mysql.Open(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, err = s.Migrate(t.Context())
	_, err2 := limiter(s).Allow(t.Context(), headgate.MustParse("token-bucket 1/s"), "k")
	for _, err := range []error{err, err2} {
		if !errors.Is(err, store.ErrSetup) || !strings.Contains(err.Error(), "sysdate-is-now") {
			t.Error(err)
		}
	}
}

func decidesAfterTheWait(t *testing.T, url string) {
	t.Helper()
	s := openAt(t, url)
	db := pool(t, url)
	people := plain(t, url)
	for name, waits := range map[string]func(limit headgate.Limit, key string) (int64, error){
		"alone": func(limit headgate.Limit, key string) (int64, error) { return decidedAt(s, chargeOf(limit, key)) },
		"several": func(limit headgate.Limit, key string) (int64, error) {
			return decidedAt(s, chargeOf(limit, key), chargeOf(limit, key))
		},
		"once": func(limit headgate.Limit, key string) (int64, error) {
			op := chargeOf(limit, key)
			op.ID, op.TTL = "id", 1_000_000
			return decidedAt(s, op)
		},
		"by SQL": func(limit headgate.Limit, key string) (int64, error) {
			got, err := call(t, people, "headgate_take", limit.String(), key, "1")
			if err == nil && got.allowed != 1 {
				err = errors.New("it was refused")
			}
			return got.at.UnixMicro(), err
		},
	} {
		for _, notation := range []string{
			"token-bucket 10/1s", "fixed-window 10/1s", "sliding-window 10/1s", "sliding-log 10/1s",
		} {
			t.Run(name+"/"+strings.Fields(notation)[0], func(t *testing.T) {
				t.Parallel()
				limit := headgate.MustParse(notation)
				apply(t, s, chargeOf(limit, name))
				tx := begin(t, db)
				if _, err := tx.ExecContext(t.Context(), "SELECT 1 FROM headgate_cells WHERE limit_name = ? AND cell_key = ? "+
					"FOR UPDATE", limit.String(), name); err != nil {
					t.Fatal(err)
				}
				type answer struct {
					at  int64
					err error
				}
				answered := make(chan answer)
				go func() {
					at, err := waits(limit, name)
					answered <- answer{at, err}
				}()
				time.Sleep(2500 * time.Millisecond)
				first := apply(t, mysql.New(db, nil).InTx(tx), chargeOf(limit, name))[0]
				if err := tx.Commit(); err != nil {
					t.Fatal(err)
				}
				got := <-answered
				check := chargeOf(limit, name)
				check.Verb = law.Check
				if now := apply(t, s, check)[0].Clock; got.err != nil || got.at < first.Clock || got.at > now {
					t.Errorf("decided %d us after the charge before it (%v)", got.at-first.Clock, got.err)
				}
			})
		}
	}
}

func chargeOf(limit headgate.Limit, key string) law.Op {
	p := limit.Params()
	return law.Op{
		Verb: law.Take, Group: 1, Cell: law.Cell{Limit: limit.String(), Key: key}, Params: p, Cost: p.Unit, Count: 1,
	}
}

// decidedAt returns when requests of one charge were decided, by the store's clock.
func decidedAt(s store.Store, ops ...law.Op) (int64, error) {
	outs := make([]law.Outcome, len(ops))
	for i := range ops {
		ops[i].Group = uint32(i + 1)
	}
	err := s.Apply(context.Background(), ops, outs)
	return outs[0].Clock, errors.Join(err, outs[0].Err)
}
