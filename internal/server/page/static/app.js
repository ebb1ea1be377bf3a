// The shell: navigation, keyboard, light and dark, and who is signed in.

import { h, fill, add, icon, problem, href, go, note } from "./dom.js";
import { api, every } from "./api.js";
import { view as live } from "./live.js";
import { view as keys } from "./keys.js";
import { view as key } from "./key.js";
import { view as limits } from "./limits.js";
import { view as whatif } from "./whatif.js";
import { view as audit } from "./audit.js";

const views = [live, keys, limits, whatif, audit, key];
const shown = views.filter((v) => !v.hidden); // in the navigation

const main = h("main", { id: "main", tabindex: "-1" });
const state = h("span", { class: "state", role: "status" });
const search = h("input", { type: "search", class: "find", placeholder: "Find a key", "aria-label": "Find a key", autocomplete: "off", spellcheck: "false" });
const links = shown.map((v) => h("a", { href: href(v.name), title: `${v.title} (g ${v.key})` }, icon(v.icon), h("span", {}, v.title)));
const who = h("div", { class: "who" });

// Light and dark: as the system has it, or as it was chosen here.
const themes = { "": ["system", "M2 3h12v8H2zM6 14h4M8 11v3"], light: ["light", "M8 5a3 3 0 1 0 0 6a3 3 0 0 0 0-6M8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1 1M12 12l1 1M13 3l-1 1M4 12l-1 1"], dark: ["dark", "M13 9.5A5.5 5.5 0 0 1 6.5 3a5.5 5.5 0 1 0 6.5 6.5"] };
const order = ["", "light", "dark"];
const theme = h("button", { class: "plain", type: "button", onclick: () => chose(order[(order.indexOf(document.documentElement.dataset.theme || "") + 1) % 3]) });

function chose(name) {
  if (!themes[name]) name = "";
  if (name) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
  try {
    localStorage.setItem("headgate-theme", name);
  } catch (err) { /* it is not kept then */ }
  const next = themes[order[(order.indexOf(name) + 1) % 3]][0];
  theme.title = `Colours: ${themes[name][0]}; change to ${next} (t)`;
  theme.setAttribute("aria-label", theme.title);
  fill(theme, icon(themes[name][1]));
  document.dispatchEvent(new Event("themed"));
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.dispatchEvent(new Event("themed")));

function shell() {
  document.body.append(
    h("aside", { class: "side" },
      h("a", { class: "brand", href: href("live") }, h("img", { src: "/page/icon.svg", alt: "", width: 26, height: 26 }), "Headgate"),
      h("nav", { "aria-label": "Views" }, links),
      h("div", { class: "foot" }, state, who, h("div", { class: "tools" }, theme,
        h("button", { class: "plain", type: "button", title: "Keys of the keyboard (?)", "aria-label": "Keys of the keyboard", onclick: help },
          icon("M6 6a2 2 0 1 1 3 1.7c-.7.4-1 .8-1 1.6M8 11.5v.6"))))),
    h("div", { class: "page" },
      h("header", {}, h("form", { role: "search", onsubmit: find }, icon("M7 2.5a4.5 4.5 0 1 0 0 9a4.5 4.5 0 0 0 0-9M10.5 10.5L14 14"), search, h("kbd", { "aria-hidden": "true" }, "/"))),
      banner, main));
}

function find(e) {
  e.preventDefault();
  if (search.value === "") return;
  go("key", [search.value]);
  search.value = "";
  search.blur();
}

// Views.
let current = null, turn = 0;

function where() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  let parts;
  try {
    parts = path.split("/").map(decodeURIComponent);
  } catch (err) {
    parts = [""];
  }
  return { name: parts[0] || "live", params: { path: parts.slice(1), query: new URLSearchParams(query || "") } };
}

async function show() {
  const mine = ++turn;
  if (current && current.leave) current.leave();
  const { name, params } = where();
  current = views.find((v) => v.name === name) || null;
  const at = current && (current.under || current.name);
  shown.forEach((v, i) => (v.name === at ? links[i].setAttribute("aria-current", "page") : links[i].removeAttribute("aria-current")));
  const root = h("div", { class: "view view-" + (current ? current.name : "none") });
  fill(main, root);
  scrollTo(0, 0);
  if (!current) {
    document.title = "Headgate";
    fill(root, problem({ title: "There is no such view", detail: "The navigation has those that there are." }));
    return;
  }
  document.title = current.title + " · Headgate";
  if (!api.me && !(await known())) {
    current = null;
    return;
  }
  if (mine !== turn) return;
  try {
    await current.render(root, api, params);
  } catch (err) {
    if (err.status !== 401 && root.isConnected) add(root, problem(err));
    if (!err.status && !err.title) console.error(err);
  }
}

// Who asks.
async function known() {
  try {
    api.me = await api.get("/v1/me");
  } catch (err) {
    if (err.status === 403) signIn("This token may not look at limits and keys. The page needs one with the role read or admin.");
    else if (err.status !== 401) fill(main, problem(err), h("button", { type: "button", onclick: show }, "Try again"));
    return false;
  }
  const name = api.me.name || (api.me.tokens ? "signed in" : "everybody");
  fill(who, h("span", { class: "name", title: api.me.tokens ? "" : "This server asks for no token here" }, name), h("span", { class: "badge" }, api.me.role),
    api.token && h("button", { class: "plain", type: "button", title: "Forget the token in this tab", onclick: signOut }, "Sign out"));
  return true;
}

