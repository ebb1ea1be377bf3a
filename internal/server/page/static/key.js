// The page of a key: each limit of it, its level over time, its history, and what can be done.

import { h, fill, keyText, said, plainKey, href, problem, ask, note } from "./dom.js";
import { every } from "./api.js";
import { levelChart, meter, legend } from "./chart.js";
import { number, clock, span, ago } from "./format.js";
import { entry } from "./audit.js";

const window_ = 15 * 60; // seconds that a chart shows at most
let stop = null, charts = [];

export const view = {
  name: "key",
  title: "Key",
  hidden: true,
  under: "keys",

  async render(root, api, params) {
    const key = params.path[0] ?? "";
    document.title = plainKey(key).slice(0, 60) + " · Headgate";
    const state = { key, api, root, cards: new Map(), history: new Map(), asked: 0 };
    const badges = h("div", { class: "bar badges" });
    const wrong = h("div"), cards = h("div", { class: "cards" }), rest = h("section", { class: "card", hidden: true });
    const history = h("section", { class: "card" }), trail = h("section", { class: "card", hidden: true });
    const copy = h("button", { type: "button", class: "small", onclick: async () => {
      try {
        await navigator.clipboard.writeText(key);
        note("The key was copied.");
      } catch (err) {
        note("The browser does not let this page copy.", "bad");
      }
    } }, "Copy");
    fill(root, h("div", { class: "head" }, h("h1", { class: "keytitle" }, keyText(key)), copy), badges, wrong, cards, history, rest, trail);
    Object.assign(state, { badges, list: cards, rest, past: history, trail });
    state.reload = async () => {
      const usage = await api.get("/v1/usage", { key, authors: "true" });
      if (Date.now() - state.asked > 4500) await attempts(state, usage);
      draw(state, usage);
    };
    await state.reload();
    await done(state).catch(() => {});
    let turn = 0;
    if (!root.isConnected) return;
    stop = every(1000, async () => {
      try {
        await state.reload();
        if (++turn % 10 === 0) await done(state);
        if (root.isConnected) fill(wrong);
      } catch (err) {
        if (root.isConnected && err.status !== 401) fill(wrong, problem(err));
      }
    });
  },

  leave() {
    if (stop) stop();
    for (const c of charts) c.end();
    stop = null;
    charts = [];
  },
};

// attempts reads those that the store keeps, of the limits that have a history.
async function attempts(state, usage) {
  state.asked = Date.now();
  for (const l of usage.limits.filter((l) => l.exists && /^sliding-log /.test(l.rule || ""))) {
    const status = await state.api.post("/v1/inspect", { limit: l.limit, key: state.key });
    state.history.set(l.limit, status.history || []);
  }
}

// draw shows what was read.
function draw(state, usage) {
  if (!state.root.isConnected) return;
  const own = usage.limits.filter((l) => l.exists || l.applied || l.retry_after_ms !== 0 || state.cards.has(l.limit));
  for (const l of own) {
    if (!state.cards.has(l.limit)) {
      const c = makeCard(state, l.limit);
      state.cards.set(l.limit, c);
      state.list.append(c.root);
    }
    update(state, state.cards.get(l.limit), l, usage.refusals || []);
  }
  const plans = [...new Set(own.map((l) => l.applied).filter((a) => a && a.startsWith("plan ")))];
  const refused = own.some((l) => l.retry_after_ms !== 0), blocked = own.some((l) => l.blocked_until);
  fill(state.badges, own.length === 0 ? h("span", { class: "badge" }, "no limit has this key") : h("span", { class: "badge " + (refused ? "refused" : "good") }, blocked ? "blocked" : refused ? "refused now" : "passes now"),
    plans.map((p) => h("span", { class: "badge changed" }, p)), own.some((l) => l.applied && l.applied.startsWith("override")) && h("span", { class: "badge changed" }, "override"));
  drawHistory(state, own, usage.refusals || []);
  const others = usage.limits.filter((l) => !own.includes(l));
  const names = others.map((l) => l.limit).join("\n");
  state.rest.hidden = others.length === 0;
  if (state.others !== names) {
    state.others = names;
    fill(state.rest, h("div", { class: "head" }, h("h2", {}, "Limits that this key has not used")), h("div", { class: "scroll" }, h("table", { class: "plainrows" }, h("tbody", {}, others.map((l) =>
      h("tr", {}, h("td", { class: "mono" }, l.limit), h("td", { class: "quiet mono" }, l.rule), h("td", { class: "right" }, buttons(state, l.limit, () => l, true))))))));
  }
}

