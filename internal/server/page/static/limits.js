// The limits and plans of the store, their versions, and what is in force for single keys.

import { h, fill, add, keyText, keyLink, plainKey, href, problem, note, ask } from "./dom.js";
import { clock, span, number } from "./format.js";

export const view = {
  name: "limits",
  title: "Limits",
  key: "l",
  icon: "M2 4h12M2 8h12M2 12h12",

  async render(root, api, params) {
    const c = await api.get("/v1/catalog");
    if (!root.isConnected) return;
    const name = params.path[0];
    if (name !== undefined && name !== "") return one(root, api, c, name);
    const overrides = h("section", { class: "card overrides" }), versions = h("section", { class: "card versions" });
    fill(root, h("div", { class: "head" }, h("h1", {}, view.title), h("span", { class: "badge" }, "version " + c.version)),
      h("section", { class: "card limits" }, h("div", { class: "scroll" }, limitTable(c.limits))),
      c.plans.length > 0 && h("section", { class: "card plans" }, h("div", { class: "head" }, h("h2", {}, "Plans")),
        h("p", { class: "hint" }, "A key that has a plan has these limits in the place of those of their names."), c.plans.map(plan)),
      overrides, versions);
    await Promise.all([showOverrides(overrides, api, root), showVersions(versions, api, root, c.version, "")]);
  },
};

function limitTable(limits) {
  return h("table", { class: "stack" }, h("thead", {}, h("tr", {}, h("th", {}, "Name"), h("th", {}, "Limit"), h("th", {}, "What it lets pass"), h("th", {}, "From"))),
    h("tbody", {}, limits.map((l) => h("tr", {}, h("td", {}, h("a", { href: href("limits", [l.name]) }, h("strong", {}, l.name)), l.renamed_to && h("div", { class: "quiet" }, "renamed to " + l.renamed_to), l.description && h("div", { class: "quiet prose" }, keyText(l.description))),
      h("td", { class: "whole" }, h("code", {}, l.limit)), h("td", { class: "whole bound" }, bound(l)),
      h("td", {}, h("span", { class: "badge" + (l.retired ? " refused" : "") }, l.retired ? "retired" : l.origin || "set by hand")))),
    limits.length === 0 && h("tr", {}, h("td", { colspan: 4, class: "empty whole" }, "There are no named limits. ", h("code", {}, "headgate limits set NAME LIMIT"), " makes one."))));
}

// bound says what a limit lets pass without its notation, which stands beside it.
const bound = (l) => (l.bound.startsWith(l.limit + " ") ? l.bound.slice(l.limit.length + 1) : l.bound);

function plan(p) {
  return h("div", { class: "plan" }, h("h3", {}, p.name), h("div", { class: "scroll" }, h("table", { class: "stack" }, h("tbody", {}, p.limits.map((l) => h("tr", {},
    h("td", {}, h("a", { href: href("limits", [l.name]) }, l.name)), h("td", { class: "whole" }, h("code", {}, l.limit)), h("td", { class: "whole bound" }, bound(l))))))));
}

const find = (c, name) => c.limits.find((l) => l.name === name || l.renamed_to === name);

// one shows a limit.
async function one(root, api, c, name) {
  const l = find(c, name);
  if (l) name = l.name;
  const overrides = h("section", { class: "card overrides" }), versions = h("section", { class: "card versions" });
  const recorded = l && / history /.test(l.limit);
  fill(root, h("div", { class: "head" }, h("h1", {}, keyText(name)), l && l.renamed_to && h("span", { class: "badge" }, "renamed to " + l.renamed_to), l && l.retired && h("span", { class: "badge refused" }, "retired"), h("a", { href: href("limits") }, "All limits"),
    l && api.can() && h("button", { type: "button", onclick: () => edit(root, api, name) }, "Edit…"),
    l && h("a", { class: "button", href: href("whatif", [], { limit: l.limit, ...(recorded ? { recorded: name } : {}) }) }, "What if it were another?")),
  l ? h("section", { class: "card" }, l.description && h("p", { class: "prose" }, keyText(l.description)), h("dl", { class: "explain" }, lines(l.explain)))
    : problem({ title: "There is no such limit now", detail: "Its versions, if there were any, are below." }),
  c.plans.some((p) => p.limits.some((x) => x.name === name)) && h("section", { class: "card plans" }, h("div", { class: "head" }, h("h2", {}, "In plans")),
    c.plans.map((p) => ({ ...p, limits: p.limits.filter((x) => x.name === name) })).filter((p) => p.limits.length > 0).map(plan)),
  overrides, versions);
  await Promise.all([showOverrides(overrides, api, root, name), showVersions(versions, api, root, c.version, name)]);
}

