"""The table of docs/performance.md of what a token takes at given places of a text: from the JSON of bench/context_costs.py to lines of Markdown, of which the first is the
sentence behind the script's name, and sentences on its targets."""

from performance_tables import judged


def positions_verdicts(rows):
    """Sentences on the targets of positions_table, of the places that were measured."""
    ways, threads = (("prefill", "a prompt"), ("decode", "a decoded token")), max(r["threads"] for r in rows)
    models = list(dict.fromkeys(r["model"] for r in rows))
    at = {(r["model"], r["tokens"]): r for r in rows if r["threads"] == threads}
    scores = lambda r: (r["prefill"]["indexer_ns"] - r["prefill"]["selection_ns"]) / r["tokens"] / r["indexers"]  # noqa: E731
    others = lambda r, way: r[way]["attention_ns"] + r[way]["rest_ns"]  # noqa: E731
    short, middle, longest = 4096, 16384, 1 << 20
    grown = [f"{m}: {judged(scores(at[m, longest]) / scores(at[m, middle]), most=1.25)}" for m in models if (m, longest) in at and (m, middle) in at]
    rest = [f"{m}: " + ", ".join(f"{name} {judged(others(at[m, longest], way) / others(at[m, short], way), most=1.3)}" for way, name in ways) for m in models if (m, longest) in at and (m, short) in at]
    lines = []
    if grown:
        lines += ["", f"Scores of a prompt, a row and key, {longest:,} over {middle:,} tokens. {'; '.join(grown)}."]
    if rest:
        lines += ["", f"Attention and the rest together, {longest:,} over {short:,} tokens. {'; '.join(rest)}."]
        if "missed" in " ".join(rest):
            lines += ["", f"The arithmetic of attention is the same at both places, 2,048 keys a row. What differs is where they lie: at {short:,} tokens they are half of all, so that rows share them in the caches; at {longest:,} rows share few, which lie far apart in memory."]
    overtakes = []
    for m in models:
        for way, name in ways:
            found = [tokens for of, tokens in sorted(at) if of == m and at[of, tokens][way]["indexer_ns"] > others(at[of, tokens], way)]
            overtakes.append(f"{m}, {name}: {f'{found[0]:,}' if found else 'none measured'}")
    lines += ["", f"First measured place at which indexers, scores and selection, take longer than all else. {'; '.join(overtakes)}."]
    for r in rows:
        if r["threads"] == 1 and threads > 1 and (r["model"], r["tokens"]) in at:
            lines += ["", f"Indexers of a decoded token at {r['tokens']:,}, {r['model']}: {threads} threads over one {judged(r['decode']['indexer_ns'] / at[r['model'], r['tokens']]['decode']['indexer_ns'], least=1.7)}."]
    return lines


def positions_table(data):
    """What a token takes at given places of a text (context_costs.py)."""
    lines = [f"`lockstep bench context`: a piece of a prompt of {data['rows'][0]['window']} tokens and a decoded token at the end of texts, over a cache filled with random values, through the four layers of random "
             f"models of GLM-5.2's proportions at 1/16 (two heads of an indexer, of 128; a selection of 2,048 keys), fp32, without the head; medians of {data['rounds']} round{'s' if data['rounds'] > 1 else ''} in turns. "
             "Microseconds a token. Targets: scores of a prompt, a row and key, within 1.25 from 16k to 1M; everything else at 1M within 1.3 of 4k; indexers of a decoded token, two threads 1.7 times as fast as one.", "",
             "| model | threads | position | rows | all | scores | a row, key and indexer, ns | selection | attention | rest |", "|---|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for r in data["rows"]:
        for way, rows in (("prefill", "prompt"), ("decode", "decoded")):
            part = r[way]
            scores = part["indexer_ns"] - part["selection_ns"]
            lines.append(f"| {r['model']} | {r['threads']} | {r['tokens']:,} | {rows} | {part['ns_a_token'] / 1e3:,.0f} | {scores / 1e3:,.0f} | {scores / r['tokens'] / r['indexers']:.2f} | "
                         f"{part['selection_ns'] / 1e3:,.0f} | {part['attention_ns'] / 1e3:,.0f} | {part['rest_ns'] / 1e3:,.0f} |")  # fmt: skip
    return lines + positions_verdicts(data["rows"])
