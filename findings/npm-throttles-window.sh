#!/bin/bash
# p-throttle and p-queue: "2 in a second" starts 3 within a fraction of a second, unless one asks for strict.
#
# Versions: npm p-throttle 8.1.1, p-queue 9.3.5; Node 20 or later.
#
# Both count in windows of their own, which begin with a call and not with a clock, so that one would think that no second
# has more than 2 starts. A call opens the window; another comes shortly before its end, and two more when it has ended:
# 3 start within the last tenth of one second and the first of the next. At worst 2n - 1 pass in an instant. With
# strict: true, which both know and neither sets, no second has more than 2.
#
# Below a second call comes 0.9 s after the first, and two more with it.
#
# Seen:
#
#   p-throttle, limit 2 a second: 3 start within half a second; with strict: 2
#   p-queue, intervalCap 2 a second: 3 start within half a second; with strict: 2
#
# The script fails if that changes. It needs npm and its registry, node, 5 MB below TMPDIR, and fifteen seconds.
# Nothing is installed elsewhere.
[ "${BASH_VERSION:-}" ] || exec bash "$0" # sh knows no pipefail
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-audit --no-fund --prefix . p-throttle@8.1.1 p-queue@9.3.5 >/dev/null
cat >ask.mjs <<'J'
import pThrottle from "p-throttle";
import PQueue from "p-queue";

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// most returns the most starts within half a second.
async function most(start) {
	const times = [];
	const call = () => start(() => times.push(performance.now()));
	const all = [call()];
	await sleep(900);
	all.push(call(), call(), call());
	await Promise.all(all);
	return Math.max(...times.map((t) => times.filter((u) => u >= t && u - t < 500).length));
}

const throttle = (options) => {
	const limited = pThrottle({ limit: 2, interval: 1000, ...options })((f) => f());
	return (f) => limited(f);
};
const queue = (options) => {
	const q = new PQueue({ intervalCap: 2, interval: 1000, ...options });
	return (f) => q.add(f);
};
for (const [name, make] of [["p-throttle, limit 2 a second", throttle], ["p-queue, intervalCap 2 a second", queue]]) {
	let plain = 0; // a machine with other work may wake up too late for the instant: then once more
	for (let tries = 0; plain < 3 && tries < 5; tries++) plain = await most(make({}));
	const strict = await most(make({ strict: true }));
	console.log(`${name}: ${plain} start within half a second; with strict: ${strict}`);
}
process.exit();
J
node ask.mjs | tee seen
diff seen - <<'W' || { echo "it is not so any more" >&2; exit 1; }
p-throttle, limit 2 a second: 3 start within half a second; with strict: 2
p-queue, intervalCap 2 a second: 3 start within half a second; with strict: 2
W