function makeCard(state, limit) {
  const c = { limit, samples: [], refusals: new Set(), last: null };
  c.rule = h("p", { class: "quiet mono rule" });
  c.figures = h("ul", { class: "mini" });
  c.meter = h("div");
  c.applied = h("p", { class: "quiet applied" });
  c.hint = h("p", { class: "hint" });
  c.host = h("div");
  c.actions = h("div", { class: "bar" });
  c.legend = h("div");
  c.root = h("section", { class: "card limit", "data-limit": limit }, h("div", { class: "head" }, h("h2", {}, h("a", { class: "mono", href: href("live", [], { limit }) }, limit)), c.actions),
    c.rule, c.applied, c.figures, c.meter, c.host, legend([["line", "level"], ["cap", "capacity"], ["stem", "refused"], ["blocked", "blocked"]]), c.hint);
  c.chart = levelChart(c.host);
  charts.push(c.chart);
  return c;
}

// update shows a limit as it is now.
function update(state, c, l, refusals) {
  const t = l.at / 1e6, cap = Number(l.capacity) || 0, blocked = Boolean(l.blocked_until && l.blocked_until > l.at);
  c.last = l;
  const before = c.samples[c.samples.length - 1];
  if (!before || t > before.t) c.samples.push({ t, level: Number(l.used), cap, blocked });
  while (c.samples[0].t < t - window_) c.samples.shift();
  for (const r of refusals) if (r.limit === l.limit) c.refusals.add(r.at / 1e6);
  for (const a of state.history.get(l.limit) || []) if (!a.allowed) c.refusals.add(a.at / 1e6);
  const begun = c.samples[0].t;
  c.chart.set({ samples: c.samples, refusals: [...c.refusals], from: begun, to: Math.max(t, begun + 60) });
  text(c.rule, l.rule || "");
  const parts = [];
  if (l.applied) {
    parts.push(h("span", { class: "badge changed" }, said(l.applied)), l.applied_until ? ` until ${clock(l.applied_until)}` : " without an end",
      l.applied_by ? [", by ", said(l.applied_by)] : "", l.applied_reason ? [": ", said(l.applied_reason)] : "");
  }
  fill(c.applied, parts);
  c.applied.hidden = parts.length === 0;
  const passes = l.retry_after_ms === 0 ? "now" : l.retry_after_ms === null ? "never" : "in " + span(l.retry_after_ms);
  const one = (b, what, kind) => h("li", { class: kind || "" }, h("b", {}, b), h("span", {}, what));
  fill(c.figures, one(number(Number(l.used)) + (cap ? " of " + number(cap) : ""), "in use"), one(l.remaining === undefined ? "–" : number(l.remaining), "left"),
    one(passes, l.retry_after_ms === 0 ? "passes" : "passes again, at " + (l.retry_after_ms === null ? "no time" : clock(l.at + 1000 * l.retry_after_ms)), l.retry_after_ms === 0 ? "" : "refused"),
    one(l.reset_after_ms > 0 ? "in " + span(l.reset_after_ms) : "now", "reset"),
    blocked && one(l.blocked_by === "limit" ? "by the limit" : "by hand", "blocked until " + clock(l.blocked_until), "refused"));
  fill(c.meter, blocked && l.reason ? h("p", {}, h("span", { class: "quiet" }, "Blocked because: "), said(l.reason)) : null, meter(Number(l.used), cap));
  fill(c.hint, l.hint ? ["By command: ", h("span", { class: "mono" }, said(l.hint))] : null);
  c.hint.hidden = !l.hint;
  const shape = [blocked, l.applied === "override", l.exists].join();
  if (shape !== c.shape) {
    c.shape = shape;
    fill(c.actions, buttons(state, l.limit, () => c.last));
  }
}

function text(e, t) {
  if (e.textContent !== t) e.textContent = t;
}

