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

// TestSnapshotIsolationIsRefusedInATransaction checks that a charge in a caller's transaction returns an error, and
// leaves the transaction open, if innodb_snapshot_isolation is on and the transaction is not READ COMMITTED. A conflict
// could end such a transaction, and undo all that the caller did in it.
func TestSnapshotIsolationIsRefusedInATransaction(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	db := openMultiDB(t, url)
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
		mustExec(t, db, statement)
	}
	call := func(text string) func(context.Context, *sql.Tx) error {
		return func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, text)
			return err
		}
	}
	charges := map[string]func(context.Context, *sql.Tx) error{
		"InTx": func(ctx context.Context, tx *sql.Tx) error {
			_, err := newLimiter(s.InTx(tx)).Take(ctx, charge)
			return err
		},
		"headgate_take":         call("CALL headgate_take('token-bucket 1/1h burst 50', 'k', 1)"),
		"headgate_take by name": call("CALL headgate_take('login', 'k', 1)"),
		"headgate_take_once":    call("CALL headgate_take_once('id', 'token-bucket 1/1h burst 50', 'k', 1, 0)"),
		"check_velocity":        call("CALL check_velocity(1, 'k')"),
		"request_token":         call("CALL request_token('b')"),
	}
	for _, tt := range []struct {
		level, variable string
		wantRefusal     bool
	}{
		{"REPEATABLE READ", "ON", true},
		{"SERIALIZABLE", "ON", true},
		{"READ COMMITTED", "ON", false},
		{"REPEATABLE READ", "OFF", false},
	} {
		for name, chargeInTx := range charges {
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
					mustExec(t, conn, statement)
				}
				tx, err := conn.BeginTx(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				defer tx.Rollback()
				mustExec(t, tx, "INSERT INTO orders VALUES (1)")
				// Another session charges after the snapshot. A SERIALIZABLE transaction would lock what it reads.
				if tt.level != "SERIALIZABLE" {
					rowText(t, tx, "SELECT COUNT(*) FROM headgate_cells")
					if _, err := newLimiter(s).Take(t.Context(), charge); err != nil {
						t.Fatal(err)
					}
				}
				err = chargeInTx(t.Context(), tx)
				if tt.wantRefusal && (err == nil ||
					!strings.Contains(err.Error(), "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED first")) ||
					!tt.wantRefusal && err != nil {
					t.Errorf("got %v, want a refusal: %v", err, tt.wantRefusal)
				}
				if name == "InTx" && tt.wantRefusal && !errors.Is(err, store.ErrInvalid) {
					t.Errorf("got %v, want ErrInvalid", err)
				}
				var inTransaction, orders int
				if err := tx.QueryRowContext(t.Context(), "SELECT @@in_transaction, COUNT(*) FROM orders").Scan(&inTransaction,
					&orders); err != nil || inTransaction != 1 || orders != 1 {
					t.Errorf("after the charge: got in_transaction %d, %d orders, %v; want 1 and 1", inTransaction, orders, err)
				}
				if err := tx.Rollback(); err != nil {
					t.Fatal(err)
				}
				mustExec(t, conn, "SET SESSION innodb_snapshot_isolation = DEFAULT")
			})
		}
	}
}
