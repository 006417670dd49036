"""The unmodified `fireworks-ai` package against a trainer and three replicas behind Debian's nginx: WeightSyncer, DeploymentManager and DeploymentSampler know the
balancer's address alone, while one replica cannot take what all others take, and another one is killed."""
import shutil

import httpx
import pytest
from fireworks.training.sdk.deployment import DeploymentConfig, DeploymentManager
from fireworks.training.sdk.weight_syncer import WeightSyncer
from fireworks_tools import BASE, TOKENS, bits, client_of, sample, scored, trained
from store_tools import nginx

KEY = "balanced"


def view_of(store, place):
    """A second way to a store's folder; without its `objects` whoever uses it sees what there is, and cannot read it."""
    place.mkdir()
    shutil.copy(store / ".lockstep", place)
    for name in ("manifests", "channels", "replicas", "objects"):
        (place / name).symlink_to(store / name)
    return place


def test_replicas_behind_nginx(start_server, start_sampler, tmp_path):
    store = tmp_path / "store"
    trainer = start_server("--publish", f"{store}/chat")
    policy = client_of(trainer.url, KEY)
    (store / "replicas").mkdir(exist_ok=True)
    view = view_of(store, tmp_path / "view")
    fleet = [start_sampler("--follow", f"{place}/chat", "--replica", f"r{i}", "--quorum", "2") for i, place in enumerate((store, view, store))]
    servers = " ".join(f"server 127.0.0.1:{server.port};" for server in fleet)
    # A replica that is gone is passed over, posts too: a hot load may be repeated.
    balanced = "location / { proxy_pass http://replicas; proxy_next_upstream error timeout non_idempotent; proxy_read_timeout 120s; proxy_buffering off; }"
    with nginx(tmp_path, balanced, f"upstream replicas {{ {servers} }}") as url:
        manager = DeploymentManager(api_key=KEY, base_url=trainer.url, inference_url=url, hotload_api_url=url)
        manager.create_or_get(DeploymentConfig(deployment_id="rollouts", base_model=BASE, accept_shapeless_risk=True))
        syncer = WeightSyncer(policy_client=policy, deploy_mgr=manager, deployment_id="rollouts", base_model=BASE, hotload_timeout=40)
        model = f"accounts/{manager.account_id}/deployments/rollouts"
        expected = {}  # by snapshot: the trainer's log-probabilities of some tokens

        def trains():
            trained(policy, steps=1, rate=1e-3)
            return bits(scored(policy))

        def synced(step):
            logprobs = trains()
            name = syncer.save_and_hotload(f"step-{step}")
            expected[name] = logprobs
            return name

        def answers(most=6):
            """The snapshots that answers name; each has that snapshot's bits, whichever replica gave it."""
            names = []
            for _ in range(most):
                answer = httpx.post(f"{url}/inference/v1/completions", json={"model": model, "prompt": TOKENS, "max_tokens": 0, "echo": True, "logprobs": True}, timeout=60)
                assert answer.status_code == 200, answer.text
                names.append(answer.json()["model"].rpartition("@")[2])
                assert bits([row["logprob"] for row in answer.json()["choices"][0]["logprobs"]["content"]][1:]) == expected[names[-1]]
            return set(names)

        def stages():
            return {row["name"]: row["loading_state"]["stage"] for row in manager.hotload_check_status("rollouts", BASE)["replicas"]}

        first = synced(0)
        for server in fleet:  # two are enough for the fleet; all three come
            assert httpx.post(f"{server.url}/hot_load/v1/models/hot_load", json={"identity": first}, timeout=60).json()["ready"]
        assert set(stages()) == {"r0", "r1", "r2"}

        # One cannot take the next: the two others have it, which is the quorum, and the package goes on.
        (view / "objects").unlink()
        (view / "objects").mkdir()
        second = synced(1)
        completion = sample(url, KEY, model)
        assert len(list(completion.full_tokens)) > 4
        assert answers() <= {first, second}
        rows = {row["name"]: row for row in manager.hotload_check_status("rollouts", BASE)["replicas"]}
        assert all(rows[name]["readiness"] and rows[name]["current_snapshot_identity"] == second for name in ("r0", "r2"))

        # Another one is killed. With one of three the fleet cannot be ready, and the package says so; what is left still answers.
        fleet[2].process.kill()
        fleet[2].process.wait()
        assert answers() <= {first, second}
        third = trains()
        saved = policy.save_weights_for_sampler_ext("step-2", checkpoint_type="base").snapshot_name
        expected[saved] = third
        assert not manager.hotload_and_wait(deployment_id="rollouts", base_model=BASE, snapshot_identity=saved, timeout_seconds=30)
        failing = next(row for row in manager.hotload_check_status("rollouts", BASE)["replicas"] if row["name"] == "r1")
        assert failing["loading_state"]["stage"] == "error" and failing["loading_state"]["target_snapshot_identity"] == saved
        assert "object" in failing["loading_state"]["message"]

        # It heals by itself once it can read again.
        (view / "objects").rmdir()
        (view / "objects").symlink_to(store / "objects")
        fourth = synced(3)
        assert fourth and answers() == {fourth}
        completion = sample(url, KEY, model)
        assert bits(completion.inference_logprobs) == bits(scored(policy, list(completion.full_tokens))[3:])
