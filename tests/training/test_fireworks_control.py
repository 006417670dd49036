"""The control plane around a trainer, through the `fireworks-ai` package: what outlives a restart, promotion, jobs, the managed service."""
import signal
import time

import pytest
import requests
from fireworks.training.sdk import FiretitanServiceClient, TrainerJobManager
from fireworks.training.sdk.trainer import TrainerJobConfig
from fireworks.training.sdk.weight_syncer import WeightSyncer
import fireworks.training.sdk.types as types

from fireworks_tools import BASE, TOKENS, Deployed, bits, client_of, datum, same_bits, sample, scored, served, trained

KEY = "control"


def restarted(start, server, how):
    server.stop(how)
    return start()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("rank", [0, 8])
def test_deployments_outlive_the_server(start_server, how, rank):
    first = start_server()
    policy = client_of(first.url, KEY, lora_rank=rank)
    deployment = Deployed(first.url, KEY, "lasting")
    untouched = Deployed(first.url, KEY, "untouched")
    syncer = WeightSyncer(policy_client=policy, deploy_mgr=deployment.manager, deployment_id="lasting", base_model=BASE, lora_rank=rank)
    trained(policy)
    snapshot = syncer.save_and_hotload("one")
    before, base = deployment.sample(), untouched.sample()
    assert same_bits(policy, before) and bits(before.inference_logprobs) != bits(base.inference_logprobs)
    policy.save_state("kept").result()

    second = restarted(start_server, first, how)
    again = Deployed(second.url, KEY, "lasting")
    assert again.replica() == {"readiness": True, "current_snapshot_identity": snapshot, "loading_state": {"stage": "ready", "target_snapshot_identity": snapshot}}
    after = again.sample()
    assert list(after.full_tokens) == list(before.full_tokens) and bits(after.inference_logprobs) == bits(before.inference_logprobs)
    assert bits(Deployed(second.url, KEY, "untouched").sample().inference_logprobs) == bits(base.inference_logprobs)
    resumed = client_of(second.url, KEY, lora_rank=rank)
    resumed.load_state_with_optimizer("kept").result()
    assert same_bits(resumed, after)


def test_a_snapshot_that_is_not_there_leaves_the_deployment_as_it_was(training_server):
    policy = client_of(training_server.url, "heal")
    deployment = Deployed(training_server.url, "heal", "heal")
    trained(policy, steps=1)
    good = policy.save_weights_for_sampler_ext("good").snapshot_name
    deployment.load(good)
    before = deployment.sample()
    assert not deployment.manager.hotload_and_wait(deployment_id="heal", base_model=BASE, snapshot_identity="absent", timeout_seconds=20)
    assert deployment.replica()["loading_state"] == {"stage": "error", "target_snapshot_identity": "absent", "message": "there is no checkpoint 'absent'"}
    assert deployment.replica()["current_snapshot_identity"] == good
    assert bits(deployment.sample().inference_logprobs) == bits(before.inference_logprobs)
    trained(policy, steps=1)
    deployment.load(policy.save_weights_for_sampler_ext("healed", checkpoint_type="base").snapshot_name)
    assert same_bits(policy, deployment.sample())


def test_more_snapshots_than_memory_holds_take_turns_on_disk(start_server):
    server = start_server("--sampler-megabytes", "0")
    policy, deployments, first = client_of(server.url, KEY), [], []
    for name in ["a", "b", "c"]:
        trained(policy, steps=1)
        deployments.append(Deployed(server.url, KEY, name))
        deployments[-1].load(policy.save_weights_for_sampler_ext(name).snapshot_name)
        first.append(bits(deployments[-1].sample().inference_logprobs))
    assert first[0] != first[1] != first[2]
    for _ in range(2):
        assert [bits(d.sample().inference_logprobs) for d in deployments] == first


def test_another_keys_deployment_is_absent(training_server):
    deployment = Deployed(training_server.url, "owner-a", "private")
    assert Deployed(training_server.url, "owner-b", "private").replica()["current_snapshot_identity"] == ""
    deployment.manager.delete("private")
    assert deployment.manager.get("private") is None
    assert Deployed(training_server.url, "owner-b", "private").manager.get("private") is not None


