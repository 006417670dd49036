// Colours by meaning. Backgrounds are translucent, so that the text keeps its contrast in light and dark.

export const armColor = (index: number): string => getComputedStyle(document.documentElement).getPropertyValue(`--arm-${index % 6}`).trim() || "#888";
export const cssColor = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export interface Scale { color(value: number): string; legend: [value: number, text: string][] }

const clamp = (x: number, low: number, high: number): number => Math.min(high, Math.max(low, x));
const rgba = (rgb: string, alpha: number): string => (alpha <= 0.004 ? "transparent" : `rgba(${rgb},${alpha.toFixed(3)})`);
const kWarm = "217,119,6", kRed = "220,53,69", kBlue = "37,116,219", kGreen = "22,150,90", kGrey = "128,132,140";

// 0 is sure (clear), -6 and less a surprise (full).
export const surprise: Scale = {
  color: (value) => rgba(value < -2.5 ? kRed : kWarm, 0.06 + 0.62 * clamp(-value / 6, 0, 1) - (value > -0.01 ? 0.06 : 0)),
  legend: [[0, "0"], [-0.7, "−0.7"], [-2, "−2"], [-4, "−4"], [-6, "≤ −6"]],
};
export const difference: Scale = {
  color: (value) => (value === 0 ? rgba(kGreen, 0.18) : rgba(value > 0 ? kBlue : kRed, 0.22 + 0.5 * clamp(Math.log10(Math.abs(value) / 1e-7) / 6, 0, 1))),
  legend: [[-0.1, "−0.1"], [-1e-4, "−1e−4"], [0, "0: the same bits"], [1e-4, "+1e−4"], [0.1, "+0.1"]],
};
export const advantage: Scale = {
  color: (value) => (value === 0 ? "transparent" : rgba(value > 0 ? kGreen : kRed, 0.12 + 0.5 * clamp(Math.abs(value), 0, 1))),
  legend: [[-1, "−1"], [-0.5, "−0.5"], [0, "0"], [0.5, "+0.5"], [1, "+1"]],
};
export const mask: Scale = {
  color: (value) => (value === 0 ? rgba(kGrey, 0.28) : rgba(kBlue, 0.12 + 0.25 * clamp(value, 0, 1))),
  legend: [[0, "0: not in the loss"], [1, "1: trained"]],
};
const kVersions = [kBlue, kWarm, kGreen, "150,80,200", kRed, "20,150,160"];
export const version: Scale = { color: (value) => rgba(kVersions[Math.abs(value) % kVersions.length], 0.3), legend: [] };
