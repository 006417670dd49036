// Server-sent events of a fetch, as OpenAI's API sends them: the JSON of each `data:` line until `[DONE]`.
export async function* events(response: Response): AsyncGenerator<any> {
  const reader = response.body!.getReader();
  const decoder = new TextDecoder();
  let held = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      held += done ? decoder.decode() : decoder.decode(value, { stream: true });
      let end: number;
      while ((end = held.search(/\r?\n\r?\n/)) >= 0) {
        const data = held.slice(0, end).split(/\r?\n/).filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart()).join("\n");
        held = held.slice(end).replace(/^\r?\n\r?\n/, "");
        if (data === "[DONE]") return;
        if (data) yield JSON.parse(data);
      }
      if (done) return;
    }
  } finally {
    void reader.cancel().catch(() => undefined);
  }
}
