#!/bin/bash
# Redis: within a script the clock that TIME reads goes on, and the clock that ends keys stands still.
#
# Version: Redis 7.0.15 (redis-tools 5:7.0.15-1~deb12u10 of Debian 12).
#
# Since Redis 7, TIME in a script says what it is now, however long the script has run. Keys are judged by the time at which
# the script began: one that ends within 10 ms is there 50 ms later, by TIME, and has 0 ms left. SET NX finds it in the
# way. In the next command it is gone. So a script that compares a key's end with TIME, or writes a second key only if the
# first has ended, sees a key that has ended and is there.
#
# Seen:
#
#   in the script: TIME has gone on by 50 ms or more, GET v, PTTL 0, EXISTS 1, SET NX refused
#   after it: GET is nil
#
# The script fails if that changes. It needs Debian 12 on amd64 or arm64, apt-get and its network, 10 MB below TMPDIR, and some
# seconds. Nothing is installed. It ends with 2 when Debian has another version: look then whether it still holds.
[ "${BASH_VERSION:-}" ] || exec bash "$0" # sh knows no pipefail
set -euo pipefail
version=5:7.0.15-1~deb12u10
work=$(mktemp -d)
pid=
trap 'kill $pid 2>/dev/null || true; wait 2>/dev/null; rm -rf "$work"' EXIT
cd "$work"
get() { apt-get -qq -o APT::Sandbox::User=root download "$@" >/dev/null 2>&1; }
if ! get "redis-tools=$version" liblua5.1-0 liblzf1 libjemalloc2 libhiredis0.14 lua-bitop lua-cjson; then
	echo "redis-tools $version is not in the packages of this machine: look whether the finding holds for what is" >&2
	exit 2
fi
for deb in *.deb; do dpkg-deb --fsys-tarfile "$deb" | tar -x; done
libraries=$(dirname "$(find usr/lib -name 'liblua5.1.so.0' | head -n 1)")
export LD_LIBRARY_PATH=$work/$libraries
ln -sf redis-check-rdb usr/bin/redis-server # one program, by its name
socket=$work/redis.sock
usr/bin/redis-server --port 0 --unixsocket "$socket" --save '' --dir "$work" >log 2>&1 &
pid=$!
until usr/bin/redis-cli -s "$socket" ping >/dev/null 2>&1; do
	kill -0 $pid || { cat log >&2; exit 1; }
	sleep 0.1
done
cat >spin.lua <<'L'
local function now()
	local t = redis.call('TIME')
	return t[1] * 1000 + t[2] / 1000
end
redis.call('SET', KEYS[1], 'v', 'PX', 10)
local start = now()
while now() - start < 50 do end
local taken = redis.call('SET', KEYS[1], 'w', 'NX')
return 'TIME has gone on by 50 ms or more, GET ' .. (redis.call('GET', KEYS[1]) or 'nil') ..
	', PTTL ' .. redis.call('PTTL', KEYS[1]) .. ', EXISTS ' .. redis.call('EXISTS', KEYS[1]) ..
	', SET NX ' .. (taken and 'done' or 'refused')
L
{
	echo "in the script: $(usr/bin/redis-cli -s "$socket" --raw --eval spin.lua k)"
	after=$(usr/bin/redis-cli -s "$socket" --raw get k)
	echo "after it: GET is ${after:-nil}"
} | tee seen
diff seen - <<'W' || { echo "it is not so any more" >&2; exit 1; }
in the script: TIME has gone on by 50 ms or more, GET v, PTTL 0, EXISTS 1, SET NX refused
after it: GET is nil
W