def test_checkpoints_are_listed_and_promoted(start_server, tmp_path):
    server = start_server()
    policy = client_of(server.url, KEY)
    trained(policy)
    policy.save_state("state").result()
    base = policy.save_weights_for_sampler_ext("sampler").snapshot_name
    trained(policy, steps=1)
    delta = policy.save_weights_for_sampler_ext("later").snapshot_name
    manager = TrainerJobManager(api_key=KEY, base_url=server.url)
    rows = manager.list_checkpoints("local", page_size=2)
    assert [(r["name"].split("/")[-1], r["checkpointType"], r["promotable"]) for r in rows] == [
        ("state", "CHECKPOINT_TYPE_TRAINING", False),
        (base, "CHECKPOINT_TYPE_INFERENCE_BASE", True),
        (delta, "CHECKPOINT_TYPE_INFERENCE_ARC_V2", True)]
    with pytest.raises(Exception, match="there is no checkpoint"):
        manager.promote_checkpoint(name=rows[0]["name"], output_model_id="no", base_model=BASE)
    model = manager.promote_checkpoint(name=rows[2]["name"], output_model_id="promoted", base_model=BASE)
    assert model["name"] == "accounts/local/models/promoted" and model["kind"] == "HF_BASE_MODEL" and model["state"] == "READY"
    with pytest.raises(Exception, match="exists already"):
        manager.promote_checkpoint(name=rows[1]["name"], output_model_id="promoted", base_model=BASE)
    assert manager.model_is_moe(model["name"]) and manager.model_is_moe(f"accounts/local/models/{BASE}")

    sampled = sample(server.url, KEY, model["name"])
    assert same_bits(policy, sampled)
    with served(server, next((tmp_path / "state/models").glob("*/promoted")), tmp_path) as other:  # a model like any other
        assert bits(sample(other.url, KEY, "promoted").inference_logprobs) == bits(sampled.inference_logprobs)
    begun = FiretitanServiceClient(base_url=server.url, api_key=KEY).create_training_client(base_model=model["name"])
    assert bits(scored(begun)) == bits(scored(policy)) != bits(scored(client_of(server.url, KEY)))
    trained(begun, steps=1)
    with pytest.raises(Exception, match="allowed are whole weights, all of them trained"):
        FiretitanServiceClient(base_url=server.url, api_key=KEY).create_training_client(base_model=model["name"], lora_rank=8)

    again = restarted(start_server, server, signal.SIGTERM)
    listed = requests.get(f"{again.url}/v1/accounts/local/models", headers={"X-Api-Key": KEY}).json()["models"]
    assert [m["name"] for m in listed] == [f"accounts/local/models/{BASE}", model["name"]]
    assert bits(sample(again.url, KEY, model["name"]).inference_logprobs) == bits(sampled.inference_logprobs)
    deployed = Deployed(again.url, KEY, "of-promoted", base_model=model["name"])
    assert bits(deployed.sample().inference_logprobs) == bits(sampled.inference_logprobs)
    assert requests.delete(f"{again.url}/v1/accounts/local/models/promoted", headers={"X-Api-Key": KEY}).status_code == 200
    assert requests.get(f"{again.url}/v1/accounts/local/models/promoted", headers={"X-Api-Key": KEY}).status_code == 404


def test_jobs_live_end_and_come_back(start_server):
    server = start_server()
    manager = TrainerJobManager(api_key=KEY, base_url=server.url)
    assert manager.try_get("mine") is None
    wanted = TrainerJobConfig(base_model=BASE, lora_rank=8, requested_job_id="mine", max_context_length=256)
    endpoint = manager.create_and_wait(wanted)
    job = endpoint.job_id
    assert job == "mine" and endpoint.max_context_length == 256
    assert manager.create(wanted).job_id == "mine"  # it is there
    service = FiretitanServiceClient(base_url=endpoint.base_url, api_key=KEY)
    policy = service.create_training_client(base_model=BASE, lora_rank=8, seed=1)
    trained(policy)
    policy.save_state("kept").result()
    policy.save_weights_for_sampler_ext("sampled")
    assert policy.list_checkpoints() == ["kept"]
    assert len(manager.list_checkpoints(job)) == 2 and manager.list_checkpoints("local") == []
    expected = scored(policy)

    cancelled = requests.post(f"{server.url}/v1/accounts/local/rlorTrainerJobs/{job}:cancel", headers={"X-Api-Key": KEY})
    assert cancelled.json()["state"] == "JOB_STATE_CANCELLED"
    with pytest.raises(Exception):
        policy.forward([datum()], "cross_entropy").result()
    server = restarted(start_server, server, signal.SIGKILL)
    manager = TrainerJobManager(api_key=KEY, base_url=server.url)
    assert manager.get(job)["state"] == "JOB_STATE_CANCELLED"
    endpoint = manager.reconnect_and_wait(job)
    resumed = FiretitanServiceClient(base_url=endpoint.base_url, api_key=KEY).create_training_client(base_model=BASE, lora_rank=8)
    resumed.load_state_with_optimizer("kept").result()
    assert bits(scored(resumed)) == bits(expected)
    other = client_of(server.url, KEY, lora_rank=8)
    other.load_state(other.resolve_checkpoint_path("kept", source_job_id=job)).result()
    assert bits(scored(other)) == bits(expected)
    with pytest.raises(Exception, match="there is no checkpoint"):
        other.load_state(other.resolve_checkpoint_path("kept", source_job_id="another")).result()

    manager.delete(job)
    assert manager.try_get(job) is None
    assert len(manager.list_checkpoints(job)) == 2  # they are there without it


