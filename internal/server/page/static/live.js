// The live view: decisions a second, and who is limited now.

import { h, fill, keyLink, href, problem, go } from "./dom.js";
import { every } from "./api.js";
import { rateChart, spark, meter, legend } from "./chart.js";
import { number, short, percent, span } from "./format.js";

const rates = 5; // seconds over which a rate is told
let stop = null, chart = null;

const sum = (list) => list.reduce((a, b) => a + b, 0);
const recent = (list) => sum(list.slice(-rates)) / Math.min(rates, Math.max(1, list.length));

// Names that stand for limits that are not told apart.
const meaning = { "(inline)": "limits that requests said in one line", "(unknown)": "names that there are not", "(others)": "limits beyond the first ones" };

export const view = {
  name: "live",
  title: "Live",
  key: "v",
  icon: "M1.5 9h2.6l2-6 3.4 11 2-5h3",

  async render(root, api, params) {
    let by = params.query.get("by") === "used" ? "used" : "refused";
    let limit = params.query.get("limit") || "", seconds = Number(params.query.get("seconds")) || 300, paused = false;
    const to = (change) => go("live", [], Object.fromEntries(Object.entries({ by, limit, seconds: String(seconds), ...change }).filter(([n, v]) => v && !(n === "by" && v === "refused") && !(n === "seconds" && v === "300"))));

    const figures = h("ul", { class: "figures" });
    const host = h("div");
    const title = h("h2", {}, "Decisions a second");
    const limits = h("tbody"), keys = h("tbody");
    const wrong = h("div");
    const pause = h("button", { type: "button", class: "small", "aria-pressed": "false", onclick: () => {
      paused = !paused;
      pause.textContent = paused ? "Go on" : "Pause";
      pause.setAttribute("aria-pressed", String(paused));
    } }, "Pause");
    const spans = h("div", { class: "segments", role: "group", "aria-label": "Time that is shown" }, [[60, "1 min"], [120, "2 min"], [300, "5 min"]].map(([n, text]) =>
      h("button", { type: "button", "aria-pressed": String(n === seconds), onclick: () => to({ seconds: String(n) }) }, text)));
    const orders = h("div", { class: "segments", role: "group", "aria-label": "Order of the keys" }, [["refused", "Most refused"], ["used", "Most used"]].map(([n, text]) =>
      h("button", { type: "button", "aria-pressed": String(n === by), onclick: () => to({ by: n }) }, text)));
    const of = limit && h("span", { class: "badge changed" }, limit, " ", h("button", { class: "x", type: "button", "aria-label": "All limits", title: "All limits", onclick: () => to({ limit: "" }) }, "×"));

    const names = h("div");
    fill(root,
      h("div", { class: "head" }, h("h1", {}, "Live"), of, spans, pause),
      wrong, figures,
      h("section", { class: "card" }, h("div", { class: "head" }, title, names), host),
      h("section", { class: "card" }, h("div", { class: "head" }, h("h2", {}, by === "used" ? "Used most" : "Limited now"), orders),
        h("div", { class: "scroll" }, h("table", { class: "stack keys" }, h("thead", {}, h("tr", {},
          h("th", {}, "Key"), h("th", {}, "Limit"), h("th", {}, "Of its capacity"), h("th", { class: "right" }, "Passes"),
          h("th", { class: "right" }, by === "used" ? "Used, 5 min" : "Refused, 5 min"), h("th", {}, "Trend"))), keys))),
      h("section", { class: "card" }, h("div", { class: "head" }, h("h2", {}, "By limit")),
        h("div", { class: "scroll" }, h("table", { class: "stack limits" }, h("thead", {}, h("tr", {}, h("th", {}, "Limit"), h("th", { class: "right" }, "Admitted/s"),
          h("th", { class: "right" }, "Refused/s"), h("th", { class: "right" }, "Refused"), h("th", {}, "Decisions"), h("th", {}, "Refusals"))), limits))));
    chart = rateChart(host);

    const draw = (t) => {
      const n = Math.max(0, ...t.limits.map((l) => l.admitted.length));
      const end = t.at / 1e6;
      const times = Array.from({ length: n }, (_, i) => end - n + i + 1);
      const total = (what) => times.map((_, i) => sum(t.limits.map((l) => l[what][i] || 0)));
      const admitted = total("admitted"), refused = total("refused"), failed = total("failed");
      const every = n ? [times, admitted, refused, failed] : [[end - 1, end], [0, 0], [0, 0], [0, 0]];
      chart.set(...every, seconds);
      fill(names, legend([["admitted", "admitted"], ["refused", "refused"], ...(sum(failed) > 0 ? [["failed", "not decided"]] : [])]));
      const yes = recent(admitted), no = recent(refused), away = recent(failed);
      const figure = (kind, value, what) => h("li", { class: kind }, h("b", {}, value), h("span", {}, what));
      fill(figures, figure("all", short(yes + no + away), "decisions a second"), figure("admitted", short(yes), "admitted a second"),
        figure(no > 0 ? "refused" : "", short(no), "refused a second"),
        figure(sum(refused) > 0 ? "refused" : "", percent(sum(refused), sum(admitted) + sum(refused)), "refused of all in " + (seconds === 60 ? "a minute" : seconds / 60 + " minutes")),
        away > 0 && figure("refused", short(away), "a second not decided"));
      fill(limits, t.limits.map((l) => limitRow(l, to)));
      if (t.limits.length === 0) fill(limits, h("tr", {}, h("td", { colspan: 6, class: "empty whole" }, "Nothing was decided here in this time.")));
      fill(wrong, t.problem && problem(t.problem));
    };
    const drawKeys = (t) => {
      const focused = keys.contains(document.activeElement) && document.activeElement.getAttribute("href");
      fill(keys, t.keys.map((k) => keyRow(k, by)));
      if (t.keys.length === 0) {
        fill(keys, h("tr", {}, h("td", { colspan: 6, class: "empty whole" }, by === "used" ? "No key was used in the last five minutes." : "No key was refused in the last five minutes.")));
      }
      if (focused) [...keys.querySelectorAll("a")].find((a) => a.getAttribute("href") === focused)?.focus({ preventScroll: true });
    };

    const first = await api.get("/v1/traffic", { limit: limit || null, by, seconds, top: 20 });
    if (!root.isConnected) return;
    draw(first);
    drawKeys(first);
    let turn = 0;
    stop = every(1000, async () => {
      if (paused) return;
      try {
        const look = ++turn % 2 === 0; // at the keys, which asks the store
        const t = await api.get("/v1/traffic", { limit: limit || null, by, seconds, top: look ? 20 : 0 });
        if (!root.isConnected || paused) return;
        draw(t);
        if (look) drawKeys(t);
      } catch (err) {
        if (root.isConnected && err.status !== 401) fill(wrong, problem(err));
      }
    });
  },

  leave() {
    if (stop) stop();
    if (chart) chart.end();
    stop = chart = null;
  },
};

