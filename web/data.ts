// Where the page's data comes from: the server that sent it, or, in a report, the JSON that stands in the page itself.

export interface Arm { name: string; bytes: number; transcripts: boolean }
export interface RunInfo { name: string; arms: Arm[]; updated: number; live: boolean; steps: number; last: Record<string, number | null> }
export interface PageInfo { title: string; playground: boolean; device: boolean; gates: boolean; fleet: boolean }
export interface Column { x: number[]; y: (number | null)[] }
export interface Metrics { file: string; from: number; next: number; lines: number; bad_lines: number; thinned: boolean; columns: Record<string, Column> }
// Of a rollout, or of a sequence of supervised fine-tuning, which has a place in its batch (sequence) and nothing of a sampler's.
export interface Transcript {
  step: number; weights_version?: number; group?: number; rollout?: number; sequence?: number; reward?: number; finish?: string; cut?: number;
  prompt: string[]; prompt_ids: number[]; tokens: string[]; ids: number[];
  sampling_logprobs?: (number | null)[]; logprobs: (number | null)[]; entropies: (number | null)[]; advantages?: (number | null)[]; weights: number[];
  values?: (number | null)[];  // a critic's
  chain?: number; chains?: number; turns?: { kind: string; begin: number; end: number; reward: number }[];  // of a rollout of many turns, a line a context window
}
// What the ranks of a run did in its newest step, and each start of it by `lockstep launch`.
export interface RankTimes { rank: number; process: number; host: string; computed_seconds: number; waited_seconds: number; sent_seconds: number; sent_bytes: number }
export interface Start {
  start: number; time: number; ranks: string; processes: number; hosts: { name: string; slots: number }[]; step: number; seconds: number | null;
  loss: { words: string; host: string | null; process: number | null; step: number; saved_step: number } | null; taken_back: string[] | null; end: string | null;
}
export interface RunRanks { step: number | null; ranks: RankTimes[]; starts: Start[] }
export interface About { name: string; config: Record<string, unknown> | null; result: any; parity: any }

export interface Source {
  readonly live: boolean;
  page(): Promise<PageInfo>;
  runs(): Promise<RunInfo[]>;
  about(run: string): Promise<About>;
  ranks(run: string): Promise<RunRanks>;
  metrics(run: string, arm: string, from: number, file: string): Promise<Metrics>;
  steps(run: string, arm: string): Promise<number[]>;
  transcripts(run: string, arm: string, step: number): Promise<Transcript[]>;
}

// What every view says of a run that the address names and nobody knows.
export const noSuchRun = (name: string): string => `There is no run “${name}” here. Choose one of those that are, or start it: it appears as soon as it begins.`;

export class HttpError extends Error {
  constructor(readonly status: number, message: string, readonly param: string | null = null) { super(message); }
}

const kKey = "lockstep-api-key";
export const apiKey = (): string => { try { return sessionStorage.getItem(kKey) ?? ""; } catch { return ""; } };
export function setApiKey(key: string): void { try { sessionStorage.setItem(kKey, key); } catch { /* private mode: the key lasts for this page */ } }

export async function call(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  if (apiKey()) headers.set("Authorization", `Bearer ${apiKey()}`);
  let response: Response;
  try { response = await fetch(path, { ...init, headers, cache: "no-store" }); } catch (error) {
    if (error instanceof TypeError) dispatchEvent(new CustomEvent("lockstep-connection", { detail: false }));
    throw error;
  }
  dispatchEvent(new CustomEvent("lockstep-connection", { detail: true }));
  if (response.ok) return response;
  let message = `${response.status} ${response.statusText}`, param: string | null = null;
  try {
    const error = (await response.json()).error;
    message = String(error.message); param = error.param ?? null;
  } catch { /* the status says it */ }
  if (response.status === 401 || response.status === 403) dispatchEvent(new CustomEvent("lockstep-key", { detail: message }));
  throw new HttpError(response.status, message, param);
}

