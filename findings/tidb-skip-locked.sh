#!/bin/bash
# TiDB: SELECT .. FOR UPDATE SKIP LOCKED is accepted without a warning, skips nothing and locks nothing.
#
# Version: TiDB, master of 2025-11-26 (github.com/pingcap/tidb e4e814fdc0af), unistore; go-sql-driver/mysql 1.10.1.
#
# One session locks row 1 of 3 by FOR UPDATE in a transaction that is open. MySQL 8 and later, MariaDB 10.6 and later and
# PostgreSQL give another session that asks with SKIP LOCKED the rows 2 and 3, and lock them. TiDB gives it all three, and
# locks none: a third session locks row 2 at once. So workers that take jobs from a table in this way each take the same
# jobs. FOR UPDATE NOWAIT works: error 3572.
#
# Seen:
#
#   8.0.11-TiDB-20251126154744-e4e814fdc0af     (a build that was given its revision as a version)
#   another session holds row 1; FOR UPDATE SKIP LOCKED: rows [1 2 3], warnings 0
#   after it, a third session with FOR UPDATE NOWAIT: row 2 is free
#   FOR UPDATE NOWAIT of row 1: error 3572
#
# The script fails if any of that is otherwise. It needs Go 1.25 or later and the module proxy, 12 GB below TMPDIR and
# the build cache, and a quarter of an hour of CPU to build the server; TIDB_SERVER names one that was built before.
[ "${BASH_VERSION:-}" ] || exec bash "$0" # sh knows no pipefail
set -euo pipefail

revision=20251126154744-e4e814fdc0af
work=$(mktemp -d "${TMPDIR:-/tmp}/finding.XXXXXX")
pid=
trap 'kill -9 $pid 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$work"' EXIT
cd "$work"
dir() { go mod download -json "$1" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p'; } # dir MODULE@VERSION

server=${TIDB_SERVER:-}
if [ -z "$server" ]; then # its module lacks the parser, which is a module of its own
	cp -r --no-preserve=mode "$(dir github.com/pingcap/tidb@v1.1.0-beta.0.$revision)" tidb
	cp -r --no-preserve=mode "$(dir github.com/pingcap/tidb/pkg/parser@v0.0.0-$revision)" tidb/pkg/parser
	server=$work/tidb-server
	(cd tidb && go build -trimpath -o "$server" ./cmd/tidb-server)
fi
port=$((20000 + RANDOM % 10000))
"$server" --store=unistore --path="$work/data" --host=127.0.0.1 -P "$port" --report-status=false --socket= \
	--temp-dir="$work/tmp" --log-slow-query="$work/slow" >"$work/log" 2>&1 &
pid=$!

mkdir ask
cat >ask/main.go <<'GO'
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/go-sql-driver/mysql"
)

func main() {
	ctx := context.Background()
	db, err := sql.Open("mysql", os.Args[1])
	must(err)
	for db.Ping() != nil {
		time.Sleep(200 * time.Millisecond)
	}
	run := func(c *sql.Conn, statement string) { _, err := c.ExecContext(ctx, statement); must(err) }
	open := func() *sql.Conn { c, err := db.Conn(ctx); must(err); return c }
	first, second, third := open(), open(), open()
	var version string
	must(first.QueryRowContext(ctx, "select version()").Scan(&version))
	fmt.Println(version)
	run(first, "create table jobs (id int primary key)")
	run(first, "insert into jobs values (1), (2), (3)")
	for _, c := range []*sql.Conn{first, second, third} {
		run(c, "begin")
	}
	var id int
	must(first.QueryRowContext(ctx, "select id from jobs where id = 1 for update").Scan(&id))
	rows, err := second.QueryContext(ctx, "select id from jobs order by id for update skip locked")
	must(err)
	var got []int
	for rows.Next() {
		must(rows.Scan(&id))
		got = append(got, id)
	}
	must(rows.Err())
	var warnings int
	must(second.QueryRowContext(ctx, "select @@warning_count").Scan(&warnings))
	fmt.Printf("another session holds row 1; FOR UPDATE SKIP LOCKED: rows %v, warnings %d\n", got, warnings)
	err = third.QueryRowContext(ctx, "select id from jobs where id = 2 for update nowait").Scan(&id)
	fmt.Printf("after it, a third session with FOR UPDATE NOWAIT: row 2 is %s\n", free(err))
	err = third.QueryRowContext(ctx, "select id from jobs where id = 1 for update nowait").Scan(&id)
	fmt.Printf("FOR UPDATE NOWAIT of row 1: %s\n", free(err))
}

func free(err error) string {
	var my *mysql.MySQLError
	if errors.As(err, &my) {
		return fmt.Sprint("error ", my.Number)
	}
	must(err)
	return "free"
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
GO
cd ask
go mod init ask >/dev/null 2>&1
go get github.com/go-sql-driver/mysql@v1.10.1 >/dev/null 2>&1
go run . "root@tcp(127.0.0.1:$port)/test" | tee "$work/seen"
diff <(tail -n +2 "$work/seen") - <<'WANT'
another session holds row 1; FOR UPDATE SKIP LOCKED: rows [1 2 3], warnings 0
after it, a third session with FOR UPDATE NOWAIT: row 2 is free
FOR UPDATE NOWAIT of row 1: error 3572
WANT
