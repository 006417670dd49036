// The playground: one prompt (or a chat, where the model has a template) to the API of the server that sent this page. Every token
// is coloured by its log-probability; its alternatives are in the strip.
import { surprise } from "./colors";
import { call, HttpError } from "./data";
import { field, h, replace, select, setText } from "./dom";
import { exact, short } from "./format";
import { events } from "./sse";
import { legend, TokenStrip, TokenText } from "./tokens";
import type { View } from "./view";

interface Model {
  id: string; chat?: boolean; weights_version?: number; profile?: string; profile_name?: string; max_model_len?: number;
  generation_config?: { temperature?: number; top_p?: number; top_k?: number; min_p?: number; repetition_penalty?: number };
}
interface Piece { text: string; logprob: number | null; sampling: number | null; id: number | null; top: [string, number][] }
interface Message { role: string; content: string }

// The tokens of one streamed chunk, in the words of either endpoint.
export function piecesOf(chunk: any): Piece[] {
  const choice = chunk.choices?.[0];
  if (!choice) return [];
  const sampling: (number | null)[] = choice.sampling_logprobs ?? [], ids: number[] = choice.token_ids ?? [];
  if (choice.delta !== undefined) {
    const content: any[] = choice.logprobs?.content ?? [];
    if (content.length === 0) return choice.delta?.content ? [{ text: choice.delta.content, logprob: null, sampling: null, id: null, top: [] }] : [];
    return content.map((t, i) => ({ text: t.token, logprob: t.logprob, sampling: sampling[i] ?? null, id: ids[i] ?? null, top: (t.top_logprobs ?? []).map((a: any): [string, number] => [a.token, a.logprob]) }));
  }
  const l = choice.logprobs;
  if (!l?.tokens) return choice.text ? [{ text: choice.text, logprob: null, sampling: null, id: null, top: [] }] : [];
  return l.tokens.map((text: string, i: number) => ({
    text, logprob: l.token_logprobs[i], sampling: sampling[i] ?? null, id: ids[i] ?? null,
    top: Object.entries((l.top_logprobs?.[i] ?? {}) as Record<string, number>).sort((a, b) => b[1] - a[1]),
  }));
}

export class PlaygroundView implements View {
  readonly element = h("div", { class: "page playground" });
  private readonly strip = new TokenStrip("Point at a token of the answer, or reach it with Tab and the arrow keys, to see its log-probability and the alternatives.");
  private readonly output = h("div", { class: "output", "aria-live": "off" });
  private readonly status = h("p", { class: "quiet", role: "status" }, "");
  private readonly facts = h("dl", { class: "facts" });
  private readonly prompt = h("textarea", { rows: 5, spellcheck: "false", name: "prompt", placeholder: "What the model continues" });
  private readonly system = h("textarea", { rows: 2, spellcheck: "false", placeholder: "None", name: "system" });
  private readonly systemField = field("System prompt", this.system, "How the model is to behave; the chat begins anew when it changes");
  private readonly sendButton = h("button", { class: "primary", type: "submit" }, "Send");
  private readonly stopButton = h("button", { type: "button", disabled: true, onclick: () => this.abort?.abort() }, "Stop");
  private readonly form = h("form", { class: "card", onsubmit: (event: Event) => { event.preventDefault(); void this.send(); } });
  private readonly numbers: Record<string, HTMLInputElement> = {};
  private abort: AbortController | null = null;
  private models: Model[] = [];
  private model = "";
  private mode: "completion" | "chat" | "" = "";  // "": chat where the model has it
  private alternatives = 5;
  private messages: Message[] = [];

