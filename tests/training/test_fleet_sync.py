"""The unmodified `fireworks-ai` package against a trainer and replicas that follow it: WeightSyncer points a fleet of three at each save, through a
replica or through the trainer; DeploymentSampler samples a replica with the bits that the trainer gives, under a name that says which snapshot. Through the
trainer each load goes over as its deployment says, and the deployment's ledger has the replicas."""
import json

import httpx
import pytest
from fireworks.training.sdk.deployment import DeploymentConfig, DeploymentManager
from fireworks.training.sdk.weight_syncer import WeightSyncer
from fireworks_tools import BASE, OTHER, bits, client_of, sample, scored, trained

KEY = "fleet"
TRANSITIONS = {"SYNC": "staged", "ASYNC": "immediate"}  # of a deployment, and in the channel's record


@pytest.mark.parametrize("through", ["replica", "trainer"])
@pytest.mark.parametrize("rank", [0, 4])
def test_a_fleet_is_synced(start_server, start_sampler, tmp_path, through, rank):
    place = f"{tmp_path}/store/chat"
    trainer = start_server("--publish", place)
    fleet = [start_sampler("--follow", place, "--replica", f"r{i}") for i in range(3)]
    url = trainer.url if through == "trainer" else fleet[0].url
    policy = client_of(trainer.url, KEY, **({"lora_rank": rank} if rank else {}))
    manager = DeploymentManager(api_key=KEY, base_url=trainer.url, inference_url=fleet[1].url, hotload_api_url=url)
    manager.create_or_get(DeploymentConfig(deployment_id="rollouts", base_model=BASE, accept_shapeless_risk=True, hot_load_transition_type="SYNC"))
    syncer = WeightSyncer(policy_client=policy, deploy_mgr=manager, deployment_id="rollouts", base_model=BASE, lora_rank=rank)
    model = f"accounts/{manager.account_id}/deployments/rollouts"
    ask = lambda method, more="", **body: httpx.request(method, f"{trainer.url}/v1/{model}{more}", headers={"X-API-Key": KEY}, **body).json()  # noqa: E731
    for step, way in enumerate(("SYNC", "ASYNC", "SYNC")):
        if step:
            assert ask("PATCH", json={"hotLoadTransitionType": way})["hotLoadTransitionType"] == way
        trained(policy, steps=1, rate=1e-3)
        assert syncer.save_and_hotload(f"step-{step}")
        rows = manager.hotload_check_status("rollouts", BASE)["replicas"]
        assert len(rows) == 3 and len({row["current_snapshot_identity"] for row in rows}) == 1
        assert all(row["readiness"] and row["loading_state"]["stage"] == "ready" for row in rows)
        identity = rows[0]["current_snapshot_identity"]
        assert identity.startswith(f"step-{step}-")
        if through == "trainer":
            assert json.loads((tmp_path / "store/channels/chat.json").read_text())["transition"] == TRANSITIONS[way]
        for server in fleet:
            completion = sample(server.url, KEY, model)
            assert bits(completion.inference_logprobs) == bits(scored(policy, list(completion.full_tokens))[3:])
            whole = httpx.post(f"{server.url}/inference/v1/completions", json={"model": model, "prompt": OTHER, "max_tokens": 2}).json()
            assert whole["model"] == f"{model}@{identity}"
    if through == "trainer":  # the deployment's; a replica keeps none
        entries = ask("GET", "/ledger")["entries"]
        assert len(entries) == 3 and entries[-1]["identity"] == identity and [entry["replicas"] for entry in entries[:2]] == [[], []], entries
        assert sorted((row["name"], row["readiness"], row["stage"]) for row in entries[-1]["replicas"]) == [(f"r{i}", True, "ready") for i in range(3)], entries
        ask("DELETE", "/ledger")
        assert ask("GET", "/ledger")["entries"] == []
    # One that is not there leaves them as they are.
    missing = httpx.post(f"{fleet[2].url}/hot_load/v1/models/hot_load", json={"identity": "absent"})
    assert missing.status_code == 404 and "absent" in missing.text
    assert all(row["current_snapshot_identity"] == identity for row in manager.hotload_check_status("rollouts", BASE)["replicas"])
