// ask.mjs URL WAIT... sends one request by each client, with the client's own settings, to URL/CLIENT/WAIT/FIELDS, all at
// the same time. When ten seconds are over, and none of the clients' timers is near, it prints what each of the callers
// has got.
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import axios from "axios";
import axiosRetry from "axios-retry";
import got from "got";
import ky from "ky";
import { Agent, interceptors, request } from "undici";

const [base, ...waits] = process.argv.slice(2);
const messages = [{ role: "user", content: "hi" }];

const openai = ({ OpenAI }) => (baseURL) =>
  new OpenAI({ baseURL, apiKey: "k" }).chat.completions.create({ model: "m", messages });
const anthropic = ({ Anthropic }) => (baseURL) =>
  new Anthropic({ baseURL, apiKey: "k" }).messages.create({ model: "m", messages, max_tokens: 9 });
const genai = ({ GoogleGenAI }) => (baseUrl) =>
  new GoogleGenAI({ apiKey: "k", httpOptions: { baseUrl } }).models.generateContent({ model: "m", contents: "hi" });
const ai = ({ generateText }, { createOpenAICompatible }) => (baseURL) =>
  generateText({ model: createOpenAICompatible({ name: "m", baseURL })("m"), prompt: "hi" });

const retrying = axios.create();
axiosRetry(retrying);
const dispatcher = new Agent().compose(interceptors.retry());
const children = [];
const curl = (url) => new Promise((done, fail) => {
  children.push(execFile("curl", ["-sf", "--retry", "3", url], (e) => (e ? fail({ name: `exit ${e.code}` }) : done())));
});

// A client is named by its package and its version.
const clients = [
  ["openai", openai(await import("openai"))],
  ["openai-6", openai(await import("openai-6"))],
  ["@anthropic-ai/sdk", anthropic(await import("@anthropic-ai/sdk"))],
  ["@anthropic-ai/sdk-0", anthropic(await import("@anthropic-ai/sdk-0"))],
  ["ai", ai(await import("ai"), await import("@ai-sdk/openai-compatible"))],
  ["ai-6", ai(await import("ai-6"), await import("@ai-sdk/openai-compatible-6"))],
  ["@google/genai", genai(await import("@google/genai"))],
  ["@google/genai-2", genai(await import("@google/genai-2"))],
  ["got", (url) => got(url)],
  ["ky", (url) => ky(url)],
  ["axios-retry", (url) => retrying.get(url)],
  ["undici", (url) => request(url, { dispatcher })],
  ["curl --retry 3", curl],
];

function nameOf(module) {
  if (module.startsWith("curl")) return module;
  const { name, version } = JSON.parse(readFileSync(`node_modules/${module}/package.json`, "utf8"));
  return `${name} ${version.split(".").slice(0, 2).join(".")}`;
}

const pathOf = (module, wait, fields) => `${module.replace(/\W+/g, "-")}/${wait}/${fields}`;

// What a client loads with its first request is not part of the ten seconds.
await Promise.all(clients.map(([module, ask]) => ask(`${base}/${pathOf(module, "0s", "plain")}`)));

const outcomes = clients.flatMap(([module, ask]) => waits.flatMap((wait) => ["plain", "stop"].map((fields) => {
  const path = pathOf(module, wait, fields);
  const outcome = { client: nameOf(module), wait, fields, path, got: "waits" };
  ask(`${base}/${path}`).then(
    () => { outcome.got = "passes"; },
    (error) => { outcome.got = (error.constructor === Object ? error.name : error.constructor.name).replace(/^_/, ""); },
  );
  return outcome;
})));
setTimeout(() => {
  console.log(JSON.stringify(outcomes));
  children.forEach((child) => child.kill());
  process.exit();
}, 11_500);