  constructor() {
    const number = (name: string, value: string, min: number, max: number, step: string, placeholder = "") => this.numbers[name] = h("input", { type: "number", inputmode: "decimal", value, min, max, step, placeholder, name });
    this.system.addEventListener("change", () => this.clearChat());
    this.prompt.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); void this.send(); } });
    this.form.append(
      h("div", { class: "bar models" }),
      this.systemField,
      field("Prompt", this.prompt),
      h("div", { class: "parameters" },
        field("Temperature", number("temperature", "0.7", 0, 100, "any"), "0: the likeliest token"),
        field("Top-p", number("top_p", "0.9", 0, 1, "any"), "1: all"),
        field("Top-k", number("top_k", "0", 0, 1e9, "1"), "0: all"),
        field("Max tokens", number("max_tokens", "256", 1, 1e6, "1")),
        field("Seed", number("seed", "", 0, Number.MAX_SAFE_INTEGER, "1", "any"), "Empty: a new one; the answer says which")),
      h("div", { class: "bar" }, this.sendButton, this.stopButton, h("span", { class: "quiet hint" }, "Ctrl+Enter sends")));
    this.element.append(h("div", { class: "bar" }, h("h2", {}, "Playground"), h("span", { class: "grow" }), h("span", { class: "quiet" }, "log-probability"), legend(surprise, "log-probability")),
      h("div", { class: "two" }, this.form, h("section", { class: "card answer", "aria-label": "Answer" }, this.output, this.status, this.facts)), this.strip.element);
    void this.load();
  }
  close(): void { this.abort?.abort(); }

  private async load(): Promise<void> {
    try {
      this.models = (await (await call("v1/models")).json()).data;
      this.model = this.models[0]?.id ?? "";
      this.choose();
    } catch (error) { setText(this.status, error instanceof Error ? error.message : String(error)); }
  }
  private current(): Model | undefined { return this.models.find((m) => m.id === this.model); }
  // The model's own way of being sampled (generation_config.json), and where it says none, one that suits a talk.
  private choose(): void {
    const model = this.current(), own = model?.generation_config ?? {};
    const says = own.temperature !== undefined || own.top_p !== undefined || own.top_k !== undefined || own.min_p !== undefined || own.repetition_penalty !== undefined;
    this.numbers.temperature!.value = String(own.temperature ?? 0.7);
    this.numbers.top_p!.value = String(own.top_p ?? (says ? 1 : 0.9));
    this.numbers.top_k!.value = String(own.top_k ?? 0);
    // Half of the context is the prompt's.
    this.numbers.max_tokens!.value = String(Math.max(1, Math.min(256, Math.floor((model?.max_model_len ?? 512) / 2))));
    this.mode = "";
    this.drawModels();
  }
  private drawModels(): void {
    const model = this.current();
    const chat = model?.chat === true;
    if (!chat) this.mode = "completion";
    else if (this.mode === "") this.mode = "chat";
    this.systemField.hidden = this.mode !== "chat";
    this.prompt.placeholder = this.mode === "chat" ? "What you say" : "What the model continues";
    replace(this.form.querySelector(".models")!,
      field("Model", select(this.models.map((m) => [m.id, m.id]), this.model, (value) => { this.model = value; this.choose(); })),
      chat && field("Mode", select([["chat", "chat"], ["completion", "completion"]], this.mode, (value) => { this.mode = value === "chat" ? "chat" : "completion"; this.clearChat(); })),
      chat && this.mode === "chat" && h("button", { type: "button", onclick: () => this.clearChat() }, "New chat"));
    if (model) this.showFacts({ "weights version": String(model.weights_version ?? "–"), profile: `${model.profile_name ?? ""} ${model.profile ?? ""}`.trim() });
  }
  private clearChat(): void {
    this.messages = [];
    replace(this.output);
    this.drawModels();
  }
  private showFacts(facts: Record<string, string>): void {
    replace(this.facts, Object.entries(facts).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
  }

  private body(alternatives: number): Record<string, unknown> {
    const body: Record<string, unknown> = { model: this.model, stream: true, stream_options: { include_usage: true } };
    for (const [name, input] of Object.entries(this.numbers)) if (input.value !== "" && Number.isFinite(input.valueAsNumber)) body[name] = input.valueAsNumber;
    if (this.mode === "chat") return { ...body, messages: this.system.value.trim() === "" ? this.messages : [{ role: "system", content: this.system.value }, ...this.messages], logprobs: true, top_logprobs: alternatives };
    return { ...body, prompt: this.prompt.value, logprobs: alternatives };
  }

  private async ask(signal: AbortSignal): Promise<Response> {
    const path = this.mode === "chat" ? "v1/chat/completions" : "v1/completions";
    const post = (alternatives: number) => call(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(this.body(alternatives)), signal });
    try { return await post(this.alternatives); } catch (error) {
      // A server that knows the sampled token's number alone.
      if (this.alternatives === 1 || !(error instanceof HttpError) || (error.param !== "logprobs" && error.param !== "top_logprobs")) throw error;
      this.alternatives = 1;
      return post(1);
    }
  }

  private async send(): Promise<void> {
    if (this.abort || !this.model || (this.mode === "chat" && this.prompt.value.trim() === "")) return;
    this.abort = new AbortController();
    this.sendButton.disabled = true;
    this.stopButton.disabled = false;
    const text = new TokenText(this.strip, "Answer");
    if (this.mode === "chat") {
      this.messages.push({ role: "user", content: this.prompt.value });
      this.output.append(h("p", { class: "tokens said" }, this.prompt.value));
      this.prompt.value = "";
    } else {
      replace(this.output);
      text.add({ text: this.prompt.value, prompt: true, value: null, facts: [["prompt", ""]] }, surprise);
    }
    this.output.append(text.element);
    setText(this.status, "asking…");
    const begin = performance.now();
    let first = 0, count = 0, sum = 0, answer = "", finish = "", last: any = {};
    try {
      for await (const chunk of events(await this.ask(this.abort.signal))) {
        if (chunk.error) throw new Error(chunk.error.message);
        last = { ...last, ...chunk };
        finish = chunk.choices?.[0]?.finish_reason ?? finish;
        // What the model is told it said is the message: tokens have marks, ends and halves of characters besides.
        answer += chunk.choices?.[0]?.delta?.content ?? "";
        for (const piece of piecesOf(chunk)) {
          first = first || performance.now();
          ++count;
          sum += piece.logprob ?? 0;
          text.add({ text: piece.text, value: piece.logprob, alternatives: piece.top, facts: [
            ["token", String(count - 1)], ...(piece.id === null ? [] : [["id", String(piece.id)] as [string, string]]), ["log p", exact(piece.logprob)],
            ...(piece.sampling === null ? [] : [["sampling", exact(piece.sampling)] as [string, string]]), ["version", String(chunk.weights_version ?? "–")],
          ] }, surprise);
        }
        setText(this.status, `${count} tokens`);
      }
      setText(this.status, finish === "length" ? "cut off at max tokens" : "done");
      if (this.mode === "chat") this.messages.push({ role: "assistant", content: answer });
    } catch (error) {
      const stopped = error instanceof DOMException && error.name === "AbortError";
      setText(this.status, stopped ? "stopped" : error instanceof Error ? error.message : String(error));
      this.status.classList.toggle("warn", !stopped);
      if (this.mode === "chat") { if (answer) this.messages.push({ role: "assistant", content: answer }); else this.messages.pop(); }
    }
    const seconds = (performance.now() - begin) / 1000;
    this.showFacts({
      tokens: String(last.usage?.completion_tokens ?? count), "Σ log p": short(sum), "first token": first ? `${((first - begin)).toFixed(0)} ms` : "–", "tokens / s": count ? short(count / seconds) : "–",
      finish: finish || "–", seed: String(last.seed ?? "–"), "weights version": String(last.weights_version ?? "–"), profile: String(last.profile ?? this.current()?.profile ?? "–"),
    });
    this.abort = null;
    this.sendButton.disabled = false;
    this.stopButton.disabled = true;
  }
}
