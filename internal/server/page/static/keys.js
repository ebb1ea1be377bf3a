// The keys that the store has, with what each has in use now.

import { h, fill, keyLink, said, go, problem } from "./dom.js";
import { every } from "./api.js";
import { meter } from "./chart.js";
import { number, clock, span } from "./format.js";

const page = 200;
let stop = null;

// Cells by which a server finds out that its store can write. They are nobody's.
const probe = (c) => c.limit === "token-bucket 1000000000/s burst 1000" && c.key.startsWith("healthz ");

export const view = {
  name: "keys",
  title: "Keys",
  key: "k",
  icon: "M10.5 2a3.5 3.5 0 1 0 0 7a3.5 3.5 0 0 0 0-7M8 8l-6 6M4 12l2 2",

  async render(root, api, params) {
    const limit = params.query.get("limit") || "", blocked = params.query.get("blocked") === "true";
    const names = (await api.get("/v1/limits")).limits.map((l) => l.name);
    if (!root.isConnected) return;
    if (limit && !names.includes(limit)) names.push(limit);
    const to = (change) => go("keys", [], Object.fromEntries(Object.entries({ limit, blocked: blocked ? "true" : "", ...change }).filter(([, v]) => v)));

    let cells = [], more = false, order = "use", begins = "";
    const rows = h("tbody"), wrong = h("div"), count = h("span", { class: "quiet num" });
    const next = h("button", { type: "button", hidden: true, onclick: () => load(true) }, "More keys");
    const sorts = h("div", { class: "segments", role: "group", "aria-label": "Order" }, [["use", "Fullest first"], ["key", "By key"]].map(([n, text]) =>
      h("button", { type: "button", "aria-pressed": String(n === order), onclick: (e) => {
        order = n;
        for (const b of sorts.children) b.setAttribute("aria-pressed", String(b === e.target));
        draw();
      } }, text)));

    fill(root, h("div", { class: "head" }, h("h1", {}, "Keys"), count),
      h("div", { class: "bar" },
        h("label", {}, "Limit ", h("select", { "aria-label": "Limit", onchange: (e) => to({ limit: e.target.value }) },
          h("option", { value: "" }, "all"), names.map((n) => h("option", { value: n, selected: n === limit }, n)))),
        h("label", {}, h("input", { type: "checkbox", checked: blocked, onchange: (e) => to({ blocked: e.target.checked ? "true" : "" }) }), "blocked only"),
        h("input", { type: "search", placeholder: "Begins with", "aria-label": "Keys that begin with", spellcheck: "false", oninput: (e) => { begins = e.target.value; draw(); } }), sorts),
      wrong,
      h("section", { class: "card" }, h("div", { class: "scroll" }, h("table", { class: "stack" }, h("thead", {}, h("tr", {}, h("th", {}, "Key"), h("th", {}, "Limit"),
        h("th", {}, "Of its capacity"), h("th", { class: "right" }, "In use"), h("th", { class: "right" }, "Left"), h("th", {}, "State"))), rows)),
      h("div", { class: "actions" }, next)));

    const share = (c) => (c.blocked_until ? 2 : c.capacity > 0 ? c.used / c.capacity : 0);
    const draw = () => {
      const list = cells.filter((c) => c.key.startsWith(begins) && !probe(c));
      if (order === "use") list.sort((a, b) => share(b) - share(a) || (a.key < b.key ? -1 : 1));
      const name = (tr) => tr.cells[0].textContent + "\n" + (tr.cells[1] ? tr.cells[1].textContent : "");
      const focused = rows.contains(document.activeElement) && name(document.activeElement.closest("tr"));
      count.textContent = number(list.length) + (more ? " of more" : "") + (list.length === 1 ? " key" : " keys");
      fill(rows, list.map(row));
      if (list.length === 0) fill(rows, h("tr", {}, h("td", { colspan: 6, class: "empty whole" }, blocked ? "No key is blocked." : begins ? "No key that was read begins so." : "No key is in use.")));
      if (focused) [...rows.rows].find((tr) => name(tr) === focused)?.querySelector("a")?.focus({ preventScroll: true });
      next.hidden = !more;
    };
    const load = async (further) => {
      const last = further && cells[cells.length - 1];
      try {
        const got = (await api.get("/v1/cells", { limit: limit || null, blocked: blocked ? "true" : null, max: page, after_limit: last ? last.limit : null, after_key: last ? last.key : null })).cells;
        if (!root.isConnected) return;
        cells = further ? cells.concat(got) : got;
        more = got.length === page;
        fill(wrong);
        draw();
      } catch (err) {
        if (root.isConnected && err.status !== 401) fill(wrong, problem(err));
      }
    };
    stop = every(5000, async () => {
      if (cells.length <= page) await load(false); // several pages stand still while they are read
    });
  },

  leave() {
    if (stop) stop();
    stop = null;
  },
};

function row(c) {
  const blocked = c.blocked_until && c.blocked_until > c.at;
  return h("tr", {}, h("td", { class: "whole" }, keyLink(c.key)), h("td", { class: "mono quiet" }, c.limit),
    h("td", { class: "whole" }, meter(c.used, c.capacity || 0)), h("td", { class: "right", "data-name": "in use" }, number(c.used)),
    h("td", { class: "right", "data-name": "left" }, c.remaining === undefined ? "" : number(c.remaining)),
    h("td", {}, blocked ? [h("span", { class: "badge refused", title: "until " + clock(c.blocked_until) }, "blocked " + span((c.blocked_until - c.at) / 1000)), c.reason ? [" ", h("span", { class: "quiet" }, said(c.reason))] : null]
      : c.remaining === 0 ? h("span", { class: "badge refused" }, "full") : null));
}
