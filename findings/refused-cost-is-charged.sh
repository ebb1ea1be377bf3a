#!/bin/bash
# rate-limiter-flexible and ulule/limiter: a request that is refused for its cost uses up what is left.
#
# Versions: npm rate-limiter-flexible 11.4.0 (RateLimiterMemory); github.com/ulule/limiter/v3 3.11.2 (its store in memory).
#
# Ten points an hour. Eight are taken. A request of five is refused, as it should be. Two are left, one would think, and a
# request of one passes. It does not: the refused request was counted, so that 13 of 10 are used until the hour is over.
# golang.org/x/time/rate 0.16.0, which refills while it waits, lets it pass.
#
# And RateLimiterUnion of rate-limiter-flexible, which asks several limiters about one request, counts in all of them what
# one of them refuses: of 4 requests, the limiter of 1 lets one pass, and the limiter of 10 has counted 4.
#
# Seen:
#
#   rate-limiter-flexible: 8 passes, 5 refused, 1 refused
#   RateLimiterUnion of 1 and 10: 1 of 4 requests passes, and the limiter of 10 has counted 4
#   ulule/limiter: 8 passes, 5 refused, 1 refused
#   x/time/rate: 8 passes, 5 refused, 1 passes
#
# The script fails if that changes. It needs npm and its registry, node, Go 1.25 or later and the module proxy, 10 MB below
# TMPDIR, and some seconds. Nothing is installed elsewhere.
[ "${BASH_VERSION:-}" ] || exec bash "$0" # sh knows no pipefail
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-audit --no-fund --prefix . rate-limiter-flexible@11.4.0 >/dev/null
cat >ask.cjs <<'J'
const { RateLimiterMemory, RateLimiterUnion } = require("rate-limiter-flexible");
const passes = (limiter, cost) => limiter.consume("alice", cost).then(() => true, (e) => {
	if (e instanceof Error) throw e;
	return false;
});
const word = (yes) => (yes ? "passes" : "refused");
(async () => {
	const limiter = new RateLimiterMemory({ keyPrefix: "a", points: 10, duration: 3600 });
	const said = [];
	for (const cost of [8, 5, 1]) said.push(`${cost} ${word(await passes(limiter, cost))}`);
	console.log(`rate-limiter-flexible: ${said.join(", ")}`);
	const one = new RateLimiterMemory({ keyPrefix: "one", points: 1, duration: 3600 });
	const ten = new RateLimiterMemory({ keyPrefix: "ten", points: 10, duration: 3600 });
	const union = new RateLimiterUnion(one, ten);
	let passed = 0;
	for (let i = 0; i < 4; i++) if (await passes(union, 1)) passed++;
	const counted = (await ten.get("alice")).consumedPoints;
	console.log(`RateLimiterUnion of 1 and 10: ${passed} of 4 requests passes, and the limiter of 10 has counted ${counted}`);
})();
J
mkdir ask
cat >ask/main.go <<'G'
package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"
)

func main() {
	l := limiter.New(memory.NewStore(), limiter.Rate{Period: time.Hour, Limit: 10})
	say("ulule/limiter", func(cost int64) bool {
		c, err := l.Increment(context.Background(), "alice", cost)
		if err != nil {
			panic(err)
		}
		return !c.Reached
	})
	r := rate.NewLimiter(rate.Every(6*time.Minute), 10)
	say("x/time/rate", func(cost int64) bool { return r.AllowN(time.Now(), int(cost)) })
}

func say(name string, passes func(cost int64) bool) {
	var said []string
	for _, cost := range []int64{8, 5, 1} {
		word := "refused"
		if passes(cost) {
			word = "passes"
		}
		said = append(said, fmt.Sprint(cost, " ", word))
	}
	fmt.Printf("%s: %s\n", name, strings.Join(said, ", "))
}
G
(
	cd ask
	go mod init ask >/dev/null 2>&1
	go get github.com/ulule/limiter/v3@v3.11.2 golang.org/x/time@v0.16.0 >/dev/null 2>&1
)
{
	node ask.cjs
	(cd ask && go run .)
} | tee seen
diff seen - <<'W' || { echo "it is not so any more" >&2; exit 1; }
rate-limiter-flexible: 8 passes, 5 refused, 1 refused
RateLimiterUnion of 1 and 10: 1 of 4 requests passes, and the limiter of 10 has counted 4
ulule/limiter: 8 passes, 5 refused, 1 refused
x/time/rate: 8 passes, 5 refused, 1 passes
W
