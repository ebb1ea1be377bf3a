// Charts of what a limit would have done.

import uPlot from "./uplot.js";
import { h } from "./dom.js";
import { base, hang, row } from "./chart.js";
import { number, percent, span, clock } from "./format.js";

const two = (n) => String(n).padStart(2, "0");

// day writes the time of a tick: the date, where one begins or ticks are days apart.
function day(s, step) {
  const t = new Date(s * 1000), date = `${t.toLocaleString("en", { month: "short" })} ${t.getDate()}`;
  if (step >= 86400 || (t.getHours() === 0 && t.getMinutes() === 0)) return date;
  return `${two(t.getHours())}:${two(t.getMinutes())}` + (step < 60 ? ":" + two(t.getSeconds()) : "");
}

// barChart draws requests in stretches of time, the refused ones upon the admitted ones. set takes the buckets of an
// answer, how many seconds each is long, and the most that there is to be seen.
export function barChart(host) {
  let buckets = [], width = 60;
  const chart = hang(host, () => (innerWidth < 750 ? 190 : 240), "Requests over time, admitted and refused", (c, tip) => {
    const o = base(c, tip, (u, i) => {
      const b = buckets[i], all = b.allowed + b.denied;
      return [h("div", { class: "quiet" }, clock(b.start * 1e6).slice(0, -3) + ", " + span(width * 1000)),
        row("admitted", "admitted", number(b.allowed)), row("refused", "refused", number(b.denied) + (b.denied ? ", " + percent(b.denied, all) : ""))];
    });
    const bars = uPlot.paths.bars({ size: [0.82, Infinity], align: 1, gap: 0 });
    const of = (colour) => ({ stroke: () => c()[colour], fill: () => c()[colour], width: 0, points: { show: false }, paths: bars });
    return {
      ...o,
      scales: {
        x: { time: false, range: (u, min, max) => [min, max + width] },
        y: { range: (u, min, max) => [0, Math.max(1, max) * 1.06] },
      },
      axes: [{
        ...o.axes[0], space: 64, values: (u, ticks) => ticks.map((s) => day(s, ticks.length > 1 ? ticks[1] - ticks[0] : 86400)),
        incrs: [1, 5, 15, 30, 60, 300, 900, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86400, 2 * 86400, 7 * 86400, 28 * 86400, 91 * 86400, 364 * 86400],
        splits: localSplits,
      }, o.axes[1]],
      series: [{}, of("stop"), of("water")],
    };
  });
  return {
    set(list, seconds) {
      buckets = list.map((b) => ({ ...b, start: Date.parse(b.start) / 1000 }));
      width = seconds;
      chart.set([buckets.map((b) => b.start), buckets.map((b) => b.allowed + b.denied), buckets.map((b) => b.allowed)]);
    },
    end: chart.end,
  };
}

// localSplits are the times of ticks: round ones of the browser's clock.
function localSplits(u, axis, min, max, step) {
  const shift = new Date(min * 1000).getTimezoneOffset() * 60;
  const ticks = [];
  for (let t = Math.ceil((min - shift) / step) * step + shift; t <= max; t += step) ticks.push(t);
  return ticks;
}

// curveChart draws what limits refuse that differ in one number. set takes [{n, share, limit, keys, here}], in order of n;
// choose is called with one that is clicked.
export function curveChart(host, what, choose) {
  let points = [];
  const chart = hang(host, 190, "Share of requests that are refused, by " + what, (c, tip) => {
    const o = base(c, tip, (u, i) => [h("div", {}, h("b", {}, points[i].limit)), row("refused", "refuses", percent(points[i].denied, points[i].of) + " of requests"),
      h("div", { class: "quiet" }, number(points[i].denied) + " requests of " + number(points[i].keys) + (points[i].keys === 1 ? " key" : " keys"))]);
    o.hooks.draw = [(u) => {
      const at = points.findIndex((p) => p.here);
      if (at < 0) return;
      const { ctx } = u, px = devicePixelRatio;
      ctx.save();
      ctx.beginPath();
      ctx.arc(u.valToPos(at, "x", true), u.valToPos(points[at].share, "y", true), 5 * px, 0, 7);
      ctx.fillStyle = c().stop;
      ctx.strokeStyle = c().card;
      ctx.lineWidth = 2 * px;
      ctx.fill();
      ctx.stroke();
      ctx.restore();
    }];
    o.hooks.ready = [(u) => u.over.addEventListener("click", () => u.cursor.idx !== null && u.cursor.idx !== undefined && choose(points[u.cursor.idx]))];
    return {
      ...o,
      scales: { x: { time: false, range: (u, min, max) => [min - 0.3, Math.max(min + 1, max) + 0.3] }, y: { range: (u, min, max) => [0, Math.max(0.1, max) * 1.1] } },
      axes: [
        { ...o.axes[0], space: 30, incrs: [1, 2, 3, 5], values: (u, ticks) => ticks.map((i) => (points[i] ? number(points[i].n) : "")) },
        { ...o.axes[1], size: 56, values: (u, ticks) => ticks.map((v) => Math.round(v * 100) / 100 + " %") },
      ],
      series: [{}, { stroke: () => c().stop, fill: () => c().block, width: 2, points: { show: true, size: 5 } }],
    };
  });
  return {
    set(list) {
      points = list.map((p) => ({ ...p, share: (100 * p.denied) / p.of }));
      chart.set([points.map((p, i) => i), points.map((p) => p.share)]);
    },
    end: chart.end,
  };
}
