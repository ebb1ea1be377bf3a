package mysql

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/headgate/headgate/store"
)

// migrating names the lock of the present database. Locks belong to the server, where a fixed name had the migrations
// of all databases wait for each other. MySQL takes names of up to 64 characters, and 9.7 has no md5.
const migrating = "concat('headgate migrate ', left(sha2(database(), 256), 32))"

// alone has f change the schema, and repeats it for up to a minute while it conflicts with others.
// Two that migrate at once would see each other's procedures come and go. The lock is a courtesy: where
// a server has no such locks, the one that stumbles tries again.
func alone(ctx context.Context, conn *sql.Conn, f func() error) error {
	if _, err := conn.ExecContext(ctx, "DO GET_LOCK("+migrating+", 60)"); err == nil {
		defer func() { _, _ = conn.ExecContext(context.WithoutCancel(ctx), "DO RELEASE_LOCK("+migrating+")") }()
	}
	_, err := store.Retry(ctx, time.Minute, f, func(err error) bool {
		number, _ := numberOf(err)
		return slices.Contains(repeated, number)
	})
	return err
}

// repeated are the errors after which a migration is made again: those of two that migrate
// at once, and an interruption. On MariaDB a KILL QUERY of one session can interrupt another
// one that reads information_schema.triggers (28 of 160 migrations beside a loop of KILL on
// 11.8, none without it).
var repeated = []uint16{1304, 1359, 1213, errLockWait, errInterrupted}
