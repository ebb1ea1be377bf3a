#!/bin/bash
# MySQL Group Replication: a member that asks to join again too early is added, and removed at once. It does not notice.
#
# Version: mysqld 9.7.4-2 of Debian sid, with group_replication_member_expel_timeout=0.
#
# A member is killed with SIGKILL, and a server with its address asks to join in its place: itself, started again, or
# here one that is up already, so that the time of its question does not depend on how long a start takes. Some 5 s
# after the kill the others remove the member from the group, in two steps: the layer below (XCom) forgets the address,
# and one to two seconds later the others install a view without the member. If START GROUP_REPLICATION asks between the
# two, the address is added again. The others still have it in their view, and find it silent, since it is about to
# start. So they take it for a member under suspicion and not for one that joins, and with an expel timeout of 0 they
# remove it in the same second. The new member takes itself for added and waits for a view that never comes. After 30 s
# it asks again, which may succeed; or after 60 s it gives up, waits 30 s more to leave, and START GROUP_REPLICATION
# fails with error 3092 after 91 s.
#
# If it asks once no other member lists it in performance_schema.replication_group_members, it joins within seconds.
#
# Seen, on two cores with a load of 40. "Node has already been removed" names the new member the second time:
#
#   round 1, asked early: START GROUP_REPLICATION took 9 s: joined
#   round 2, asked early: START GROUP_REPLICATION took 12 s: joined
#   round 3, asked early: START GROUP_REPLICATION took 43 s: joined
#     member 1: has become unreachable.'
#     member 1: Node has already been removed: 127.0.0.1:28727 17958083002865049.'
#     member 1: Adding new node to the configuration: 127.0.0.1:28727'
#     member 1: Node has already been removed: 127.0.0.1:28727 17958083270794171.'
#     member 1: Group membership changed to 127.0.0.1:28721, 127.0.0.1:28722 on view 17958082127519623:8.'
#     member 1: Adding new node to the configuration: 127.0.0.1:28727'
#     member 1: Group membership changed to 127.0.0.1:28721, 127.0.0.1:28722, 127.0.0.1:28724 on view ...
#   round 1, asked once it was forgotten: START GROUP_REPLICATION took 9 s: joined
#
# In another run, where the member itself was started again:
#
#   round 3, asked early: START GROUP_REPLICATION took 91 s: ERROR 3092 (HY000) at line 1: The server is not configured
#   properly to be an active member of the group. Please see more details on error log.
#
# The script fails if twenty early requests all succeed within 30 s, or if one does not that came once the others had
# forgotten the member. It needs Debian on amd64 or arm64, apt-get and its network, 2 GB below TMPDIR, two to fifteen
# minutes. Nothing is installed. It ends with 2 when sid has another
# version: look then whether the finding still holds.
[ "${BASH_VERSION:-}" ] || exec bash "$0" # sh knows no pipefail
set -euo pipefail

version=9.7.4-2
work=$(mktemp -d "${TMPDIR:-/tmp}/finding.XXXXXX")
pids=() seen=(0 0)
trap 'kill -9 "${pids[@]}" 2>/dev/null; wait 2>/dev/null; rm -rf "$work"' EXIT

# Packages are unpacked below $work, with all that they need, from the mirror of Debian that this machine uses.
mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | grep -v '^ *#' |
	grep -oE 'https?://[^ ]+/debian/?( |$)' | head -n 1) || true
[ -n "$mirror" ] || { echo "apt's sources name no mirror of Debian" >&2; exit 2; }
mkdir -p "$work"/{root,lists/partial,cache/archives/partial}
touch "$work/status"
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb [signed-by=$keyring] ${mirror% } sid main" >"$work/sources"
get() {
	apt-get -qq -o Dir::Etc::sourcelist="$work/sources" -o Dir::Etc::sourceparts=/dev/null \
		-o Dir::State::lists="$work/lists" -o Dir::State::status="$work/status" -o Dir::Cache="$work/cache" \
		-o APT::Sandbox::User=root -o APT::Install-Recommends=false -o Debug::NoLocking=1 "$@"
}
get update
if ! get install -y --download-only "mysql-server-core=$version" "mysql-client-core=$version" >/dev/null; then
	echo "MySQL $version is not in Debian sid any more: look whether the finding holds for what is" >&2
	exit 2
