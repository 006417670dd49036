// The view of transcripts: what was sampled at a step, each token coloured by one of its numbers.
import { advantage, difference, mask, surprise, version, type Scale } from "./colors";
import { noSuchRun, Poll, type RunInfo, type Source, type Transcript } from "./data";
import { field, h, replace, select, setText } from "./dom";
import { exact, short } from "./format";
import { legend, TokenStrip, TokenText } from "./tokens";
import type { View } from "./view";

interface Coloring { title: string; note: string; scale: Scale; value(t: Transcript, i: number): number | null }
// Supervised fine-tuning samples nothing: its transcripts have no columns of a sampler's.
const at = (column: (number | null)[] | undefined, i: number): number | null => column?.[i] ?? null;
const minus = (a: number | null, b: number | null): number | null => (a === null || b === null ? null : a - b);
// The trainer's and the sampler's numbers are floats: their difference is taken as one.
const floatDifference = (t: Transcript, i: number): number | null => { const d = minus(at(t.logprobs, i), at(t.sampling_logprobs, i)); return d === null ? null : Math.fround(d); };
const colorings: Record<string, Coloring> = {
  sampling: { title: "sampling log-probability", note: "of the distribution that the token was drawn from", scale: surprise, value: (t, i) => at(t.sampling_logprobs, i) },
  logprob: { title: "trainer's log-probability", note: "by the training forward, same weights", scale: surprise, value: (t, i) => at(t.logprobs, i) },
  difference: { title: "trainer − sampler", note: "0 means the same bits", scale: difference, value: floatDifference },
  advantage: { title: "advantage", note: "what the group says of this rollout", scale: advantage, value: (t, i) => at(t.advantages, i) },
  mask: { title: "loss mask", note: "the token's weight in the loss", scale: mask, value: (t, i) => at(t.weights, i) },
  version: { title: "weights version", note: "under which the token was sampled", scale: version, value: (t) => t.weights_version ?? null },
};

// How a rollout ended, in words.
const finishes: Record<string, string> = { stop: "ended", length: "cut off at the limit", truncated: "cut off at the limit" };

const supervised = (t: Transcript): boolean => t.sampling_logprobs === undefined;
const ofSampling = ["sampling", "difference", "advantage", "version"];

export class TranscriptsView implements View {
  readonly element = h("div", { class: "page transcripts" });
  private readonly strip = new TokenStrip();
  private readonly entries = h("div", { class: "entries" });
  private readonly legendPlace = h("div", { class: "legend-place" });
  private readonly slider = h("input", { type: "range", min: 0, max: 0, value: "0", oninput: () => { this.follow = false; this.pick(Number(this.slider.value)); } });
  private readonly stepText = h("output", { class: "step" }, "–");
  private readonly note = h("p", { class: "quiet", role: "status" });
  private readonly pickers = h("span", { class: "controls" });
  private readonly followBox = h("input", { type: "checkbox", checked: true, onchange: () => { this.follow = this.followBox.checked; if (this.follow) this.pick(this.steps.length - 1); } });
  private texts: { transcript: Transcript; text: TokenText }[] = [];
  private runs: RunInfo[] = [];
  private steps: number[] = [];
  private run = "";
  private arm = "";
  private coloring = "sampling";
  private follow = true;
  private learning = false;  // the run is supervised fine-tuning
  private shown = -1;
  private poll: Poll;

  constructor(private readonly source: Source, wanted: string) {
    this.run = wanted;
    const move = (by: number) => { this.follow = false; this.pick(Number(this.slider.value) + by); };
    this.element.append(
      h("div", { class: "bar" }, h("h2", {}, "Transcripts"), h("span", { class: "grow" }), this.pickers),
      h("div", { class: "bar steps" }, h("button", { "aria-label": "The step before", onclick: () => move(-1) }, "‹"), field("Step", this.slider), this.stepText,
        h("button", { "aria-label": "The next step", onclick: () => move(1) }, "›"), this.source.live && field("Follow", this.followBox), h("span", { class: "grow" }), this.legendPlace),
      this.note, this.entries, this.strip.element);
    this.poll = new Poll(() => this.refresh());
  }
  close(): void { this.poll.stop(); }

