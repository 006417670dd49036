#!/usr/bin/env python3
"""Keeps the lists of docs/models.md equal to the program's own: keys of config.json, the cost of the cache, profiles, formats of files and which profiles
have a place for their numbers.

    tools/models_page.py --write       puts them between the marks that stand in the page
    tools/models_page.py --check       exit status 1 and the first difference if they are not what would be written

The lists are those of `lockstep info --families`, which makes a model of each family and notes the keys that it reads from its config. The prose of
the page (why a key is harmless, what a family is) is written by hand; a family of the registry that its first table lacks is an error.
The program is LOCKSTEP_BINARY, else build/lockstep of this checkout.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/models.md"
# Keys whose allowed values are no list: what is allowed, and what is refused, for example; of which families ("all").
BY_RULE = {
    "quantization_config": ("all", '{"quant_method": "fp8", "weight_block_size": [128, 128]}', '{"quant_method": "gptq", "bits": 4}'),
    "auto_map": ("all", 'classes of the family itself, such as {"AutoModelForCausalLM": "modeling_deepseek.DeepseekV3ForCausalLM"} of `deepseek_v3` and `kimi_k2`',
                 '{"AutoModelForCausalLM": "a.B"}'),
    "attn_type_list": ("minimax_m2", "[1, 1]", "[1, 0]"),
    "experts_per_token": ("gpt_oss", "what `num_experts_per_tok` is", "99"),
}
# Examples of refused values, where the usual one (another number, the other truth value) says nothing.
EXAMPLES = {"attention_dropout": 0.1, "per_layer_config": {"0": {"hidden_size": 8}}, "compression_config": {"format": "pack-quantized"}, "no_rope_layers": [1, 0],
            "hidden_act": "gelu", "qk_norm_type": "per_head", "topk_method": "group_limited_greedy"}  # fmt: skip


def of_families(families, names):
    return "all" if len(names) == len(families) else ", ".join(names)


def grouped(pairs):
    """Joins (key, what, family): one row for keys with the same `what` and families, in the order in which they came."""
    by_key = {}
    for key, what, family in pairs:
        by_key.setdefault((key, what), []).append(family)
    rows = {}
    for (key, what), names in by_key.items():
        rows.setdefault((tuple(names), what), []).append(key)
    return rows


def shown(keys):
    return ", ".join(f"`{key}`" for key in sorted(keys))


def read_table(families):
    pairs = [(key, "", f["model_type"]) for f in families for key in f["read"] if key not in BY_RULE]
    rows = sorted(grouped(pairs).items(), key=lambda row: (-len(row[0][0]), row[0][0], row[1]))
    return ["| keys | of |", "|---|---|", *(f"| {shown(keys)} | {of_families(families, names)} |" for (names, _), keys in rows)]


def refused_example(key, allowed):
    if key in EXAMPLES:
        return EXAMPLES[key]
    if isinstance(allowed, bool):
        return not allowed
    if isinstance(allowed, str):
        return "other"
    return 4 if allowed is None else allowed + 1


def refused_table(families):
    pairs = []
    for f in families:
        for key, values in f["allowed"].items():
            if key in BY_RULE:
                continue
            allowed = next((v for v in values if v is not None), None)
            pairs.append((key, json.dumps([allowed, refused_example(key, allowed)]), f["model_type"]))
    rows = [(names, keys, *map(json.dumps, json.loads(what))) for (names, what), keys in grouped(pairs).items()]
    rows += [(tuple(f["model_type"] for f in families) if of == "all" else (of,), [key], allowed, refused) for key, (of, allowed, refused) in BY_RULE.items()]
    rows.sort(key=lambda row: (-len(row[0]), row[0], row[1]))
    return ["| key | of | allowed | refused, for example |", "|---|---|---|---|",
            *(f"| {shown(keys)} | {of_families(families, names)} | {allowed} | {refused} |" for names, keys, allowed, refused in rows)]  # fmt: skip


def cache_table(families, profiles):
    lines = ["| `model_type` | of | values a token | cache in fp32 | cache in bf16 | in bf16, expanded |", "|---|---|---|---|---|---|"]
    wide, narrow = (next(p["name"] for p in profiles if p["cache"] == cache) for cache in ("fp32", "bf16"))
    expanded = f"{narrow}-expanded"
    for f in families:
        if f["example"]:
            cost = f["cache_bytes_a_token"]
            own = f"{cost[expanded]:,} B" if expanded in cost else "refused"
            lines.append(f"| `{f['model_type']}` | {f['example']} | {f['cache_values_a_token']:,} | {cost[wide]:,} B | {cost[narrow]:,} B | {own} |")
    return lines


def profile_table(profiles):
    return ["| profile | weights that are not packed | cache | |", "|---|---|---|---|", *(f"| `{p['name']}` | {p['weights']} | {p['cache']} | {p['description']} |" for p in profiles)]


def few_bits_table(formats):
    lines = ["| format | bits a weight | tensors | numbers |", "|---|---|---|---|"]
    for f in formats:
        tensors = "; ".join(f"`{t['name']}` {t['holds']}" for t in f["tensors"])
        lines.append(f"| {f['name']} | {f['bits_a_weight']:.4g} | {tensors} | {f['numbers']} |")
    return lines


def few_bits_configs(formats):
    return ["```", *(f"{f['name']}\n  {json.dumps(f['quantization_config'])}" for f in formats), "```"]


def exact_table(families):
    """Expanded forms of profiles are left out: the page says that they hold the same as the others, which is checked here."""
    rows = {}
    for f in families:
        of_family = f.get("cache_bytes_a_token", {})
        for row in f.get("exact_under", []):
            names = [name for name in row["profiles"] if not name.endswith("-expanded")]
            if sorted(row["profiles"]) != sorted(names + [form for name in names if (form := f"{name}-expanded") in of_family]):
                sys.exit(f"{f['model_type']}: {row} has a profile without its expanded form, or the other way; the page must say so")
            rows.setdefault((row["format"], row["scales"], row["of"]), {}).setdefault(tuple(names), []).append(f["model_type"])
    every = [f["model_type"] for f in families]
    with_experts = [f["model_type"] for f in families if any(row["of"] == "experts alone" for row in f.get("exact_under", []))]

    def shown_families(key, names):
        if names == every:
            return "all"
        return "all with experts" if key[2] == "experts alone" and names == with_experts else ", ".join(names)

    lines = ["| stored as | scales | tensors | of | exact under |", "|---|---|---|---|---|"]
    for key, by_names in rows.items():
        for names, model_types in by_names.items():
            lines.append(f"| {key[0]} | {key[1] or ''} | {key[2]} | {shown_families(key, model_types)} | {', '.join(f'`{name}`' for name in names)} |")
    return lines


def gguf_list(types):
    return [", ".join(f"{t['type']} ({t['bits_a_weight']:g})" for t in types) + "."]


def blocks():
    binary = os.environ.get("LOCKSTEP_BINARY", str(ROOT / "build/lockstep"))
    told = json.loads(subprocess.run([binary, "info", "--families"], check=True, capture_output=True, text=True).stdout)
    families, profiles = told["families"], told["profiles"]
    return [f["model_type"] for f in families], {
        "read": read_table(families), "refused": refused_table(families), "cache": cache_table(families, profiles), "profiles": profile_table(profiles),
        "gguf": gguf_list(told["gguf_types"]), "formats": few_bits_table(told["few_bits"]), "configs": few_bits_configs(told["few_bits"]),
        "exact": exact_table(families),
    }  # fmt: skip


def marks(name):
    return f"<!-- tools/models_page.py: {name} -->", f"<!-- tools/models_page.py: end of {name} -->"


def written(text, contents):
    for name, lines in contents.items():
        begin, end = marks(name)
        if text.count(begin) != 1 or text.count(end) != 1:
            sys.exit(f"docs/models.md: the marks {begin} and {end} are not both there once")
        head, rest = text.split(begin)
        text = head + begin + "\n" + "\n".join(lines) + "\n\n" + end + rest.split(end)[1]
    return text


def main():
    if sys.argv[1:] not in (["--write"], ["--check"]):
        sys.exit(__doc__)
    families, contents = blocks()
    text = PAGE.read_text()
    told = re.findall(r"^\| `(\w+)` \|", text.split("\n## ")[0], re.M)
    if missing := set(families) ^ (set(told) - {"model_type"}):
        sys.exit(f"docs/models.md: the table of model types and the registry differ in {', '.join(sorted(missing))}")
    new = written(text, contents)
    if sys.argv[1] == "--write":
        PAGE.write_text(new)
    elif new != text:
        old_line, new_line = next((a, b) for a, b in zip(text.splitlines() + [""], new.splitlines() + [""]) if a != b)
        sys.exit(f"docs/models.md is not what the program says; `tools/models_page.py --write` writes it. First difference:\n- {old_line}\n+ {new_line}")


if __name__ == "__main__":
    main()
