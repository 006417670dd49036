// Elements from code. Text goes in as text nodes alone, so nothing that a model wrote can become markup; what turns its direction is a mark.
import { marked } from "./format";

type Child = Node | string | number | null | undefined | false;
type Props = Record<string, unknown>;

export function h<K extends keyof HTMLElementTagNameMap>(tag: K, props: Props = {}, ...children: (Child | Child[])[]): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value as EventListener);
    else if (name === "value" || name === "checked" || name === "disabled" || name === "selected" || name === "hidden") (element as unknown as Props)[name] = value;
    else element.setAttribute(name, value === true ? "" : name === "title" || name === "aria-label" ? marked(String(value)) : String(value));
  }
  fill(element, ...children);
  return element;
}

export function fill(element: Node, ...children: (Child | Child[])[]): void {
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    element.appendChild(child instanceof Node ? child : document.createTextNode(marked(String(child))));
  }
}

export function replace(element: Element, ...children: (Child | Child[])[]): void {
  element.textContent = "";
  fill(element, ...children);
}

// Writes only what changes, so that a screen reader is not told the same thing every second.
export function setText(element: Element, text: string): void {
  const shown = marked(text);
  if (element.textContent !== shown) element.textContent = shown;
}

let ids = 0;
export const uid = (stem: string): string => `${stem}-${++ids}`;

// A label and its control, tied together.
export function field(label: string, control: HTMLElement, hint?: string): HTMLElement {
  control.id = control.id || uid("field");
  return h("div", { class: "field", title: hint }, h("label", { for: control.id }, label), control);
}

export function select(options: [value: string, text: string][], value: string, change: (value: string) => void): HTMLSelectElement {
  const element = h("select", { onchange: () => change(element.value) }, options.map(([v, text]) => h("option", { value: v }, text)));
  element.value = value;
  return element;
}