  private async refresh(): Promise<number> {
    const all = await this.source.runs();
    this.runs = all.filter((run) => run.arms.some((arm) => arm.transcripts));
    if (this.run && !this.runs.some((r) => r.name === this.run)) {
      setText(this.note, all.some((r) => r.name === this.run) ? `The run “${this.run}” has no transcripts.` : noSuchRun(this.run));
      this.drawPickers([]);
      return this.source.live ? 3 : Infinity;
    }
    if (this.runs.length === 0) { setText(this.note, "No run has transcripts yet. `lockstep train` writes those of a few rollouts or sequences now and then."); return this.source.live ? 2 : Infinity; }
    const run = this.runs.find((r) => r.name === this.run) ?? this.runs[0];
    const arms = run.arms.filter((arm) => arm.transcripts).map((arm) => arm.name);
    if (run.name !== this.run || !arms.includes(this.arm) || this.pickers.childElementCount === 0) {
      this.run = run.name;
      if (!arms.includes(this.arm)) this.arm = arms[0];
      this.drawPickers(arms);
      this.shown = -1;
    }
    const before = this.steps.length;
    this.steps = await this.source.steps(this.run, this.arm);
    this.slider.max = String(Math.max(0, this.steps.length - 1));
    if (this.shown < 0 || (this.follow && this.steps.length !== before)) await this.pick(this.follow ? this.steps.length - 1 : 0);
    return this.source.live ? (run.live ? 2 : 10) : Infinity;
  }

  private drawPickers(arms: string[]): void {
    const again = () => { this.steps = []; this.shown = -1; void this.refresh(); };
    replace(this.pickers,
      field("Run", select([...(this.runs.some((r) => r.name === this.run) ? [] : [["", "choose a run"] as [string, string]]), ...this.runs.map((r): [string, string] => [r.name, r.name])], this.runs.some((r) => r.name === this.run) ? this.run : "", (value) => { this.run = value; this.arm = ""; replace(this.pickers); again(); })),
      arms.length > 1 && field("Arm", select(arms.map((a) => [a, a || "main"]), this.arm, (value) => { this.arm = value; again(); })),
      field("Colour by", select(Object.entries(colorings).filter(([key]) => !this.learning || !ofSampling.includes(key)).map(([key, c]) => [key, c.title]), this.coloring, (value) => { this.coloring = value; this.recolor(); })));
    this.drawLegend();
  }

  private drawLegend(): void {
    const { scale, title, note } = colorings[this.coloring];
    replace(this.legendPlace, h("span", { class: "quiet" }, note), scale.legend.length > 0 && legend(scale, title));
  }
  private recolor(): void {
    const { scale, value } = colorings[this.coloring];
    for (const { transcript, text } of this.texts) text.recolor(scale, (i) => (i < transcript.prompt.length ? promptValue(this.coloring, transcript) : value(transcript, i - transcript.prompt.length)));
    this.drawLegend();
  }

  private async pick(index: number): Promise<void> {
    if (this.steps.length === 0) { setText(this.note, "No transcripts yet."); return; }
    index = Math.min(this.steps.length - 1, Math.max(0, index));
    this.shown = index;
    this.followBox.checked = this.follow;
    this.slider.value = String(index);
    this.slider.setAttribute("aria-valuetext", `step ${this.steps[index]}`);
    setText(this.stepText, `${short(this.steps[index])} of ${short(this.steps[this.steps.length - 1])}`);
    const list = await this.source.transcripts(this.run, this.arm, this.steps[index]);
    if (this.shown !== index) return;
    const learning = list.length > 0 && list.every(supervised);
    if (learning !== this.learning) {
      this.learning = learning;
      this.coloring = learning ? "logprob" : "sampling";
      const run = this.runs.find((r) => r.name === this.run);
      this.drawPickers(run ? run.arms.filter((arm) => arm.transcripts).map((arm) => arm.name) : []);
    }
    this.draw(list);
  }

