// Tokens as coloured pieces of text, and the strip that says everything of the one under the pointer or the focus. One token of
// a text is in the tab order; arrow keys go from there.
import type { Scale } from "./colors";
import { h, replace } from "./dom";
import { exact, marked, visible } from "./format";

export interface TokenFacts {
  text: string;
  value: number | null;               // what the colour says
  facts: [name: string, value: string][];
  alternatives?: [text: string, logprob: number][];
  prompt?: boolean;
}

export class TokenStrip {
  readonly element = h("aside", { class: "strip", role: "status", "aria-label": "The token pointed at" });
  private readonly idle: string;
  constructor(idle = "Point at a token, or reach it with Tab and the arrow keys, to see its numbers.") { this.idle = idle; this.clear(); }
  clear(): void { replace(this.element, h("span", { class: "quiet" }, this.idle)); }
  show(token: TokenFacts): void {
    replace(this.element,
      h("code", { class: "token-text" }, visible(token.text)),
      h("dl", {}, token.facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
      token.alternatives && token.alternatives.length > 0 && h("ol", { class: "alternatives", "aria-label": "Likeliest tokens" }, token.alternatives.map(([text, logprob]) => {
        const bar = h("span", { class: "bar-fill" });
        bar.style.width = `${(100 * Math.exp(logprob)).toFixed(1)}%`;
        return h("li", { class: text === token.text ? "chosen" : undefined }, h("code", {}, visible(text)), h("span", { class: "bar-track" }, bar), h("span", { class: "number" }, `${(100 * Math.exp(logprob)).toFixed(1)}%`), h("span", { class: "number faint" }, exact(Number(logprob.toFixed(4)))));
      })));
  }
}

export class TokenText {
  readonly element = h("p", { class: "tokens", role: "group" });
  private tokens: TokenFacts[] = [];
  constructor(private readonly strip: TokenStrip, label: string) {
    this.element.setAttribute("aria-label", label);
    this.element.addEventListener("keydown", (event) => this.walk(event));
    for (const kind of ["pointerover", "focusin", "pointerdown"]) this.element.addEventListener(kind, (event) => {
      const index = this.indexOf(event.target);
      if (index >= 0) this.strip.show(this.tokens[index]);
    });
  }
  add(token: TokenFacts, scale: Scale): void {
    this.tokens.push(token);
    const span = h("span", { class: token.prompt ? "token prompt" : "token", tabindex: this.tokens.length === 1 ? 0 : -1 });
    // A line end is shown and done.
    span.textContent = /^\n+$/.test(token.text) ? token.text.replace(/\n/g, "↵\n") : marked(token.text) || "∅";
    this.element.append(span);
    this.paint(span, token, scale);
  }
  recolor(scale: Scale, value: (index: number) => number | null): void {
    this.tokens.forEach((token, i) => { token.value = value(i); this.paint(this.element.children[i] as HTMLElement, token, scale); });
  }
  private paint(span: HTMLElement, token: TokenFacts, scale: Scale): void { span.style.backgroundColor = token.value === null ? "" : scale.color(token.value); }
  private indexOf(target: EventTarget | null): number {
    return target instanceof HTMLElement && target.parentElement === this.element ? Array.prototype.indexOf.call(this.element.children, target) : -1;
  }
  private walk(event: KeyboardEvent): void {
    const from = this.indexOf(event.target);
    const to = { ArrowRight: from + 1, ArrowLeft: from - 1, Home: 0, End: this.tokens.length - 1 }[event.key];
    if (from < 0 || to === undefined || to < 0 || to >= this.tokens.length) return;
    event.preventDefault();
    const children = this.element.children as HTMLCollectionOf<HTMLElement>;
    children[from].tabIndex = -1;
    children[to].tabIndex = 0;
    children[to].focus();
  }
}

export function legend(scale: Scale, name: string): HTMLElement {
  return h("div", { class: "legend", role: "img", "aria-label": `Colours: ${name}, ${scale.legend.map(([, text]) => text).join(", ")}` }, scale.legend.map(([value, text]) => {
    const cell = h("span", {}, text);
    cell.style.backgroundColor = scale.color(value);
    return cell;
  }));
}
