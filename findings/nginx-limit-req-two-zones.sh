#!/bin/bash
# nginx: of two limit_req in one location, a request that the second one refuses is not charged to the first.
#
# Version: nginx 1.22.1-9+deb12u11 of Debian 12.
#
# The directives are written one after another, and each has a zone of its own, so that one would think that a request
# passes the first and is charged there before the second looks at it. nginx looks at all of them first, and charges
# all or none. Below, zone a lets 3 pass at once and zone b one, both refill once a minute. Of 6 requests to both, one passes;
# the 5 that b refuses leave the 2 in a for others, which take them.
#
# Seen:
#
#   6 requests, both zones:      200 429 429 429 429 429
#   4 requests, zone a alone:    200 200 429 429
#
# The script fails if that changes. It needs Debian 12 on amd64 or arm64, apt-get and its network, curl, 5 MB below TMPDIR, and
# some seconds. Nothing is installed. It ends with 2 when Debian has another version: look then whether it still holds.
[ "${BASH_VERSION:-}" ] || exec bash "$0" # sh knows no pipefail
set -euo pipefail
version=1.22.1-9+deb12u11
work=$(mktemp -d)
pid=
trap 'kill $pid 2>/dev/null || true; wait 2>/dev/null; rm -rf "$work"' EXIT
cd "$work"
if ! apt-get -qq -o APT::Sandbox::User=root download "nginx=$version" >/dev/null 2>&1; then
	echo "nginx $version is not in the packages of this machine: look whether the finding holds for what is" >&2
	exit 2
fi
dpkg-deb --fsys-tarfile nginx_*.deb | tar -x ./usr/sbin/nginx
port=$((20000 + RANDOM % 10000))
cat >nginx.conf <<C
master_process off;
daemon off;
pid nginx.pid;
events {}
http {
	access_log off;
	client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;
	limit_req_zone a\$binary_remote_addr zone=a:1m rate=1r/m;
	limit_req_zone b\$binary_remote_addr zone=b:1m rate=1r/m;
	limit_req_status 429;
	server {
		listen 127.0.0.1:$port;
		root .;
		location = /both {
			limit_req zone=a burst=2 nodelay;
			limit_req zone=b nodelay;
			try_files /page =404;
		}
		location = /first {
			limit_req zone=a burst=2 nodelay;
			try_files /page =404;
		}
		location = /up { try_files /page =404; }
	}
}
C
echo page >page
usr/sbin/nginx -p "$work" -e "$work/errors" -c nginx.conf 2>log &
pid=$!
until curl -sf -o /dev/null "http://127.0.0.1:$port/up"; do
	kill -0 $pid || { cat log >&2; exit 1; }
	sleep 0.1
done
ask() { # ask TIMES PATH
	for _ in $(seq "$1"); do curl -s -o /dev/null -w ' %{http_code}' "http://127.0.0.1:$port$2"; done
}
{
	echo "6 requests, both zones:     $(ask 6 /both)"
	echo "4 requests, zone a alone:   $(ask 4 /first)"
} | tee seen
diff seen - <<'W' || { echo "it is not so any more" >&2; exit 1; }
6 requests, both zones:      200 429 429 429 429 429
4 requests, zone a alone:    200 200 429 429
W
