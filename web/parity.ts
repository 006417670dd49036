// The view of parity: what `lockstep parity --json` found, and the demo's table.
import { noSuchRun, type RunInfo, type Source } from "./data";
import { field, h, replace, select } from "./dom";
import { exact, fixed, short } from "./format";
import type { View } from "./view";

const row = (name: string, ...cells: (string | Node)[]) => h("tr", {}, h("th", { scope: "row" }, name), cells.map((cell) => h("td", {}, cell)));
const words = (key: string): string => key.replace(/_/g, " ");

export class ParityView implements View {
  readonly element = h("div", { class: "page parity" });
  private readonly content = h("div", { class: "columns" });
  private readonly picker = h("span", { class: "controls" });
  constructor(private readonly source: Source, wanted: string) {
    this.element.append(h("div", { class: "bar" }, h("h2", {}, "Parity"), h("span", { class: "grow" }), this.picker), this.content);
    void this.load(wanted);
  }
  close(): void { /* nothing runs */ }

  private async load(wanted: string): Promise<void> {
    const runs: RunInfo[] = await this.source.runs().catch(() => []);
    const abouts = await Promise.all(runs.slice(0, 50).map((run) => this.source.about(run.name).catch(() => null)));
    const found = abouts.filter((about) => about && (about.parity || about.result));
    if (found.length === 0) {
      replace(this.content, h("p", { class: "empty" }, "No result yet. Put one beside a run: ", h("code", {}, "lockstep parity --model DIR --json > runs/NAME/parity.json"), "; ", h("code", {}, "lockstep demo"), " writes its own table."));
      return;
    }
    const show = (name: string) => {
      const about = found.find((a) => a!.name === name) ?? found[0]!;
      const missing = name && name !== about.name ? (runs.some((r) => r.name === name) ? `The run “${name}” has no result; this is “${about.name}”.` : noSuchRun(name)) : "";
      if (missing && !runs.some((r) => r.name === name)) { replace(this.content, h("p", { class: "empty", role: "status" }, missing)); return; }
      replace(this.content, missing && h("p", { class: "quiet", role: "status" }, missing), about.parity && this.parity(about.parity), about.result && this.demo(about.result));
    };
    replace(this.picker, field("Run", select(found.map((a) => [a!.name, a!.name]), found.find((a) => a!.name === wanted)?.name ?? found[0]!.name, show)));
    show(wanted);
  }

  private parity(p: any): HTMLElement {
    const idle = new Set<string>(Array.isArray(p.idle) ? p.idle : []);
    const counters = Object.entries((p.engagement ?? {}) as Record<string, number>);
    const most = Math.max(1, ...counters.map(([, value]) => Number(value) || 0));
    const m = p.first_mismatch, c = p.control ?? {};
    return h("section", { class: "card" },
      h("header", {}, h("h3", {}, "Every way of computing, bit by bit"), h("span", { class: "grow" }), h("span", { class: `badge ${p.passed ? "good" : "bad"}` }, p.passed ? "passed" : "failed")),
      h("table", {}, h("tbody", {},
        row("mismatches", String(p.mismatches ?? "–")), row("log-probabilities compared", short(p.tokens)), row("comparisons", short(p.comparisons)), row("sequences", short(p.cases)), row("optimiser steps", short(p.steps)),
        row("profile", String(p.profile ?? "–")), row("seed", String(p.seed ?? "–")), row("tokens/s", short(p.tokens_per_second)))),
      m && h("p", { class: "warn" }, `First mismatch: ${m.operation}${m.layer === null ? "" : ` (layer ${m.layer})`} at [${(m.coordinate ?? []).join(", ")}]: expected ${m.expected_bits}, got ${m.bits}. ${m.run}`),
      h("h4", {}, "Paths that ran"),
      h("table", { class: "counters" }, h("tbody", {}, counters.map(([name, value]) => {
        const bar = h("span", { class: "bar-fill" });
        bar.style.width = `${value > 0 ? (100 * Math.log1p(Number(value))) / Math.log1p(most) : 0}%`;
        return h("tr", { class: idle.has(name) ? "warn" : undefined }, h("th", { scope: "row" }, words(name)), h("td", {}, h("span", { class: "bar-track", "aria-hidden": "true" }, bar)), h("td", { class: "number" }, idle.has(name) ? "did not run" : short(Number(value))));
      }))),
      h("h4", {}, "Control that must be found"),
      h("table", {}, h("tbody", {},
        row("found", h("span", { class: `badge ${c.detected && c.step_detected ? "good" : "bad"}` }, c.detected && c.step_detected ? "yes" : "no")), row("profile", String(c.profile ?? "–")),
        row("first at", `${c.operation || "–"}${c.layer === null || c.layer === undefined ? "" : ` (layer ${c.layer})`}`), row("log-probabilities it changed", short(c.different_bits)))),
      Array.isArray(p.places) && h("p", { class: "quiet" }, `Ran on: ${p.places.join("; ")}`));
  }

  private demo(result: any): HTMLElement {
    const arms: any[] = Array.isArray(result.arms) ? result.arms : [];
    const interval = (value: any, at: string) => (value ? `${fixed(value[at], 3)} [${(value[`${at}_interval`] ?? []).map((x: unknown) => fixed(x, 3)).join(", ")}]` : "–");
    const line = (name: string, cell: (arm: any) => string) => row(name, ...arms.map(cell));
    const same = result.published_sha256 && result.published_sha256 === result.weights_sha256;
    const group = Object.keys(arms[0] ?? {}).find((key) => /^pass_at_(?!1$)\d+$/.test(key));
    return h("section", { class: "card" },
      h("header", {}, h("h3", {}, "Demo: one numerics, and two"), h("span", { class: "grow" }), result.published_sha256 && h("span", { class: `badge ${same ? "good" : "bad"}` }, same ? "weights as published" : "weights differ from the published")),
      h("div", { class: "wide" }, h("table", {}, h("thead", {}, h("tr", {}, h("td", {}), arms.map((arm) => h("th", { scope: "col" }, String(arm.name))))), h("tbody", {},
        line("rollouts under", (a) => String(a.rollout_profile ?? "–")), line("KL k1", (a) => short(a.kl?.k1)), line("KL k2", (a) => short(a.kl?.k2)), line("KL k3", (a) => short(a.kl?.k3)),
        line("log-probabilities", (a) => short(a.tokens)), line("with other bits", (a) => exact(a.different_bits)), line("clipped", (a) => exact(a.clipped_tokens)),
        line("reward, first tenth", (a) => short(a.reward_first_tenth)), line("reward, last tenth", (a) => short(a.reward_last_tenth)),
        line("pass@1 start", (a) => interval(a.pass_at_1, "start")), line("pass@1 end", (a) => interval(a.pass_at_1, "end")), line("greedy start", (a) => interval(a.greedy, "start")), line("greedy end", (a) => interval(a.greedy, "end")),
        group ? line(`pass@${group.slice(8)} end`, (a) => interval(a[group], "end")) : null as unknown as Node, line("time", (a) => `${fixed(a.seconds, 1)} s`), line("sampling / training", (a) => `${fixed(a.rollout_seconds, 1)} s / ${fixed(a.train_seconds, 1)} s`)))),
      h("p", { class: "quiet wrap" }, `weights ${result.weights_sha256 ?? "–"}`));
  }
}