function limitRow(l, to) {
  const all = l.admitted.map((n, i) => n + l.refused[i]), no = sum(l.refused);
  const name = meaning[l.limit]
    ? h("span", { class: "quiet", title: meaning[l.limit] }, l.limit)
    : h("a", { href: href("live", [], { limit: l.limit }), "data-step": "", onclick: (e) => { e.preventDefault(); to({ limit: l.limit }); } }, l.limit);
  return h("tr", {}, h("td", { class: "mono" }, name), h("td", { class: "right", "data-name": "admitted/s" }, short(recent(l.admitted))),
    h("td", { class: "right" + (recent(l.refused) > 0 ? " refused-text" : ""), "data-name": "refused/s" }, short(recent(l.refused))),
    h("td", { class: "right" }, percent(no, sum(all))), h("td", {}, spark(thin(all), false, "decisions a second, at most " + number(Math.max(0, ...all)))),
    h("td", {}, spark(thin(l.refused), true, "refusals a second, at most " + number(Math.max(0, ...l.refused)))));
}

// thin makes at most 60 numbers of a list, each the most of its part.
function thin(list) {
  const size = Math.ceil(list.length / 60);
  return size < 2 ? list : Array.from({ length: Math.ceil(list.length / size) }, (_, i) => Math.max(...list.slice(i * size, (i + 1) * size)));
}

function keyRow(k, by) {
  const now = k.now, blocked = now && now.blocked_until;
  const wait = !now ? "" : blocked ? h("span", { class: "badge refused", title: now.reason || "" }, "blocked " + span(now.retry_after_ms)) : now.retry_after_ms === 0 ? h("span", { class: "quiet" }, "now") : h("span", { class: "refused-text" }, "in " + span(now.retry_after_ms));
  return h("tr", {}, h("td", { class: "whole" }, keyLink(k.key)), h("td", { class: "mono quiet" }, k.limit),
    h("td", { class: "whole" }, now ? meter(now.used, now.capacity || 0) : h("span", { class: "quiet" }, "not known")), h("td", { class: "right" }, wait),
    h("td", { class: "right", "data-name": by }, short(Number(k[by]))),
    h("td", {}, spark(k.recent.map(Number), by === "refused", (by === "refused" ? "refused" : "used") + " in parts of ten seconds")));
}