// edit changes a limit for all its keys, from what it is when the button is pressed: the view may be hours old.
async function edit(root, api, name) {
  const c = await api.get("/v1/catalog");
  const l = find(c, name);
  if (!l) return reload(root, api, name);
  const done = await ask({
    title: `Change ${l.name}?`, button: "Change",
    about: "It holds for all keys, on every server within two seconds, and makes a new version. What keys have used stays."
      + (l.origin === "file" ? " A config file defines this limit: it stays as it is set here until the file is changed." : ""),
    fields: [{ name: "limit", label: "Limit", value: l.limit, required: true, max: 255 }, { name: "reason", label: "Reason", max: 1000 }],
    send: (v) => api.post("/v1/limit", { name: l.renamed_to || l.name, limit: v.limit, seen: c.version, reason: v.reason || undefined }),
  });
  if (!done) return;
  note(`${l.name} is ${done.limit} now`);
  reload(root, api, l.name);
}

// lines are those of an explanation: a word in ten letters, then a text.
function lines(text) {
  return text.split("\n").filter((line) => line !== "" && !line.startsWith("limit  ")).map((line) => [h("dt", {}, line.slice(0, 10).trim()), h("dd", {}, line.slice(11))]);
}

// showOverrides lists the overrides, of one limit or of all, a page at a time.
async function showOverrides(box, api, root, only) {
  const body = h("tbody"), more = h("div", { class: "bar" });
  let found = 0;
  fill(box, h("div", { class: "head" }, h("h2", {}, "Overrides in force")), h("div", { class: "scroll" }, h("table", { class: "stack" },
    h("thead", {}, h("tr", {}, !only && h("th", {}, "Limit"), h("th", {}, "Key"), h("th", {}, "Instead"), h("th", {}, "Until"), h("th", {}, "Reason"), h("th", {}))), body)), more);
  await page({});

  async function page(after) {
    try {
      let next = after;
      for (let looked = 0; looked < 20; looked++) { // of one limit, the first pages may have none
        const list = await api.get("/v1/overrides", next);
        if (!root.isConnected) return;
        for (const o of list.overrides) {
          if (only && o.limit !== only) continue;
          add(body, row(o));
          found++;
        }
        next = list.next_limit === undefined ? null : { after_limit: list.next_limit, after_key: list.next_key || "" };
        if (!next || !only || found > 0) break;
      }
      fill(more, next && h("button", { type: "button", class: "small", onclick: () => page(next) }, "More"));
      if (found === 0 && !next) fill(body, h("tr", {}, h("td", { colspan: 6, class: "empty whole" }, "None: every key has the limits that are above.")));
    } catch (err) {
      if (root.isConnected) fill(more, problem(err));
    }
  }

  function row(o) {
    return h("tr", {}, !only && h("td", {}, h("a", { href: href("limits", [o.limit]) }, o.limit)),
      h("td", { class: "whole" }, o.prefix ? [keyText(o.key), h("span", { class: "quiet" }, " and all that begins so")] : keyLink(o.key)),
      h("td", { class: "whole" }, h("code", { title: o.bound }, o.override)),
      h("td", { "data-name": "until" }, o.until === null ? h("span", { class: "quiet" }, "it is removed") : [clock(o.until), h("div", { class: "quiet" }, "in " + span(o.until / 1000 - Date.now()))]),
      h("td", { class: "whole prose" }, o.reason && keyText(o.reason)),
      h("td", { class: "right" }, api.can() && !o.prefix && h("button", { type: "button", class: "small", onclick: () => remove(o) }, "Remove")));
  }

  async function remove(o) {
    const done = await ask({
      title: "Remove the override?", about: `${plainKey(o.key)} has ${o.override} in the place of ${o.limit}.`, button: "Remove", danger: true,
      fields: [{ name: "reason", label: "Reason", max: 1000 }],
      send: (v) => api.post("/v1/override", { limit: o.limit, key: o.key, remove: true, reason: v.reason || undefined }),
    });
    if (!done) return;
    note("The override is removed");
    reload(root, api, only);
  }
}

// reload shows the view again.
function reload(root, api, only) {
  if (root.isConnected) view.render(root, api, { path: only ? [only] : [], query: new URLSearchParams() }).catch((err) => fill(root, problem(err)));
}

