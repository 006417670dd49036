// One chart: the curves of one key, an arm a line, smoothed over its faint raw values. The value under the cursor, or the last
// one, stands in the card's head. All charts of a board share the cursor; arrow keys move it.
import { Chart, LinearScale, LineController, LineElement, PointElement, type ChartDataset, type Plugin } from "chart.js";
import { armColor, cssColor } from "./colors";
import type { Column } from "./data";
import { h, setText } from "./dom";
import { marked, short, tick } from "./format";
import { meaning } from "./keys";

interface Point { x: number; y: number | null }
const kMostPoints = 6000;

// Exponential smoothing without the pull of its start (as Adam's moments are corrected).
function smoothed(points: Point[], weight: number): Point[] {
  let sum = 0, norm = 0;
  return points.map(({ x, y }) => {
    if (y === null) return { x, y };
    sum = weight * sum + (1 - weight) * y;
    norm = weight * norm + (1 - weight);
    return { x, y: sum / norm };
  });
}

// A value between two gaps has no line: it is a dot.
function radii(points: Point[]): number | number[] {
  if (points.length === 1) return 2;
  if (!points.some(({ y }) => y === null)) return 0;
  const gap = (i: number) => i < 0 || i >= points.length || points[i].y === null;
  return points.map((_, i) => (gap(i - 1) && gap(i + 1) ? 2 : 0));
}

// The newest points stay; of the older half every other one goes.
function bounded(points: Point[]): Point[] {
  if (points.length <= kMostPoints) return points;
  const middle = points.length >> 1;
  return points.filter((_, i) => i >= middle || i % 2 === 0);
}

function nearest(points: Point[], x: number): Point | undefined {
  let low = 0, high = points.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle].x < x) low = middle + 1; else high = middle;
  }
  if (low > 0 && Math.abs(points[low - 1].x - x) <= Math.abs(points[low].x - x)) low -= 1;
  return points[low];
}

const cursorLine: Plugin<"line"> = {
  id: "cursor",
  afterDatasetsDraw(chart) {
    const x = (chart as unknown as { cursorX?: number }).cursorX;
    if (x === undefined) return;
    const { ctx, chartArea, scales } = chart;
    const at = scales.x.getPixelForValue(x);
    if (at < chartArea.left - 1 || at > chartArea.right + 1) return;
    ctx.save();
    ctx.strokeStyle = cssColor("--cursor");
    ctx.lineWidth = 1;
    ctx.beginPath();
    ctx.moveTo(at, chartArea.top);
    ctx.lineTo(at, chartArea.bottom);
    ctx.stroke();
    ctx.restore();
  },
};
Chart.register(LineController, LineElement, PointElement, LinearScale, cursorLine);
Chart.defaults.animation = false;
Chart.defaults.font.family = 'ui-monospace, "SF Mono", "Cascadia Mono", "DejaVu Sans Mono", Menlo, monospace';
Chart.defaults.font.size = 10;

export class CurveCard {
  readonly element: HTMLElement;
  private readonly canvas = h("canvas", { tabindex: 0, role: "img" });
  private readonly values = h("div", { class: "values" });
  private readonly arms: { name: string; raw: Point[] }[] = [];
  private chart: Chart<"line", Point[]> | null = null;
  private smoothing = 0;
  private drawn = false;
  private readonly seen: IntersectionObserver;

  constructor(readonly key: string, armNames: string[], private readonly moved: (x: number | undefined) => void) {
    const { title, note } = meaning(key);
    for (const name of armNames) this.arms.push({ name, raw: [] });
    this.element = h("section", { class: "card curve", "data-key": key, "data-unit": meaning(key).unit, title: note },
      h("header", {}, h("h3", {}, title), this.values), h("div", { class: "plot" }, this.canvas));
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerdown", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => this.moved(undefined));
    this.canvas.addEventListener("blur", () => this.moved(undefined));
    this.canvas.addEventListener("keydown", (event) => this.walk(event));
    // A board may have forty charts: those out of sight are not drawn.
    this.seen = new IntersectionObserver((entries) => {
      this.drawn = entries[entries.length - 1].isIntersecting;
      if (this.drawn) this.draw();
    }, { rootMargin: "200px" });
    this.seen.observe(this.element);
  }

  reset(): void { for (const arm of this.arms) arm.raw = []; }
  add(arm: number, column: Column): void {
    const target = this.arms[arm];
    for (let i = 0; i < column.x.length; ++i) target.raw.push({ x: column.x[i], y: column.y[i] });
    target.raw = bounded(target.raw);
  }
  setSmoothing(weight: number): void { this.smoothing = weight; }