class ServerSource implements Source {
  readonly live = true;
  private async json<T>(path: string): Promise<T> { return (await call(path)).json() as Promise<T>; }
  private path(run: string, rest: string, query: Record<string, string | number>): string {
    const text = new URLSearchParams(Object.entries(query).map(([k, v]) => [k, String(v)])).toString();
    return `api/runs/${encodeURIComponent(run)}${rest}${text ? `?${text}` : ""}`;
  }
  page() { return this.json<PageInfo>("api/page"); }
  async runs() { return (await this.json<{ runs: RunInfo[] }>("api/runs")).runs; }
  about(run: string) { return this.json<About>(this.path(run, "", {})); }
  ranks(run: string) { return this.json<RunRanks>(this.path(run, "/ranks", {})); }
  metrics(run: string, arm: string, from: number, file: string) { return this.json<Metrics>(this.path(run, "/metrics", { arm, from, file })); }
  async steps(run: string, arm: string) { return (await this.json<{ steps: number[] }>(this.path(run, "/transcripts", { arm }))).steps; }
  async transcripts(run: string, arm: string, step: number) {
    return (await this.json<{ entries: Transcript[] }>(this.path(run, "/transcripts", { arm, step }))).entries;
  }
}

interface Report {
  title: string; runs: RunInfo[]; about: Record<string, About>; ranks: Record<string, RunRanks>;
  metrics: Record<string, Record<string, Metrics>>;
  transcripts: Record<string, Record<string, Record<string, Transcript[]>>>;
}

class ReportSource implements Source {
  readonly live = false;
  constructor(private readonly report: Report) {}
  async page() { return { title: this.report.title, playground: false, device: false, gates: false, fleet: false }; }
  async runs() { return this.report.runs; }
  async about(run: string) { return this.report.about[run] ?? { name: run, config: null, result: null, parity: null }; }
  async ranks(run: string) { return this.report.ranks?.[run] ?? { step: null, ranks: [], starts: [] }; }
  async metrics(run: string, arm: string, from: number) {
    const all = this.report.metrics[run]?.[arm] ?? { file: "", from: 0, next: 0, lines: 0, bad_lines: 0, thinned: false, columns: {} };
    return from > 0 ? { ...all, from, columns: {} } : all;
  }
  async steps(run: string, arm: string) { return Object.keys(this.report.transcripts[run]?.[arm] ?? {}).map(Number).sort((a, b) => a - b); }
  async transcripts(run: string, arm: string, step: number) { return this.report.transcripts[run]?.[arm]?.[String(step)] ?? []; }
}

export function openSource(): Source {
  const data = document.getElementById("lockstep-report");
  return data ? new ReportSource(JSON.parse(data.textContent ?? "{}")) : new ServerSource();
}

// Repeats `work` while the page is seen, the next time after what it returns (seconds); stop() ends it, also in the middle.
export class Poll {
  private stopped = false;
  private timer = 0;
  constructor(private readonly work: () => Promise<number>) {
    document.addEventListener("visibilitychange", this.wake);
    void this.turn();
  }
  private readonly wake = () => { if (!document.hidden && !this.stopped) { clearTimeout(this.timer); this.timer = window.setTimeout(() => void this.turn(), 0); } };
  private running = false;
  private async turn(): Promise<void> {
    if (this.running || this.stopped) return;
    this.running = true;
    let seconds = 3;
    try { seconds = await this.work(); } catch (error) { if (!(error instanceof HttpError) && !(error instanceof TypeError)) console.error(error); }
    this.running = false;
    if (!this.stopped && Number.isFinite(seconds)) this.timer = window.setTimeout(() => { if (!document.hidden) void this.turn(); }, seconds * 1000);
  }
  stop(): void { this.stopped = true; clearTimeout(this.timer); document.removeEventListener("visibilitychange", this.wake); }
}
