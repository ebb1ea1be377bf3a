// Elements. All text becomes text: there is no way here to make elements of it.

const svgNames = new Set(["svg", "path", "rect", "line", "circle", "title", "g", "text", "polyline"]);

// h makes an element. Properties: class, on* (a function), data-* and all others as attributes; value, checked,
// disabled, hidden, selected and open as properties. A child is an element, a text, a number, a list, or nothing.
export function h(tag, props, ...children) {
  const e = svgNames.has(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else if (["value", "checked", "disabled", "hidden", "selected", "open"].includes(name)) e[name] = value;
    else e.setAttribute(name === "className" ? "class" : name, value === true ? "" : String(value));
  }
  add(e, children);
  return e;
}

// add appends children.
export function add(e, ...children) {
  for (const c of children.flat(9)) {
    if (c === undefined || c === null || c === false) continue;
    e.append(c instanceof Node ? c : document.createTextNode(String(c)));
  }
  return e;
}

// fill replaces what is in an element.
export function fill(e, ...children) {
  e.replaceChildren();
  return add(e, children);
}

// icon draws the path of a symbol of 16 by 16.
export function icon(path, title) {
  return h("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": title ? false : "true", role: title ? "img" : false },
    title && h("title", {}, title), h("path", { d: path }));
}

// Characters that cannot be seen, or change how others are seen: controls, direction, joiners that stand alone,
// separators, and halves of surrogates.
const unseen = /[\u0000-\u001f\u007f-\u00a0\u00ad\u061c\u180e\u200b\u200c\u200e\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/gu;

function escaped(c) {
  const short = { "\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0" }[c];
  return short || "\\u" + c.codePointAt(0).toString(16).padStart(4, "0");
}

// keyText shows a key: what cannot be seen is written out and marked.
export function keyText(text) {
  if (text === "") return h("span", { class: "key" }, h("span", { class: "escaped" }, "(empty key)"));
  return marked(text, h("bdi", { class: "key" }));
}

// said shows other text from outside in the same way, such as a reason.
export const said = (text) => marked(text, h("bdi", { class: "said" }));

function marked(text, e) {
  let at = 0;
  for (const m of text.matchAll(unseen)) {
    add(e, text.slice(at, m.index), h("span", { class: "escaped" }, escaped(m[0])));
    at = m.index + m[0].length;
  }
  return add(e, text.slice(at));
}

// plainKey is keyText where only plain text can stand, such as a title.
export const plainKey = (text) => (text === "" ? "(empty key)" : text.replace(unseen, escaped));

// href is the address of a view: its name, what follows, and a query.
export function href(name, path = [], query = {}) {
  const q = new URLSearchParams(query).toString();
  return "#/" + [name, ...path].map(encodeURIComponent).join("/") + (q ? "?" + q : "");
}

// go shows another view.
export function go(name, path, query) {
  location.hash = href(name, path, query);
}

// keyLink leads to the page of a key.
export function keyLink(key) {
  return h("a", { href: href("key", [key]), class: "keylink", title: plainKey(key) }, keyText(key));
}

// note shows a message for a while; kind is ok or bad.
export function note(text, kind = "ok") {
  let box = document.querySelector(".notes");
  if (!box) document.body.append((box = h("div", { class: "notes", role: "status", "aria-live": "polite" })));
  const e = h("p", { class: "note " + kind }, text);
  box.append(e);
  setTimeout(() => e.remove(), kind === "bad" ? 12000 : 5000);
}

// problem shows an error in the place of what could not be shown.
export function problem(err) {
  return h("div", { class: "problem", role: "alert" }, h("strong", {}, err.title || "This did not work"),
    h("p", {}, err.detail || err.message || String(err)));
}

// ask opens a dialog with a form. fields are {name, label, type, value, hint, options, required, wide}; it resolves with the
// values, after send, which may throw, has taken them; null: it was closed.
export function ask({ title, about, fields, button, danger, send }) {
  return new Promise((resolve) => {
    const wrong = h("p", { class: "wrong", role: "alert", hidden: true });
    const inputs = {};
    const rows = fields.map((f) => {
      const props = { name: f.name, id: "ask-" + f.name, autocomplete: "off", required: f.required, placeholder: f.placeholder };
      const e = f.options
        ? h("select", props, f.options.map((o) => h("option", { value: o[0], selected: o[0] === f.value }, o[1])))
        : h("input", { ...props, type: f.type || "text", spellcheck: "false", maxlength: f.max, list: f.list && "ask-list-" + f.name });
      if (!f.options) e.value = f.value || "";
      inputs[f.name] = e;
      return h("div", { class: "field" }, h("label", { for: "ask-" + f.name }, f.label), e,
        f.list && h("datalist", { id: "ask-list-" + f.name }, f.list.map((o) => h("option", { value: o }))),
        f.hint && h("p", { class: "hint" }, f.hint));
    });
    const submit = h("button", { type: "submit", class: danger ? "danger" : "primary" }, button);
    let result = null;
    const dialog = h("dialog", { "aria-labelledby": "ask-title" },
      h("form", {
        method: "dialog", async onsubmit(e) {
          e.preventDefault();
          const values = Object.fromEntries(Object.entries(inputs).map(([n, i]) => [n, i.value]));
          submit.disabled = true;
          try {
            await send(values);
            result = values;
            dialog.close();
          } catch (err) {
            wrong.textContent = err.detail || err.message;
            wrong.hidden = false;
          } finally {
            submit.disabled = false;
          }
        },
      }, h("h2", { id: "ask-title" }, title), about && h("div", { class: "quiet" }, about), rows, wrong,
      h("div", { class: "actions" }, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), submit)));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(result);
    });
    dialog.addEventListener("click", (e) => e.target === dialog && dialog.close());
    document.body.append(dialog);
    dialog.showModal();
    (dialog.querySelector("input, select") || submit).focus();
  });
}
