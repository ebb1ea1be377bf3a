#!/bin/bash
# One cookie has several values: it depends on who reads it.
#
# Versions: the cookie package of npm 1.1.1 (Express reads cookies with it), http.cookies of Python 3.11, and net/http
# of Go 1.26.
#
# A client sends one cookie in four spellings (RFC 6265: quotes may stand around a value, a percent sign has no meaning,
# and what takes the blank is lenient). No two readers agree on all of them:
#
#   sent        npm cookie   http.cookies   net/http
#   s=abc       abc          abc            abc
#   s= abc      abc          abc            " abc", with the blank
#   s="abc"     "abc"        abc            abc
#   s=%61bc     abc          %61bc          %61bc
#
# npm cookie 1 keeps the quotes and decodes percent signs; http.cookies takes the quotes off; net/http takes the quotes off
# and keeps the blank. So who keys something by a cookie, such as a limit of a session, has to take off what any of them
# does, or one session has as many keys as it has spellings.
#
# The script prints what each reads and fails if that changes. It needs npm and its registry, node, python3,
# go, 10 MB below TMPDIR, and some seconds. Nothing is installed elsewhere.
[ "${BASH_VERSION:-}" ] || exec bash "$0" # sh knows no pipefail
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-audit --no-fund --prefix . cookie@1.1.1 >/dev/null
cat >read.mjs <<'J'
import { createRequire } from "node:module";
const cookie = createRequire(process.cwd() + "/")("cookie");
const parse = cookie.parseCookie || cookie.parse;
for (const header of process.argv.slice(2)) console.log(JSON.stringify(parse(header).s));
J
cat >read_http.py <<'P'
import json, sys
from http.cookies import SimpleCookie
for header in sys.argv[1:]:
    c = SimpleCookie(header)
    print(json.dumps(c["s"].value if "s" in c else None))
P
mkdir reader
cat >reader/go.mod <<'G'
module reader

go 1.22
G
cat >reader/main.go <<'G'
package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
)

func main() {
	for _, header := range os.Args[1:] {
		r := &http.Request{Header: http.Header{"Cookie": {header}}}
		text := []byte("null")
		if c, err := r.Cookie("s"); err == nil {
			text, _ = json.Marshal(c.Value)
		}
		fmt.Println(string(text))
	}
}
G
headers=('s=abc' 's= abc' 's="abc"' 's=%61bc')
paste -d '\t' <(printf '%s\n' "${headers[@]}") <(node read.mjs "${headers[@]}") \
	<(python3 read_http.py "${headers[@]}") <(cd reader && GOFLAGS=-mod=mod go run . "${headers[@]}") | tee seen
diff seen - <<'S' && echo "as it was"
s=abc	"abc"	"abc"	"abc"
s= abc	"abc"	"abc"	" abc"
s="abc"	"\"abc\""	"abc"	"abc"
s=%61bc	"abc"	"%61bc"	"%61bc"
S