  private draw(list: Transcript[]): void {
    this.texts = [];
    this.strip.clear();
    setText(this.note, list.length ? "" : "This step's transcripts have gone: the newest ones are kept.");
    replace(this.entries, list.map((t) => this.entry(t)));
  }

  private entry(t: Transcript): HTMLElement {
    const learning = supervised(t);
    const window = t.chains && t.chains > 1 ? `context window ${(t.chain ?? 0) + 1} of ${t.chains}` : "";
    const text = new TokenText(this.strip, learning ? `Sequence ${t.sequence}` : `Rollout ${t.rollout}${window && `, ${window}`}`);
    const { scale, value } = colorings[this.coloring];
    t.prompt.forEach((piece, i) => text.add({ text: piece, prompt: true, value: promptValue(this.coloring, t), facts: [["prompt", `token ${i}`], ["id", String(t.prompt_ids[i])], ["in the loss", "no"]] }, scale));
    let equal = 0, sum = 0, written = 0;
    t.tokens.forEach((piece, i) => {
      const d = floatDifference(t, i);
      if (d === 0) ++equal;
      const turn = t.turns?.find((one) => i >= one.begin && i < one.end);
      if (t.turns && !turn) {  // between two turns: what the policy was shown
        text.add({ text: piece, prompt: true, value: value(t, i), facts: [["shown", `token ${i}`], ["id", String(t.ids[i])], ["in the loss", "no"]] }, scale);
        return;
      }
      ++written;
      sum += at(learning ? t.logprobs : t.sampling_logprobs, i) ?? 0;
      const facts: [string, string][] = [["token", String(i)], ["id", String(t.ids[i])]];
      if (turn) facts.push([turn.kind, `turn ${t.turns!.indexOf(turn)}, reward ${short(turn.reward)}`]);
      if (!learning) facts.push(["sampling", exact(at(t.sampling_logprobs, i))]);
      facts.push([learning ? "log-probability" : "trainer", exact(at(t.logprobs, i))]);
      if (!learning) facts.push(["difference", d === 0 ? "0, the same bits" : short(d)]);
      facts.push(["entropy", short(at(t.entropies, i))]);
      if (!learning) facts.push(["advantage", short(at(t.advantages, i))]);
      if (t.values) facts.push(["value", short(at(t.values, i))]);
      facts.push(["weight", short(at(t.weights, i))]);
      if (!learning) facts.push(["version", String(t.weights_version)]);
      text.add({ text: piece, value: value(t, i), facts }, scale);
    });
    this.texts.push({ transcript: t, text });
    const cut = t.cut ? h("span", { class: "quiet warn" }, `${t.cut} tokens not shown`) : null;
    if (learning) {
      const trained = t.weights.filter((weight) => weight !== 0).length;
      return h("article", { class: "card entry" },
        h("header", {}, h("span", { class: "badge some" }, `sequence ${t.sequence}`), h("span", { class: "grow" }),
          h("span", { class: "quiet number" }, `${t.tokens.length} tokens · ${trained} in the loss · Σ log p ${short(sum)}`), cut),
        text.element);
    }
    const reward = t.reward ?? null, right = reward !== null && reward >= 1, adv = at(t.advantages, 0);
    return h("article", { class: "card entry" },
      h("header", {},
        h("span", { class: `badge ${right ? "good" : reward === null || reward > 0 ? "some" : "bad"}` }, `reward ${short(reward)}`),
        h("span", { class: "number" }, `advantage ${adv !== null && adv > 0 ? "+" : ""}${short(adv)}`),
        h("span", { class: t.finish === "stop" ? "quiet" : "quiet warn" }, finishes[t.finish ?? ""] ?? "ended otherwise"),
        h("span", { class: "grow" }),
        window && h("span", { class: "quiet" }, window),
        h("span", { class: "quiet number" }, `${written} tokens · Σ log p ${short(sum)} · ${equal}/${written} equal bits`),
        cut),
      text.element);
  }
}

function promptValue(coloring: string, t: Transcript): number | null {
  return coloring === "mask" ? 0 : coloring === "version" ? t.weights_version ?? null : null;
}
