// A client of a headgate server, for Node 18 or later, Deno, Bun or a worker, which needs only fetch.
//
//   const client = new Client("http://127.0.0.1:8080");
//   if (!(await client.take({ limit: "login", key: "alice" })).allowed) ...   // a refusal is a Decision, no error
//   await client.limited({ limit: "api", key: "alice" }, async () => ..., { wait: 5000 });   // else throws Refused
//
// Costs are whole numbers or text such as "2.5", never another number; costs in answers are text. Nothing is
// sent twice: after UnknownOutcomeError only a request with an id can be repeated without being charged twice.

export type Cost = number | string; // a whole number, or a decimal as text
/** limit: a name or notation; keep: headroom, such as "10%"; of alternatives 1, 2, ... the first with room is taken. */
export interface Charge { limit: string; key: string; cost?: Cost; keep?: string; alternative?: number }
export type Charges = Charge | Charge[]; // several are admitted all or none

export interface Figures {
  allowed: boolean;
  limit: string;
  key: string;
  capacity: number;
  remaining: number;
  retry_after_ms: number | null; // milliseconds; null: this cost can never pass
  reset_after_ms: number;
  applied?: string;
  crossed?: number; // the highest percentage of notify that was crossed
}

/** An answer. Points in time are microseconds since 1970. */
export interface Decision extends Omit<Figures, "key"> {
  key?: string; // of the deciding charge, if there are several
  at: number;
  entry?: number;
  via?: "prefetch" | "local" | "fallback";
  replayed?: boolean;
  alternative?: number; // the one that was taken, or can pass first
  each?: (Figures & { charge: number })[];
}
export interface Reserved extends Decision { start_at: number | null; delay_ms: number | null; refundable: boolean }
export interface Filled extends Decision { accepted: string; level: string; brim: boolean }
export interface Debited extends Decision { charged: string; level: string; over: boolean }
export interface Extended extends Decision { charged: string[] }
export interface Held { limit: string; key: string; number: number }
export interface Acquired extends Decision { held?: Held[]; ttl_ms?: number }
export interface Problem { type?: string; title: string; status: number; detail?: string; field?: string }

/** timeout bounds the call, in milliseconds. */
export interface Options { timeout?: number; signal?: AbortSignal }
/** A request with an id is charged once, however often it is sent; life is such as "10m". */
export interface Identified extends Options { id?: string; life?: string }
export interface Waiting extends Identified { wait?: number } // milliseconds

/** The error of a call. problem is the problem of the server, in the form of RFC 9457. */
export class HeadgateError extends Error {
  problem?: Problem;
  constructor(text: string, problem?: Problem, cause?: unknown) {
    super(text, { cause });
    this.name = new.target.name;
    this.problem = problem;
  }
}
export class InvalidError extends HeadgateError {} // The request is invalid; nothing was charged.
export class ForbiddenError extends HeadgateError {} // The token is missing or invalid, or lacks the right.
export class UnavailableError extends HeadgateError {} // The server or store is away; nothing was charged.
export class BusyError extends UnavailableError {} // Too many callers wait; nothing was charged.
export class FullError extends HeadgateError {} // There is no room for the key; nothing was charged.
export class UnknownOutcomeError extends HeadgateError {} // It is not known whether anything was charged.
export class UnknownIDError extends HeadgateError {} // Nothing was admitted under the id, or its life is over.
export class IDReusedError extends HeadgateError {} // The id was admitted with other charges.
export class IDSettledError extends HeadgateError {} // The id was settled or cancelled with other costs.
export class UnsupportedError extends HeadgateError {} // The store does not support the verb; nothing was done.

/** A function was not run, since its charges were refused. */
export class Refused extends Error {
  decision: Decision;
  constructor(decision: Decision) {
    super(`refused by ${decision.limit}`);
    this.decision = decision;
  }
}

type Kind = new (text: string, problem?: Problem, cause?: unknown) => HeadgateError;
const types: Record<string, Kind> = {
  "urn:headgate:unavailable": UnavailableError, "urn:headgate:busy": BusyError, "urn:headgate:full": FullError,
  "urn:headgate:outcome-unknown": UnknownOutcomeError, "urn:headgate:id-unknown": UnknownIDError,
  "urn:headgate:id-reused": IDReusedError, "urn:headgate:id-settled": IDSettledError,
};
const statuses: Record<number, Kind> = {
  400: InvalidError, 413: InvalidError, 401: ForbiddenError, 403: ForbiddenError, 408: UnavailableError,
  501: UnsupportedError,
};

