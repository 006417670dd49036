// The view of runs: a list, and the board of curves of the chosen one, which grows as the run does.
import { armColor } from "./colors";
import { CurveCard } from "./charts";
import { HttpError, noSuchRun, Poll, type RunInfo, type Source } from "./data";
import { field, h, replace, setText } from "./dom";
import { ago, exact, short } from "./format";
import { grouped, meaning } from "./keys";
import { RanksPanel } from "./ranks";
import type { View } from "./view";

const kSmoothing = "lockstep-smoothing";
const kDefaultSmoothing = 0.6;
const remembered = (): number => { try { return Number(localStorage.getItem(kSmoothing) ?? kDefaultSmoothing) || 0; } catch { return kDefaultSmoothing; } };

// A configuration as names and texts; what is nested has a dot in its name, and what is not set is left out.
function settingsOf(value: unknown, name = ""): [string, string][] {
  if (value === null || value === undefined || value === "") return [];
  if (Array.isArray(value)) return [[name, value.map(String).join(", ")]];
  if (typeof value === "object") return Object.entries(value).flatMap(([key, inner]) => settingsOf(inner, name ? `${name}.${key}` : key));
  return [[name.replace(/_/g, " "), typeof value === "number" ? exact(value) : typeof value === "boolean" ? (value ? "yes" : "no") : String(value)]];
}

export class RunsView implements View {
  readonly element = h("div", { class: "split" });
  private readonly list = h("nav", { class: "runs", "aria-label": "Runs" });
  private readonly board = h("div", { class: "board" });
  private cards = new Map<string, CurveCard>();
  private position: { file: string; next: number }[] = [];
  private poll: Poll | null = null;
  private listPoll: Poll;
  private chosen = "";
  private showing = false;  // the board is of `chosen`
  private arms: string[] = [];
  private readonly facts = h("dl", { class: "facts" });
  private readonly grid = h("div", { class: "groups" });
  private readonly note = h("p", { class: "quiet", role: "status" });
  private readonly settings = h("details", { class: "settings", hidden: true });
  private readonly ranks = new RanksPanel();
  private filter = "";
  private smoothing = remembered();
  private keysShown = "";
  private runs: RunInfo[] = [];

  constructor(private readonly source: Source, private readonly wanted: string, private readonly open: (run: string) => void) {
    this.element.append(this.list, this.board);
    replace(this.board, h("p", { class: "quiet" }, "Looking for runs…"));
    this.listPoll = new Poll(() => this.refreshList());
  }
  close(): void { this.poll?.stop(); this.listPoll.stop(); for (const card of this.cards.values()) card.destroy(); }
  themed(): void { for (const card of this.cards.values()) card.draw(); this.headArms(); }

  private async refreshList(): Promise<number> {
    this.runs = await this.source.runs();
    if (this.runs.length === 0) {
      replace(this.board, h("p", { class: "empty" }, "There is no run yet. ", h("code", {}, "lockstep train rl --config recipes/countdown_rl.toml"), " makes one; it appears here as soon as it begins."));
      return 2;
    }
    const run = this.runs.find((r) => r.name === (this.chosen || this.wanted)) ?? (this.wanted ? undefined : this.runs[0]);
    if (!run) {
      this.drawList("");
      this.list.hidden = false;
      this.element.classList.remove("single");
      this.leave();
      replace(this.board, h("p", { class: "empty", role: "status" }, noSuchRun(this.chosen || this.wanted)));
      return this.source.live ? 5 : Infinity;
    }
    this.drawList(run.name);
    if (!this.showing || run.name !== this.chosen || run.arms.map((a) => a.name).join() !== this.arms.join()) this.show(run);
    else this.drawFacts(run);
    return this.source.live ? (run.live ? 2 : 5) : Infinity;
  }

  private drawList(current: string): void {
    this.list.hidden = this.runs.length < 2;
    this.element.classList.toggle("single", this.runs.length < 2);
    const focused = document.activeElement instanceof HTMLElement && this.list.contains(document.activeElement) ? document.activeElement.dataset.run : undefined;
    replace(this.list, this.runs.map((run) =>
      h("button", { class: "run", "data-run": run.name, "aria-current": run.name === current ? "true" : undefined, onclick: () => this.open(run.name) },
        h("span", { class: "name" }, run.live && h("span", { class: "dot", title: "running" }), run.name, run.live && h("span", { class: "sr" }, " (running)")),
        h("span", { class: "sub" }, `step ${short(run.last.step)}${run.steps ? ` of ${short(run.steps)}` : ""}`, h("span", { class: "grow" }), ago(run.updated)))));
    if (focused) (this.list.querySelector(`[data-run="${CSS.escape(focused)}"]`) as HTMLElement | null)?.focus();
  }

  // Nothing is shown any more.
  private leave(): void {
    this.poll?.stop();
    for (const card of this.cards.values()) card.destroy();
    this.cards.clear();
    this.keysShown = "";
    this.showing = false;
  }

