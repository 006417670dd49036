"""models/agent-glm: its folder is what its tool writes and within its limits, its template renders calls and results, it writes calls itself, and its rates on fixed
held-out problems are those that were published, as far as so few problems tell. Bits are the same everywhere, so what passes here passes on every machine."""
import json
import subprocess
import sys

from harness import AGENT, ROOT, TMP, check, done

TOOL = {"type": "function", "function": {"name": "write", "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}}}
PROBLEMS = 240  # twenty of each of the dozen

with check("folder"):
    made = subprocess.run([sys.executable, "-B", ROOT / "tools/make_agent_folder.py", "--check"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    info = done("info", AGENT, "--json").json()
    assert info["parameters"]["total"] <= 1_500_000, info["parameters"]
    assert (AGENT / "model.safetensors").stat().st_size <= 3_000_000, "model.safetensors has more than 3 MB"
    assert json.loads((AGENT / "config.json").read_text())["max_position_embeddings"] == 2048


def call(key, number):
    return {"role": "assistant", "content": "", "tool_calls": [{"id": f"call_{number}", "type": "function", "function": {"name": "write", "arguments": json.dumps({"text": key})}}]}


with check("calls"):
    chat, begun = TMP / "chat.json", TMP / "begun.json"
    first = {"role": "user", "content": "A3B1C4D2E1F3G2H4:1C?"}
    chat.write_text(json.dumps({"messages": [first, call("4", 1), {"role": "tool", "tool_call_id": "call_1", "content": "7,2F?"}], "tools": [TOOL]}))
    begun.write_text(json.dumps({"messages": [first], "tools": [TOOL]}))
    text = done("render", "--model", AGENT, "--messages", chat).stdout
    assert "<tool_call>write\n<arg_key>text</arg_key>\n<arg_value>4</arg_value>\n</tool_call>" in text, text
    assert "<|observation|>\n<tool_response>\n7,2F?\n</tool_response>" in text and '"name": "write"' in text, text
    # What it goes on with is a call of that tool, with a key and nothing else.
    ids = done("render", "--model", AGENT, "--messages", begun, "--ids").json()
    told = done("generate", "--model", AGENT, "--tokens", ",".join(map(str, ids)), "--temperature", 0, "--max-tokens", 32, "--json").json()
    assert told["finish_reason"] == "stop", told
    print(told["text"])
    assert "<tool_call>write" in told["text"], told["text"]

with check("rates"):
    published = json.loads((AGENT / "published.json").read_text())["pass_at_1"]
    dozen = [rate for task, rate in published.items() if task != "lockbox"]
    wanted = sum(dozen) / len(dozen)
    told = done("eval", "dozen", "--model", AGENT, "--n", PROBLEMS, "--samples", 2, "--max-tokens", 16, "--json").json()
    rate = told["pass_at_1"]
    print(f"published {wanted:.3f}, here {rate['value']:.3f} [{rate['low']:.3f}, {rate['high']:.3f}], greedy {told['greedy']['value']:.3f}")
    assert 0.2 < rate["value"] < 1 and abs(rate["value"] - wanted) <= 0.1, (wanted, rate)
