"""The unmodified `fireworks-ai` package against a trainer and replicas that follow it: WeightSyncer points a fleet of three at each save, through a
replica or through the trainer; DeploymentSampler samples a replica with the bits that the trainer gives, under a name that says which snapshot. Through the
trainer each load goes over as its deployment says, and the deployment's ledger has the replicas. Without a trainer DeploymentManager has deployments and their
ledgers on any replica, and on a server of several models."""
import json
import shutil
import signal

import httpx
import pytest
from conftest import MODEL
from fireworks.training.sdk.deployment import DeploymentConfig, DeploymentManager
from fireworks.training.sdk.weight_syncer import WeightSyncer
from fireworks_tools import BASE, OTHER, bits, client_of, sample, scored, trained
from safetensors.torch import load_file, save_file
from store_tools import run

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


def ledger_of(server, model, key=KEY):
    answer = httpx.get(f"{server.url}/v1/{model}/ledger", headers={"X-API-Key": key})
    assert answer.status_code == 200, answer.text
    return answer.json()["entries"]


def pushed(store, folder, number):
    """Snapshot `number` of the shipped model, under a channel of its own: each has other numbers in one tensor than the one before."""
    place = shutil.copytree(MODEL, folder / f"step-{number}")
    tensors = load_file(place / "model.safetensors")
    tensors["model.norm.weight"] = tensors["model.norm.weight"] * (1 + 0.25 * number)
    save_file(tensors, place / "model.safetensors", metadata={"format": "pt"})
    run("snapshot", "push", place, store, "--channel", f"step-{number}", "--parent", f"step-{number - 1}" if number else "none", "--json")


def test_a_fleet_without_a_trainer_has_deployments(start_sampler, tmp_path):
    store = tmp_path / "store"
    start = lambda name: start_sampler("--follow", f"{store}/chat", "--replica", name)  # noqa: E731
    fleet = [start("r0"), start("r1")]
    for number in range(2):
        pushed(store, tmp_path, number)
    manager = DeploymentManager(api_key=KEY, base_url=fleet[0].url, inference_url=fleet[1].url, hotload_api_url=fleet[1].url)
    assert manager.get("rollouts") is None
    wanted = DeploymentConfig(deployment_id="rollouts", base_model=BASE, accept_shapeless_risk=True, hot_load_transition_type="SYNC")
    assert manager.create_or_get(wanted).state == "READY"
    assert manager.create_or_get(wanted).state == "READY"  # it is there
    model = f"accounts/{manager.account_id}/deployments/rollouts"
    told = lambda server: [(entry["identity"], entry["state"]) for entry in ledger_of(server, model)]  # noqa: E731
    assert told(fleet[0]) == told(fleet[1]) == []
    answers = set()
    for number in range(2):
        assert manager.hotload_and_wait(deployment_id="rollouts", base_model=BASE, snapshot_identity=f"step-{number}")
        for server in fleet:
            whole = httpx.post(f"{server.url}/inference/v1/completions", json={"model": model, "prompt": OTHER, "max_tokens": 2}).json()
            assert whole["model"] == f"{model}@step-{number}"
        answers.add(tuple(bits(sample(fleet[0].url, KEY, model).inference_logprobs)))
    assert len(answers) == 2
    assert json.loads((store / "channels/chat.json").read_text())["transition"] == "staged"
    assert told(fleet[0]) == told(fleet[1]) == [("step-0", "READY"), ("step-1", "READY")]
    last = ledger_of(fleet[0], model)[-1]
    assert {(row["name"], row["readiness"]) for row in last["replicas"]} == {("r0", True), ("r1", True)} and last["createTime"] <= last["endTime"]
    # Again it only waits; what is not there is an entry with its reason.
    assert manager.hotload_and_wait(deployment_id="rollouts", base_model=BASE, snapshot_identity="step-1")
    absent = httpx.post(f"{fleet[0].url}/hot_load/v1/models/hot_load", json={"identity": "absent"}, headers={"X-API-Key": KEY, "fireworks-deployment": model})
    assert absent.status_code == 404
    assert told(fleet[1]) == [("step-0", "READY"), ("step-1", "READY"), ("absent", "FAILED")] and "absent" in ledger_of(fleet[1], model)[-1]["error"]
    # One that was killed is not missed: another one has it all.
    fleet[0].process.send_signal(signal.SIGKILL)
    late = start("r2")
    other = DeploymentManager(api_key=KEY, base_url=late.url, inference_url=late.url, hotload_api_url=late.url)
    assert other.get("rollouts").state == "READY" and told(late) == told(fleet[1])
    assert httpx.get(f"{late.url}/v1/{model}", headers={"X-API-Key": "another"}).status_code == 404
    other.update("rollouts", body={"description": "now"}, update_mask="description")
    assert httpx.get(f"{fleet[1].url}/v1/{model}", headers={"X-API-Key": KEY}).json()["description"] == "now"
    assert httpx.delete(f"{late.url}/v1/{model}/ledger", headers={"X-API-Key": KEY}).status_code == 200 and told(fleet[1]) == []
    other.delete("rollouts")
    assert httpx.get(f"{fleet[1].url}/v1/{model}", headers={"X-API-Key": KEY}).status_code == 404


def test_a_server_of_several_models_has_deployments(start_sampler, tmp_path):
    start = lambda: start_sampler("--deploy", f"v7={MODEL}", "--deploy", f"v8={MODEL}", "--deploy-state", str(tmp_path / "state"), model=None)  # noqa: E731
    server = start()
    managed = lambda: DeploymentManager(api_key=KEY, base_url=server.url, inference_url=server.url, hotload_api_url=server.url)  # noqa: E731
    manager = managed()
    with pytest.raises(Exception, match="404"):
        manager.create_or_get(DeploymentConfig(deployment_id="rollouts", base_model="v9", accept_shapeless_risk=True))
    manager.create_or_get(DeploymentConfig(deployment_id="rollouts", base_model="v8", accept_shapeless_risk=True))
    model = f"accounts/{manager.account_id}/deployments/rollouts"
    ask = lambda name: httpx.post(f"{server.url}/inference/v1/completions", json={"model": name, "prompt": OTHER, "max_tokens": 4, "temperature": 0}, headers={"X-API-Key": KEY})  # noqa: E731
    first = ask(model).json()
    assert first["choices"] == ask("v8").json()["choices"] and first["model"] == model
    assert ask("accounts/local/deployments/never").status_code == 404
    assert server.stop() == 0
    server = start()
    assert ask(model).json()["choices"] == first["choices"] and ledger_of(server, model) == []
    managed().delete("rollouts")
    assert managed().get("rollouts") is None and ask(model).status_code == 404