function failure(status: number, problem?: Problem): HeadgateError {
  const other = status >= 500 ? UnknownOutcomeError : HeadgateError;
  if (!problem?.title) return new other(`status ${status}; is it a headgate server?`);
  return new (types[problem.type ?? ""] ?? statuses[status] ?? other)(problem.detail ?? problem.title, problem);
}

// Members of answers that are costs. A number in JSON has all its digits, which a number here may lose.
const costs = /("(?:used|cost|capacity)":)(-?[0-9][-+.0-9eE]*)/g;
const filled = /("(?:accepted|level|charged|returned)":)(-?[0-9][-+.0-9eE]*)/g;
const lists = /("(?:corrected|charged)":\[)([-+.,0-9eE]+)(?=\])/g;

function parse(path: string, text: string): any {
  // Text in an answer cannot look like a member: its quotes are escaped.
  const exact = text.replace(lists, (_, name, list) => name + list.split(",").map((n: string) => `"${n}"`).join());
  return JSON.parse(exact.replace(/^\/v1\/(usage|block)/.test(path) ? costs : filled, '$1"$2"'));
}

function charge(c: Charge): Charge {
  if (typeof c.cost === "number" && (!Number.isFinite(c.cost) || Number.isInteger(c.cost) && !Number.isSafeInteger(c.cost))) {
    throw new InvalidError(`cost: ${c.cost} is not exact; use text`);
  }
  return { ...c, cost: c.cost === undefined ? undefined : String(c.cost) };
}

/** Returns the body of a request, such as batch needs; check takes nothing. */
export function request(charges: Charges, more: { id?: string; life?: string; check?: boolean; wait?: string } = {}) {
  const { id, life, check, wait } = more; // no other options belong to the body
  const asked = Array.isArray(charges) ? { charges: charges.map(charge) } : charge(charges);
  return { ...asked, id, life, check, wait };
}

// Codes of errors of Node's fetch when nothing was sent. Other runtimes have no codes, and the outcome is unknown.
const unsent = ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "UND_ERR_CONNECT_TIMEOUT"];

const sleep = (ms: number, signal?: AbortSignal) => new Promise<void>((resolve, reject) => {
  if (signal?.aborted) return reject(signal.reason);
  const timer = setTimeout(resolve, ms);
  signal?.addEventListener("abort", () => { clearTimeout(timer); reject(signal.reason); }, { once: true });
});

export class Client {
  private url: string;
  private options: { token?: string; timeout?: number };

  constructor(url: string, options: { token?: string; timeout?: number } = {}) {
    if (!/^https?:\/\/./.test(url)) throw new InvalidError(`server: ${url} is not a URL such as http://127.0.0.1:8080`);
    this.url = url.replace(/\/+$/, "");
    this.options = options;
  }

  /** Sends a request to a path, and returns the JSON of the answer. */
  async call(method: string, path: string, body?: unknown, options: Options = {}): Promise<any> {
    options.signal?.throwIfAborted();
    const abort = new AbortController();
    const cancel = () => abort.abort(options.signal?.reason);
    const late = () => abort.abort(new Error("the deadline has passed"));
    const timer = setTimeout(late, options.timeout ?? this.options.timeout ?? 10_000);
    options.signal?.addEventListener("abort", cancel);
    const headers: Record<string, string> = { "Content-Type": "application/json" };
    if (this.options.token) headers.Authorization = `Bearer ${this.options.token}`;
    let status = 0, answer: any;
    try {
      const text = body === undefined ? undefined : JSON.stringify(body);
      const init = { method, headers, body: text, redirect: "manual", signal: abort.signal } as const;
      const response = await fetch(this.url + path, init);
      status = response.status;
      const json = /json/.test(response.headers.get("content-type") ?? "");
      answer = json ? parse(path, await response.text()) : undefined;
    } catch (e: any) {
      const kind = unsent.includes(e?.cause?.code) ? UnavailableError : UnknownOutcomeError;
      throw new kind(`no answer: ${e?.cause?.message ?? e?.message}`, undefined, e);
    } finally {
      clearTimeout(timer);
      options.signal?.removeEventListener("abort", cancel);
    }
    if (status !== 200 || answer === undefined) throw failure(status, answer);
    return answer;
  }

  private post(verb: string, body: unknown, options?: Options): Promise<any> {
    return this.call("POST", "/v1/" + verb, body, options);
  }

