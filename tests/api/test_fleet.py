"""Replicas as processes follow a channel of a store: all get each snapshot, one that is killed is listed as lost and not counted; 64 streams of the
`openai` client go through 20 swaps in each way of going on, and what they say is what fresh requests say under the snapshots that their events name."""
import json
import os
import re
import shutil
import struct
import subprocess
import threading
import time

import httpx
import openai
import pytest
from conftest import MODEL, REPOSITORY

BINARY = os.environ.get("LOCKSTEP_BINARY", str(REPOSITORY / "build/lockstep"))
NAME = "countdown-glm"
PROMPT = "3 7 12=48:"


def lockstep(*arguments, status=0):
    done = subprocess.run([BINARY, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert status is None or done.returncode == status, f"{arguments}: {done.returncode}\n{done.stderr}"
    return done


def stepped(before, folder, number):
    """A copy of a model in which some weights are a few units in the last place away: as a step of training leaves it."""
    shutil.copytree(before, folder)
    content = bytearray((folder / "model.safetensors").read_bytes())
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    for name, tensor in header.items():
        if name == "__metadata__" or tensor["dtype"] != "BF16":
            continue
        begin, end = (8 + length + offset for offset in tensor["data_offsets"])
        for at in range(begin + 2 * (number % 7), end - 2, 2 * 23):
            content[at] ^= 4  # the third lowest bit of a bf16
    (folder / "model.safetensors").write_bytes(content)
    return folder


def unstepped_bytes(folder):
    """Of the tensors that stepped() does not change."""
    content = (folder / "model.safetensors").read_bytes()
    header = json.loads(content[8 : 8 + struct.unpack("<Q", content[:8])[0]])
    return sum(tensor["data_offsets"][1] - tensor["data_offsets"][0] for name, tensor in header.items() if name != "__metadata__" and tensor["dtype"] != "BF16")


def pushed(store, folder, channel, parent, *more):
    """What the command says of it."""
    return json.loads(lockstep("snapshot", "push", folder, store, "--channel", channel, "--parent", parent, "--profile", "cpu-bf16w", "--json", *more).stdout)


def push(*arguments):
    return pushed(*arguments)["id"]


def figures(server):
    """{name{labels}: value} of /metrics"""
    return {match[1]: float(match[2]) for match in re.finditer(r"^([^#\s]\S*(?:\{.*\})?) (\S+)$", httpx.get(f"{server.url}/metrics").text, re.M)}


def complete(url, prompt=PROMPT, most=12, seed=5, model=NAME, client=httpx):
    body = {"model": model, "prompt": prompt, "max_tokens": most, "seed": seed, "temperature": 1, "logprobs": 0, "ignore_eos": True}
    answer = client.post(f"{url}/v1/completions", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    return answer.json()


def told(answer):
    choice = answer["choices"][0]
    return choice["token_ids"], choice["logprobs"]["token_logprobs"], choice["sampling_logprobs"]


def wait_for(what, until, seconds=120, pause=0.1):
    deadline = time.monotonic() + seconds
    while not (value := until()):
        assert time.monotonic() < deadline, f"{what} did not come to pass in {seconds} seconds"
        time.sleep(pause)
    return value


def status(place, *more):
    done = lockstep("fleet", "status", place, "--json", *more, status=None)
    state = json.loads(done.stdout)
    assert state["ready"] == (done.returncode == 0)
    return state


@pytest.fixture
def replicas(own_server):
    return lambda place, *more, name: own_server("--follow", place, "--replica", name, *more)


def test_three_replicas_follow_and_one_is_killed(tmp_path, replicas, own_server):
    store, place = tmp_path / "store", f"{tmp_path}/store/chat"
    servers = [replicas(place, "--swap-memory", memory, name=f"r{i}") for i, memory in enumerate(("double", "single", "double"))]
    folder, began = stepped(MODEL, tmp_path / "step-0", 0), time.monotonic()
    said = [pushed(store, folder, "chat", "none")]
    ids = [said[0]["id"]]
    have_it = lambda: [r["current"] for r in status(place)["replicas"]] == 3 * [ids[-1]]  # noqa: E731
    wait_for("all have the first", have_it)  # else one that was slow to look would go to the second at once
    for number in (1, 2):
        folder = stepped(folder, tmp_path / f"step-{number}", number)
        said.append(pushed(store, folder, "chat", ids[-1]))
        ids.append(said[-1]["id"])
        wait_for("all have the next", have_it)
        wait_for("the fleet is ready", lambda: status(place)["ready"])
    plain = own_server(model=folder)
    expected = told(complete(plain.url, model="step-2"))
    plain.stop()
    for server in servers:
        answer = complete(server.url)
        assert answer["snapshot"] == ids[-1] and told(answer) == expected
    state = status(place)
    assert [r["name"] for r in state["replicas"]] == ["r0", "r1", "r2"] and state["target"] == ids[-1]
    assert all(r["current"] == ids[-1] and r["stage"] == "ready" and 0 < r["downloaded_bytes"] < r["full_bytes"] / 4 for r in state["replicas"])

    servers[1].process.kill()
    folder = stepped(folder, tmp_path / "step-3", 3)
    said.append(pushed(store, folder, "chat", ids[-1]))
    ids.append(said[-1]["id"])
    living = lambda: [r for r in status(place)["replicas"] if r["name"] != "r1" and r["current"] == ids[-1]]  # noqa: E731
    wait_for("two have it", lambda: len(living()) == 2)
    assert status(place, "--quorum", "2")["ready"]
    # Silent for ten seconds it is lost: listed, and not waited for. Any replica says so.
    lines = lockstep("fleet", "watch", place, "--until-ready", "--seconds", 120, "--json").stdout.splitlines()
    assert json.loads(lines[-1])["ready"]
    for server in (servers[0], servers[2]):
        rows = httpx.get(f"{server.url}/hot_load/v1/models/hot_load").json()["replicas"]
        assert [row["name"] for row in rows] == ["r0", "r2", "r1"]
        assert rows[2]["loading_state"]["stage"] == "lost" and not rows[2]["readiness"]
        assert all(row["readiness"] and row["current_snapshot_identity"] == ids[-1] for row in rows[:2])
        now, took = figures(server), time.monotonic() - began
        assert now['lockstep_sync_stage{stage="ready"}'] == 1 == sum(value for name, value in now.items() if name.startswith("lockstep_sync_stage{"))
        assert now["lockstep_sync_swaps_total"] == 4 == now["lockstep_sync_current_sequence"] == now["lockstep_sync_target_sequence"] and now["lockstep_sync_errors_total"] == 0
        # All that was pushed but for what it had: tensors that a step leaves as they are.
        assert now["lockstep_sync_downloaded_bytes_total"] == sum(one["payload_bytes"] for one in said) - unstepped_bytes(MODEL)
        assert now["lockstep_sync_full_bytes_total"] == sum(one["full_bytes"] for one in said)
        assert 0 < now["lockstep_sync_swap_seconds"] <= now["lockstep_sync_ready_seconds"] < took


def test_a_store_over_http_is_followed(tmp_path, replicas, own_server):
    """It is read alone: the replica follows, and no fleet sees it."""
    store = tmp_path / "store"
    folder = stepped(MODEL, tmp_path / "step-0", 0)
    ids = [push(store, folder, "chat", "none")]
    source = own_server("--store", str(store))
    server = replicas(f"{source.url}/store/chat", "--downloads", str(tmp_path / "near"), name="far")
    wait_for("it has the first", lambda: complete(server.url).get("snapshot") == ids[0])
    ids.append(push(store, stepped(folder, tmp_path / "step-1", 1), "chat", ids[0]))
    wait_for("it has the second", lambda: complete(server.url).get("snapshot") == ids[1])
    wait_for("what came is given back", lambda: not (tmp_path / "near").exists())
    assert status(f"{store}/chat")["replicas"] == []
    source.stop()  # the replica goes on
    assert complete(server.url)["snapshot"] == ids[1]
    wait_for("it says so", lambda: figures(server)['lockstep_sync_stage{stage="error"}'] == 1)


SWAPS = 20


@pytest.fixture(scope="module")
def twenty(tmp_path_factory):
    """A store of twenty snapshots, each a step from the one before, under the channels s0 to s19."""
    work = tmp_path_factory.mktemp("twenty")
    folder, parent = MODEL, "none"
    for number in range(SWAPS):
        folder = stepped(folder, work / f"step-{number}", number)
        parent = push(work / "store", folder, f"s{number}", parent)
    return work / "store"


@pytest.mark.parametrize("mode", ["continue", "finish", "reprefill"])
def test_streams_go_through_swaps(twenty, replicas, mode):
    # A swap that lets streams finish waits for their ends. Between two swaps come some tokens of each stream, and a stream sees several swaps.
    streams, swaps, length, between = 64, SWAPS, 24 if mode == "finish" else 120, 6
    store = twenty
    server = replicas(f"{store}/{mode}", "--in-flight", mode, name="one")
    hot_load = f"{server.url}/hot_load/v1/models/hot_load"
    post = httpx.Client()

    def load(number):
        answer = post.post(hot_load, json={"identity": f"s{number}"}, timeout=120)
        assert answer.status_code == 200 and answer.json()["ready"], answer.text

    load(0)
    names = {}  # of snapshots
    begun, over, failures, said = threading.Semaphore(0), threading.Event(), [], []  # said: [seed, events] of each stream
    heard = []  # one for each event of any stream
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=300)

    def stream(seed):
        try:
            while True:
                own = [seed, []]
                for event in client.completions.create(model=NAME, prompt=PROMPT, max_tokens=length, seed=seed, temperature=1, logprobs=0, stream=True, extra_body={"ignore_eos": True}):
                    choice, extra = event.choices[0], event.model_extra
                    own[1].append((choice.model_extra["token_ids"], choice.logprobs.token_logprobs if choice.logprobs else [], extra["snapshot"], extra.get("mixed_versions", False)))
                    heard.append(seed)
                    if len(own[1]) == 3 and seed < streams:
                        begun.release()
                said.append(own)
                seed += streams
                if over.is_set():
                    return
        except Exception as error:  # noqa: BLE001
            failures.append(f"stream {seed}: {error!r}")
            begun.release()

    threads = [threading.Thread(target=stream, args=[i]) for i in range(streams)]
    for thread in threads:
        thread.start()
    for _ in threads:
        begun.acquire()
    for number in (*range(1, swaps), 0):  # the twentieth swap: back to the first
        load(number)
        before = len(heard)
        wait_for("tokens come", lambda: failures or len(heard) >= before + between * streams, pause=0.02)  # noqa: B023
    over.set()
    for thread in threads:
        thread.join()
    assert not failures, failures
    mixed_tokens = figures(server)["lockstep_engine_mixed_version_tokens_total"]
    for number in range(swaps):
        names[json.loads(lockstep("snapshot", "show", store, f"s{number}", "--json").stdout)["id"]] = number
    prompt = post.post(f"{server.url}/v1/tokenize", json={"model": NAME, "prompt": PROMPT}).json()["tokens"]

    # Each stream in parts of one snapshot: (number of the snapshot, seed, tokens before it, tokens, log-probabilities, mixed)
    parts, alone, marked = [], 0, 0
    for seed, events in said:
        before, last = [], None
        for tokens, logprobs, snapshot, mixed in events:
            if not tokens:
                continue
            if (snapshot, mixed) != last:
                parts.append((names[snapshot], seed, list(before), [], [], mixed))
                last = (snapshot, mixed)
            parts[-1][3].extend(tokens)
            parts[-1][4].extend(logprobs)
            before.extend(tokens)
        assert len(before) == length, f"stream {seed} has {len(before)} tokens"
        marked += sum(len(tokens) for tokens, _, _, mixed in events if mixed)
        alone += len(parts[-1][3]) == length
    assert mixed_tokens == marked and (marked > 0) == (mode == "continue"), ("lockstep_engine_mixed_version_tokens_total", mixed_tokens, marked)
    assert len({part[0] for part in parts}) > 5  # of 20 snapshots, which come faster than a slow machine makes a step
    assert alone == len(said) if mode == "finish" else alone < len(said)
    compared = {mixed: [part for part in parts if part[5] == mixed] for mixed in (False, True)}
    compared = {mixed: own[:: 1 + len(own) // most] for (mixed, own), most in zip(compared.items(), (80, 12))}  # enough of them
    equal = different = loaded = 0
    for number, seed, before, tokens, logprobs, mixed in sorted(compared[False] + compared[True]):
        if number != loaded:
            load(number)
            loaded = number
        fresh = complete(server.url, prompt + before, most=len(tokens), seed=seed, client=post)
        assert names[fresh["snapshot"]] == number
        same = fresh["choices"][0]["token_ids"] == tokens and fresh["choices"][0]["logprobs"]["token_logprobs"] == logprobs
        equal, different = equal + same, different + (not same)
        assert same or mixed, f"stream {seed} from token {len(before)} on is not what a fresh request says, and is not marked"
    assert equal >= 40
    if mode == "continue":
        assert compared[True] and different > 0  # the control: the comparison sees what old keys and values do
    else:
        assert not compared[True] and different == 0
