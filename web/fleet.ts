// The view of the fleet: the replicas that follow this server's channel, where each stands on the way to the channel's snapshot, and what came for it.
import { call, Poll } from "./data";
import { h, replace } from "./dom";
import { fixed, short } from "./format";
import type { View } from "./view";

interface Replica {
  name: string; url: string; stage: string; current_identity: string; target_identity: string; sequence: number; lost: boolean; silent_seconds: number;
  downloaded_bytes: number; full_bytes: number; seconds: Record<string, number>; error: string;
}
interface Fleet { channel: string; replicas: Replica[] }

const kSeconds = 1;
const kShown = 12;  // letters of an identity
const kLast = 100;  // steps of which the bytes are kept

export class FleetView implements View {
  readonly element = h("div", { class: "page fleet" });
  private readonly content = h("div", { class: "columns" });
  private readonly poll: Poll;
  private readonly bytes = new Map<number, string>();  // by the channel's number: of a step what one replica fetched
  constructor() {
    this.element.append(h("div", { class: "bar" }, h("h2", {}, "Fleet")), this.content);
    this.poll = new Poll(() => this.ask());
  }
  close(): void { this.poll.stop(); }

  private async ask(): Promise<number> {
    const fleet = (await (await call("api/fleet")).json()) as Fleet;
    for (const one of fleet.replicas)
      if (one.full_bytes > 0 && (one.stage === "ready" || one.stage === "staged"))
        this.bytes.set(one.sequence, `${short(one.downloaded_bytes)} of ${short(one.full_bytes)} (${fixed((100 * one.downloaded_bytes) / one.full_bytes, 2)} %)`);
    while (this.bytes.size > kLast) this.bytes.delete(Math.min(...this.bytes.keys()));
    replace(this.content, this.replicas(fleet), this.steps());
    return kSeconds;
  }

  private replicas(fleet: Fleet): HTMLElement {
    const rows = fleet.replicas.map((one) => {
      const mark = one.lost || one.stage === "error" ? "bad" : one.stage === "ready" ? "good" : "some";
      const spent = Object.entries(one.seconds).filter(([stage, seconds]) => seconds > 0 && stage !== "waiting" && stage !== "ready");
      return h("tr", { "data-replica": one.name, class: mark === "bad" ? "warn" : undefined }, h("th", { scope: "row" }, one.name),
        h("td", {}, h("span", { class: `badge ${mark}` }, one.stage)), h("td", {}, one.current_identity.slice(0, kShown) || "–"),
        h("td", {}, one.target_identity.slice(0, kShown) || "–"), h("td", { class: "number" }, String(one.sequence)),
        h("td", {}, one.error || (one.lost ? `silent for ${fixed(one.silent_seconds, 0)} s` : spent.map(([stage, seconds]) => `${stage} ${fixed(seconds, 2)} s`).join(", "))));
    });
    return h("section", { class: "card" }, h("header", {}, h("h3", {}, fleet.channel)),
      fleet.replicas.length === 0 ? h("p", { class: "empty" }, "No replica has said anything.")
        : h("div", { class: "wide" }, h("table", {}, h("thead", {}, h("tr", {}, ["replica", "stage", "serves", "goes to", "number", ""].map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, rows))));
  }

  private steps(): HTMLElement {
    const rows = [...this.bytes].sort((a, b) => b[0] - a[0]).map(([number, bytes]) => h("tr", { "data-step": String(number) }, h("th", { scope: "row" }, String(number)), h("td", {}, bytes)));
    return h("section", { class: "card" }, h("header", {}, h("h3", {}, "Bytes a step")), h("p", { class: "quiet" }, "That a replica fetched for each number of the channel, since this page was opened."),
      h("div", { class: "wide" }, h("table", {}, h("tbody", {}, rows))));
  }
}
