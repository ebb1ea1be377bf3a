#!/bin/bash
# Caddy: the path matcher leaves out dots and blanks at the end of a path, and ignores case, on Linux too.
#
# Version: caddy 2.6.2-5 of Debian 12. Caddy 2.11.9, built by go install, leaves dots and blanks where they are on Linux.
#
# A matcher `path /hello` matches requests for /hello, and for /HELLO, /hello., /hello... and /hello%20 as well. Windows
# ignores dots and blanks at the end of the names of files, and Caddy does so for all systems and for all handlers, not
# for its file server alone. What stands behind it sees the path as it was sent: the placeholder {http.request.uri.path}
# below is /hello. then. nginx 1.22 (location = /hello), HAProxy 2.6 and Go's ServeMux serve none of these as
# /hello.
#
# Seen:
#
#   /hello       matches   the path is /hello
#   /HELLO       matches   the path is /HELLO
#   /hello.      matches   the path is /hello.
#   /hello...    matches   the path is /hello...
#   /hello%20    matches   the path is /hello (with a blank)
#   /hello,      does not match
#   /hello~      does not match
#
# The script fails if that changes. It needs Debian 12 on amd64 or arm64, apt-get and its network, curl, 60 MB below TMPDIR,
# and ten seconds. Nothing is installed. It ends with 2 when Debian has another version: look then whether it still holds.
[ "${BASH_VERSION:-}" ] || exec bash "$0" # sh knows no pipefail
set -euo pipefail
version=2.6.2-5
work=$(mktemp -d)
trap 'kill "${pid:-}" 2>/dev/null || true; wait 2>/dev/null; rm -rf "$work"' EXIT
cd "$work"
if ! apt-get -qq -o APT::Sandbox::User=root download "caddy=$version" >/dev/null 2>&1; then
	echo "caddy $version is not in the packages of this machine: look whether the finding holds for what is" >&2
	exit 2
fi
dpkg-deb --fsys-tarfile caddy_*.deb | tar -x ./usr/bin/caddy
port=$((20000 + RANDOM % 10000))
cat >Caddyfile <<C
{
	admin off
	auto_https off
}
http://:$port {
	bind 127.0.0.1
	handle /hello {
		respond "matches   the path is {http.request.uri.path}"
	}
	respond "does not match"
}
C
HOME=$work XDG_DATA_HOME=$work XDG_CONFIG_HOME=$work ./usr/bin/caddy run --config Caddyfile >log 2>&1 &
pid=$!
until curl -s -o /dev/null "http://127.0.0.1:$port/"; do
	kill -0 $pid || { cat log >&2; exit 1; }
	sleep 0.1
done
wrong=0
while read -r path want; do
	answer=$(curl -s --path-as-is "http://127.0.0.1:$port$path")
	printf '%-12s %s\n' "$path" "$answer"
	case $answer in
	"$want"*) ;;
	*) wrong=1 ;;
	esac
done <<'T'
/hello matches
/HELLO matches
/hello. matches
/hello... matches
/hello%20 matches
/hello, does not match
/hello~ does not match
T
[ $wrong -eq 0 ] || { echo "it is not so any more" >&2; exit 1; }
