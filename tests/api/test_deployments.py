"""Several models in one `lockstep serve`: `--deploy` from folders, snapshots and channels; each answers as a server with it alone; `--route` shares an alias'
traffic and keeps users where they are; models and aliases change over HTTP, for the keys that `--admin` names, and with `--deploy-state` they last over a
restart or a kill; what does not fit into memory is refused. With `--scale-to-zero-minutes` models leave memory that nobody asks, and come back with the same bits."""
import concurrent.futures
import json
import re
import shutil
import signal
import struct

import openai
import pytest
import requests
from conftest import MODEL
from test_fleet import lockstep, stepped, wait_for

PROMPT = "3 7 12=48:"


def folders(tmp_path):
    """The shipped model as v7, and one that has other weights, as v8."""
    shutil.copytree(MODEL, tmp_path / "v7")
    return tmp_path / "v7", stepped(tmp_path / "v7", tmp_path / "v8", 3)


def answer(url, model, **fields):
    body = {"model": model, "prompt": PROMPT, "max_tokens": 12, "seed": 5, "temperature": 1, "logprobs": 2, "ignore_eos": True, **fields}
    told = requests.post(f"{url}/v1/completions", json=body, timeout=120)
    assert told.status_code == 200, told.text
    return told.json()


def lasting(told):
    """Without what two equal requests may differ in, and where the weights came from."""
    told = dict(told)
    del told["id"], told["created"]
    told.pop("snapshot", None)
    told["usage"].pop("prompt_tokens_details", None)
    return json.dumps(told)


def test_each_answers_as_alone(own_server, tmp_path):
    v7, v8 = folders(tmp_path)
    store = tmp_path / "store"
    lockstep("snapshot", "push", v7, store)
    lockstep("snapshot", "push", v8, store, "--channel", "chat", "--parent", "none")
    snapshot = json.loads(lockstep("snapshot", "show", store, "chat", "--json").stdout)["id"]
    both = own_server("--deploy", f"v7={v7}", "--deploy", f"v8={v8}", "--deploy", f"from-channel={store}/chat", model=None)
    client = openai.OpenAI(base_url=both.url + "/v1", api_key="none", max_retries=0)
    assert [one.id for one in client.models.list()] == ["v7", "v8", "from-channel"]
    told = {}
    for name, folder in (("v7", v7), ("v8", v8)):
        alone = own_server("--name", name, model=folder)
        for seed in (1, 2, 3):
            told[name, seed] = lasting(answer(both.url, name, seed=seed))
            assert told[name, seed] == lasting(answer(alone.url, name, seed=seed))
        alone.stop()
    for seed in (1, 2, 3):
        assert told["v7", seed].replace('"v7"', '"v8"') != told["v8", seed]  # the weights differ, and so do the bits
        assert lasting(answer(both.url, "from-channel", seed=seed)).replace('"from-channel"', '"v8"') == told["v8", seed]
    # Answers and events say of which snapshot they are; those of a folder say nothing.
    assert answer(both.url, "from-channel")["snapshot"] == snapshot and "snapshot" not in answer(both.url, "v8")
    for event in client.completions.create(model="from-channel", prompt=PROMPT, max_tokens=4, stream=True):
        assert event.model_extra["snapshot"] == snapshot
    hosted = {"model": "from-channel", "prompt": PROMPT, "max_tokens": 2}
    assert requests.post(f"{both.url}/inference/v1/completions", json=hosted, timeout=60).json()["model"] == f"from-channel@{snapshot}"
    rows = {row["id"]: row["snapshot"] for row in requests.get(f"{both.url}/v1/deployments", timeout=30).json()["data"]}
    assert rows == {"v7": None, "v8": None, "from-channel": snapshot}
    with pytest.raises(openai.NotFoundError, match="did you mean 'v7'"):
        client.completions.create(model="v77", prompt=PROMPT)
    assert 'lockstep_deployment_sequences_total{deployment="v8"} 4' in requests.get(f"{both.url}/metrics", timeout=30).text
    assert both.stop() == 0, "".join(both.errors)
    assert not list(tmp_path.glob("lockstep-deploy-*"))