// drawHistory lists attempts that the store keeps, and refusals that the server remembers.
function drawHistory(state, own, refusals) {
  const list = [], seen = new Set();
  for (const l of own) {
    for (const a of state.history.get(l.limit) || []) {
      seen.add(l.limit + " " + a.at);
      list.push({ at: a.at, limit: l.limit, cost: a.cost, allowed: a.allowed });
    }
  }
  for (const r of refusals) if (!seen.has(r.limit + " " + r.at)) list.push({ at: r.at, limit: r.limit, cost: r.cost, allowed: false, retry: r.retry_after_ms, told: true });
  list.sort((a, b) => b.at - a.at);
  const shape = list.length + " " + (list[0] ? list[0].at : "") + Math.floor(Date.now() / 10000);
  if (shape === state.listed) return;
  state.listed = shape;
  const now = own.length ? Math.max(...own.map((l) => l.at)) : 0;
  fill(state.past, h("div", { class: "head" }, h("h2", {}, "History")),
    list.length === 0 ? h("p", { class: "quiet" }, "No attempt is remembered. A server remembers its last refusals; all attempts are kept by a sliding log with history.")
      : h("div", { class: "scroll" }, h("table", { class: "stack" }, h("thead", {}, h("tr", {}, h("th", {}, "When"), h("th", {}, "Limit"), h("th", {}, "Outcome"), h("th", { class: "right" }, "Cost"), h("th", { class: "right" }, "To wait then"))),
        h("tbody", {}, list.slice(0, 100).map((a) => h("tr", {}, h("td", {}, clock(a.at, true), " ", h("small", { class: "quiet" }, ago(a.at, now))), h("td", { class: "mono quiet" }, a.limit),
          h("td", {}, h("span", { class: "badge " + (a.allowed ? "good" : "refused") }, a.allowed ? "admitted" : "refused")), h("td", { class: "right", "data-name": "cost" }, number(Number(a.cost))),
          h("td", { class: "right", "data-name": a.told && "to wait" }, a.told ? span(a.retry) : "")))))));
}

// done lists what was done to the key by hand.
async function done(state) {
  const { entries } = await state.api.get("/v1/audit", { key: state.key, max: 20 });
  if (!state.root.isConnected) return;
  state.trail.hidden = entries.length === 0;
  fill(state.trail, h("div", { class: "head" }, h("h2", {}, "Done to this key"), h("a", { href: href("audit", [], { key: state.key }) }, "Audit")), h("ol", { class: "trail" }, entries.map((e) => entry(e, true))));
}

// buttons are what an admin may do.
function buttons(state, limit, now, few) {
  if (!state.api.can()) return h("span", { class: "quiet", title: "It needs the role admin" }, few ? "" : "read only");
  const { key, api } = state, l = now();
  const named = /^[a-z][a-z0-9_.-]{0,63}$/.test(limit);
  const about = h("p", {}, "The key ", h("b", {}, keyText(key)), " of the limit ", h("code", {}, limit), ".");
  const reason = { name: "reason", label: "Reason", max: 500, hint: "It is kept in the audit." };
  const act = async (path, body, said) => {
    await api.post(path, { limit, key, ...body });
    note(said);
    state.root.isConnected && await state.reload().then(() => done(state)).catch(() => {});
  };
  const b = (name, onclick, kind) => h("button", { type: "button", class: "small " + (kind || ""), onclick }, name);
  const blocked = l.blocked_until && l.blocked_until > l.at;
  return h("span", { class: "bar" },
    blocked ? b("Unblock", () => ask({ title: "Lift the block", about, button: "Unblock", fields: [reason], send: (v) => act("/v1/block", { for: "0", reason: v.reason }, "The block was lifted.") }))
      : b("Block…", () => ask({ title: "Block this key", about: [about, h("p", {}, "All its requests to this limit are refused until the time is over.")], button: "Block", danger: true,
        fields: [{ name: "for", label: "For", value: "15m", required: true, list: ["5m", "15m", "1h", "1d", "7d"], hint: "Such as 15m, 1h or 7d." }, reason],
        send: (v) => act("/v1/block", { for: v.for, reason: v.reason }, "The key is blocked.") })),
    l.exists && b("Reset…", () => ask({ title: "Reset this key", about: [about, h("p", {}, "What it has used is forgotten, with its block and the ids of its requests. It cannot be undone.")], button: "Reset", danger: true, fields: [reason],
      send: (v) => act("/v1/reset", { reason: v.reason }, "The key was reset.") })),
    named && (l.applied === "override" ? b("Remove override", () => ask({ title: "Remove the override", about: [about, h("p", {}, "The limit holds again as it is for others.")], button: "Remove", fields: [reason],
      send: (v) => act("/v1/override", { remove: true, reason: v.reason }, "The override was removed.") })) : null),
    named && b("Override…", () => ask({ title: "Another limit for this key", about: [about, h("p", {}, "It holds in the place of the limit on every server within two seconds. What the key has used stays.")], button: "Override",
      fields: [{ name: "override", label: "Limit for this key", value: l.rule || "", required: true, hint: "One line, such as token-bucket 100/s burst 200, or unlimited." },
        { name: "for", label: "For", value: "1h", list: ["15m", "1h", "8h", "1d", "7d", "30d"], hint: "Empty: until it is removed." }, reason],
      send: (v) => act("/v1/override", { override: v.override, for: v.for, reason: v.reason }, "The override is in force.") })));
}