  draw(): void {
    this.say(undefined);
    if (!this.drawn) return;
    const datasets: ChartDataset<"line", Point[]>[] = [];
    this.arms.forEach(({ name, raw }, i) => {
      const color = armColor(i);
      const base = { label: name, clip: 3, data: raw, borderColor: color, borderWidth: 1.4, pointRadius: radii(raw), pointBackgroundColor: color, spanGaps: false, tension: 0 };
      if (this.smoothing === 0) datasets.push(base);
      else datasets.push({ ...base, borderColor: `${color}44`, borderWidth: 1 }, { ...base, data: smoothed(raw, this.smoothing), borderWidth: 1.6 });
    });
    const grid = cssColor("--grid"), ink = cssColor("--faint");
    const scale = { grid: { color: grid, drawBorder: false, tickLength: 4 }, ticks: { color: ink, maxRotation: 0, padding: 3, callback: (value: number | string) => tick(Number(value)) } };
    if (!this.chart) {
      this.chart = new Chart<"line", Point[]>(this.canvas, {
        type: "line",
        data: { datasets },
        options: {
          parsing: false, normalized: true, maintainAspectRatio: false, events: [],
          scales: {
            x: { type: "linear", bounds: "data", ...scale, title: { display: true, text: "step", color: ink, padding: 0 }, ticks: { ...scale.ticks, maxTicksLimit: 6, precision: 0 } },
            y: { type: "linear", ...scale, title: { display: true, text: meaning(this.key).unit, color: ink, padding: 0 }, ticks: { ...scale.ticks, maxTicksLimit: 5 } },
          },
        },
      });
    }
    this.chart.data.datasets = datasets;
    for (const axis of ["x", "y"]) {
      Object.assign(this.chart.options.scales![axis]!.grid!, { color: grid });
      Object.assign(this.chart.options.scales![axis]!.ticks!, { color: ink });
      Object.assign(this.chart.options.scales![axis]!.title!, { color: ink });
    }
    // A flat line is a line in the middle; 0 stays 0, at the bottom.
    let low = Infinity, high = -Infinity;
    for (const arm of this.arms) for (const { y } of arm.raw) if (y !== null) { low = Math.min(low, y); high = Math.max(high, y); }
    const y = this.chart.options.scales!.y as { min?: number; suggestedMin?: number; suggestedMax?: number };
    y.min = low >= 0 && high === 0 ? 0 : undefined;
    y.suggestedMin = low === high ? low - Math.abs(low) * 0.1 : undefined;
    y.suggestedMax = low === high ? (high === 0 ? 1 : high + Math.abs(high) * 0.1) : undefined;
    this.chart.update("none");
  }

  // The cursor is at x in some chart of the board, or nowhere.
  cursor(x: number | undefined): void {
    this.say(x);
    if (!this.chart || !this.drawn) return;
    (this.chart as unknown as { cursorX?: number }).cursorX = x;
    this.chart.draw();
  }

  destroy(): void { this.seen.disconnect(); this.chart?.destroy(); }

  private say(x: number | undefined): void {
    const { title, note } = meaning(this.key);
    const texts: string[] = [];
    this.arms.forEach(({ name, raw }, i) => {
      const point = x === undefined ? raw[raw.length - 1] : nearest(raw, x);
      let cell = this.values.children[i] as HTMLElement | undefined;
      if (!cell) this.values.append(cell = h("span", { class: "value" }));
      cell.style.color = this.arms.length > 1 ? armColor(i) : "";
      setText(cell, point ? short(point.y) : "–");
      if (point) texts.push(`${name ? `${name}: ` : ""}${point.y === null ? "no number" : short(point.y)} at step ${point.x}`);
    });
    if (x === undefined) this.canvas.setAttribute("aria-label", marked(`${title}${note ? ` (${note})` : ""}. ${texts.join("; ") || "no values yet"}. Arrow keys move along the curve.`));
    else this.canvas.setAttribute("aria-label", marked(`${title}: ${texts.join("; ")}`));
  }

  private point(event: PointerEvent): void {
    if (!this.chart) return;
    const x = this.chart.scales.x.getValueForPixel(event.offsetX);
    if (x !== undefined) this.moved(this.snap(x));
  }
  private snap(x: number): number | undefined {
    const longest = this.arms.reduce((a, b) => (b.raw.length > a.raw.length ? b : a));
    return nearest(longest.raw, x)?.x;
  }
  private at = -1;
  private walk(event: KeyboardEvent): void {
    const raw = this.arms.reduce((a, b) => (b.raw.length > a.raw.length ? b : a)).raw;
    if (raw.length === 0) return;
    const step = event.shiftKey ? Math.max(1, Math.round(raw.length / 20)) : 1;
    const from = this.at < 0 || this.at >= raw.length ? raw.length - 1 : this.at;
    const next = { ArrowLeft: from - step, ArrowRight: from + step, Home: 0, End: raw.length - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    this.at = Math.min(raw.length - 1, Math.max(0, next));
    this.moved(raw[this.at].x);
  }
}