def test_an_alias_shares_its_traffic(own_server, tmp_path):
    v7, v8 = folders(tmp_path)
    server = own_server("--name", "v7", "--deploy", f"v8={v8}", "--route", "chat=v7:50,v8:50", "--route", "stable=v7", model=v7)
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
    where = {f"user-{i}": client.completions.create(model="chat", prompt=PROMPT, max_tokens=1, user=f"user-{i}").model for i in range(20)}
    assert set(where.values()) == {"v7", "v8"}
    for user, name in where.items():
        assert client.completions.create(model="chat", prompt=PROMPT, max_tokens=1, user=user).model == name
    assert client.completions.create(model="stable", prompt=PROMPT, max_tokens=1).model == "v7"
    # More for v8: whoever was there stays there.
    requests.put(f"{server.url}/v1/aliases/chat", json={"deployments": {"v7": 10, "v8": 90}}, timeout=30).raise_for_status()
    for user, name in where.items():
        if name == "v8":
            assert client.completions.create(model="chat", prompt=PROMPT, max_tokens=1, user=user).model == "v8"
    back = requests.post(f"{server.url}/v1/aliases/chat/rollback", timeout=30).json()
    assert back["deployments"] == {"v7": 50, "v8": 50} and back["before"] == {"v7": 10, "v8": 90}
    for user, name in where.items():
        assert client.completions.create(model="chat", prompt=PROMPT, max_tokens=1, user=user).model == name


def test_models_change_while_it_runs(own_server, tmp_path):
    v7, v8 = folders(tmp_path)
    keys = tmp_path / "keys.txt"
    keys.write_text("ann ann-has-this-long-key\nbob bob-has-this-long-key\n")
    server = own_server("--name", "v7", "--deploy-folder", str(tmp_path), "--api-key-file", str(keys), "--admin", "ann", model=v7)

    def ask(method, path, key="ann", **fields):
        return requests.request(method, server.url + path, headers={"Authorization": f"Bearer {key}-has-this-long-key"}, timeout=120, **fields)

    assert ask("POST", "/v1/deployments", key="bob", json={"name": "v8", "source": "v8"}).status_code == 403
    for wrong in ("../..", "/", "nowhere", "keys.txt/..", ""):
        assert ask("POST", "/v1/deployments", json={"name": "v8", "source": wrong}).status_code in (400, 404), wrong
    made = ask("POST", "/v1/deployments", json={"name": "v8", "source": "v8"})
    assert made.status_code == 200 and made.json()["memory_bytes"] > 0, made.text
    body = {"model": "v8", "prompt": PROMPT, "max_tokens": 4, "seed": 1}
    assert ask("POST", "/v1/completions", key="bob", json=body).json()["model"] == "v8"
    assert ask("PUT", "/v1/aliases/chat", json={"deployments": "v8"}).status_code == 200
    assert ask("DELETE", "/v1/deployments/v8").status_code == 409  # an alias has a share of it
    assert ask("DELETE", "/v1/aliases/chat").status_code == 200
    # One that is deleted leaves when its answers have ended.
    leaving = lambda: int(re.search(r"^lockstep_deployments_leaving (\d+)$", ask("GET", "/metrics").text, re.M)[1])  # noqa: E731
    held = ask("POST", "/v1/completions", json={**body, "max_tokens": 8, "ignore_eos": True, "stream": True, "hold": {"every": 2}}, stream=True)
    parts = (json.loads(line[6:]) for line in held.iter_lines() if line.startswith(b"data: {"))
    first = next(part for part in parts if part.get("hold"))
    assert leaving() == 0 and ask("DELETE", "/v1/deployments/v8").status_code == 200 and leaving() == 1
    assert ask("POST", f"/v1/streams/{first['id']}", json={"action": "stop"}).status_code == 200
    held.close()
    wait_for("it is gone", lambda: leaving() == 0)
    assert ask("POST", "/v1/completions", json=body).status_code == 404
    # The same from the command line, out of a store below the folder.
    lockstep("snapshot", "push", v8, tmp_path / "store", "--channel", "new")
    remote = ["--url", server.url, "--api-key", "ann-has-this-long-key", "--seconds", 60]
    assert ask("PUT", "/v1/aliases/chat", json={"deployments": "v7"}).status_code == 200
    told = json.loads(lockstep("deploy", "store/new", "--name", "v9", "--to", "chat", "--percent", 5, "--json", *remote).stdout)
    assert told["deployment"]["id"] == "v9" and told["alias"]["deployments"] == {"v7": 19, "v9": 1}, told
    assert lockstep("deploy", "v8", "--name", "v10", "--to", "chat", *remote).stdout == "v10 is deployed\nchat: v10:1\n"
    assert lockstep("rollback", "chat", *remote).stdout == "chat: v7:19,v9:1\n"
    assert json.loads(lockstep("rollback", "chat", "--json", *remote).stdout)["deployments"] == {"v10": 1}
    assert "did you mean 'chat'" in lockstep("rollback", "chta", *remote, status=1).stderr
    assert "403" in lockstep("rollback", "chat", "--url", server.url, "--api-key", "bob-has-this-long-key", status=1).stderr
    assert "has-this-long-key" not in "".join(server.errors)


