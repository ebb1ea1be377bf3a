#!/bin/bash
# MariaDB: a program that polls information_schema.innodb_trx without a pause never sees it change.
#
# Version: mariadbd 10.11.19 of Debian 12.
#
# InnoDB serves the table from a cache, and refreshes the cache only if it was not read for 100 ms. Every read restarts that
# time, so a loop that waits for a lock wait to appear reads the same cached rows for as long as it runs. With a pause of
# 200 ms between two reads it sees the lock wait at once. MySQL's manual documents the 100 ms, but not that a busy loop
# never ends.
#
# Seen: one session locks a row for 9 s, and a second session waits for it from half a second after the first read on.
#
#   10.11.19-MariaDB-0+deb12u1
#   polled without a pause for 5 s: 832087 looks, the wait was seen 0 times
#   polled each 200 ms for 5 s: 25 looks, the wait was seen 22 times
#
# The script fails if the loop without a pause sees the wait, or the one with a pause does not. It needs Debian 12 on amd64 or
# arm64, apt-get and its network, 500 MB below TMPDIR, and a minute. Nothing is installed. It ends with 2 when the
# distribution has another version: look then whether the finding still holds.
[ "${BASH_VERSION:-}" ] || exec bash "$0" # sh knows no pipefail
set -euo pipefail

version=1:10.11.19-0+deb12u1
work=$(mktemp -d "${TMPDIR:-/tmp}/finding.XXXXXX")
chmod 755 "$work"
pid=
trap 'kill -9 $pid 2>/dev/null; wait 2>/dev/null; rm -rf "$work"' EXIT

# Packages are unpacked below $work, with all that they need, from the sources of apt that this machine has.
mkdir -p "$work"/{root,cache/archives/partial,data/mysql,data/t}
touch "$work/status"
get() {
	apt-get -qq -o Dir::State::status="$work/status" -o Dir::Cache::archives="$work/cache/archives" \
		-o APT::Sandbox::User=root -o APT::Install-Recommends=false -o Debug::NoLocking=1 "$@"
}
if ! get install -y --download-only "mariadb-server-core=$version" "mariadb-client-core=$version" >/dev/null; then
	echo "MariaDB $version is not in apt's sources any more: look whether the finding holds for what is" >&2
	exit 2
fi
for deb in "$work"/cache/archives/*.deb; do
	dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$work/root" --keep-directory-symlink --no-same-owner
done
libraries=$(dirname "$(find "$work/root" -path '*-linux-gnu/libc.so.6' | head -n 1)")
loader=$(echo "$libraries"/ld-linux-*.so.*)
path=$libraries:$(find "$work/root/usr/lib" -maxdepth 1 -name '*-linux-gnu')
client() { "$loader" --library-path "$path" "$work/root/usr/bin/mariadb" --no-defaults -uroot -S "$work/socket" -N "$@"; }

"$loader" --library-path "$path" "$work/root/usr/sbin/mariadbd" --no-defaults --user="$(id -un)" --skip-grant-tables \
	--datadir="$work/data" --lc-messages-dir="$work/root/usr/share/mysql" --socket="$work/socket" --skip-networking \
	>"$work/log" 2>&1 &
pid=$!
for _ in $(seq 100); do client -e 'select 1' >/dev/null 2>&1 && break || sleep 0.2; done
client -e 'select version(); create table t.row (a int primary key) engine=InnoDB; insert into t.row values (1)'

# waits PAUSE: polls for 5 s within one session, and prints how often it looked, and how often a transaction waited.
waits() {
	client t -e 'begin; select a from `row` where a = 1 for update; do sleep(9)' >/dev/null &
	local holder=$!
	sleep 1
	(sleep 0.5; client t -e 'set innodb_lock_wait_timeout = 8; select a from `row` where a = 1 for update' >/dev/null 2>&1) &
	local waiter=$!
	client t <<-SQL
		delimiter //
		begin not atomic
		    declare looks, seen int default 0;
		    declare until_ datetime(6) default sysdate(6) + interval 5 second;
		    while sysdate(6) < until_ do
		        set looks = looks + 1, seen = seen + exists (select 1 from information_schema.innodb_trx where trx_state = 'LOCK WAIT');
		        do sleep($1);
		    end while;
		    select looks, seen;
		end //
	SQL
	wait "$holder" "$waiter" || true
}
waits 0 >"$work/answer" && read -r looks seen <"$work/answer"
echo "polled without a pause for 5 s: $looks looks, the wait was seen $seen times"
waits 0.2 >"$work/answer" && read -r paused paused_seen <"$work/answer"
echo "polled each 200 ms for 5 s: $paused looks, the wait was seen $paused_seen times"
[ "$looks" -gt 100 ] && [ "$seen" = 0 ] && [ "$paused_seen" -gt 0 ]
