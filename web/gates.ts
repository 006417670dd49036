// The view of gates: what each found of a deployment before an alias led to it, the newest first, and whether somebody overruled it.
import { call, Poll } from "./data";
import { h, replace } from "./dom";
import { ago, short } from "./format";
import type { View } from "./view";

type Figures = Record<string, unknown>;
interface Check extends Figures { name: string; passed: boolean; why?: string }
interface Report { id: string; alias: string; deployment: string; live: string | null; created: number; passed: boolean; reason: string | null; forced?: boolean; seconds: number; checks: Check[] }

const kSeconds = 3;
const words = (name: string): string => name.replace(/_/g, " ");

// A figure as one reads it: an interval by its ends, a list by its elements.
function told(value: unknown): string {
  if (typeof value === "number") return short(value);
  if (Array.isArray(value)) return value.map(told).join(", ");
  if (value === null || typeof value !== "object") return String(value);
  const parts = value as Figures;
  if ("low" in parts && "high" in parts) return `${told(parts.value)} (${told(parts.low)} to ${told(parts.high)})`;
  return Object.entries(parts).map(([name, part]) => `${words(name)} ${told(part)}`).join(", ");
}

export class GatesView implements View {
  readonly element = h("div", { class: "page gates" });
  private readonly content = h("div", { class: "columns" });
  private readonly poll: Poll;
  private shown = "";
  constructor() {
    this.element.append(h("div", { class: "bar" }, h("h2", {}, "Gates")), this.content);
    this.poll = new Poll(() => this.ask());
  }
  close(): void { this.poll.stop(); }

  private async ask(): Promise<number> {
    const reports = ((await (await call("v1/gates")).json()) as { data: Report[] }).data;
    const now = reports.map((one) => `${one.id}${one.forced ? "!" : ""}`).join();
    if (now === this.shown && reports.length > 0) return kSeconds;  // of a report nothing else changes
    this.shown = now;
    replace(this.content, reports.length === 0
      ? h("p", { class: "empty" }, "No gate has run yet. ", h("code", {}, "lockstep deploy SOURCE --name NAME --to ALIAS --gate gate.toml"), " asks a version before it goes live.")
      : reports.map((one) => this.report(one)));
    return kSeconds;
  }

  private report(one: Report): HTMLElement {
    const [mark, verdict] = one.passed ? ["good", "passed"] : one.forced ? ["some", "failed, and was overruled"] : ["bad", "failed"];
    const rows = one.checks.map((check) => {
      const figures = Object.entries(check).filter(([name]) => !["name", "passed", "why"].includes(name));
      return h("tr", { class: check.passed ? undefined : "warn", "data-check": check.name }, h("th", { scope: "row" }, check.name), h("td", {}, check.passed ? "passed" : "failed"),
        h("td", {}, check.why && h("p", {}, check.why), figures.map(([name, value]) => h("div", {}, `${words(name)}: ${told(value)}`))));
    });
    return h("section", { class: "card", "data-gate": one.id },
      h("header", {}, h("h3", {}, `${one.deployment} for ${one.alias}`), h("span", { class: `badge ${mark}` }, verdict), h("span", { class: "quiet" }, `${one.id}, ${ago(one.created)}`)),
      h("p", { class: "quiet" }, one.live === null ? "Nothing was live." : `Beside ${one.live}, which was live.`),
      h("div", { class: "wide" }, h("table", {}, h("tbody", {}, rows))));
  }
}