def test_what_was_changed_is_there_after_a_restart(own_server, tmp_path):
    """Models and aliases that were changed over HTTP: after a kill they are as they were, from the snapshot that a channel pointed at then."""
    v7, v8 = folders(tmp_path)
    store, state = tmp_path / "store", tmp_path / "state"
    lockstep("snapshot", "push", v8, store, "--channel", "new")
    options = ["--name", "v7", "--deploy", f"gone={v8}", "--route", "old=v7", "--route", "kept=v7", "--deploy-folder", str(tmp_path), "--deploy-state", str(state)]
    server = own_server(*options, model=v7)

    def ask(method, path, **fields):
        told = requests.request(method, server.url + path, timeout=120, **fields)
        assert told.status_code == 200, told.text
        return told.json()

    made = ask("POST", "/v1/deployments", json={"name": "v8", "source": "store/new"})
    ask("POST", "/v1/deployments", json={"name": "v9", "source": "v8"})
    ask("PUT", "/v1/aliases/chat", json={"deployments": {"v7": 95, "v8": 5}})
    ask("PUT", "/v1/aliases/chat", json={"deployments": {"v7": 1, "v8": 3}})
    ask("DELETE", "/v1/aliases/old")
    ask("DELETE", "/v1/deployments/gone")
    aliases, told = ask("GET", "/v1/aliases")["data"], answer(server.url, "v8")
    server.stop(signal.SIGKILL)
    lockstep("snapshot", "push", v7, store, "--channel", "new")  # it points elsewhere now
    server = own_server(*options, model=v7)
    assert ask("GET", "/v1/aliases")["data"] == aliases
    rows = ask("GET", "/v1/deployments")["data"]
    assert [(row["id"], row["source"], row["snapshot"]) for row in rows[1:]] == [("v8", "store/new", made["snapshot"]), ("v9", "v8", None)]
    again = answer(server.url, "v8")
    assert lasting(again) == lasting(told) and again["snapshot"] == made["snapshot"]
    assert ask("POST", "/v1/aliases/chat/rollback")["deployments"] == {"v7": 95, "v8": 5}
    # One server a folder.
    assert "state" in lockstep("serve", "--model", v7, "--port", "0", "--deploy-state", state, status=1).stderr
    server.stop()
    # What is kept and no longer there is one error that says what to do.
    shutil.rmtree(v8)
    refused = lockstep("serve", "--model", v7, "--port", "0", *options, status=1).stderr
    assert "the deployment 'v9' of 'v8'" in refused and "or delete the file" in refused, refused
    assert "deploy-folder is missing" in lockstep("serve", "--model", v7, "--port", "0", "--deploy-state", state, status=2).stderr
    record = state / "deployments.json"
    record.write_text(record.read_text()[:-20])
    refused = lockstep("serve", "--model", v7, "--port", "0", "--deploy-folder", tmp_path, "--deploy-state", state, status=1).stderr
    assert "deployments.json' is damaged" in refused and "or delete it" in refused, refused
    record.unlink()
    server = own_server("--name", "v7", "--route", "old=v7", "--deploy-state", str(state), model=v7)
    assert [row["id"] for row in ask("GET", "/v1/aliases")["data"]] == ["old"]


def with_one_tensor_changed(before, folder):
    """A copy of a model of which the largest tensor is another; and the bytes of that, and of all, in bf16."""
    shutil.copytree(before, folder)
    content = bytearray((folder / "model.safetensors").read_bytes())
    (length,) = struct.unpack("<Q", content[:8])
    tensors = [t["data_offsets"] for name, t in json.loads(content[8 : 8 + length]).items() if name != "__metadata__"]
    begin, end = max(tensors, key=lambda offsets: offsets[1] - offsets[0])
    content[8 + length + begin] ^= 4
    (folder / "model.safetensors").write_bytes(content)
    return end - begin, sum(b - a for a, b in tensors)