fi
for deb in "$work"/cache/archives/*.deb; do
	dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$work/root" --keep-directory-symlink --no-same-owner
done
libraries=$(dirname "$(find "$work/root/usr/lib" -path '*-linux-gnu/libc.so.6')")
loader=$(echo "$libraries"/ld-linux-*.so.*)
server() {
	exec "$loader" --library-path "$libraries" "$work/root/usr/sbin/mysqld" --no-defaults --user="$(id -un)" "$@"
}
client() { # client NODE: statements come from the standard input
	"$loader" --library-path "$libraries" "$work/root/usr/bin/mysql" --no-defaults -uroot -S"$work/$1.sock" -N 2>&1
}
ask() { echo "$2" | client "$1"; } # ask NODE STATEMENT

share=$work/root/usr/share/mysql
places=(--basedir="$work/root/usr" --lc-messages-dir="$share" --character-sets-dir="$share/charsets"
	--plugin-dir="$work/root/usr/lib/mysql/plugin" --secure-file-priv= --mysqlx=OFF --tmpdir="$work")
echo "create user root@'127.0.0.1'; grant all on *.* to root@'127.0.0.1' with grant option;" >"$work/accounts.sql"
(server "${places[@]}" --initialize-insecure --skip-log-bin --init-file="$work/accounts.sql" --datadir="$work/data") \
	>"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
rm "$work/data/auto.cnf"
port=$((20000 + RANDOM % 10000))
seeds=127.0.0.1:$((port + 4)),127.0.0.1:$((port + 5)),127.0.0.1:$((port + 6))
start() { # start NODE: the third and the fourth have one address in the group
	local i=$1
	[ -d "$work/data$i" ] || cp -a "$work/data" "$work/data$i"
	server "${places[@]}" --datadir="$work/data$i" --socket="$work/$i.sock" --pid-file="$work/$i.pid" \
		--bind-address=127.0.0.1 --port=$((port + i)) --skip-name-resolve --server-id=$((i + 1)) --gtid-mode=ON \
		--enforce-gtid-consistency=ON --report-host=127.0.0.1 --report-port=$((port + i)) --super-read-only=ON \
		--log-error-verbosity=3 --innodb-buffer-pool-size=64M --plugin-load-add=group_replication.so \
		--loose-group-replication-group-name=aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee \
		--loose-group-replication-start-on-boot=OFF --loose-group-replication-group-seeds="$seeds" \
		--loose-group-replication-local-address=127.0.0.1:$((port + 4 + (i < 2 ? i : 2))) \
		--loose-group-replication-member-expel-timeout=0 >>"$work/log$i" 2>&1 &
	pids[i]=$!
	until ask "$i" "do 1" >/dev/null; do
		kill -0 "${pids[i]}" || { tail "$work/log$i" >&2; exit 1; }
		sleep 0.1
	done
}
online() { ask 0 "select count(*) from performance_schema.replication_group_members where member_state = 'ONLINE'"; }
said() { tail -n +$((seen[$1] + 1)) "$work/log$1"; } # said MEMBER: what it has logged since the kill
soon() { [ $(($(date +%s%N) - killed)) -ge 4500000000 ]; } # it asks for two seconds, and again five seconds later
missed() { grep -q 'has become unreachable' <(said 0; said 1); }
forgotten() {
	local i
	for i in 0 1; do
		[ "$(ask $i "select 1 from performance_schema.replication_group_members where member_port = $((port + gone))")" = "" ] ||
			return 1
	done
}
join() { # join NODE CONDITION: asks as soon as the condition holds, and sets took and answer
	answer=$({
		until "$2"; do sleep 0.02; done
		date +%s >"$work/asked"
		echo "start group_replication;"
	} | client "$1") && answer=joined
	took=$(($(date +%s) - $(<"$work/asked")))
}
recovery="change replication source to source_user='root' for channel 'group_replication_recovery'"

for i in 0 1 2; do
	start $i
	ask $i "$recovery"
	[ $i != 0 ] || ask 0 "set global group_replication_bootstrap_group=ON"
	join $i true
	[ "$answer" = joined ] || { echo "$answer"; tail -n 20 "$work/log$i"; exit 1; } >&2
	[ $i != 0 ] || ask 0 "set global group_replication_bootstrap_group=OFF"
	until [ "$(online)" = $((i + 1)) ]; do sleep 0.1; done
done
ask 0 "select concat('mysqld ', version(), ', three members')"

member=2 other=3
start $other
ask $other "$recovery"

again() { # again CONDITION: kills the third member, and has the other server join when the condition holds
	seen=("$(wc -l <"$work/log0")" "$(wc -l <"$work/log1")")
	gone=$member
	kill -9 "${pids[gone]}"
	killed=$(date +%s%N)
	wait "${pids[gone]}" 2>/dev/null || true
	join $other "$1"
	member=$other other=$gone
}
settle() { # there are three members, whatever it takes, and another server
	[ "$answer" = joined ] ||
		until ask $member "stop group_replication; start group_replication" >/dev/null; do sleep 1; done
	until [ "$(online)" = 3 ]; do sleep 0.1; done
	start $other
}

for round in $(seq 20); do
	if ((round % 2)); then again soon; else again missed; fi
	echo "round $round, asked early: START GROUP_REPLICATION took $took s: $answer"
	[ $took -lt 30 ] || break
	settle
done
if [ $took -lt 30 ]; then
	echo "this is not as it was found: a server may ask to join before the others have forgotten its address" >&2
	exit 1
fi
for i in 0 1; do
	said "$i" |
		grep -o '\(has become unreachable\|Adding new node\|Node has already been removed\|Group membership\).*' |
		sed "s/^/  member $((i + 1)): /"
done
settle
for round in 1 2 3; do
	again forgotten
	echo "round $round, asked once it was forgotten: START GROUP_REPLICATION took $took s: $answer"
	if [ "$answer" != joined ] || [ $took -ge 30 ]; then
		echo "this is not as it was found: it did not join in time, although the others had forgotten its address" >&2
		exit 1
	fi
	settle
done