  private show(run: RunInfo): void {
    this.leave();
    this.showing = true;
    this.chosen = run.name;
    this.arms = run.arms.map((arm) => arm.name);
    this.position = this.arms.map(() => ({ file: "", next: 0 }));
    const slider = h("input", { type: "range", min: 0, max: 0.99, step: 0.01, value: String(this.smoothing), oninput: () => {
      this.smoothing = Number(slider.value);
      setText(amount, this.smoothing.toFixed(2));
      try { localStorage.setItem(kSmoothing, String(this.smoothing)); } catch { /* not kept */ }
      for (const card of this.cards.values()) { card.setSmoothing(this.smoothing); card.draw(); }
    } });
    const amount = h("output", {}, this.smoothing.toFixed(2));
    const filter = h("input", { type: "search", placeholder: "name of a curve", value: this.filter, oninput: () => { this.filter = filter.value; this.keysShown = ""; this.arrange(); } });
    replace(this.board,
      h("div", { class: "bar" }, h("h2", {}, run.name), h("span", { class: "arms" }), h("span", { class: "grow" }),
        h("span", { class: "controls" }, field("Smoothing", slider), amount, field("Filter", filter))),
      this.facts, this.settings, this.ranks.element, this.note, this.grid);
    void this.drawSettings(run.name);
    replace(this.grid);
    this.ranks.show(null);
    this.headArms();
    this.drawFacts(run);
    this.poll = new Poll(() => this.advance(run.name));
  }

  // What the run was started with, from its config.json.
  private async drawSettings(name: string): Promise<void> {
    replace(this.settings);
    const about = await this.source.about(name).catch(() => null);
    if (name !== this.chosen) return;
    const rows = settingsOf(about?.config ?? null);
    this.settings.hidden = rows.length === 0;
    if (rows.length > 0) replace(this.settings, h("summary", {}, `Settings (${rows.length})`), h("table", {}, h("tbody", {}, rows.map(([key, value]) => h("tr", {}, h("th", { scope: "row" }, key), h("td", {}, value))))));
  }

  private headArms(): void {
    const place = this.board.querySelector(".arms");
    if (place) replace(place, this.arms.length > 1 && this.arms.map((arm, i) => {
      const swatch = h("span", { class: "swatch" });
      swatch.style.background = armColor(i);
      return h("span", { class: "arm" }, swatch, arm || "main");
    }));
  }

  private drawFacts(run: RunInfo): void {
    // Of several arms the cards say whose number is whose.
    const keys = run.arms.length > 1 ? [] : ["reward", "pass_at_1", "loss", "k3", "different_bits", "tokens_per_second"].filter((key) => key in run.last);
    const step = run.last.step;
    const facts: [string, string, string?][] = [["state", run.live ? "running" : "finished or stopped"],
      ["step", `${short(step)}${run.steps ? ` / ${short(run.steps)}` : ""}`],
      ...keys.map((key): [string, string, string?] => [meaning(key).title, short(run.last[key]), exact(run.last[key])])];
    const text = JSON.stringify(facts);
    if (this.facts.dataset.text === text) return;
    this.facts.dataset.text = text;
    replace(this.facts, facts.map(([name, value, full]) => h("div", {}, h("dt", {}, name), h("dd", { title: full, class: name === "state" && run.live ? "on" : undefined }, name === "state" && run.live && h("span", { class: "dot" }), value))));
  }

  // Takes what is new of every arm; all of it when the file was replaced.
  private async advance(name: string): Promise<number> {
    let moved = false;
    for (let i = 0; i < this.arms.length; ++i) {
      const at = this.position[i];
      let metrics;
      try { metrics = await this.source.metrics(name, this.arms[i], at.next, at.file); }
      catch (error) { if (error instanceof HttpError && error.status === 404) continue; throw error; }
      if (name !== this.chosen) return Infinity;
      const again = metrics.from < at.next || (metrics.file !== at.file && at.file !== "");
      if (again) {  // another file: every arm is read anew with the next turn
        for (const card of this.cards.values()) card.reset();
        this.position = this.arms.map(() => ({ file: "", next: 0 }));
        return 0.1;
      }
      at.file = metrics.file;
      at.next = metrics.next;
      for (const [key, column] of Object.entries(metrics.columns)) {
        let card = this.cards.get(key);
        if (!card) {
          card = new CurveCard(key, this.arms, (x) => this.cursor(x));
          card.setSmoothing(this.smoothing);
          this.cards.set(key, card);
        }
        card.add(i, column);
        moved = moved || column.x.length > 0;
      }
      setText(this.note, metrics.thinned ? `${short(metrics.lines)} lines are drawn by the smallest and largest value of each part` : this.note.textContent ?? "");
    }
    if (moved) { this.arrange(); for (const card of this.cards.values()) card.draw(); }
    const ranks = await this.source.ranks(name).catch(() => null);
    if (name !== this.chosen) return Infinity;
    if (ranks) this.ranks.show(ranks);
    if (!this.source.live) return Infinity;
    return this.runs.find((r) => r.name === name)?.live ? 1 : 3;
  }

  private arrange(): void {
    const wanted = this.filter.toLowerCase();
    const keys = [...this.cards.keys()].filter((key) => key.toLowerCase().includes(wanted) || meaning(key).title.toLowerCase().includes(wanted));
    if (this.keysShown === keys.join()) return;
    this.keysShown = keys.join();
    replace(this.grid, grouped(keys).map((group) =>
      h("section", { class: "group" }, h("h2", {}, group.title), h("div", { class: "cards" }, group.keys.map((key) => this.cards.get(key)!.element)))));
    if (keys.length === 0) replace(this.grid, h("p", { class: "quiet" }, this.cards.size ? "No curve has that name." : "No numbers yet."));
  }

  private frame = 0;
  private cursor(x: number | undefined): void {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => { for (const card of this.cards.values()) card.cursor(x); });
  }
}