def test_one_that_follows_its_channel_takes_each_snapshot(own_server, tmp_path):
    """With the bits of a server that was started on it; those that do not stay at what they were made of, though all have most tensors in common, which stand in
    memory once."""
    v7, v8 = folders(tmp_path)
    changed, whole = with_one_tensor_changed(v7, tmp_path / "near")
    store = tmp_path / "store"
    push = lambda folder, parent: json.loads(lockstep("snapshot", "push", folder, store, "--channel", "chat", "--parent", parent, "--profile", "cpu-bf16w", "--json").stdout)["id"]  # noqa: E731
    first = push(v7, "none")
    server = own_server("--name", "own", "--deploy", f"moves={store}/chat", "--deploy-follow", "moves", "--deploy", f"stays={store}/chat", "--deploy", f"near={tmp_path / 'near'}", "--route", "chat=moves", model=v7)
    before, near = answer(server.url, "moves"), answer(server.url, "near")
    assert before["snapshot"] == first and near["choices"] != before["choices"]
    lines = {row["id"]: row for row in requests.get(f"{server.url}/v1/deployments", timeout=30).json()["data"]}
    assert 0.95 * whole < lines["stays"]["shared_bytes"] < 1.05 * whole  # with padding, and equal norms once
    assert f'lockstep_deployment_shared_bytes{{deployment="stays"}} {lines["stays"]["shared_bytes"]}\n' in requests.get(f"{server.url}/metrics", timeout=30).text
    assert lines["stays"]["shared_bytes"] - lines["near"]["shared_bytes"] == lines["near"]["memory_bytes"] - lines["stays"]["memory_bytes"] == changed
    second = push(v8, first)
    wait_for("it has the second", lambda: answer(server.url, "moves")["snapshot"] == second)
    alone = own_server("--name", "moves", model=v8)
    for seed in (1, 2, 3):
        assert answer(server.url, "chat", seed=seed)["choices"] == answer(alone.url, "moves", seed=seed)["choices"]
        assert answer(server.url, "stays", seed=seed)["choices"] == answer(server.url, "own", seed=seed)["choices"]
    assert answer(server.url, "near")["choices"] == near["choices"]
    assert answer(server.url, "stays")["snapshot"] == first
    assert answer(server.url, "moves")["choices"] != before["choices"]
    rows = {row["id"]: row["snapshot"] for row in requests.get(f"{server.url}/v1/deployments", timeout=30).json()["data"]}
    assert rows == {"own": None, "moves": second, "stays": first, "near": None}
    hosted = {"model": "chat", "prompt": PROMPT, "max_tokens": 2}
    assert requests.post(f"{server.url}/inference/v1/completions", json=hosted, timeout=60).json()["model"] == f"moves@{second}"
    replicas = lambda: json.loads(lockstep("fleet", "status", f"{store}/chat", "--json", status=None).stdout)["replicas"]  # noqa: E731
    (replica,) = wait_for("its record says so", lambda: replicas() if [one["current"] for one in replicas()] == [second] else [])  # written behind the swap
    assert replica["name"].endswith("-moves")
    requests.put(f"{server.url}/v1/aliases/chat", json={"deployments": "own"}, timeout=30).raise_for_status()
    refused = requests.delete(f"{server.url}/v1/deployments/moves", timeout=30)
    assert refused.status_code == 409 and "follows a channel" in refused.text
    assert server.stop() == 0, "".join(server.errors)
    assert not list(tmp_path.glob("lockstep-deploy-*"))
    assert json.loads(lockstep("fleet", "status", f"{store}/chat", "--json", status=None).stdout)["replicas"] == []


