// Numbers as text: short where one reads, exact where one compares.

export function short(value: number | null | undefined): string {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e6) return value.toLocaleString("en-US").replace(/,/g, "\u202f").replace(/^-/, "\u2212");
  if (size >= 1e6) return size < 1e9 ? `${(value / 1e6).toPrecision(3)}M`.replace(/^-/, "\u2212") : scientific(value);
  if (size < 1e-3) return scientific(value);
  return value.toPrecision(size >= 1000 ? 5 : 4).replace(/^-/, "\u2212");
}

const scientific = (value: number): string => value.toExponential(2).replace("e-", "e\u2212").replace("e+", "e").replace(/^-/, "\u2212");

// With so many digits behind the point; what is no number is a dash.
export function fixed(value: unknown, digits: number): string {
  return typeof value === "number" && Number.isFinite(value) ? value.toFixed(digits).replace(/^-/, "\u2212") : "–";
}

// On an axis: without the zeros that only fill up.
export function tick(value: number): string {
  return Math.abs(value) >= 1e-3 && Math.abs(value) < 1e3 ? String(Number(value.toPrecision(6))).replace(/^-/, "\u2212") : short(value).replace(/\.0+e/, "e").replace(/(\.\d*[1-9])0+e/, "$1e");
}

export function exact(value: number | null | undefined): string {
  return value === null || value === undefined ? "–" : String(value).replace(/^-/, "\u2212");
}

export function ago(unixSeconds: number): string {
  const seconds = Math.max(0, Date.now() / 1000 - unixSeconds);
  if (seconds < 90) return `${Math.round(seconds)} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 130000) return `${Math.round(seconds / 3600)} h ago`;
  return new Date(unixSeconds * 1000).toISOString().slice(0, 10);
}

// Characters that turn the direction of the text around them would let a model, or a run's name, rearrange what is read: each is shown as a mark.
export function marked(text: string): string {
  return text.replace(/[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (c) => `\u27e8U+${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}\u27e9`);
}

// A token's text where blanks and line ends must be seen.
export function visible(text: string): string {
  return text === "" ? "∅" : text.replace(/\n/g, "↵").replace(/\t/g, "→").replace(/\r/g, "␍");
}
