"""The unmodified `fireworks-ai` package against a trainer and three replicas that follow it, all behind Debian's nginx under one URL: WeightSyncer,
DeploymentManager and DeploymentSampler. One replica cannot read what is to be loaded, which is an error with the target's name; another is killed, which
is listed as lost and not counted."""
import shutil
import time
from pathlib import Path

import httpx
from fireworks.training.sdk.deployment import DeploymentConfig, DeploymentManager
from fireworks.training.sdk.weight_syncer import WeightSyncer
from fireworks_tools import BASE, OTHER, bits, client_of, same_bits, sample, trained
from store_tools import nginx

KEY = "fleet"
PLACES = """proxy_http_version 1.1; proxy_buffering off; proxy_set_header Host $http_host; client_max_body_size 0; add_header X-Upstream $upstream_addr;
location /hot_load/ {{ proxy_pass http://replicas; }} location /inference/ {{ proxy_pass http://replicas; }} location / {{ proxy_pass http://127.0.0.1:{trainer}; }}"""


def view_of(store, folder):
    """A folder through which one replica sees the store: its objects can be made others."""
    (store / "replicas").mkdir(exist_ok=True)
    folder.mkdir()
    shutil.copy(store / ".lockstep", folder)
    for inner in ("channels", "manifests", "objects", "replicas"):
        (folder / inner).symlink_to(store / inner)
    return folder


def show_objects(view, folder):
    (view / "objects").unlink()
    (view / "objects").symlink_to(folder)


def files_of(folder):
    return {path.relative_to(folder) for path in Path(folder).rglob("*") if path.is_file()}


def wait_for(what, until, seconds=60):
    deadline = time.monotonic() + seconds
    while not (value := until()):
        assert time.monotonic() < deadline, f"{what} did not come to pass in {seconds} seconds"
        time.sleep(0.1)
    return value


def test_three_replicas_behind_nginx_of_which_one_fails_and_one_is_killed(start_server, start_sampler, tmp_path):
    store = tmp_path / "store"
    trainer = start_server("--publish", f"{store}/chat")
    view = view_of(store, tmp_path / "view")
    fleet = [start_sampler("--follow", f"{place}/chat", "--replica", f"r{i}") for i, place in enumerate((store, store, view))]
    (tmp_path / "nginx").mkdir()
    upstream = "upstream replicas {{ {} }}".format(" ".join(f"server 127.0.0.1:{one.port};" for one in fleet))
    with nginx(tmp_path / "nginx", PLACES.format(trainer=trainer.port), upstream) as front:
        policy = client_of(front, KEY)
        manager = DeploymentManager(api_key=KEY, base_url=front, inference_url=front, hotload_api_url=front)
        manager.create_or_get(DeploymentConfig(deployment_id="rollouts", base_model=BASE, accept_shapeless_risk=True))
        syncer = WeightSyncer(policy_client=policy, deploy_mgr=manager, deployment_id="rollouts", base_model=BASE)
        model = f"accounts/{manager.account_id}/deployments/rollouts"

        def rows():
            return manager.hotload_check_status("rollouts", BASE)["replicas"]

        def asked(times):
            """Which replicas answered, and under which names."""
            answers = [httpx.post(f"{front}/inference/v1/completions", json={"model": model, "prompt": OTHER, "max_tokens": 2}) for _ in range(times)]
            assert all(answer.status_code == 200 for answer in answers)
            upstreams = {answer.headers["x-upstream"].split(", ")[-1] for answer in answers}  # of several, the one that answered
            return {int(one.rpartition(":")[2]) for one in upstreams}, {answer.json()["model"] for answer in answers}

        trained(policy, steps=1, rate=1e-3)
        first = syncer.save_and_hotload("step-0")
        assert first and first.startswith("step-0-")
        told = rows()
        assert [row["name"] for row in told] == ["r0", "r1", "r2"]
        assert all(row["readiness"] and row["current_snapshot_identity"] == first and row["loading_state"]["stage"] == "ready" for row in told)
        assert asked(6) == ({one.port for one in fleet}, {f"{model}@{first}"})
        before = sample(front, KEY, model)
        assert all(same_bits(policy, sample(front, KEY, model)) for _ in range(3))

        # r2 sees a damaged object, and r1 is killed: no other replica waits for them, and the load is an error with the target's name.
        trained(policy, steps=1, rate=1e-3)
        sound = files_of(store / "objects")
        second = syncer.save_only("step-1")
        damaged = shutil.copytree(store / "objects", tmp_path / "damaged")
        for path in files_of(damaged) - sound:
            content = bytearray((damaged / path).read_bytes())
            content[len(content) // 2] ^= 1
            (damaged / path).write_bytes(content)
        show_objects(view, damaged)
        fleet[1].process.kill()
        assert not syncer.hotload(second, "delta")
        assert second in manager.last_hotload_error_message and "stage=error" in manager.last_hotload_error_message

        def r0_has_it():
            told = rows()
            return told if {row["name"]: row["current_snapshot_identity"] for row in told} == {"r0": second, "r1": first, "r2": first} else None

        slowest = wait_for("r0 has the second", r0_has_it)[0]
        assert slowest["name"] == "r2" and slowest["loading_state"]["stage"] == "error" and slowest["loading_state"]["target_snapshot_identity"] == second
        assert "has the digest" in slowest["loading_state"]["message"] and "tensor" in slowest["loading_state"]["message"]
        # Requests find the replicas that are there, and each answer has the bits of the snapshot that it names.
        assert asked(4) == ({fleet[0].port, fleet[2].port}, {f"{model}@{first}", f"{model}@{second}"})
        of_new = []
        for completion in [sample(front, KEY, model) for _ in range(4)]:
            of_new.append(same_bits(policy, completion))
            assert of_new[-1] or bits(completion.inference_logprobs) == bits(before.inference_logprobs)
        assert set(of_new) == {True, False}

        # It heals by itself once it can read what it needs. Then the load waits for the killed one until that is lost.
        show_objects(view, store / "objects")
        wait_for("r2 has the second", lambda: {row["name"]: row["current_snapshot_identity"] for row in rows()}["r2"] == second)
        assert syncer.hotload(second, "delta")
        told = rows()
        assert [row["name"] for row in told] == ["r0", "r2", "r1"]
        assert told[2]["loading_state"]["stage"] == "lost" and not told[2]["readiness"] and told[2]["current_snapshot_identity"] == first
        assert all(row["readiness"] and row["current_snapshot_identity"] == second for row in told[:2])
        assert all(same_bits(policy, sample(front, KEY, model)) for _ in range(2))

        trained(policy, steps=1, rate=1e-3)
        third = syncer.save_and_hotload("step-2")  # nobody waits for the lost one now
        assert asked(4) == ({fleet[0].port, fleet[2].port}, {f"{model}@{third}"})
        assert all(same_bits(policy, sample(front, KEY, model)) for _ in range(2))