def test_unloading_removes_a_models_results(start_server, tmp_path):
    import sqlite3

    server = start_server()
    policy, other = client_of(server.url, KEY, lora_rank=8), client_of(server.url, KEY, lora_rank=8)
    trained(policy)
    trained(other)

    def kept(client):
        with sqlite3.connect(tmp_path / "state/lockstep.db") as database:
            return database.execute("SELECT COUNT(*) FROM results WHERE scope = ? AND length(bytes) > 0", [client.model_id]).fetchone()[0]

    def soon(right):
        deadline = time.time() + 20  # results are written behind their clients' backs
        while not right() and time.time() < deadline:
            time.sleep(0.05)
        return right()

    assert soon(lambda: kept(policy) == 5 and kept(other) == 5)  # creation, two passes, two steps
    assert policy.unload_model().result().type == "unload_model"
    assert soon(lambda: kept(policy) <= 1)  # the unloading's own result may stay
    assert kept(other) == 5
    with pytest.raises(Exception, match="unload|there is no model"):
        policy.forward([datum()], "cross_entropy").result()
    trained(other, steps=1)


@pytest.mark.parametrize("rank", [0, 8])
def test_the_managed_service_from_end_to_end(start_server, rank):
    server = start_server("--alias", "accounts/fireworks/models/qwen3-8b")
    base_model = "accounts/fireworks/models/qwen3-8b"
    service = FiretitanServiceClient.from_firetitan_config(
        api_key=KEY, base_url=server.url, inference_url=server.url, hotload_api_url=server.url, base_model=base_model, lora_rank=rank,
        training_shape_id="accounts/fireworks/trainingShapes/qwen3-8b-128k", cleanup_trainer_on_close=True, cleanup_deployment_on_close="delete",
        reference_required=True)
    policy = service.create_training_client()
    reference = service.create_reference_client(lora_rank=rank)
    base = scored(reference)
    trained(policy)
    assert bits(scored(reference)) == bits(base) != bits(scored(policy))
    path = policy.save_weights_for_sampler("step-0").result().path
    sampler = service.create_sampling_client(model_path=path)
    tokens = TOKENS[:4]
    out = sampler.sample(prompt=types.ModelInput.from_ints(tokens), num_samples=1, sampling_params=types.SamplingParams(max_tokens=6, temperature=1.0, seed=3)).result()
    sequence = out.sequences[0]
    assert bits(sequence.logprobs) == bits(scored(policy, tokens + list(sequence.tokens))[3:])
    trained(policy, steps=1)
    policy.weight_sync().result()
    out = sampler.sample(prompt=types.ModelInput.from_ints(tokens), num_samples=1, sampling_params=types.SamplingParams(max_tokens=6, temperature=1.0, seed=3)).result()
    assert bits(out.sequences[0].logprobs) == bits(scored(policy, tokens + list(out.sequences[0].tokens))[3:])
    rows = service.list_checkpoints(service.trainer_job_id)
    promoted = service.promote_checkpoint(name=[r for r in rows if r["promotable"]][-1]["name"], output_model_id=f"managed-{rank}", base_model=base_model)
    assert promoted["state"] == "READY"
    job, deployment = service.trainer_job_id, service.deployment_id
    sampler.close()
    service.close()
    manager = TrainerJobManager(api_key=KEY, base_url=server.url)
    assert manager.try_get(job) is None
    assert requests.get(f"{server.url}/v1/accounts/local/deployments/{deployment}", headers={"X-Api-Key": KEY}).status_code == 404
    assert sample(server.url, KEY, promoted["name"]).full_tokens  # the model outlives them


