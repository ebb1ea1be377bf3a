// Charts, with uPlot, and small pictures in SVG.

import uPlot from "./uplot.js";
import { h, fill } from "./dom.js";
import { short, number, percent } from "./format.js";

// colours are those of the style as they are now: a canvas knows no variables.
function colours() {
  const probe = h("span", { hidden: true });
  document.body.append(probe);
  const read = (name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  const all = Object.fromEntries(["ink", "quiet", "rule", "water", "pool", "stop", "block", "card", "warn"].map((n) => [n, read(n)]));
  probe.remove();
  return all;
}

const two = (n) => String(n).padStart(2, "0");
const time = (s, seconds) => {
  const t = new Date(s * 1000);
  return `${two(t.getHours())}:${two(t.getMinutes())}` + (seconds ? ":" + two(t.getSeconds()) : "");
};

// base is what all charts have in common.
export function base(c, tip, about) {
  const font = "12px system-ui, sans-serif";
  const axis = { stroke: () => c().quiet, font, grid: { stroke: () => c().rule, width: 1 }, ticks: { show: false } };
  return {
    width: 300, height: 200, legend: { show: false }, padding: [10, 26, 0, 0],
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 7, width: 2 } },
    axes: [
      { ...axis, grid: { show: false }, size: 26, gap: 6, space: 76, values: (u, ticks) => ticks.map((s) => time(s, u.scales.x.max - u.scales.x.min < 600)) },
      { ...axis, size: 46, gap: 4, values: (u, ticks) => ticks.map(short) },
    ],
    hooks: {
      setCursor: [(u) => {
        const i = u.cursor.idx;
        if (i === null || i === undefined || u.cursor.left < 0 || u.data[0][i] === undefined) {
          tip.hidden = true;
          return;
        }
        fill(tip, about(u, i));
        tip.hidden = false;
        const left = u.cursor.left + u.bbox.left / devicePixelRatio, room = u.root.clientWidth;
        tip.style.top = "8px";
        tip.style.left = (left > room / 2 ? Math.max(0, left - tip.offsetWidth - 14) : left + 14) + "px";
      }],
    },
  };
}

// hang puts a chart into a host and keeps its size and colours. make returns the options.
export function hang(host, height, label, make) {
  let shades = colours(), plot = null, data = null;
  const tip = h("div", { class: "tip", hidden: true });
  host.classList.add("chart");
  host.setAttribute("role", "img");
  host.setAttribute("aria-label", label);
  const tall = typeof height === "function" ? height : () => height;
  const c = () => shades;
  const opts = make(c, tip);
  const size = () => ({ width: Math.max(120, host.clientWidth), height: tall() });
  const themed = () => {
    shades = colours();
    if (plot) plot.redraw(false, true);
  };
  document.addEventListener("themed", themed);
  const watch = new ResizeObserver(() => plot && plot.setSize(size()));
  watch.observe(host);
  return {
    set(next) {
      data = next;
      if (plot) plot.setData(data);
      else {
        plot = new uPlot({ ...opts, ...size() }, data, host);
        host.append(tip);
      }
    },
    end() {
      document.removeEventListener("themed", themed);
      watch.disconnect();
      if (plot) plot.destroy();
    },
  };
}

export const row = (colour, name, value) => h("div", {}, h("i", { class: "swatch " + colour }), name + " ", h("b", {}, value));

// rateChart draws decisions of each second: admitted, refused, and failed, one upon another. set takes the times in
// seconds and the counts.
export function rateChart(host) {
  let counts = [[], [], []], span = 300;
  const chart = hang(host, () => (innerWidth < 750 ? 190 : 240), "Decisions a second, admitted and refused", (c, tip) => {
    const o = base(c, tip, (u, i) => [h("div", { class: "quiet" }, time(u.data[0][i], true)),
      row("admitted", "admitted", number(counts[0][i])), row("refused", "refused", number(counts[1][i])),
      counts[2][i] > 0 && row("failed", "not decided", number(counts[2][i]))]);
    const area = (stroke, paint) => ({ stroke: () => c()[stroke], fill: () => c()[paint], width: 1.5, points: { show: false } });
    return {
      ...o,
      scales: { x: { time: false, range: (u, min, max) => [max - span, max] }, y: { range: (u, min, max) => [0, Math.max(4, max * 1.12)] } },
      axes: [{ ...o.axes[0], incrs: [10, 15, 30, 60, 120, 300] }, o.axes[1]],
      series: [{}, area("warn", "rule"), area("stop", "block"), area("water", "pool")],
    };
  });
  return {
    set(times, admitted, refused, failed, seconds) {
      counts = [admitted, refused, failed];
      span = seconds;
      chart.set([times, admitted.map((n, i) => n + refused[i] + failed[i]), admitted.map((n, i) => n + refused[i]), admitted]);
    },
    end: chart.end,
  };
}

