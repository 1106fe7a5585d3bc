// Numbers as a person reads them, each with its unit. What is not known is a dash.

const NONE = "–";
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** Three digits that matter, and no more than two behind the point. */
function short(value: number): string {
  const digits = value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return value.toFixed(digits);
}

function scaled(value: number, step: number, units: string[], separator = " "): string {
  if (!Number.isFinite(value)) return NONE;
  let index = 0;
  let rest = Math.abs(value);
  while (rest >= step && index < units.length - 1) {
    rest /= step;
    index++;
  }
  const text = index === 0 && Number.isInteger(rest) ? whole.format(rest) : short(rest);
  return `${value < 0 ? "−" : ""}${text}${separator}${units[index] ?? ""}`.trim();
}

export const count = (value: number): string => (Number.isFinite(value) ? whole.format(value) : NONE);
export const perSecond = (value: number): string => scaled(value, 1000, ["/s", "k/s", "M/s", "G/s"]);
export const bits = (value: number): string => scaled(value, 1000, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"]);
export const bytes = (value: number): string => scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
export const micros = (value: number): string => scaled(value, 1000, ["µs", "ms", "s"]);
export const nanos = (value: number): string => scaled(value, 1000, ["ns", "µs", "ms", "s"]);
export const percent = (share: number): string => (Number.isFinite(share) ? `${short(100 * share)} %` : NONE);

/** How long something is, in its two largest units. */
export function duration(seconds: number): string {
  if (!Number.isFinite(seconds) || seconds < 0) return NONE;
  const parts: [number, string][] = [
    [Math.floor(seconds / 86_400), "d"],
    [Math.floor(seconds / 3600) % 24, "h"],
    [Math.floor(seconds / 60) % 60, "min"],
    [Math.floor(seconds) % 60, "s"],
  ];
  const first = parts.findIndex(([value]) => value > 0);
  if (first < 0) return "0 s";
  return parts
    .slice(first, first + 2)
    .map(([value, unit]) => `${value} ${unit}`)
    .join(" ");
}

/** How long ago a time is that is given in seconds since 1970. */
export const age = (since: number): string => duration(Date.now() / 1000 - since);
