#!/bin/bash
# golang.org/x/time/rate: a reservation that is cancelled at once gives nothing back when another one came after it.
#
# Version: golang.org/x/time 0.16.0.
#
# One token a second, a burst of 10. A reserves 10 and could go at once. B reserves 10 behind it, and is to wait for ten
# seconds. A cancels, in the same instant: nothing was done with its tokens. One would think that B could go now, or
# that the third caller finds A's tokens. Neither: B waits its ten seconds, the limiter stands at -10, and in ten seconds no
# event at all happens although none happened before. Cancel gives back what was reserved less what those reserved who
# came later. Without B it gives all back.
#
# Seen:
#
#   A reserves 10: waits 0s. B reserves 10: waits 10s
#   A is cancelled: B waits 10s, and there are -10 tokens
#   after ten seconds there are 0 tokens, and 0 events were allowed; who reserves 1 waits 1s
#   without B: A is cancelled, and there are 10 tokens
#
# The script fails if that changes. It needs Go 1.25 or later, the module proxy, and some seconds. It asks for times that
# it names itself, and does not wait.
[ "${BASH_VERSION:-}" ] || exec bash "$0" # sh knows no pipefail
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cat >main.go <<'G'
package main

import (
	"fmt"
	"time"

	"golang.org/x/time/rate"
)

func main() {
	now := time.Now()
	l := rate.NewLimiter(1, 10)
	a, b := l.ReserveN(now, 10), l.ReserveN(now, 10)
	fmt.Printf("A reserves 10: waits %v. B reserves 10: waits %v\n", a.DelayFrom(now), b.DelayFrom(now))
	a.CancelAt(now)
	fmt.Printf("A is cancelled: B waits %v, and there are %v tokens\n", b.DelayFrom(now), l.TokensAt(now))
	allowed := 0
	for second := range 10 {
		if l.AllowN(now.Add(time.Duration(second)*time.Second), 1) {
			allowed++
		}
	}
	then := now.Add(10 * time.Second)
	tokens := l.TokensAt(then)
	fmt.Printf("after ten seconds there are %v tokens, and %d events were allowed; who reserves 1 waits %v\n",
		tokens, allowed, l.ReserveN(then, 1).DelayFrom(then))
	alone := rate.NewLimiter(1, 10)
	alone.ReserveN(now, 10).CancelAt(now)
	fmt.Printf("without B: A is cancelled, and there are %v tokens\n", alone.TokensAt(now))
}
G
go mod init ask >/dev/null 2>&1
go get golang.org/x/time@v0.16.0 >/dev/null 2>&1
go run . | tee seen
diff seen - <<'W' || { echo "it is not so any more" >&2; exit 1; }
A reserves 10: waits 0s. B reserves 10: waits 10s
A is cancelled: B waits 10s, and there are -10 tokens
after ten seconds there are 0 tokens, and 0 events were allowed; who reserves 1 waits 1s
without B: A is cancelled, and there are 10 tokens
W