// levelChart draws the level of a key over time, its capacity, when it was blocked, and above that each refusal.
// set takes {samples: [{t, level, cap, blocked}], refusals: [t], from, to}; times in seconds.
export function levelChart(host, unit) {
  let now = { samples: [], refusals: [], from: 0, to: 60 };
  const lane = 18; // pixels above the plot, for refusals
  const chart = hang(host, () => (innerWidth < 750 ? 170 : 200), "The level over time, with the capacity and refusals", (c, tip) => {
    const o = base(c, tip, (u, i) => {
      const s = now.samples[i];
      return [h("div", { class: "quiet" }, time(s.t, true)), row("admitted", "level", number(s.level) + (s.cap ? " of " + number(s.cap) + ", " + percent(s.level, s.cap) : "")),
        s.blocked && h("div", { class: "refused-text" }, "blocked")];
    });
    o.padding = [lane + 8, 26, 0, 0];
    o.hooks.drawClear = [(u) => {
      const { ctx, bbox } = u;
      ctx.save();
      ctx.fillStyle = c().block;
      let from = null;
      now.samples.forEach((s, i) => {
        if (s.blocked && from === null) from = s.t;
        if (from !== null && (!s.blocked || i === now.samples.length - 1)) {
          const a = Math.max(bbox.left, u.valToPos(from, "x", true)), b = u.valToPos(s.t, "x", true);
          if (b > a) ctx.fillRect(a, bbox.top, b - a, bbox.height);
          from = null;
        }
      });
      ctx.restore();
    }];
    o.hooks.draw = [(u) => {
      const { ctx, bbox } = u, px = devicePixelRatio;
      ctx.save();
      const last = now.samples[now.samples.length - 1];
      if (last && last.cap) {
        const y = Math.round(u.valToPos(last.cap, "y", true)) - 0.5;
        ctx.strokeStyle = ctx.fillStyle = c().ink; // on to the end, where there are no samples yet
        ctx.lineWidth = 1.3 * px;
        ctx.setLineDash([6 * px, 4 * px]);
        ctx.beginPath();
        ctx.moveTo(u.valToPos(last.t, "x", true), y + 0.5);
        ctx.lineTo(bbox.left + bbox.width, y + 0.5);
        ctx.stroke();
        ctx.setLineDash([]);
        ctx.font = `${12 * px}px system-ui, sans-serif`;
        ctx.textAlign = "right";
        ctx.lineWidth = 3 * px;
        ctx.strokeStyle = c().card;
        ctx.lineJoin = "round";
        ctx.textBaseline = "bottom";
        const text = (unit ? unit + " " : "capacity ") + short(last.cap);
        ctx.strokeText(text, bbox.left + bbox.width - 4 * px, y - 3 * px);
        ctx.fillText(text, bbox.left + bbox.width - 4 * px, y - 3 * px);
      }
      ctx.fillStyle = c().stop;
      for (const t of now.refusals) {
        if (t < u.scales.x.min || t > u.scales.x.max) continue;
        ctx.fillRect(u.valToPos(t, "x", true) - px, bbox.top - (lane - 2) * px, 2 * px, (lane - 6) * px);
      }
      ctx.restore();
    }];
    const incrs = [5, 10, 15, 30, 60, 120, 300, 600];
    return {
      ...o,
      scales: {
        x: { time: false, range: () => [now.from, now.to] },
        y: { range: (u, min, max) => [0, Math.max(1, max) * 1.28] },
      },
      axes: [{ ...o.axes[0], incrs }, o.axes[1]],
      series: [{}, { stroke: () => c().water, fill: () => c().pool, width: 2, points: { show: (u) => now.samples.length < 3, size: 5 } },
        { stroke: () => c().ink, width: 1.3, dash: [6, 4], points: { show: false }, paths: uPlot.paths.stepped({ align: -1 }) }],
    };
  });
  return {
    set(next) {
      now = next;
      chart.set([now.samples.map((s) => s.t), now.samples.map((s) => s.level), now.samples.map((s) => s.cap || null)]);
    },
    end: chart.end,
  };
}

// spark draws numbers, the oldest first, in little room.
export function spark(values, bad, title) {
  const most = Math.max(1, ...values), n = Math.max(1, values.length - 1);
  const points = values.map((v, i) => `${((100 * i) / n).toFixed(1)},${(23 - (21 * v) / most).toFixed(1)}`).join(" ");
  return h("svg", { class: "spark", viewBox: "0 0 100 24", preserveAspectRatio: "none", role: "img", "aria-label": title },
    h("title", {}, title), h("path", { class: "under" + (bad ? " bad" : ""), d: `M0,24 L${points.replaceAll(" ", " L")} L100,24 Z` }),
    h("polyline", { class: bad ? "bad" : "level", points }));
}

// meter draws how much of a capacity is in use.
export function meter(used, cap) {
  const share = cap > 0 ? Math.min(1, used / cap) : used > 0 ? 1 : 0;
  return h("div", { class: "meter" + (share >= 0.995 ? " full" : ""), title: number(used) + (cap > 0 ? " of " + number(cap) : "") },
    h("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" }, h("rect", { width: (100 * share).toFixed(1), height: 10 })),
    h("span", {}, cap > 0 ? percent(used, cap) : number(used)));
}

// legend names what is drawn: [[class, text]].
export const legend = (list) => h("div", { class: "legend" }, list.map(([kind, text]) => h("span", {}, h("i", { class: kind }), text)));