// showVersions lists the versions, compares two, and goes back to one.
async function showVersions(box, api, root, newest, only) {
  const list = h("div"), more = h("div", { class: "bar" }), difference = h("div");
  const from = h("select", { id: "version-from" }), to = h("select", { id: "version-to" });
  fill(box, h("div", { class: "head" }, h("h2", {}, "Versions"), h("form", { class: "bar compare", onsubmit(e) {
    e.preventDefault();
    compare(Number(from.value), Number(to.value));
  } }, h("label", { for: "version-from" }, "From"), from, h("label", { for: "version-to" }, "to"), to, h("button", { type: "submit", class: "small" }, "Compare"))),
  difference, list, more);
  const known = new Set();
  await page(undefined);

  async function page(before) {
    try {
      const v = await api.get("/v1/versions", { max: 20, before, limit: only || undefined });
      if (!root.isConnected) return;
      add(list, v.versions.map(row));
      v.versions.forEach((one) => known.add(one.version));
      known.add(0).add(newest);
      const numbers = [...known].sort((a, b) => b - a), options = () => numbers.map((n) => h("option", { value: n }, n === 0 ? "0, empty" : n));
      const [a, b] = [from.value || numbers[1] || 0, to.value || newest];
      fill(from, options());
      fill(to, options());
      [from.value, to.value] = [a, b];
      fill(more, v.next !== undefined && h("button", { type: "button", class: "small", onclick: () => page(v.next) }, "Older ones"));
      if (!list.firstChild) fill(list, h("p", { class: "empty" }, "Nothing was ever changed."));
    } catch (err) {
      if (root.isConnected) fill(more, problem(err));
    }
  }

  function row(v) {
    const kinds = { "+": "added", "-": "gone", "~": "other" };
    return h("article", { class: "version" }, h("div", { class: "head" }, h("strong", {}, "Version " + v.version), h("span", { class: "quiet prose" }, clock(v.at) + (v.by ? ", by " : ""), v.by && keyText(v.by)),
      v.version !== newest && [h("button", { type: "button", class: "small", onclick: () => compare(v.version, newest) }, "Difference to now"),
        api.can() && h("button", { type: "button", class: "small", onclick: () => back(v.version) }, "Roll back to this")]),
    v.reason && h("p", { class: "prose" }, keyText(v.reason)),
    h("ul", { class: "edits" }, v.changes.map((line) => h("li", { class: kinds[line[0]] || "" }, keyText(line))), v.more > 0 && h("li", {}, `and ${number(v.more)} more`)));
  }

  async function compare(a, b) {
    from.value = a;
    to.value = b;
    try {
      const d = await api.get("/v1/difference", { from: a, to: b });
      if (!root.isConnected) return;
      const changes = only ? d.changes.filter((c) => c.name === only || c.key === only && c.kind === "plan") : d.changes;
      fill(difference, h("h3", {}, `From version ${a} to ${b}`), changes.length === 0 ? h("p", { class: "quiet" }, "There is no difference.") : changesTable(changes));
      difference.scrollIntoView({ block: "nearest" });
    } catch (err) {
      if (root.isConnected) fill(difference, problem(err));
    }
  }

  async function back(version) {
    const limits = only ? [only] : undefined;
    let plan;
    try {
      plan = await api.post("/v1/rollback", { version, limits, dry_run: true });
    } catch (err) {
      note(err.detail || err.message, "bad");
      return;
    }
    if (!root.isConnected) return;
    if (plan.changes.length === 0) {
      note("Nothing to roll back: all is as it was");
      return;
    }
    const done = await ask({
      title: `Roll back to version ${version}?`, button: "Roll back", danger: true,
      about: h("div", {}, h("p", {}, only ? `${only} becomes what it was. ` : "Limits, plans and overrides become what they were. ", "This makes a new version; what keys have used stays."), changesTable(plan.changes)),
      fields: [{ name: "reason", label: "Reason", max: 1000 }],
      send: (v) => api.post("/v1/rollback", { version, limits, seen: plan.version, reason: v.reason || undefined }),
    });
    if (!done) return;
    note(`Rolled back to version ${version}`);
    reload(root, api, only);
  }
}

function changesTable(changes) {
  return h("div", { class: "scroll" }, h("table", { class: "difference stack" }, h("tbody", {}, changes.map((c) => h("tr", {},
    h("td", { class: "whole" }, h("span", { class: "badge" }, c.kind.replace("-", " ")), " ", c.name, c.key !== undefined && [" ", keyText(c.key)]),
    h("td", { class: "whole" }, c.before ? h("del", {}, keyText(c.before)) : h("span", { class: "quiet" }, "was not there")),
    h("td", { class: "whole" }, c.after ? h("ins", {}, keyText(c.after)) : h("span", { class: "quiet" }, "is gone")))))));
}
