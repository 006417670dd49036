// The page: a head with tabs, one view at a time, chosen by the fragment (#/runs/NAME).
import { openSource, setApiKey, type PageInfo } from "./data";
import { DeviceView } from "./device";
import { h, replace, setText } from "./dom";
import { marked } from "./format";
import { FleetView } from "./fleet";
import { GatesView } from "./gates";
import { ParityView } from "./parity";
import { PlaygroundView } from "./playground";
import { RunsView } from "./runs";
import { TranscriptsView } from "./transcripts";
import type { View } from "./view";

const source = openSource();
const themes = ["auto", "light", "dark"] as const;
const kTheme = "lockstep-theme";
const read = (key: string): string | null => { try { return localStorage.getItem(key); } catch { return null; } };
const keep = (key: string, value: string): void => { try { localStorage.setItem(key, value); } catch { /* for this page alone */ } };

const main = h("main", { id: "main", tabindex: -1 });
const tabs = h("nav", { class: "tabs", "aria-label": "Views" });
const title = h("span", { class: "title" });
const connection = h("span", { class: "quiet", role: "status" });
const keyBar = h("div", { class: "key", hidden: true });
const themeButton = h("button", { class: "theme", onclick: () => setTheme(themes[(themes.indexOf(theme) + 1) % themes.length]) });
let theme: (typeof themes)[number] = themes.find((t) => t === read(kTheme)) ?? "auto";
let view: View | null = null, viewKey = "", chosenRun = "";
let info: PageInfo = { title: "", playground: false, device: false, gates: false, fleet: false };

function setTheme(next: (typeof themes)[number]): void {
  theme = next;
  if (next === "auto") document.documentElement.removeAttribute("data-theme"); else document.documentElement.setAttribute("data-theme", next);
  keep(kTheme, next);
  setText(themeButton, { auto: "◐", light: "☀", dark: "☾" }[next]);
  themeButton.setAttribute("aria-label", `Colours: ${next === "auto" ? "as the system has them" : next}. Press for the next.`);
  themeButton.title = `Colours: ${next}`;
  view?.themed?.();
}

function route(): void {
  const [name = "runs", run = ""] = location.hash.replace(/^#\/?/, "").split("/").map((part) => { try { return decodeURIComponent(part); } catch { return ""; } });
  if (run) chosenRun = run;
  const views: Record<string, () => View> = {
    runs: () => new RunsView(source, chosenRun, (wanted) => { location.hash = `#/runs/${encodeURIComponent(wanted)}`; }),
    transcripts: () => new TranscriptsView(source, chosenRun),
    parity: () => new ParityView(source, chosenRun),
    ...(info.playground ? { playground: () => new PlaygroundView() } : {}),
    ...(info.device ? { device: () => new DeviceView() } : {}),
    ...(info.gates ? { gates: () => new GatesView() } : {}),
    ...(info.fleet ? { fleet: () => new FleetView() } : {}),
  };
  const wanted = name in views ? name : "runs", key = `${wanted}/${["playground", "device", "gates", "fleet"].includes(wanted) ? "" : chosenRun}`;
  for (const tab of tabs.children) tab.toggleAttribute("aria-current", (tab as HTMLElement).dataset.view === wanted);
  if (key === viewKey) return;
  viewKey = key;
  view?.close();
  view = views[wanted]();
  replace(main, view.element);
}

function askKey(message: string): void {
  if (!keyBar.hidden) return;
  const input = h("input", { type: "password", autocomplete: "off", "aria-label": "API key", placeholder: "API key" });
  replace(keyBar, h("form", { onsubmit: (event: Event) => { event.preventDefault(); setApiKey(input.value.trim()); keyBar.hidden = true; viewKey = ""; void start(); } },
    h("span", {}, message), input, h("button", { type: "submit" }, "Use")));
  keyBar.hidden = false;
  input.focus();
}

async function start(): Promise<void> {
  try { info = await source.page(); } catch (error) { console.info(String(error)); }
  setText(title, info.title);
  document.title = info.title ? `${marked(info.title)} · lockstep` : "lockstep";
  const names: [string, string][] = [["runs", "Runs"], ["transcripts", "Transcripts"], ...(info.playground ? [["playground", "Playground"] as [string, string]] : []), ["parity", "Parity"], ...(info.device ? [["device", "Device"] as [string, string]] : []), ...(info.gates ? [["gates", "Gates"] as [string, string]] : []), ...(info.fleet ? [["fleet", "Fleet"] as [string, string]] : [])];
  replace(tabs, names.map(([name, text]) => h("a", { href: `#/${name}`, "data-view": name }, text)));
  route();
}

document.body.append(
  h("a", { class: "skip", href: "#main", onclick: (event: Event) => { event.preventDefault(); main.focus(); } }, "To the content"),
  h("header", { class: "top" }, h("span", { class: "mark" }, "lockstep"), title, tabs, h("span", { class: "grow" }), connection, themeButton), keyBar, main);
setTheme(theme);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => view?.themed?.());
addEventListener("hashchange", route);
addEventListener("lockstep-connection", (event) => setText(connection, (event as CustomEvent<boolean>).detail ? "" : "the program has ended or cannot be reached"));
addEventListener("lockstep-key", (event) => askKey((event as CustomEvent<string>).detail));
void start();
