import { h, fill } from "./dom.js";

export const view = {
  name: "whatif",
  title: "What if",
  key: "w",
  icon: "M2 4h12M2 8h12M2 12h12",
  async render(root, api, params) {
    fill(root, h("h1", {}, view.title), h("p", { class: "quiet" }, "There is nothing here yet."));
  },
};
