// Tests of headgate.ts. The test in Go starts the server, and runs test_headgate.mjs URL vectors.json.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer } from "node:net";
import { test } from "node:test";
import * as headgate from "./headgate.mjs";

const [url, file] = process.argv.slice(2);
const vectors = JSON.parse(readFileSync(file, "utf8"));
const timeout = 60_000;
const classes = {
  unavailable: headgate.UnavailableError, busy: headgate.BusyError, full: headgate.FullError,
  "unknown-outcome": headgate.UnknownOutcomeError, "id-reused": headgate.IDReusedError,
  "id-settled": headgate.IDSettledError, "unknown-id": headgate.UnknownIDError, invalid: headgate.InvalidError,
  forbidden: headgate.ForbiddenError, unsupported: headgate.UnsupportedError, other: headgate.HeadgateError,
};

async function control(action, body = "") {
  const answer = await fetch(`${url}/test/${action}`, { method: "POST", body });
  await answer.text();
}

// costsAsText converts the costs of an answer of the vectors to text, as the client returns them.
function costsAsText(name, v) {
  if (Array.isArray(v)) return v.map((x) => costsAsText(["corrected", "charged"].includes(name) ? "cost" : "", x));
  if (v && typeof v === "object") return Object.fromEntries(Object.entries(v).map(([k, x]) => [k, costsAsText(k, x)]));
  return ["cost", "accepted", "level", "used", "charged"].includes(name) ? String(v) : v;
}

// callVerb calls the method of a verb, and returns its answer in the form of the JSON.
async function callVerb(c, verb, fields) {
  const { charges, id, life, wait, ...one } = fields;
  const of = charges ?? one;
  switch (verb) {
    case "fill-up": return c.fillUp(of, { id, life });
    case "debit": return c.debit(id, of);
    case "extend": return c.extend(id, of);
    case "settle": case "cancel": return { corrected: await c[verb](id, of) };
    case "renew": case "release": return { lost: !(await c[verb](fields.held)) };
    case "reset": return { existed: await c.reset(fields.limit, fields.key) };
    case "block": {
      const { capacity, ...rest } = await c.block(fields.limit, fields.key, fields.for, fields.reason);
      return { ...rest, capacity: Number(capacity) };
    }
    case "batch": return {
      answers: (await c.batch(fields.requests)).map((a) => (a instanceof Error ? { problem: a.problem } : a)),
    };
  }
  return c[verb](of, { id, life, wait });
}

const client = new headgate.Client(url, { timeout });

test("arithmetic", async () => {
  for (const vector of vectors.arithmetic) {
    await control("new");
    for (const [i, step] of vector.steps.entries()) {
      await control("clock", String(step.at_ms));
      const got = await callVerb(client, step.verb, step.in);
      const lag = (step.want.delay_ms ?? 0) - got.delay_ms;
      if (lag > 0 && lag < 1000) got.delay_ms += lag; // the delay counts from the answer
      assert.deepEqual(got, costsAsText("", step.want), `${vector.name}, step ${i}`);
    }
  }
});

test("errors", async () => {
  await control("new");
  for (const { name, verb, in: fields, want } of vectors.errors) {
    const e = await callVerb(client, verb, fields).then(() => assert.fail(name), (e) => e);
    assert.equal(e.constructor, classes[want.error], `${name}: ${e}`);
    const { status, type = "", field = "" } = e.problem;
    assert.deepEqual({ error: want.error, status, type, field }, want, name);
  }
});

test("answers", async () => {
  for (const [i, { name, error }] of vectors.answers.entries()) {
    const c = new headgate.Client(`${url}/test/answer/${i}`, { timeout });
    const e = await c.take({ limit: "api", key: "alice" }).then(() => assert.fail(name), (e) => e);
    assert.equal(e.constructor, classes[error], `${name}: ${e}`);
  }
});