def test_what_is_written_in_place_is_nobody_elses(own_server, tmp_path):
    """The server's own model follows with one copy of its weights, and shares them until it is written over; the other one's bits stay."""
    v7, v8 = folders(tmp_path)
    store = tmp_path / "store"
    lockstep("snapshot", "push", v7, store, "--channel", "chat", "--profile", "cpu-bf16w")
    server = own_server("--name", "own", "--follow", f"{store}/chat", "--swap-memory", "single", "--deploy", f"same={v7}", model=v7)
    before = {seed: answer(server.url, "same", seed=seed)["choices"] for seed in (1, 2, 3)}
    assert all(answer(server.url, "own", seed=seed)["choices"] == choices for seed, choices in before.items())
    assert {row["id"]: row["shared_bytes"] for row in requests.get(f"{server.url}/v1/deployments", timeout=30).json()["data"]}["same"] > 10**6
    for folder, base in ((v8, v7), (stepped(v8, tmp_path / "v9", 5), v8)):
        second = json.loads(lockstep("snapshot", "push", folder, store, "--channel", "chat", "--base", base, "--profile", "cpu-bf16w", "--json").stdout)["id"]
        wait_for("it has the next", lambda second=second: answer(server.url, "own")["snapshot"] == second)
        alone = own_server("--name", "own", model=folder)
        for seed, choices in before.items():
            assert answer(server.url, "same", seed=seed)["choices"] == choices
            assert answer(server.url, "own", seed=seed)["choices"] == answer(alone.url, "own", seed=seed)["choices"] != choices
        alone.stop()
    assert {row["id"]: row["shared_bytes"] for row in requests.get(f"{server.url}/v1/deployments", timeout=30).json()["data"]}["same"] < 1000  # of tensors that no step changes


def in_memory(url):
    return [row["id"] for row in requests.get(f"{url}/v1/deployments", timeout=30).json()["data"] if row["state"] == "ready"]


def test_ten_models_of_which_three_are_in_memory(own_server, tmp_path):
    """Each answers the `openai` client with the bits that it has alone, whoever had to make room; nobody is lost among concurrent requests; what nobody asks leaves."""
    v7, v8 = folders(tmp_path)
    store = tmp_path / "store"
    lockstep("snapshot", "push", v8, store, "--channel", "chat", "--parent", "none")
    sources = {f"m{i}": (v7, v8, f"{store}/chat")[i % 3] for i in range(9)}
    many = [word for name, source in sources.items() for word in ("--deploy", f"{name}={source}")]
    # Of which each takes some 45 MB.
    server = own_server("--cache-megabytes", "8", "--threads", "1", "--memory-megabytes", "260", *many, "--scale-to-zero-minutes", "60", "--cold-start-seconds", "60", model=v7)
    assert len(in_memory(server.url)) == 3
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120)
    assert [one.id for one in client.models.list()] == ["v7", *sources]
    alone = {folder: own_server("--name", "alone", model=folder) for folder in (v7, v8)}
    expected = {(folder, seed): answer(one.url, "alone", seed=seed)["choices"] for folder, one in alone.items() for seed in (1, 2)}
    assert expected[v7, 1] != expected[v8, 1]
    for one in alone.values():
        one.stop()

    def ask(name, seed):
        told = client.completions.create(model=name, prompt=PROMPT, max_tokens=12, seed=seed, temperature=1, logprobs=2, extra_body={"ignore_eos": True})
        assert told.model == name
        return json.loads(told.model_dump_json(exclude_unset=True))["choices"]

    right = lambda name, seed: ask(name, seed) == expected[v8 if sources[name] != v7 else v7, seed]  # noqa: E731
    for name in sources:
        assert right(name, 1), name
        assert len(in_memory(server.url)) <= 3 and {"v7", name} <= set(in_memory(server.url))
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        assert all(pool.map(lambda i: right(f"m{i % 9}", 1 + i % 2), range(18)))
    assert len(in_memory(server.url)) <= 3
    rows = requests.get(f"{server.url}/v1/deployments", timeout=30).json()["data"]
    assert sum(row["loads"] for row in rows) >= 7 and all(row["memory_bytes"] == 0 for row in rows if row["state"] == "asleep")
    # The same in metrics; what sleeps is known by who answers without a load.
    text = requests.get(f"{server.url}/metrics", timeout=30).text
    told = lambda what: {name: float(value) for name, value in re.findall(rf'^{what}{{deployment="(\w+)"}} (\S+)$', text, re.M)}  # noqa: E731
    assert told("lockstep_deployment_loads_total") == {row["id"]: row["loads"] for row in rows}
    assert told("lockstep_deployment_asleep") == {row["id"]: row["state"] == "asleep" for row in rows}
    assert told("lockstep_deployment_memory_bytes") == {row["id"]: row["memory_bytes"] for row in rows}
    assert 0 < sum(told("lockstep_deployment_memory_bytes").values()) < 260 << 20
    assert server.stop() == 0, "".join(server.errors)
    assert not list(tmp_path.glob("lockstep-deploy-*"))
    # What nobody asks leaves memory; who asks without waiting is told when to come again, which the client does by itself.
    server = own_server("--deploy", f"m={v8}", "--scale-to-zero-minutes", "0.05", model=v7)
    wait_for("it sleeps", lambda: in_memory(server.url) == ["v7"])
    claimed = lambda: float(re.search(r'lockstep_memory_claimed_bytes{category="deployments"} (\S+)', requests.get(f"{server.url}/metrics", timeout=30).text)[1])  # noqa: E731
    wait_for("its memory is given back", lambda: claimed() == 0)  # what it held goes after it
    refused = requests.post(f"{server.url}/v1/completions", json={"model": "m", "prompt": PROMPT}, timeout=30)
    assert refused.status_code == 503 and int(refused.headers["retry-after"]) >= 1 and refused.json()["error"]["code"] == "model_asleep"
    patient = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=5)
    assert patient.completions.create(model="m", prompt=PROMPT, max_tokens=2).model == "m"
    assert requests.get(f"{server.url}/v1/deployments", timeout=30).json()["data"][1]["loads"] == 1


