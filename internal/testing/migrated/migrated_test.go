package migrated

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/mysql"
	"github.com/headgate/headgate/store/postgres"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// charge charges a key of a store, closes the store, and returns the level and how many units were granted.
func charge(t *testing.T, s store.Store) (level int64, granted int) {
	t.Helper()
	defer s.Close()
	op := law.Op{
		Verb: law.Take, Cell: law.Cell{Limit: "l", Key: "k"}, Cost: 1000, Count: 1,
		Params: law.Params{Kind: law.Log, Unit: 1000, Capacity: 5000, Step: 3_600_000_000},
	}
	outs := make([]law.Outcome, 1)
	if err := s.Apply(t.Context(), []law.Op{op}, outs); err != nil || outs[0].Err != nil {
		t.Fatal(err, outs[0].Err)
	}
	return outs[0].State.Level, int(outs[0].Granted)
}

func TestEachTestHasAnEmptySchema(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) store.Store{
		"postgres": func(t *testing.T) store.Store {
			s, err := postgres.Open(t.Context(), Postgres(t), nil)
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		"mariadb": func(t *testing.T) store.Store {
			s, err := mysql.Open(t.Context(), MariaDB(t), nil)
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
	} {
		for range 3 {
			t.Run(name, func(t *testing.T) {
				if level, granted := charge(t, open(t)); level != 1000 || granted != 1 {
					t.Errorf("a first charge: got level %d, granted %d; want 1000, 1", level, granted)
				}
			})
		}
	}
}

// TestEmptyMariaDBFindsConnectionsAndChanges checks that a database is used again only without connections and changes.
func TestEmptyMariaDBFindsConnectionsAndChanges(t *testing.T) {
	d, err := newMariaDB(t)
	if err != nil {
		t.Fatal(err)
	}
	db, err := dbtest.OpenMariaDB(d.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	await.Until(t, "a database that nobody is connected to", func() bool {
		reusable, err := emptyMariaDB(d)
		if err != nil {
			t.Fatal(err)
		}
		return reusable
	})
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.PingContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if reusable, err := emptyMariaDB(d); reusable || err != nil {
		t.Errorf("beside another connection: got reusable %v, error %v; want false, nil", reusable, err)
	}
	if _, err := conn.ExecContext(t.Context(), "alter table headgate_cells drop column reason"); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	db.Close()
	await.Until(t, "the connection to end", func() bool {
		reusable, err := emptyMariaDB(d)
		return !reusable && err != nil
	})
}

func TestPostgresReturnsADatabaseWithoutCells(t *testing.T) {
	dsn := Postgres(t)
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var cells int
	if err := conn.QueryRow(t.Context(), "select count(*) from headgate.cells").Scan(&cells); err != nil || cells != 0 {
		t.Errorf("got %d cells, error %v; want 0, nil", cells, err)
	}
}
