package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/mysql"
)

// TestATransactionThatAConflictWouldUndoIsRefused charges in a transaction that is not READ COMMITTED. With
// innodb_snapshot_isolation a conflict may end such a transaction, and undo all that the caller did in it, so the
// charge must be refused, and the transaction survive.
func TestATransactionThatAConflictWouldUndoIsRefused(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	db := pool(t, url)
	if snapshotIsolation(t, db) == "" {
		t.Skip("this server has no innodb_snapshot_isolation")
	}
	createTable(t, db, "orders", "id int primary key")
	s := mysql.New(db, nil)
	charge := headgate.Charge{Limit: headgate.MustParse("token-bucket 1/1h burst 50"), Key: "k"}
	for _, statement := range []string{
		"INSERT INTO headgate_limits (name, rule) VALUES ('login', 'token-bucket 1/1h burst 50')",
		"INSERT INTO headgate_zones (id, rate, window_seconds) VALUES (1, 100, 60)",
		"INSERT INTO headgate_buckets (id, capacity, refill_seconds) VALUES ('b', 100, 60)",
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	by := func(text string) func(context.Context, *sql.Tx) error {
		return func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, text)
			return err
		}
	}
	charges := map[string]func(context.Context, *sql.Tx) error{
		"InTx": func(ctx context.Context, tx *sql.Tx) error {
			_, err := limiter(s.InTx(tx)).Take(ctx, charge)
			return err
		},
		"headgate_take":         by("CALL headgate_take('token-bucket 1/1h burst 50', 'k', 1)"),
		"headgate_take by name": by("CALL headgate_take('login', 'k', 1)"),
		"headgate_take_once":    by("CALL headgate_take_once('id', 'token-bucket 1/1h burst 50', 'k', 1, 0)"),
		"check_velocity":        by("CALL check_velocity(1, 'k')"),
		"request_token":         by("CALL request_token('b')"),
	}
	for _, tt := range []struct {
		level, variable string
		refused         bool
	}{
		{"REPEATABLE READ", "ON", true},
		{"SERIALIZABLE", "ON", true},
		{"READ COMMITTED", "ON", false},
		{"REPEATABLE READ", "OFF", false},
	} {
		for name, do := range charges {
			t.Run(tt.level+" "+tt.variable+" "+name, func(t *testing.T) {
				conn, err := db.Conn(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				for _, statement := range []string{
					"UPDATE headgate_limits SET rule_compiled = NULL",
					"DELETE FROM orders",
					"SET SESSION innodb_snapshot_isolation = " + tt.variable,
					"SET SESSION TRANSACTION ISOLATION LEVEL " + tt.level,
				} {
					if _, err := conn.ExecContext(t.Context(), statement); err != nil {
						t.Fatal(err)
					}
				}
				tx, err := conn.BeginTx(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				defer tx.Rollback()
				if _, err := tx.ExecContext(t.Context(), "INSERT INTO orders VALUES (1)"); err != nil {
					t.Fatal(err)
				}
				// which locks what it reads. The snapshot is older than a charge of somebody else's.
				if tt.level != "SERIALIZABLE" {
					answerOf(t, tx, "SELECT COUNT(*) FROM headgate_cells")
					if _, err := limiter(s).Take(t.Context(), charge); err != nil {
						t.Fatal(err)
					}
				}
				err = do(t.Context(), tx)
				if tt.refused && (err == nil ||
					!strings.Contains(err.Error(), "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED first")) ||
					!tt.refused && err != nil {
					t.Errorf("got %v, refused must be %v", err, tt.refused)
				}
				if name == "InTx" && tt.refused && !errors.Is(err, store.ErrInvalid) {
					t.Errorf("its class: %v", err)
				}
				var inside, orders int
				if err := tx.QueryRowContext(t.Context(), "SELECT @@in_transaction, COUNT(*) FROM orders").Scan(&inside,
					&orders); err != nil || inside != 1 || orders != 1 {
					t.Errorf("after it: in a transaction %d, %d orders, %v", inside, orders, err)
				}
				if err := tx.Rollback(); err != nil {
					t.Fatal(err)
				}
				if _, err := conn.ExecContext(t.Context(),
					"SET SESSION innodb_snapshot_isolation = DEFAULT"); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}