test("costs are exact", async () => {
  await control("new");
  for (const cost of [Infinity, NaN, 2 ** 53]) {
    assert.throws(() => client.take({ limit: "fixed-window 10/1h", key: "k", cost }), headgate.InvalidError);
  }
  const limit = "fixed-window 4503599627370/1h";
  const d = await client.fillUp({ limit, key: "k", cost: "4503599627369.123" });
  assert.equal(d.accepted, "4503599627369.123");
  assert.equal((await client.usage("k", [limit])).limits[0].used, "4503599627369.123");
});

test("32 parallel callers are exact", async () => {
  await control("new");
  let admitted = 0;
  await Promise.all(Array.from({ length: 32 }, async () => {
    for (let i = 0; i < 10; i++) {
      if ((await client.take({ limit: "fixed-window 100/1h", key: "k" })).allowed) admitted++;
    }
  }));
  assert.equal(admitted, 100);
});

test("a server that stops leaves the outcome unknown", async () => {
  const c = new headgate.Client(url + "/test/stopped", { timeout });
  await assert.rejects(c.take({ limit: "api", key: "k" }), headgate.UnknownOutcomeError);
});

test("no server charges nothing", async () => {
  const s = createServer().listen(0, "127.0.0.1");
  await new Promise((done) => s.once("listening", done));
  const { port } = s.address();
  await new Promise((done) => s.close(done));
  const c = new headgate.Client(`http://127.0.0.1:${port}`, { timeout });
  await assert.rejects(c.take({ limit: "api", key: "k" }), headgate.UnavailableError);
});

test("a deadline", async () => {
  const c = new headgate.Client(url + "/test/silent", { timeout: 200 });
  await assert.rejects(c.take({ limit: "api", key: "k" }), headgate.UnknownOutcomeError);
  const abort = new AbortController();
  setTimeout(() => abort.abort(), 100);
  const options = { timeout, signal: abort.signal };
  await assert.rejects(c.take({ limit: "api", key: "k" }, options), headgate.UnknownOutcomeError);
  await assert.rejects(c.take({ limit: "api", key: "k" }, options), { name: "AbortError" }); // nothing is sent
});

test("a token", async () => {
  assert.equal(await new headgate.Client(url + "/test/token", { token: "secret", timeout }).reset("api", "k"), true);
  assert.equal(await new headgate.Client(url + "/test/token", { timeout }).reset("api", "k"), false);
});

test("waiting and limited", async () => {
  await control("new");
  const one = { limit: "token-bucket 1/1s burst 1", key: "k" };
  assert.equal((await client.wait(one)).allowed, true);
  assert.equal((await client.wait(one, { wait: 500 })).allowed, false);
  assert.equal((await client.wait({ ...one, cost: 2 })).allowed, false);
  await assert.rejects(client.limited(one, () => assert.fail("it ran")), headgate.Refused);
  setTimeout(() => void control("clock", "1000"), 300);
  assert.equal(await client.limited(one, () => "ran", { wait: 60_000 }), "ran"); // it retries a second later
});

test("holding", async () => {
  await control("new");
  const one = { limit: "concurrency 1 ttl 1m", key: "k" };
  await client.holding(one, async (d) => {
    assert.deepEqual([d.held[0].number, d.ttl_ms], [1, 60_000]);
    await assert.rejects(client.holding(one, () => assert.fail("it is held twice")), headgate.Refused);
  });
  assert.equal((await client.acquire(one)).allowed, true);
});

test("observe", async () => {
  await control("new");
  const one = { limit: "token-bucket 5/1s", key: "k" };
  assert.deepEqual(await client.observe({ ...one, status: 429, headers: { "retry-after": "20" } }),
    { blocked_for_ms: 20_000, field: "Retry-After" });
  assert.deepEqual(await client.observe({ ...one, status: 429, headers: {} }), { blocked_for_ms: 0 });
  assert.equal((await client.take(one)).allowed, false);
});

test("explain", async () => {
  assert.equal((await client.explain({ method: "GET", uri: "/" })).allowed, true);
});