  take(charges: Charges, options: Identified = {}): Promise<Decision> {
    return this.post("take", request(charges, options), options);
  }
  check(of: Charges, options?: Options): Promise<Decision> { return this.post("check", request(of), options); }
  fillUp(charges: Charges, options: Identified = {}): Promise<Filled> {
    return this.post("fill-up", request(charges, options), options);
  }
  /** Takes for a start within wait, such as "30s"; the answer has delay_ms until the start. */
  reserve(charges: Charges, options: Identified & { wait?: string } = {}): Promise<Reserved> {
    return this.post("reserve", request(charges, options), options);
  }
  /** Charges work that is done already, under an id, whatever the level. */
  debit(id: string, charge: Charges, options: Identified = {}): Promise<Debited> {
    return this.post("debit", request(charge, { ...options, id }), options);
  }
  /** Charges more under an id: costs are totals. */
  extend(id: string, charges: Charges, options: Identified = {}): Promise<Extended> {
    return this.post("extend", request(charges, { ...options, id }), options);
  }
  /** Corrects costs to the actual costs, and returns by how much each was corrected. */
  async settle(id: string, charges: Charges, options?: Options): Promise<string[]> {
    return (await this.post("settle", request(charges, { id }), options)).corrected;
  }
  async cancel(id: string, charges: Charges, options?: Options): Promise<string[]> {
    return (await this.post("cancel", request(charges, { id }), options)).corrected;
  }
  /** Decides many requests, made by request(). An invalid request fails alone, as an error in the list. */
  async batch(requests: unknown[], options?: Options): Promise<(Decision | HeadgateError)[]> {
    const { answers } = await this.post("batch", { requests }, options);
    return answers.map((a: any) => (a.problem ? failure(a.problem.status, a.problem) : a));
  }
  acquire(of: Charges, options?: Options): Promise<Acquired> { return this.post("acquire", request(of), options); }
  /** Renews leases, and returns whether all are still held. */
  async renew(held: Held[], of?: Options): Promise<boolean> { return !(await this.post("renew", { held }, of)).lost; }
  async release(held: Held[], of?: Options) { return !(await this.post("release", { held }, of)).lost; }
  /** Refuses a key for a time such as "15m"; "0" lifts a block. */
  block(limit: string, key: string, time: string, reason = "", options?: Options): Promise<any> {
    return this.post("block", { limit, key, for: time, reason }, options);
  }
  /** Gives back usage of a key, up to a cost, and returns how much. For a charge under an id, use settle or cancel. */
  async refund(limit: string, key: string, cost: Cost, reason = "", options?: Options): Promise<string> {
    return (await this.post("refund", { limit, key, cost, reason }, options)).returned;
  }
  async reset(limit: string, key: string, reason = "", options?: Options): Promise<boolean> {
    return (await this.post("reset", { limit, key, reason }, options)).existed;
  }
  /** Blocks a key if the headers of a response demand a pause, such as the Retry-After of a 429. */
  observe(answer: { limit: string; key: string; status: number; headers: Record<string, string> }, options?: Options) {
    return this.post("observe", answer, options) as Promise<{ blocked_for_ms: number; field?: string }>;
  }
  usage(key: string, limits: string[] = [], options?: Options): Promise<any> {
    const query = new URLSearchParams([["key", key], ...limits.map((l) => ["limit", l])]);
    return this.call("GET", `/v1/usage?${query}`, undefined, options);
  }
  explain(about: { method: string; uri: string; [more: string]: unknown }, options?: Options): Promise<any> {
    return this.post("explain", about, options);
  }

  /** Takes, and retries for up to wait milliseconds; returns a refusal if the charge cannot pass within them. */
  async wait(charges: Charges, options: Waiting = {}): Promise<Decision> {
    const end = performance.now() + (options.wait ?? 60_000);
    for (;;) {
      const d = await this.take(charges, { ...options, wait: undefined } as Identified);
      if (d.allowed || d.retry_after_ms === null || d.retry_after_ms > end - performance.now()) return d;
      await sleep(Math.min(Math.max(1, d.retry_after_ms), 2 ** 31 - 1), options.signal);
    }
  }
  /** Runs a function once its charges are admitted, within wait milliseconds; else throws Refused. */
  async limited<T>(of: Charges, run: (d: Decision) => T | Promise<T>, options: Waiting = {}): Promise<T> {
    const d = await this.wait(of, { wait: 0, ...options });
    if (!d.allowed) throw new Refused(d);
    return run(d);
  }
  /** Runs a function while it holds a concurrency limit: renews it in the background, and releases it at the end. */
  async holding<T>(charges: Charges, run: (d: Acquired) => T | Promise<T>, options?: Options): Promise<T> {
    const d = await this.acquire(charges, options);
    if (!d.allowed || !d.held) throw new Refused(d);
    const held = d.held, ignore = () => undefined;
    const timer = setInterval(() => void this.renew(held).catch(ignore), d.ttl_ms! / 3);
    try {
      return await run(d);
    } finally {
      clearInterval(timer);
      await this.release(held).catch(ignore); // the lease ends by itself after its ttl
    }
  }
}