def test_what_cannot_be_is_refused_in_one_sentence(training_server):
    headers = {"X-Api-Key": "hostile"}
    policy = client_of(training_server.url, "hostile", lora_rank=8)
    snapshot = policy.save_weights_for_sampler_ext("snapshot").snapshot_name

    def refused(method, path, status, sentence, **fields):
        answer = requests.request(method, training_server.url + path, headers={**headers, **fields.pop("headers", {})}, json=fields or None)
        assert answer.status_code == status and sentence in answer.json()["error"]["message"], answer.text

    account = "/v1/accounts/local/"
    refused("POST", f"{account}deployments", 422, "deploymentId is missing", baseModel=BASE)
    refused("POST", f"{account}deployments?deploymentId=d", 404, f"did you mean '{BASE}'", baseModel="countdown-gml")
    refused("GET", f"{account}deployments/absent", 404, "there is no deployment")
    refused("POST", f"{account}rlorTrainerJobs?rlorTrainerJobId=j", 404, "baseModel is 'another'", trainingConfig={"baseModel": "another"})
    refused("POST", f"{account}rlorTrainerJobs?rlorTrainerJobId=j", 422, "loraRank", trainingConfig={"loraRank": "eight"})
    refused("GET", f"{account}rlorTrainerJobs/j", 404, "there is no trainer job")  # the refused one was not made
    refused("POST", f"{account}rlorTrainerJobs/local:explode", 404, "ends otherwise than with :resume")
    refused("DELETE", f"{account}rlorTrainerJobs/local", 404, "there is no trainer job")
    refused("GET", f"{account}rlorTrainerJobs/local/checkpoints?pageToken=-1", 422, "allowed is a whole number")
    for name in ["accounts/local/models/../../x", "accounts/local/models/", "accounts/local/models/UPPER", "accounts/local/models/" + "a" * 64]:
        refused("POST", f"{account}checkpoints/{snapshot}:promote", 400, "allowed are 1 to 63 of a-z, 0-9 and -", output_model=name, base_model=BASE)
    refused("POST", f"{account}checkpoints/{snapshot}:promote", 400, "allowed is accounts/ACCOUNT/models/NAME", output_model="name", base_model=BASE)
    refused("POST", f"{account}checkpoints/..%2F..%2Fstate:promote", 404, "there is no checkpoint", output_model="accounts/local/models/x", base_model=BASE)
    refused("GET", f"{account}trainingSessions/s-1", 404, "there is no training session")
    refused("GET", f"{account}operations/other", 404, "there is no operation")
    refused("POST", "/hot_load/v1/models/hot_load", 422, "fireworks-deployment is missing", identity="x")
    refused("POST", "/inference/v1/completions", 404, "there is no model 'accounts/local/deployments/absent'", model="accounts/local/deployments/absent", prompt=[1, 2])
    refused("POST", "/training/v1/serverless/api/v1/create_sampling_route", 404, "is not there, or has no checkpoint", training_run="accounts/local/trainingRuns/run-0")
    with pytest.raises(Exception, match="allowed are 1 to 63 of a-z"):
        policy.load_adapter("accounts/local/models/../../checkpoints").result()
    trained(policy, steps=1)


def test_the_url_of_a_job_is_its_keys_alone(training_server):
    """Anybody's sessions were made below any name of a job."""
    manager = TrainerJobManager(api_key="job-owner", base_url=training_server.url)
    endpoint = manager.create_and_wait(TrainerJobConfig(base_model=BASE, requested_job_id="only-mine"))
    made = lambda url, key: requests.post(f"{url}/api/v1/create_session", json={}, headers={"X-API-Key": key})  # noqa: E731
    gateway = training_server.url + "/training/v1/rlorTrainerJobs/local/"
    assert endpoint.base_url == gateway + "only-mine" and made(endpoint.base_url, "job-owner").status_code == 200
    assert made(gateway + "local", "job-other").status_code == 200  # what is made through no job
    for url, key in ((endpoint.base_url, "job-other"), (gateway + "nobodys", "job-owner"), (gateway.replace("/local/", "/elsewhere/") + "only-mine", "job-owner")):
        for answer in (made(url, key), requests.get(f"{url}/api/v1/healthz", headers={"X-API-Key": key}), requests.get(f"{url}/api/v1/training_runs?limit=x", headers={"X-API-Key": key})):
            assert answer.status_code == 404 and "there is no trainer job" in answer.json()["detail"], (url, answer.text)
    manager.delete("only-mine")
    assert made(endpoint.base_url, "job-owner").status_code == 404