function signOut() {
  api.signIn("");
  api.me = null;
  fill(who);
  show();
}

function signIn(why) {
  if (main.querySelector(".signin")) {
    main.querySelector(".wrong").textContent = why;
    return;
  }
  api.me = null;
  fill(who);
  if (current && current.leave) current.leave();
  current = null;
  turn++;
  const input = h("input", { type: "password", id: "token", name: "token", autocomplete: "off", spellcheck: "false", required: true, placeholder: "hgt_…" });
  fill(main, h("form", {
    class: "signin card", onsubmit(e) {
      e.preventDefault();
      api.signIn(input.value.trim());
      show();
    },
  }, h("img", { src: "/page/icon.svg", alt: "", width: 44, height: 44 }), h("h1", {}, "Sign in"),
  h("p", { class: "quiet" }, "This server knows its callers by tokens. A token with the role read may look, one with the role admin may act too. ",
    h("code", {}, "headgate token new NAME --role admin"), " makes one."),
  h("label", { for: "token" }, "Token"), input, h("p", { class: "wrong", role: "alert" }, why),
  h("button", { class: "primary", type: "submit" }, "Sign in"),
  h("p", { class: "hint" }, "It is kept in this tab until the tab is closed, and sent to this server only.")));
  input.focus();
}
api.denied = () => {
  const had = api.token;
  api.signIn("");
  signIn(had ? "This token is not known here." : "");
};

// Whether the server answers.
let answers = null;
api.reached = (yes) => {
  if (yes === answers) return;
  answers = yes;
  fill(state, h("i", { class: "dot " + (yes ? "good" : "bad") }), yes ? "connected" : "no answer");
};

// A store that is away is said above every view.
const banner = h("div", { class: "banner", role: "alert", hidden: true });

async function away() {
  if (!api.me) return;
  let text = "";
  try {
    const me = await api.get("/v1/me");
    text = me.away ? me.away.text : "";
  } catch (err) {
    if (err.status) return;
    text = "The server does not answer. What is shown was so before, and nothing can be done here.";
  }
  banner.hidden = text === "";
  if (banner.textContent !== text) banner.textContent = text;
}

async function health() {
  let text = "connected", kind = "good", more = "";
  try {
    const ready = await fetch("/readyz", { cache: "no-store", credentials: "omit" });
    const out = await ready.json();
    if (!ready.ok) [text, kind, more] = ["store away", "bad", out.title || ""];
    else if (out.config) [text, kind, more] = ["config problem", "warn", out.config];
    else if ((out.limits || []).some((l) => l.keys >= l.max)) [text, kind, more] = ["a limit is full", "warn", out.limits.map((l) => l.limit || "the store").join(", ")];
    answers = true;
  } catch (err) {
    [text, kind, answers] = ["no answer", "bad", false];
  }
  state.title = more;
  fill(state, h("i", { class: "dot " + kind }), text);
}

// The keyboard.
function help() {
  const rows = [...shown.map((v) => [["g", v.key], v.title]), [["/"], "Find a key"], [["j"], "Down the list"], [["k"], "Up the list"],
    [["Enter"], "Open what is chosen"], [["t"], "Light, dark, or as the system has it"], [["?"], "This list"], [["Esc"], "Close"]];
  if (document.querySelector("dialog")) return;
  const d = h("dialog", { "aria-labelledby": "help-title", class: "help" }, h("h2", { id: "help-title" }, "Keys of the keyboard"),
    h("dl", {}, rows.map(([keys, what]) => [h("dt", {}, keys.map((k) => h("kbd", {}, k))), h("dd", {}, what)])),
    h("div", { class: "actions" }, h("button", { type: "button", onclick: () => d.close() }, "Close")));
  d.addEventListener("close", () => d.remove());
  d.addEventListener("click", (e) => e.target === d && d.close());
  document.body.append(d);
  d.showModal();
}

// step moves the focus through the links of a list.
function step(by) {
  const list = [...main.querySelectorAll("tbody a.keylink, tbody [data-step]")];
  if (list.length === 0) return;
  const at = list.indexOf(document.activeElement);
  list[at < 0 ? (by > 0 ? 0 : list.length - 1) : Math.min(list.length - 1, Math.max(0, at + by))].focus();
}

let pending = 0; // g was pressed, then
document.addEventListener("keydown", (e) => {
  if (e.defaultPrevented || e.ctrlKey || e.metaKey || e.altKey || document.querySelector("dialog[open]")) return;
  if (e.target.closest("input, select, textarea")) {
    if (e.key === "Escape") e.target.blur();
    return;
  }
  const went = pending && e.timeStamp - pending < 1500;
  pending = 0;
  const view = went && shown.find((v) => v.key === e.key);
  if (view) go(view.name);
  else if (e.key === "g") pending = e.timeStamp;
  else if (e.key === "/") search.focus();
  else if (e.key === "?") help();
  else if (e.key === "t") theme.click();
  else if (e.key === "j") step(1);
  else if (e.key === "k") step(-1);
  else return;
  e.preventDefault();
});

let kept = "";
try {
  kept = localStorage.getItem("headgate-theme") || "";
} catch (err) { /* as the system has it */ }
chose(kept);
shell();
addEventListener("hashchange", show);
addEventListener("unhandledrejection", (e) => {
  if (e.reason && e.reason.title) { // a Problem that nobody shows
    note(e.reason.title + ". " + (e.reason.detail || ""), "bad");
    e.preventDefault();
  }
});
every(30000, health);
every(3000, away);
show();
