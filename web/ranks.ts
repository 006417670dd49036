// Of a run over ranks: where the time of each went in the newest step; and of one that `lockstep launch` started, each start with its layout.
import type { RankTimes, RunRanks, Start } from "./data";
import { h, replace } from "./dom";
import { fixed, short } from "./format";

const kParts = ["computed", "waited", "sent"] as const;
const cell = (text: string, name = "number") => h("td", { class: name }, text);
const table = (name: string, head: string[], rows: HTMLElement[]) =>
  h("div", { class: "wide" }, h("table", { class: name }, h("thead", {}, h("tr", {}, head.map((title) => h("th", { scope: "col" }, title)))), h("tbody", {}, rows)));
const card = (title: string, hint: string, content: HTMLElement) => h("section", { class: "card" }, h("header", {}, h("h3", {}, title)), h("p", { class: "quiet" }, hint), content);

export class RanksPanel {
  readonly element = h("div", { class: "columns ranks", hidden: true });
  private shown = "";

  // Null: nothing is known yet.
  show(told: RunRanks | null): void {
    const text = JSON.stringify(told);
    if (text === this.shown) return;
    this.shown = text;
    this.element.hidden = !told || (told.ranks.length === 0 && told.starts.length === 0);
    replace(this.element, told && told.ranks.length > 0 && this.times(told), told && told.starts.length > 0 && this.starts(told.starts));
  }

  private times(told: RunRanks): HTMLElement {
    const seconds = (rank: RankTimes, part: (typeof kParts)[number]): number =>
      ({ computed: rank.computed_seconds, waited: rank.waited_seconds, sent: rank.sent_seconds })[part] ?? 0;
    const longest = Math.max(...told.ranks.map((rank) => kParts.reduce((sum, part) => sum + seconds(rank, part), 0)), 1e-9);
    const rows = told.ranks.map((rank) => {
      const bar = h("span", { class: "bar-track", "aria-hidden": "true" }, kParts.map((part) => {
        const piece = h("span", { class: `bar-part ${part}` });
        piece.style.width = `${(100 * seconds(rank, part)) / longest}%`;
        return piece;
      }));
      return h("tr", { "data-rank": String(rank.rank) }, h("th", { scope: "row" }, String(rank.rank)), cell(`${rank.process}, ${rank.host}`, ""), h("td", {}, bar),
        kParts.map((part) => cell(`${fixed(seconds(rank, part), 3)} s`)), cell(short(rank.sent_bytes)));
    });
    return card(`Ranks in step ${short(told.step)}`, "Computed; waited for other ranks; sent: packed and copied what travels. The rest of a step is not the trainer's.",
      table("rank-times", ["rank", "process, host", "", ...kParts, "bytes received"], rows));
  }

  private starts(starts: Start[]): HTMLElement {
    const rows = starts.map((start) => {
      const how = start.loss ? `lost at step ${short(start.loss.step)}: ${start.loss.words}` : start.taken_back ? `saved, to take back ${start.taken_back.join(", ")}` : start.end ?? "runs";
      return h("tr", { "data-start": String(start.start), class: start.loss ? "warn" : undefined }, h("th", { scope: "row" }, String(start.start)), cell(start.ranks, ""),
        cell(`${short(start.processes)} on ${start.hosts.map((host) => `${host.name}:${host.slots}`).join(", ")}`, ""), cell(short(start.step)),
        cell(start.seconds === null ? "–" : `${fixed(start.seconds, 1)} s`), cell(how, "why"));
    });
    return card(starts.length === 1 ? "One start" : `${starts.length} starts`, "By lockstep launch: after a loss it goes on from the last checkpoint with the hosts that are left, in a layout that fits them.",
      table("starts", ["start", "layout", "processes", "from step", "first step after", "how it ended"], rows));
  }
}