def test_hot_load_tells_of_deployments_that_there_are(training_server):
    headers, url = {"X-Api-Key": "hot"}, training_server.url + "/hot_load/v1/models/hot_load"
    absent = {**headers, "fireworks-deployment": "accounts/local/deployments/never-made"}
    for answer in (requests.get(url, headers=absent), requests.post(url, headers=absent, json={"identity": "step-1"})):
        assert answer.status_code == 404 and "accounts/local/deployments/never-made" in answer.json()["error"]["message"], answer.text
    assert requests.get(training_server.url + "/v1/accounts/local/deployments/never-made", headers=headers).status_code == 404  # asking made none
    deployment = Deployed(training_server.url, "hot", "made")
    assert deployment.replica()["readiness"] and deployment.replica()["current_snapshot_identity"] == ""
    made = {**headers, "fireworks-deployment": deployment.model}
    for identity in ("../../x", "a/b", "", ".hidden", "x" * 200, "tinker://a/sampler_weights/b", "cross_job://local/x"):
        answer = requests.post(url, headers=made, json={"identity": identity})
        assert answer.status_code == 400 and "identity is '" in answer.json()["error"]["message"], (identity, answer.text)
    assert deployment.replica()["loading_state"]["stage"] == "ready"  # nothing was tried
    deployment.manager.delete("made")
    assert requests.get(url, headers=made).status_code == 404


def test_a_ledger_has_every_hot_load_and_answers_name_their_snapshot(start_server):
    server = start_server()
    policy, deployment = client_of(server.url, KEY), Deployed(server.url, KEY, "told")
    ledger = f"{server.url}/v1/{deployment.model}/ledger"
    ask = lambda method, url=ledger, **body: requests.request(method, url, headers={"X-API-Key": KEY}, **body)  # noqa: E731
    complete = lambda: ask("POST", f"{server.url}/inference/v1/completions", json={"model": deployment.model, "prompt": TOKENS[:4], "max_tokens": 2}).json()  # noqa: E731
    assert complete()["model"] == deployment.model  # the base: no snapshot
    assert ask("GET").json() == {"name": f"{deployment.model}/ledger", "entries": []}
    names = []
    for name, kind in (("one", "base"), ("two", "delta")):
        trained(policy, steps=1)
        names.append(policy.save_weights_for_sampler_ext(name, checkpoint_type=kind).snapshot_name)
        deployment.load(names[-1])
        assert complete()["model"] == f"{deployment.model}@{names[-1]}"
    deployment.load(names[-1])  # again: nothing happens
    assert not deployment.manager.hotload_and_wait(deployment_id="told", base_model=BASE, snapshot_identity="absent", timeout_seconds=20)
    assert complete()["model"] == f"{deployment.model}@{names[-1]}"
    entries = ask("GET").json()["entries"]
    assert [(e["identity"], e.get("type"), e["state"]) for e in entries] == [(names[0], "FULL", "READY"), (names[1], "DELTA", "READY"), ("absent", None, "FAILED")]
    assert "absent" in entries[-1]["error"] and all(e["createTime"] <= e["endTime"] for e in entries)
    again = restarted(start_server, server, signal.SIGTERM)
    ledger = f"{again.url}/v1/{deployment.model}/ledger"
    assert ask("GET", ledger).json()["entries"] == entries
    assert requests.get(ledger, headers={"X-API-Key": "another"}).status_code == 404
    assert ask("DELETE", ledger).status_code == 200 and ask("GET", ledger).json()["entries"] == []


def test_a_stopping_server_sends_completions_elsewhere(start_server):
    """425: the package waits and asks again, and finds another server behind the same address."""
    server = start_server("--drain-seconds", "60")
    ask = lambda path: requests.post(server.url + path, json={"model": BASE, "prompt": TOKENS[:4], "max_tokens": 2}, headers={"X-API-Key": KEY})  # noqa: E731
    assert ask("/inference/v1/completions").status_code == 200
    server.process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + 30
    while (answer := ask("/inference/v1/completions")).status_code == 200 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert answer.status_code == 425 and answer.headers["Retry-After"] == "1" and "stopping" in answer.json()["error"]["message"]
    assert ask("/v1/completions").status_code == 503
    time.sleep(1)  # a signal that is repeated at once counts as one
    server.process.send_signal(signal.SIGTERM)
