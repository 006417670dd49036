// The view of the device: how classes of work and keys share it, who waits and why, and the longest pieces of work.
import { call, Poll } from "./data";
import { h, replace } from "./dom";
import { fixed, short } from "./format";
import type { View } from "./view";

interface Whose { class: string; key: string }
interface Device {
  shares: Record<string, number>;
  used: (Whose & { seconds: number })[];
  waiting: (Whose & { seconds?: number; count?: number; why: string })[];
  pieces: { kind: string; count: number; longest: number; longest_stretch: number }[];
  kept_rows?: { kept: number; read: number; beside: number; dropped: number; compared: number; bytes: number };
}

const kSeconds = 2;
const cell = (text: string, name = "number") => h("td", { class: name }, text);
const head = (...names: string[]) => h("thead", {}, h("tr", {}, names.map((name) => h("th", { scope: "col" }, name))));
const of = (line: Whose): string => `${line.class}\n${line.key}`;

export class DeviceView implements View {
  readonly element = h("div", { class: "page device" });
  private readonly content = h("div", { class: "columns" });
  private readonly poll: Poll;
  private before: { at: number; used: Map<string, number> } | null = null;
  constructor() {
    this.element.append(h("div", { class: "bar" }, h("h2", {}, "Device")), this.content);
    this.poll = new Poll(() => this.ask());
  }
  close(): void { this.poll.stop(); }

  private async ask(): Promise<number> {
    const device = (await (await call("api/device")).json()) as Device;
    const now = { at: performance.now() / 1000, used: new Map(device.used.map((line) => [of(line), line.seconds])) };
    const before = this.before;
    // Of the seconds since the page asked before.
    const part = (lines: Whose[]): number | null =>
      before && now.at > before.at ? lines.reduce((sum, line) => sum + (now.used.get(of(line)) ?? 0) - (before.used.get(of(line)) ?? 0), 0) / (now.at - before.at) : null;
    replace(this.content, this.classes(device, part), this.waiting(device), this.keys(device, part), this.pieces(device), ...this.kept(device));
    this.before = now;
    return kSeconds;
  }

  private card(title: string, hint: string, table: HTMLElement): HTMLElement {
    return h("section", { class: "card" }, h("header", {}, h("h3", {}, title)), h("p", { class: "quiet" }, hint), h("div", { class: "wide" }, table));
  }

  private classes(device: Device, part: (lines: Whose[]) => number | null): HTMLElement {
    const rows = Object.entries(device.shares).map(([name, percent]) => {
      const lines = device.used.filter((line) => line.class === name), now = part(lines);
      const bar = h("span", { class: "bar-fill" });
      bar.style.width = `${100 * Math.min(1, Math.max(0, now ?? 0))}%`;
      return h("tr", { "data-class": name }, h("th", { scope: "row" }, name), cell(`${percent} %`),
        h("td", {}, h("span", { class: "bar-track", "aria-hidden": "true" }, bar)), cell(now === null ? "–" : `${fixed(100 * now, 0)} %`), cell(`${fixed(lines.reduce((sum, line) => sum + line.seconds, 0), 1)} s`));
    });
    return this.card("Classes of work", "A class with work has at least its share; what one leaves goes to the others.",
      h("table", { class: "classes" }, head("class", "share", "", "now", "since the start"), h("tbody", {}, rows)));
  }

  private waiting(device: Device): HTMLElement {
    const rows = device.waiting.map((line) => h("tr", {}, h("th", { scope: "row" }, `${line.class}, ${line.key}`),
      cell(line.seconds !== undefined ? `${fixed(line.seconds, 2)} s` : short(line.count)), h("td", { class: "why" }, line.why)));
    const table = h("table", { class: "waiting" }, head("who", "how long, or how many", "for what"), h("tbody", {}, rows));
    return this.card("Who waits, and why", device.waiting.length === 0 ? "Nobody waits." : "Seconds since a piece of that key's work ended; or how many.", table);
  }

  private keys(device: Device, part: (lines: Whose[]) => number | null): HTMLElement {
    const rows = [...device.used].sort((a, b) => b.seconds - a.seconds).map((line) => {
      const now = part([line]);
      return h("tr", {}, h("th", { scope: "row" }, line.key), cell(line.class), cell(now === null ? "–" : `${fixed(100 * now, 0)} %`), cell(`${fixed(line.seconds, 1)} s`));
    });
    return this.card("Keys", "Device seconds; of a shared step, by tokens. (no name): keys that are not in the file; (server): the server's own work.",
      h("table", { class: "keys" }, head("key", "class", "now", "since the start"), h("tbody", {}, rows)));
  }

  private pieces(device: Device): HTMLElement {
    const rows = device.pieces.map((kind) => h("tr", {}, h("th", { scope: "row" }, kind.kind.replace(/_/g, " ")), cell(short(kind.count)), cell(`${fixed(1000 * kind.longest, 1)} ms`), cell(`${fixed(1000 * kind.longest_stretch, 1)} ms`)));
    return this.card("Pieces of work", "The longest so far: others wait so long for the device. Training gives way to live work in its middle; a stretch is what it does not.",
      h("table", { class: "pieces" }, head("kind", "pieces", "longest", "longest stretch"), h("tbody", {}, rows)));
  }

  // Of a server that keeps forwards.
  private kept(device: Device): HTMLElement[] {
    const rows = device.kept_rows;
    if (!rows) return [];
    const told: [string, string][] = [["kept in sampling", short(rows.kept)], ["read in training", short(rows.read)], ["computed beside those", short(rows.beside)],
      ["dropped", short(rows.dropped)], ["compared", short(rows.compared)], ["memory now", `${fixed(rows.bytes / 1e6, 1)} MB`]];
    return [this.card("Kept forwards", "Rows, each a position of a text, since the start. Training reads what sampling kept; what is dropped it computes.",
      h("table", { class: "kept" }, head("rows", "how many"), h("tbody", {}, told.map(([name, much]) => h("tr", {}, h("th", { scope: "row" }, name), cell(much))))))];
  }
}
