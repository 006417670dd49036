"""A prompt of a million tokens over HTTP: a server whose context is 1,048,576 takes it within its limit of bodies, computes it beside others' short requests, and frees its
pages when the client leaves; one token more, and a body above the default limit, are refused with what is allowed. What a whole one costs: docs/performance.md."""
import http.client
import json
import re
import subprocess
import sys
import time

from harness import BINARY, ROOT, TMP, check, done

sys.path.insert(0, str(ROOT / "bench"))
from started_server import StartedServer  # noqa: E402

CONTEXT = 1 << 20
FOLDER = TMP / "recall-glm"
subprocess.run([sys.executable, "-B", ROOT / "tools/make_recall_folder.py", FOLDER], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
config = json.loads((FOLDER / "config.json").read_text())
config |= {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 1, "num_key_value_heads": 1, "q_lora_rank": 16, "kv_lora_rank": 8, "qk_nope_head_dim": 8,
           "qk_rope_head_dim": 8, "v_head_dim": 8, "index_head_dim": 8, "index_n_heads": 1, "index_topk": 16, "indexer_types": ["full"], "mlp_layer_types": ["dense"],
           "intermediate_size": 16}  # fmt: skip
(FOLDER / "config.json").write_text(json.dumps(config))
(TMP / "text.jsonl").write_text('{"tokens":[1,5,7]}\n')
done("train", "sft", "--model", FOLDER, "--from-scratch", "--data", TMP / "text.jsonl", "--eval-share", 0, "--steps", 1, "--name", "made", "--runs", TMP / "runs", "--no-page", "--quiet",
     "--transcripts", 0)  # fmt: skip


class Server(StartedServer):
    def __init__(self, *words):
        command = [BINARY, "serve", "--model", TMP / "runs/made/export", "--name", "m", "--port", 0, "--context", CONTEXT, "--speculate", "off", "--no-access-log", "--log-level", "error", *words]
        super().__init__(command)

    def ask(self, prompt, seconds=60):
        """A connection on which a completion was asked for."""
        connection = http.client.HTTPConnection(self.address, timeout=seconds)
        connection.request("POST", "/v1/completions", json.dumps({"model": "m", "prompt": prompt, "max_tokens": 1}, separators=(",", ":")), {"Content-Type": "application/json"})
        return connection

    def answer(self, prompt):
        answer = self.ask(prompt).getresponse()
        return answer.status, json.loads(answer.read())

    def metric(self, name):
        connection = http.client.HTTPConnection(self.address, timeout=60)
        connection.request("GET", "/metrics")
        return float(re.search(rf"^{name} (\S+)$", connection.getresponse().read().decode(), re.MULTILINE)[1])

    def until(self, name, reached, seconds=120):
        end = time.monotonic() + seconds
        while not reached(self.metric(name)):
            assert time.monotonic() < end, f"{name} is {self.metric(name)}"
            time.sleep(0.2)


with Server("--max-body-kilobytes", 8192) as server:
    with check("refused"):
        status, told = server.answer([1] * (CONTEXT + 1))
        assert status == 400 and told["error"]["code"] == "context_length_exceeded" and "1048577 tokens" in told["error"]["message"], told
    with check("computed"):
        asked = server.ask([i * 7 % 100 for i in range(CONTEXT - 1)])
        server.until("lockstep_cache_pages_used", lambda pages: pages >= 64)
        assert server.metric("lockstep_prompt_tokens_total") >= CONTEXT - 1
        for seed in range(3):
            status, told = server.answer([seed, 2, 3])
            assert status == 200 and told["usage"]["completion_tokens"] == 1, told
    with check("left"):
        asked.close()
        server.until("lockstep_open_sequences", lambda requests: requests == 0)
        assert server.answer([9, 2, 3])[0] == 200
with Server() as server, check("body-limit"):
    connection = http.client.HTTPConnection(server.address, timeout=60)
    connection.request("POST", "/v1/completions", b"x" * (4 << 20 | 1), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    told = answer.read().decode()
    assert answer.status == 413 and "4194304" in told, told
