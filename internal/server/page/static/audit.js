// What was done by hand: blocks, resets, refunds, and changes of the catalog.

import { h, fill, keyLink, said, go } from "./dom.js";
import { every } from "./api.js";
import { clock, ago, span } from "./format.js";

let stop = null;
const verbs = { block: "Blocked", unblock: "Unblocked", reset: "Reset", refund: "Refunded", change: "Changed" };

export const view = {
  name: "audit",
  title: "Audit",
  key: "a",
  icon: "M4 1.5h6l3 3v10H4zM6.5 7.5h4M6.5 10.5h4M9.5 1.5v3.5h3.5",

  async render(root, api, params) {
    const limit = params.query.get("limit") || "", key = params.query.get("key");
    let max = 100, kind = "";
    const names = (await api.get("/v1/limits")).limits.map((l) => l.name);
    if (!root.isConnected) return;
    if (limit && !names.includes(limit)) names.push(limit);
    const list = h("ol", { class: "trail" });
    const more = h("button", { type: "button", hidden: true, onclick: () => { max = 1000; load(); } }, "Older entries");
    const kinds = h("div", { class: "segments", role: "group", "aria-label": "What is shown" }, [["", "All"], ["keys", "Keys"], ["change", "Catalog"]].map(([n, text]) =>
      h("button", { type: "button", "aria-pressed": String(n === kind), onclick: (e) => {
        kind = n;
        for (const b of kinds.children) b.setAttribute("aria-pressed", String(b === e.target));
        draw();
      } }, text)));
    fill(root, h("div", { class: "head" }, h("h1", {}, "Audit"), kinds,
      h("label", { class: "quiet" }, "Limit ", h("select", { onchange: (e) => go("audit", [], e.target.value ? { limit: e.target.value } : {}) },
        h("option", { value: "" }, "all"), names.map((n) => h("option", { value: n, selected: n === limit }, n))))),
    h("p", { class: "lead" }, "All changes of limits, plans and overrides, and the last 10,000 blocks, resets and refunds, as the store keeps them."),
    key !== null && h("p", {}, "Of the key ", keyLink(key), " ", h("button", { type: "button", class: "small", onclick: () => go("audit") }, "of all keys")),
    h("section", { class: "card" }, list, h("div", { class: "actions" }, more)));
    let entries = [];
    const draw = () => {
      const some = entries.filter((e) => !kind || (kind === "change") === (e.verb === "change"));
      fill(list, some.map((e) => entry(e)));
      if (some.length === 0) fill(list, h("li", { class: "empty" }, "Nothing was done yet."));
      more.hidden = entries.length < max || max === 1000;
    };
    const load = async () => {
      entries = (await api.get("/v1/audit", { limit: limit || null, key, max })).entries;
      if (root.isConnected) draw();
    };
    await load();
    if (root.isConnected) stop = every(5000, () => load().catch(() => {}));
  },

  leave() {
    if (stop) stop();
    stop = null;
  },
};

// entry is one line of the trail; short leaves out the key, on its own page.
export function entry(e, short) {
  const what = e.verb === "change" ? h("ul", { class: "changes" }, (e.changes || []).map((c) => h("li", { class: { "+": "plus", "-": "minus" }[c[0]] || "" }, said(c))), e.more > 0 && h("li", { class: "quiet" }, `and ${e.more} more`))
    : h("span", {}, !short && keyLink(e.key), !short && " ", h("span", { class: "quiet" }, "of"), " ", h("span", { class: "mono" }, e.limit),
      e.for_ms ? h("span", { class: "quiet" }, " for " + span(e.for_ms)) : null);
  return h("li", { class: "entry " + e.verb }, h("time", { title: clock(e.at, true) }, h("span", {}, clock(e.at)), h("small", {}, ago(e.at, Date.now() * 1000))),
    h("div", {}, h("p", {}, h("span", { class: "badge " + (e.verb === "block" ? "refused" : e.verb === "change" ? "changed" : "") }, verbs[e.verb] || e.verb), " ",
      e.verb === "change" ? h("span", { class: "quiet" }, "version " + e.version) : what),
    e.verb === "change" && what, h("p", { class: "by" }, "by ", h("b", {}, e.by ? said(e.by) : "a caller without a name"), e.reason ? [": ", said(e.reason)] : null)));
}
