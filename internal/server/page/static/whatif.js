// What if: a limit is tried on a log, or on what another limit has recorded, before it is enforced.

import { h, fill, icon, keyText, plainKey, problem, note } from "./dom.js";
import { barChart, curveChart } from "./bars.js";
import { legend } from "./chart.js";
import { kinds, periods, ladder, rung, parse, write } from "./notation.js";
import { number, percent, clock } from "./format.js";

// What was chosen stays while the page is open.
const chosen = { log: null, source: null, limit: "token-bucket 60/1m burst 30", key: "ip", kept: null, found: null };
let charts = [], running = null; // the chart of the answer, and of the curve; the question that is under way

const fields = [["ip", "address (ip)"], ["user", "user"], ["path", "path"], ["method", "method"], ["ip,path", "address and path"], ["", "another field …"]];
const upload = { within: 120000 };

// share writes a part finely enough that a little is seen.
const share = (part, of) => {
  const p = of ? (100 * part) / of : 0;
  return p > 0 && p < 10 ? p.toFixed(p < 1 ? 2 : 1) + " %" : percent(part, of);
};

// brief writes the day and the minute of an instant in milliseconds.
const brief = (ms) => new Date(ms).toLocaleString("en", { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23" });

export const view = {
  name: "whatif",
  title: "What if",
  key: "w",
  icon: "M2 12.5c3 0 3-9 6-9s3 9 6 9M2 14.5h12",

  async render(root, api, params) {
    if (params.query.get("limit")) chosen.limit = params.query.get("limit");
    const named = (await api.get("/v1/limits")).limits;
    if (!root.isConnected) return;
    const trial = h("div", { class: "tried", hidden: true });
    const about = h("div");
    fill(root, h("div", { class: "head" }, h("h1", {}, view.title)),
      h("p", { class: "lead" }, "Try a limit on real traffic before it is enforced: who would have been refused, and when. Nothing is charged."),
      source(api, named, params, about, () => show(trial, api, named)), about, trial);
    if (chosen.log && !params.query.get("recorded")) {
      fill(about, summary(chosen.log));
      show(trial, api, named);
    }
  },

  leave() {
    charts.forEach((c) => c.end());
    charts = [];
    if (running) running.abort();
  },
};

// source chooses the traffic.
function source(api, named, params, about, ready) {
  const file = h("input", { type: "file", "aria-label": "An access log", onchange: () => file.files[0] && send({ file: file.files[0] }) });
  const drop = h("label", {
    class: "drop", ondragover(e) {
      e.preventDefault();
      drop.classList.add("over");
    }, ondragleave: () => drop.classList.remove("over"), ondrop(e) {
      e.preventDefault();
      drop.classList.remove("over");
      if (e.dataTransfer.files[0]) send({ file: e.dataTransfer.files[0] });
    },
  }, icon("M8 10V2.5M4.8 5.5L8 2.5l3.2 3M2.5 10.5v3h11v-3"), h("span", {}, "Drop an access log here, packed with gzip or not, or choose one"), file);
  const key = h("select", { id: "whatif-key", onchange: again }, fields.map(([v, text]) => h("option", { value: v }, text)));
  const other = h("input", { id: "whatif-field", type: "text", spellcheck: "false", autocomplete: "off", placeholder: "request.headers.Host.0", "aria-label": "Name of the field", hidden: true, onchange: again });
  const known = fields.some(([v]) => v === chosen.key);
  key.value = known ? chosen.key : "";
  other.value = known ? "" : chosen.key;
  other.hidden = known;
  const recording = named.filter((l) => / history /.test(l.limit));
  const recorded = h("select", { id: "whatif-recorded", onchange: () => recorded.value && send({ recorded: recorded.value }) },
    h("option", { value: "" }, recording.length ? "choose a limit" : "no limit keeps a history"), recording.map((l) => h("option", { value: l.name }, l.name)));
  recorded.disabled = recording.length === 0;
  const text = (id, placeholder) => h("input", { id, type: "text", spellcheck: "false", autocomplete: "off", placeholder, onchange: again });
  const where = text("whatif-where", "method=POST, path~^/api/"), since = text("whatif-since", "2026-05-01 or 2026-05-01T12:00:00Z"), until = text("whatif-until", "2026-05-02");
  const cost = text("whatif-cost", "bytes");
  const field = (id, label, e, hint) => h("div", { class: "field" }, h("label", { for: id }, label), e, hint && h("p", { class: "hint" }, hint));
  let turn = 0;

  function again() {
    other.hidden = key.value !== "";
    if (!other.hidden && other.value === "") {
      other.focus();
      return;
    }
    if (chosen.source) send(chosen.source);
  }

  async function send(from) {
    const mine = ++turn;
    chosen.source = from;
    const q = { since: since.value || undefined, until: until.value || undefined, where: where.value.split(/,\s+/).filter((w) => w !== "") };
    if (from.recorded) {
      q.recorded = from.recorded;
      file.value = "";
    } else {
      chosen.key = key.value || other.value;
      Object.assign(q, { key: chosen.key, name: from.file.name.slice(0, 80), cost: cost.value || undefined });
      recorded.value = "";
    }
    fill(about, h("p", { class: "quiet", role: "status" }, from.recorded ? "Reading what the limit has recorded …" : `Reading ${from.file.name} …`));
    try {
      const log = await api.ask("POST", "/v1/whatif" + api.query(q), from.file || new Blob([]), upload);
      if (mine !== turn || !about.isConnected) return;
      chosen.log = log;
      chosen.kept = chosen.found = null;
      fill(about, summary(log));
      await ready();
    } catch (err) {
      if (mine === turn) fill(about, problem(err));
    }
  }

  if (params.query.get("recorded")) {
    recorded.value = params.query.get("recorded");
    if (recorded.value) send({ recorded: recorded.value });
  }
  return h("section", { class: "card" }, drop, h("div", { class: "sources" },
    field("whatif-key", "Limited by", h("div", {}, key, other)),
    field("whatif-recorded", "Or what a limit has recorded", recorded, "Limits with a history, such as sliding-log 5/1m history 1d, keep all attempts."),
    h("details", {}, h("summary", {}, "Only a part of it"), h("div", { class: "sources" },
      field("whatif-since", "Since", since, "UTC, unless a zone is said"), field("whatif-until", "Until", until),
      field("whatif-where", "Where", where, "Conditions, with a comma and a space between them"), field("whatif-cost", "Cost of a request", cost, "A field of the log; without one each request costs 1")))));
}

// summary tells what was read.
function summary(log) {
  const out = log.skipped + log.unparsed + log.filtered;
  return h("section", { class: "card read-log" }, h("div", { class: "read" }, h("strong", {}, keyText(log.name)), h("span", { class: "badge" }, log.format),
    h("span", {}, `${number(log.requests)} requests of ${number(log.keys)} ${log.keys === 1 ? "key" : "keys"} (${log.field})`),
    h("span", { class: "quiet" }, `${clock(log.first)} to ${clock(log.last)}`),
    out > 0 && h("span", { class: "quiet" }, `${number(out)} of ${number(log.lines)} lines are not counted`)),
  (log.notes || log.problems) && h("ul", { class: "notes-list" }, (log.problems || []).map((p) => h("li", {}, "not read: ", keyText(p))), (log.notes || []).map((n) => h("li", {}, keyText(n)))));
}

// show shows the sliders and what they come to.
async function show(trial, api, named) {
  charts.forEach((c) => c.end());
  charts = [];
  trial.hidden = false;
  const line = h("input", { id: "whatif-limit", class: "mono", type: "text", spellcheck: "false", autocomplete: "off", value: chosen.limit, onchange: () => set(line.value) });
  const start = h("select", { id: "whatif-from", onchange: () => start.value && set(start.value) }, h("option", { value: "" }, "a limit of the catalog"), named.map((l) => h("option", { value: l.limit }, l.name)));
  const kind = h("select", { id: "whatif-kind", onchange: slid }, kinds.map(([v, text]) => h("option", { value: v }, text)));
  const period = h("select", { id: "whatif-period", onchange: slid });
  const rate = slider("whatif-rate", "Requests"), burst = slider("whatif-burst", "Burst");
  const sliders = h("div", {}, h("div", { class: "pair" }, h("div", { class: "field" }, h("label", { for: "whatif-kind" }, "Algorithm"), kind),
    h("div", { class: "field" }, h("label", { for: "whatif-period" }, "In a"), period)), rate.row, burst.row);
  const wrong = h("p", { class: "wrong", role: "alert", hidden: true });
  const bound = h("p", { class: "bound" });
  const figures = h("ul", { class: "figures" });
  const bars = h("div"), keys = h("tbody"), more = h("p", { class: "hint" });
  const curve = h("div"), choices = h("ul", { class: "choices" }), curveTitle = h("p", { class: "hint" });
  const keep = h("button", { type: "button", class: "small", onclick: compare }, "Compare with this");
  const copy = h("button", { type: "button", class: "small", onclick: copied }, "Copy the limit");
  const result = h("div", { class: "result" }, figures, bound, h("div", { class: "head" }, h("h2", {}, "Requests over time"), legend([["admitted", "admitted"], ["refused", "refused"]])), bars);
  let now = parse(chosen.limit), last = null;

  function slider(id, label) {
    const name = h("label", { for: id }, label), out = h("output", { for: id });
    const input = h("input", { id, type: "range", min: 0, max: ladder.length - 1, step: 1, oninput: slid });
    let exact = 1;
    return {
      name, input, row: h("div", { class: "slider" }, name, out, input),
      get value() { return exact; },
      set(n) { // what is not on the ladder stays as it is until the slider is moved
        exact = n;
        input.value = rung(n);
        fill(out, number(n));
        input.setAttribute("aria-valuetext", number(n));
      },
      moved() { if (rung(exact) !== Number(input.value)) this.set(ladder[Number(input.value)]); },
    };
  }

  // slid makes a limit of the sliders.
  function slid() {
    rate.moved();
    burst.moved();
    now = { kind: kind.value, amount: rate.value, period: period.value, burst: burst.value, rest: now && now.kind === kind.value ? now.rest : "" };
    change(write(now));
  }

  // set moves the sliders to a limit.
  function set(text) {
    now = parse(text);
    change(text.trim());
  }

  function change(text) {
    chosen.limit = text;
    if (document.activeElement !== line || line.value.trim() !== text) line.value = text;
    sliders.hidden = !now;
    if (now) {
      kind.value = now.kind;
      if (![...period.options].some((o) => o.value === now.period)) fill(period, periods.map(([v, t]) => h("option", { value: v }, t)), !periods.some(([v]) => v === now.period) && h("option", { value: now.period }, now.period));
      period.value = now.period;
      rate.set(now.amount);
      burst.set(now.burst);
      const word = kinds.find((k) => k[0] === now.kind)[2];
      burst.row.hidden = !word;
      fill(burst.name, word === "capacity" ? "Capacity" : "Burst");
      fill(rate.name, "Requests in a " + period.selectedOptions[0].textContent);
    }
    ask();
  }

  // ask asks what the limit would have done; a newer question ends an older one.
  async function ask() {
    if (running) running.abort();
    const mine = (running = new AbortController());
    const slow = setTimeout(() => result.classList.add("waiting"), 250);
    try {
      const r = await api.get("/v1/whatif", { id: chosen.log.id, limit: chosen.limit, top: 20 }, { stop: mine.signal, within: 30000 });
      if (mine.signal.aborted || !trial.isConnected) return;
      last = r;
      wrong.hidden = true;
      draw(r);
    } catch (err) {
      if (mine.signal.aborted || !trial.isConnected) return;
      if (err.status === 404 && chosen.source) {
        fill(wrong, "The server keeps this log no more. Choose it again.");
      } else fill(wrong, err.detail || err.message);
      wrong.hidden = false;
    } finally {
      clearTimeout(slow);
      if (running === mine) result.classList.remove("waiting");
    }
  }

  function draw(r) {
    const was = chosen.kept;
    const figure = (cls, value, what, before) => h("li", { class: cls }, h("b", {}, value), h("span", {}, what), was && h("span", { class: "was" }, "was " + before));
    fill(figures, figure("admitted", number(r.allowed), "admitted, " + share(r.allowed, r.requests), was && number(was.allowed)),
      figure(r.denied ? "refused" : "", number(r.denied), "refused, " + share(r.denied, r.requests), was && number(was.denied)),
      figure(r.keys_denied ? "refused" : "", number(r.keys_denied), `of ${number(r.keys)} keys refused at least once`, was && number(was.keys_denied)));
    fill(bound, r.bound ? r.bound + "." : "", was && h("span", {}, " Compared with ", h("code", {}, was.limit), " ", h("button", { type: "button", class: "small", onclick: forget }, "Stop")));
    charts[0].set(r.buckets, r.bucket_seconds);
    const most = Math.max(1, ...r.top.map((k) => k.denied));
    fill(keys, r.top.map((k) => row(k, most)), r.top.length === 0 && h("tr", {}, h("td", { colspan: 4, class: "empty whole" }, "Nobody would have been refused.")));
    fill(more, r.keys_denied > r.top.length && `And ${number(r.keys_denied - r.top.length)} keys with fewer.`);
    marked();
  }

  function row(k, most) {
    return h("tr", {}, h("td", {}, h("span", { class: "keylink", title: plainKey(k.key) }, keyText(k.key))),
      h("td", {}, h("div", { class: "meter full" }, h("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
        h("rect", { width: ((100 * k.denied) / most).toFixed(1), height: 10 })), h("span", { class: "num" }, number(k.denied)))),
      h("td", { class: "right num", "data-name": "of" }, `${number(k.requests)}, ${percent(k.denied, k.requests)}`),
      h("td", { class: "right num", "data-name": "first", title: clock(Date.parse(k.first_denied) * 1000) }, brief(Date.parse(k.first_denied))));
  }

  function compare() {
    if (last) chosen.kept = last;
    if (last) draw(last);
  }

  function forget() {
    chosen.kept = null;
    draw(last);
  }

  async function copied() {
    try {
      await navigator.clipboard.writeText(chosen.limit);
      note("Copied: " + chosen.limit);
    } catch (err) {
      line.select();
      note("Press Ctrl C to copy the limit", "bad");
    }
  }

  // Suggestions.
  const refuse = h("select", { id: "whatif-refuse", onchange: suggest }, [["0%", "nothing"], ["0.1%", "0.1 %"], ["0.2%", "0.2 %"], ["1%", "1 %"], ["5%", "5 %"]].map(([v, t]) => h("option", { value: v, selected: v === "0.1%" }, t)));
  const of = h("select", { id: "whatif-of", "aria-label": "of what", onchange: suggest }, h("option", { value: "requests" }, "of the requests"), h("option", { value: "keys" }, "of the keys"));

  let looking = 0;

  async function suggest() {
    fill(choices, h("li", { class: "quiet" }, "Looking for limits …"));
    const id = chosen.log.id, mine = ++looking;
    try {
      const found = await api.get("/v1/whatif/suggest", { id, refuse: refuse.value, of: of.value }, { within: 30000 });
      if (!trial.isConnected || id !== chosen.log.id || mine !== looking) return;
      chosen.found = { id, ...found };
      offer();
    } catch (err) {
      if (trial.isConnected && mine === looking) fill(choices, h("li", {}, problem(err)));
    }
  }

  function offer() {
    fill(choices, chosen.found.limits.map((c) => h("li", {}, h("button", { type: "button", "data-limit": c.limit, onclick: () => set(c.limit) },
      h("code", {}, c.limit), h("span", { class: "quiet" }, `refuses ${share(c.denied, c.requests)} of requests, ${number(c.keys_denied)} of ${number(c.keys)} keys`)))));
    marked();
  }

  // marked shows which of the suggestions holds, and the curve around it.
  function marked() {
    if (!chosen.found) return;
    let c = null;
    choices.querySelectorAll("button").forEach((b) => b.setAttribute("aria-pressed", String(b.dataset.limit === chosen.limit)));
    for (const one of chosen.found.limits) if (one.limit === chosen.limit || one.curve.some((p) => p.limit === chosen.limit)) c = c || one;
    c = c || chosen.found.limits.find((one) => now && one.limit.startsWith(now.kind)) || chosen.found.limits[0];
    const word = (kinds.find((k) => c.limit.startsWith(k[0] + " ")) || [])[2];
    fill(curveTitle, word ? `Bursts around ${c.limit}` : `Numbers around ${c.limit}`, ". A click takes one.");
    charts[1].set(c.curve.map((p) => {
      const l = parse(p.limit);
      return { n: word ? l.burst : l.amount, denied: p.denied, of: c.requests, keys: p.keys_denied, limit: p.limit, here: p.limit === chosen.limit };
    }));
  }

  fill(trial, h("section", { class: "card" }, h("div", { class: "trial" },
    h("div", {}, h("div", { class: "field" }, h("label", { for: "whatif-limit" }, "Limit"), line, wrong), sliders,
      named.length > 0 && h("div", { class: "field" }, h("label", { for: "whatif-from" }, "Begin with"), start), h("div", { class: "bar" }, keep, copy)), result)),
  h("div", { class: "columns" },
    h("section", { class: "card" }, h("div", { class: "head" }, h("h2", {}, "Who would be refused")), h("div", { class: "scroll" }, h("table", { class: "stack refusals" },
      h("thead", {}, h("tr", {}, h("th", {}, "Key"), h("th", {}, "Refused"), h("th", { class: "right" }, "Of its requests"), h("th", { class: "right" }, "First"))), keys)), more),
    h("section", { class: "card" }, h("div", { class: "head" }, h("h2", {}, "Limits that refuse little")), h("div", { class: "bar" }, h("label", { for: "whatif-refuse" }, "At most"), refuse, of), choices, curveTitle, curve)));
  charts = [barChart(bars), curveChart(curve, "the number of the limit", (p) => set(p.limit))];
  set(chosen.limit);
  if (chosen.found && chosen.found.id === chosen.log.id) offer();
  else await suggest();
}
