// The server, asked as by any other client.

const stored = "headgate-token"; // in the storage of this tab, which ends with it

// Problem is an answer that is none, as RFC 9457 has it.
export class Problem extends Error {
  constructor(p) {
    super(p.detail || p.title);
    Object.assign(this, { title: p.title, detail: p.detail, status: p.status, field: p.field });
  }
}

export const api = {
  me: null, // {name, role, tokens, limits, actions}, once it is known
  denied: () => {}, // called when the server asks for a token
  reached: () => {}, // called with true or false after each request: whether there was an answer

  token: sessionStorage.getItem(stored) || "",

  signIn(token) {
    api.token = token;
    if (token) sessionStorage.setItem(stored, token);
    else sessionStorage.removeItem(stored);
  },

  // can says whether the caller may act: block, reset, override and change limits.
  can: () => api.me !== null && api.me.role === "admin" && api.me.actions,

  // ask asks a path. A body is sent as JSON, a file as it is. stop, a signal, ends it with an AbortError.
  async ask(method, path, body, { stop, within = 15000 } = {}) {
    const headers = {}, file = body instanceof Blob;
    if (api.token) headers.Authorization = "Bearer " + api.token;
    if (body !== undefined) headers["Content-Type"] = file ? "application/octet-stream" : "application/json";
    let res, text;
    try {
      res = await fetch(path, {
        method, headers, body: body === undefined || file ? body : JSON.stringify(body), cache: "no-store",
        credentials: "omit", redirect: "error", signal: AbortSignal.any([AbortSignal.timeout(within), ...(stop ? [stop] : [])]),
      });
      text = await res.text();
    } catch (err) {
      if (stop && stop.aborted) throw stop.reason;
      api.reached(false);
      throw new Problem({ title: "The server does not answer", detail: "It is stopped, or the network is away. The page goes on trying." });
    }
    api.reached(true);
    let out;
    try {
      out = JSON.parse(text);
    } catch (err) {
      out = { title: "This is no answer of Headgate", detail: "Status " + res.status, status: res.status };
      if (res.ok) throw new Problem(out);
    }
    if (!res.ok) {
      const p = new Problem({ status: res.status, title: res.statusText, ...out });
      if (res.status === 401) api.denied(p);
      throw p;
    }
    return out;
  },

  // get asks a path, with parameters: {name: text, or a list of texts}.
  get: (path, query = {}, how) => api.ask("GET", path + api.query(query), undefined, how),

  // query writes parameters behind a path.
  query(values) {
    const q = new URLSearchParams();
    for (const [name, value] of Object.entries(values)) {
      for (const one of [value].flat()) if (one !== undefined && one !== null) q.append(name, one);
    }
    const text = q.toString();
    return text ? "?" + text : "";
  },

  post: (path, body) => api.ask("POST", path, body),
};

// every calls a function now and again, each so many milliseconds after it has ended, while the page is seen. It
// returns a function that ends that.
export function every(ms, f) {
  let timer = 0, ended = false, running = false;
  const turn = async () => {
    if (ended || running) return;
    clearTimeout(timer);
    running = true;
    try {
      if (!document.hidden) await f();
    } finally {
      running = false;
      if (!ended) timer = setTimeout(turn, ms);
    }
  };
  const seen = () => document.hidden || turn();
  document.addEventListener("visibilitychange", seen);
  turn();
  return () => {
    ended = true;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", seen);
  };
}