@pytest.mark.parametrize("point", ["file.opened", "file.written", "file.synced", "file.renamed"])
def test_a_kill_leaves_the_old_or_the_new_record(own_server, tmp_path, monkeypatch, point):
    options = ["--name", "v7", "--route", "chat=v7", "--deploy-state", str(tmp_path / "state")]
    server = own_server(*options)
    requests.put(f"{server.url}/v1/aliases/first", json={"deployments": "v7"}, timeout=30).raise_for_status()
    server.stop()
    monkeypatch.setenv("LOCKSTEP_KILL_AT", f"{point}:1")
    server = own_server(*options)
    with pytest.raises(requests.ConnectionError):
        requests.put(f"{server.url}/v1/aliases/second", json={"deployments": "v7"}, timeout=30)
    assert server.process.wait(timeout=30) != 0
    monkeypatch.delenv("LOCKSTEP_KILL_AT")
    server = own_server(*options)
    names = [row["id"] for row in requests.get(f"{server.url}/v1/aliases", timeout=30).json()["data"]]
    assert names == (["chat", "first", "second"] if point == "file.renamed" else ["chat", "first"])


def test_what_is_wrong_is_told_in_one_sentence(tmp_path):
    v7, v8 = folders(tmp_path)
    for arguments, status, words in (
        (["--deploy", "v7"], 2, "deploy is 'v7', allowed is NAME=DIR"),
        (["--deploy", f"v7={v7}", "--deploy", f"v7={v8}"], 2, "deploy has the name 'v7' twice"),
        (["--deploy", f"v7={v7}", "--deploy-follow", "v8"], 2, "deploy-follow is 'v8', allowed is the name of a --deploy"),
        (["--deploy", f"v7={v7}", "--deploy-follow", "v7"], 2, "--follow is for that"),
        (["--deploy", f"v7={v7}", "--route", "chat=v7:x"], 2, "the weight of 'v7' is 'x'"),
        (["--deploy", f"v7={v7}", "--route", "chat=v9"], 1, "'v9', which is no deployment; known are 'v7'"),
        (["--deploy", f"v7={v7}", "--name", "x"], 2, "name is x, allowed is to leave it out"),
        (["--deploy", "v7=nowhere/at-all"], 1, "which is no folder here"),
        (["--deploy", "v7=nowhere"], 1, "is no model folder here"),
        ([], 2, "--model is missing"),
    ):
        done = lockstep("serve", "--port", "0", *arguments, status=status)
        assert words in done.stderr and "\n" not in done.stderr.strip().splitlines()[-1], done.stderr
    # Two do not fit where one does.
    one = lockstep("serve", "--port", "0", "--memory-megabytes", "140", "--cache-megabytes", "8", "--deploy", f"v7={v7}", *[word for i in range(20) for word in ("--deploy", f"m{i}={v8}")], status=1)
    assert "MB" in one.stderr and "deployment" in one.stderr, one.stderr
