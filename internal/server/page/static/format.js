// Numbers, times and lengths of time as people read them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const fine = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });

// number writes a count, or an amount.
export const number = (n) => (Math.abs(n) >= 100 || Number.isInteger(n) ? whole : fine).format(n);

// short writes a number in little room: 1234567 is 1.2M.
export function short(n) {
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (Math.abs(n) >= size) {
      const scaled = n / (unit === "k" ? 1e3 : size);
      return fine.format(Math.abs(scaled) >= 100 ? Math.round(scaled) : Math.round(scaled * 10) / 10) + unit;
    }
  }
  return number(Math.abs(n) < 10 ? n : Math.round(n * 10) / 10);
}

// percent writes a share; what is little but not nothing does not become 0.
export function percent(part, of) {
  if (!of) return "0 %";
  const p = (100 * part) / of;
  if (p > 0 && p < 0.1) return "< 0.1 %";
  return (p >= 10 ? Math.round(p) : Math.round(p * 10) / 10) + " %";
}

// span writes a length of time in milliseconds, rounded up as a wait is.
export function span(ms) {
  if (ms === null || ms === undefined) return "never";
  if (ms <= 0) return "now";
  if (ms < 1000) return Math.ceil(ms) + " ms";
  let s = Math.ceil(ms / 1000);
  if (s < 60) return s + " s";
  if (s < 3600) return Math.floor(s / 60) + " min" + (s % 60 ? " " + (s % 60) + " s" : "");
  const min = Math.ceil(s / 60);
  if (min < 48 * 60) return Math.floor(min / 60) + " h" + (min % 60 ? " " + (min % 60) + " min" : "");
  const hours = Math.ceil(min / 60);
  return Math.floor(hours / 24) + " d" + (hours % 24 ? " " + (hours % 24) + " h" : "");
}

const two = (n) => String(n).padStart(2, "0");

// clock writes an instant, microseconds since the epoch, of today or of another day, in the time of the browser.
export function clock(us, withMillis) {
  const t = new Date(us / 1000), now = new Date();
  const day = t.toDateString() === now.toDateString() ? "" : `${t.getFullYear()}-${two(t.getMonth() + 1)}-${two(t.getDate())} `;
  return day + `${two(t.getHours())}:${two(t.getMinutes())}:${two(t.getSeconds())}` +
    (withMillis ? "." + String(t.getMilliseconds()).padStart(3, "0") : "");
}

// ago says how long ago an instant was, by another one.
export function ago(us, now) {
  const s = Math.max(0, Math.round((now - us) / 1e6));
  if (s < 2) return "just now";
  if (s < 120) return s + " s ago";
  if (s < 7200) return Math.round(s / 60) + " min ago";
  if (s < 48 * 3600) return Math.round(s / 3600) + " h ago";
  return Math.round(s / 86400) + " d ago";
}
