// A gateway in front of OpenAI or Anthropic that keeps budgets, with Express: each call is charged before it is made, and
// settled at the usage that the model reports, also at the end of a stream.
import { createHash, randomUUID } from "node:crypto";
import express from "express";

const servers = (process.env.HEADGATE_SERVERS ?? "http://localhost:8080").split(",");
const model = process.env.MODEL_URL ?? "https://api.openai.com";

// ask sends a verb to any of the servers, and after a failure again: with an id, no charge is made twice.
async function ask(verb, body, attempts = 10) {
	const server = servers[Math.floor(Math.random() * servers.length)];
	const response = await fetch(`${server}/v1/${verb}`, {
		method: "POST", body: JSON.stringify(body), signal: AbortSignal.timeout(5000),
	}).catch((error) => ({ status: 503, json: () => ({ title: error.message }) }));
	if (response.status === 200) return response.json();
	if (response.status < 500 || attempts === 1) throw new Error(JSON.stringify(await response.json()));
	return ask(verb, body, attempts - 1);
}

const app = express().use(express.json({ limit: "1mb" }));
app.post(["/v1/chat/completions", "/v1/messages"], async (req, res) => {
	const { headers, body } = req, id = randomUUID();
	const secret = headers["x-api-key"] ?? headers.authorization ?? "";
	const key = createHash("sha256").update(secret).digest("hex").slice(0, 16);
	const charges = [{ limit: "tokens", key, count: "tokens" }, { limit: "usd", key: "all", count: "money" }];
	const charge = (usage) => ({ id, model: body.model, usage, charges });
	const most = Math.max(body.max_tokens ?? 0, body.max_completion_tokens ?? 0) || (body.max_tokens = 1024);
	// A token has a byte or more, and each of n answers may have most tokens.
	const estimate = { input_tokens: Buffer.byteLength(JSON.stringify(body)), output_tokens: most * (body.n ?? 1) };
	const d = await ask("take", charge(estimate));
	if (!d.allowed) { // clients wait for up to a minute by themselves
		if (d.retry_after_ms === null || d.retry_after_ms > 60_000) res.set("x-should-retry", "false");
		else res.set({ "retry-after": Math.ceil(d.retry_after_ms / 1000), "retry-after-ms": d.retry_after_ms });
		res.set({ "x-ratelimit-limit": d.capacity, "x-ratelimit-remaining": d.remaining });
		return res.status(429).json({ error: { type: "rate_limit_error", message: `over the limit ${d.limit}` } });
	}
	if (body.stream && req.path.endsWith("completions")) body.stream_options = { include_usage: true };
	const { host, connection, "content-length": _, ...kept } = headers;
	const answer = await fetch(model + req.path, { method: "POST", headers: kept, body: JSON.stringify(body) });
	res.status(answer.status).set("content-type", answer.headers.get("content-type"));
	const end = answer.headers.get("content-type").startsWith("text/event-stream") ? "\n" : null; // of an event's data
	let usage = {}, rest = "";
	const read = (text) => {
		const event = text.includes('"usage"') ? JSON.parse(text.replace(/^data: /, "")) : {};
		usage = { ...usage, ...(event.usage ?? event.message?.usage) };
	};
	for await (const text of answer.body.pipeThrough(new TextDecoderStream())) {
		if (!res.destroyed) res.write(text); // a client that leaves pays for what the model made
		const parts = end ? (rest + text).split(end) : [rest + text];
		rest = parts.pop();
		parts.forEach(read);
	}
	read(rest);
	if (answer.ok && Object.keys(usage).length === 0) usage = estimate; // the model reports none
	await ask("settle", charge(answer.ok ? usage : { input_tokens: 0, output_tokens: 0 }));
	res.end();
});
app.listen(process.env.PORT ?? 3000, "127.0.0.1");
