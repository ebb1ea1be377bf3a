// The one-line notation of limits, as far as it can be moved by sliders.

// kinds are the algorithms that sliders know, with the word before their second number.
export const kinds = [
  ["token-bucket", "Token bucket", "burst"], ["leaky-bucket", "Leaky bucket", "capacity"], ["sliding-window", "Sliding window", ""],
  ["sliding-log", "Sliding log", ""], ["fixed-window", "Fixed window", ""],
];

export const periods = [["s", "second"], ["10s", "10 seconds"], ["1m", "minute"], ["15m", "15 minutes"], ["1h", "hour"], ["1d", "day"], ["7d", "7 days"]];

// ladder is the round numbers that a slider stops at.
export const ladder = [];
for (let scale = 1; scale <= 1e6; scale *= 10) {
  for (const n of [10, 12, 15, 20, 25, 30, 40, 50, 60, 80]) if ((n * scale) % 10 === 0) ladder.push((n * scale) / 10);
}

// rung is the place of the number of the ladder that is nearest to another one.
export function rung(n) {
  let best = 0;
  ladder.forEach((v, i) => {
    if (Math.abs(Math.log(v / n)) < Math.abs(Math.log(ladder[best] / n))) best = i;
  });
  return best;
}

// parse reads a notation into {kind, amount, period, burst, rest}, or is null if sliders cannot say it.
export function parse(text) {
  const m = /^([a-z-]+) (\d+(?:\.\d+)?)\/((?:\d+(?:ms|[smhd]))+|[smhd])((?: .*)?)$/.exec(text.trim());
  if (!m) return null;
  const kind = kinds.find((k) => k[0] === m[1]);
  if (!kind || Number(m[2]) <= 0) return null;
  const out = { kind: kind[0], amount: Number(m[2]), period: m[3].replace(/^1s$/, "s").replace(/^([mhd])$/, "1$1"), burst: Number(m[2]), rest: m[4] };
  if (kind[2]) {
    const b = new RegExp(` ${kind[2]} (\\d+(?:\\.\\d+)?)(?= |$)`).exec(m[4]);
    if (b) {
      out.burst = Number(b[1]);
      out.rest = m[4].replace(b[0], "");
    }
  }
  return out;
}

// write is the notation of what parse has read.
export function write(l) {
  const word = kinds.find((k) => k[0] === l.kind)[2];
  return `${l.kind} ${l.amount}/${l.period}${word ? ` ${word} ${l.burst}` : ""}${l.rest}`;
}
