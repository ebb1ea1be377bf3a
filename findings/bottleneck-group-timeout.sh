#!/bin/bash
# Bottleneck: a Group forgets what a key has used when the key was idle for five minutes, however long its reservoir lasts.
#
# Version: npm bottleneck 2.19.5, without Redis.
#
# A Group makes a limiter for each key. The reservoir of each has 2 jobs, refilled once an hour. A key that has used both and
# asks for nothing for the Group's timeout is deleted with what it has used, and its next job gets a new reservoir: 2 an
# hour have become 2 in each timeout for a key that pauses, and the default is 5 minutes. A timeout longer than the refill interval
# keeps the count.
#
# Below the timeout is a second instead of five minutes.
#
# Seen:
#
#   the default timeout is 300000 ms
#   timeout 1 s, reservoir 2 an hour: 2 jobs run, 0 left; after 4 s without a job: 2 left, and 2 more jobs run
#   timeout 1 h, the same: 2 jobs run, 0 left; after 4 s without a job: 0 left, and 0 more jobs run
#
# The script fails if that changes. It needs npm and its registry, node, 5 MB below TMPDIR, and ten seconds.
# Nothing is installed elsewhere.
[ "${BASH_VERSION:-}" ] || exec bash "$0" # sh knows no pipefail
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-audit --no-fund --prefix . bottleneck@2.19.5 >/dev/null
cat >ask.cjs <<'J'
const Bottleneck = require("bottleneck");
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const hour = 3600 * 1000;
async function run(name, timeout) {
	const group = new Bottleneck.Group({
		reservoir: 2, reservoirRefreshAmount: 2, reservoirRefreshInterval: hour, timeout,
	});
	let jobs = 0;
	const ask = () => group.key("alice").schedule(async () => { jobs++; });
	await Promise.all([ask(), ask()]);
	const first = `${jobs} jobs run, ${await group.key("alice").currentReservoir()} left`;
	await sleep(4000);
	const left = await group.key("alice").currentReservoir();
	jobs = 0;
	ask();
	ask();
	await sleep(500);
	console.log(`timeout ${name}: ${first}; after 4 s without a job: ${left} left, and ${jobs} more jobs run`);
}
(async () => {
	console.log(`the default timeout is ${new Bottleneck.Group({}).timeout} ms`);
	await run("1 s, reservoir 2 an hour", 1000);
	await run("1 h, the same", hour);
	process.exit();
})();
J
node ask.cjs | tee seen
diff seen - <<'W' || { echo "it is not so any more" >&2; exit 1; }
the default timeout is 300000 ms
timeout 1 s, reservoir 2 an hour: 2 jobs run, 0 left; after 4 s without a job: 2 left, and 2 more jobs run
timeout 1 h, the same: 2 jobs run, 0 left; after 4 s without a job: 0 left, and 0 more jobs run
W
