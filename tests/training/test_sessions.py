"""What clients ask of a server around training, through the `tinker` package: tokens for keys, results of many samples at once, cancelled
samples, copies, searches; more models than memory has room for."""
import base64
import json
import re
import signal
import time

import pytest
import requests
import tinker
from tinker import types

from relay import Relay
from test_tinker import BASE, TOKENS, bits, client_of, logprobs_of, model_of, train, weighted


def sample(sampler, seed=1, tokens=6):
    return sampler.sample(types.ModelInput.from_ints(TOKENS[:3]), num_samples=1, sampling_params=types.SamplingParams(max_tokens=tokens, seed=seed, stop=[]))


def test_results_of_many_samples_come_by_one_poll(training_server):
    plain = client_of(training_server).create_sampling_client(base_model=BASE).result()
    want = [list(sample(plain, seed).result().sequences[0].tokens) for seed in range(40)]
    # The package polls so when the server's flags say that it may.
    with Relay(training_server.url, {"client/config": {"sample_use_retrieve_futures": True, "sample_join_sampling_session": True}}) as relay:
        sampler = client_of(relay).create_sampling_client(base_model=BASE).result()
        asked = [sample(sampler, seed) for seed in range(40)]
        assert [list(f.result().sequences[0].tokens) for f in asked] == want
        with pytest.raises(tinker.RequestFailedError, match="prompt is empty, allowed are 1 to"):
            sampler.sample(types.ModelInput.from_ints([]), num_samples=1, sampling_params=types.SamplingParams(max_tokens=1)).result()
        assert relay.changed > 0 and any("retrieve_futures" in path for path in relay.paths), relay.paths


def test_an_abandoned_sample_is_cancelled(training_server):
    """What nobody waits for any more stops: it gives its place back long before its length."""
    headers = {"X-API-Key": "tml-dummy"}
    url = training_server.url + "/api/v1/"
    session = requests.post(url + "create_session", json={}, headers=headers, timeout=10).json()["session_id"]
    sampler = requests.post(url + "create_sampling_session", json={"session_id": session, "sampling_session_seq_id": 0, "base_model": BASE}, headers=headers, timeout=10).json()["sampling_session_id"]
    body = {"sampling_session_id": sampler, "seq_id": 0, "num_samples": 256, "prompt": {"chunks": [{"type": "encoded_text", "tokens": TOKENS[:3]}]},
            "sampling_params": {"max_tokens": 500, "stop": []}}
    request = requests.post(url + "asample", json=body, headers=headers, timeout=10).json()["request_id"]
    assert requests.post(url + "cancel_future", json={"request_id": request}, headers={"X-API-Key": "tml-other"}, timeout=10).status_code == 204  # another's stays
    answer = requests.post(url + "cancel_future", json={"request_id": request}, headers=headers, timeout=10)
    assert answer.status_code == 204 and not answer.content
    result = requests.post(url + "retrieve_future", json={"request_id": request}, headers=headers, timeout=60).json()
    assert result["category"] == "user" and "cancelled" in result["error"]
    config = requests.post(url + "client/dynamic_config", json={}, headers=headers, timeout=10).json()
    assert config["sample_cancel_enabled"] is True
    done = requests.post(url + "asample", json={**body, "seq_id": 1, "num_samples": 1, "sampling_params": {"max_tokens": 2, "stop": []}}, headers=headers, timeout=10).json()["request_id"]
    assert requests.post(url + "retrieve_future", json={"request_id": done}, headers=headers, timeout=60).headers["content-type"] == "application/x-protobuf"
    assert requests.post(url + "cancel_future", json={"request_id": done}, headers=headers, timeout=10).status_code == 204  # too late: nothing happens
    assert requests.post(url + "retrieve_future", json={"request_id": done}, headers=headers, timeout=60).headers["content-type"] == "application/x-protobuf"


@pytest.mark.parametrize("kind", ["weights", "sampler_weights", "external_weights"])
def test_a_copy_outlives_its_source(training_server, kind):
    service = client_of(training_server)
    client = model_of(service, 4, seed=7)
    train(client, [weighted()], learning_rate=1e-2)
    now = logprobs_of(client.forward([weighted()], "cross_entropy").result())
    save = {"weights": client.save_state, "sampler_weights": client.save_weights_for_sampler, "external_weights": client.save_weights_external}[kind]
    path = save("one").result().path
    rest = tinker.RestClient(base_url=training_server.url, api_key="tml-dummy")
    copy = rest.copy_weights(path, "project-of-copies", ttl_seconds=7200).result()
    assert copy != path and copy.endswith(f"/{kind}/one")
    run = copy.split("/")[2]
    listed = rest.list_checkpoints(run).result().checkpoints
    assert [c.tinker_path for c in listed] == [copy] and listed[0].expires_at is not None
    assert rest.get_training_run(run).result().lora_rank == 4
    rest.delete_checkpoint_from_tinker_path(path).result()
    sampler = service.create_sampling_client(model_path=copy).result()
    assert bits(sampler.compute_logprobs(types.ModelInput.from_ints(TOKENS)).result()[1:]) == bits(now)
    with pytest.raises(tinker.NotFoundError):
        tinker.RestClient(base_url=training_server.url, api_key="tml-somebody-else").copy_weights(copy, "mine-now").result()


def test_a_public_checkpoint_may_be_copied_by_others(training_server):
    client = model_of(client_of(training_server), 4, seed=7)
    train(client, [weighted()])
    path = client.save_state("shared").result().path
    rest, other = (tinker.RestClient(base_url=training_server.url, api_key=key) for key in ("tml-dummy", "tml-somebody-else"))
    with pytest.raises(tinker.NotFoundError):
        other.copy_weights(path, "theirs").result()
    rest.publish_checkpoint_from_tinker_path(path).result()
    copy = other.copy_weights(path, "theirs").result()
    rest.unpublish_checkpoint_from_tinker_path(path).result()
    assert other.list_checkpoints(copy.split("/")[2]).result().checkpoints[0].public is False
    with pytest.raises(tinker.NotFoundError):
        rest.list_checkpoints(copy.split("/")[2]).result()


@pytest.mark.filterwarnings("ignore")
def test_sessions_are_found_page_by_page(training_server):
    key = "tml-searcher"
    services = [tinker.ServiceClient(base_url=training_server.url, api_key=key, display_name=f"Nightly run {i}", user_metadata={"lane": str(i % 2)}, project_id="p-one") for i in range(5)]
    for service in services:
        service.create_sampling_client(base_model=BASE).result()
    rest = tinker.RestClient(base_url=training_server.url, api_key=key)

    def pages(**query):
        request, found = types.SessionSearchRequest(limit=2, **query), []
        while True:
            page = rest.search_sessions(request).result()
            assert len(page.sessions) <= 2
            found += page.sessions
            if page.next_cursor is None:
                return found
            request = request.model_copy(update={"cursor": page.next_cursor})

    names = [s.display_name for s in pages()]
    assert sorted(names) == [f"Nightly run {i}" for i in range(5)] and len(set(names)) == 5
    assert {s.display_name for s in pages(display_name="RUN 3")} == {"Nightly run 3"}
    assert {s.display_name for s in pages(user_metadata={"lane": "1"})} == {"Nightly run 1", "Nightly run 3"}
    one = pages(display_name="run 2")[0]
    assert [s.session_id for s in pages(session_id=one.session_id)] == [one.session_id] and one.status.type == "active"
    rest.assign_session_project(one.session_id, "p-two").result()
    assert [s.session_id for s in pages(project_ids=["p-two"])] == [one.session_id] and len(pages(project_ids=["p-one"])) == 4
    assert pages(statuses=[{"type": "cancelled"}]) == [] and len(pages(statuses=[{"type": "active"}])) == 5
    others = tinker.RestClient(base_url=training_server.url, api_key="tml-somebody-else")
    assert others.search_sessions(types.SessionSearchRequest(session_id=one.session_id)).result().sessions == []
    with pytest.raises(tinker.NotFoundError):
        others.assign_session_project(one.session_id, "theirs").result()


def claims_of(token):
    part = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def exchanged(server, key):
    answer = requests.post(server.url + "/api/v1/auth/token", json={}, headers={"X-API-Key": key}, timeout=10)
    return answer.status_code, answer.json().get("jwt")


def test_the_package_trains_with_tokens_that_expire_under_it(start_server, tmp_path):
    keys = tmp_path / "keys.txt"
    keys.write_text("ann tml-key-of-ann-0123456789\nbob tml-key-of-bob-0123456789\n")
    # Two seconds: every request finds its token near its end, and exchanges the key anew.
    server = start_server("--api-key-file", str(keys), "--token-seconds", "2")
    with Relay(server.url) as relay:
        ann = client_of(relay, "tml-key-of-ann-0123456789")
        client = model_of(ann, 4, seed=7)
        losses = train(client, [weighted()], steps=2, learning_rate=1e-2)
        time.sleep(2.5)
        assert train(client, [weighted()], learning_rate=1e-2)[0] < losses[0]
        assert sum("auth/token" in path for path in relay.paths) >= 2, relay.paths
        path = client.save_state("hers").result().path
    with pytest.raises(tinker.RequestFailedError, match="there is no checkpoint"):
        client_of(server, "tml-key-of-bob-0123456789").create_training_client_from_state(path).result()
    with pytest.raises(tinker.AuthenticationError):
        client_of(server, "tml-key-of-nobody-012345").create_sampling_client(base_model=BASE).result()


def test_tokens_are_their_owners_until_they_expire_and_no_longer(start_server, tmp_path):
    keys = tmp_path / "keys.txt"
    keys.write_text("ann tml-key-of-ann-0123456789\nbob tml-key-of-bob-0123456789\n")
    server = start_server("--api-key-file", str(keys), "--token-seconds", "5")
    status, token = exchanged(server, "tml-key-of-ann-0123456789")
    assert status == 200 and exchanged(server, "tml-wrong-key-0123456789")[0] == 401
    claims = claims_of(token)
    assert claims["sub"] == "ann" and claims["exp"] - claims["iat"] == 5
    assert exchanged(server, token) == (200, token)  # a token does not make itself last

    def sessions(**headers):
        return requests.get(server.url + "/api/v1/sessions", headers=headers, timeout=10)

    created = requests.post(server.url + "/api/v1/create_session", json={}, headers={"X-API-Key": token}, timeout=10).json()["session_id"]
    assert sessions(Authorization=f"Bearer {token}").json()["sessions"] == [created]
    assert sessions(**{"X-API-Key": "tml-key-of-ann-0123456789"}).json()["sessions"] == [created]
    assert sessions(**{"X-API-Key": exchanged(server, "tml-key-of-bob-0123456789")[1]}).json()["sessions"] == []
    head, body, signature = token.split(".")
    forged_body = base64.urlsafe_b64encode(json.dumps({**claims, "sub": "bob"}).encode()).decode().rstrip("=")
    none_head = base64.urlsafe_b64encode(b'{"alg":"none","typ":"JWT"}').decode().rstrip("=")
    for forged in (f"{head}.{forged_body}.{signature}", f"{none_head}.{forged_body}.", f"{head}.{body}.{signature[:-2]}{'BA' if signature.endswith('AA') else 'AA'}", "eyJ.eyJ.x"):
        answer = sessions(**{"X-API-Key": forged})
        assert answer.status_code == 401 and answer.headers["WWW-Authenticate"] == 'Bearer error="invalid_token"', forged
    time.sleep(max(0.0, claims["exp"] - time.time()) + 0.1)
    late = sessions(**{"X-API-Key": token})
    assert late.status_code == 401 and 'error="invalid_token"' in late.headers["WWW-Authenticate"]
    assert requests.post(server.url + "/v1/completions", json={"model": BASE, "prompt": [1]}, headers={"Authorization": f"Bearer {token}"}, timeout=10).status_code == 401
    key = tmp_path / "state/token-key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert key.read_text() not in "".join(server.errors) and token not in "".join(server.errors)


def test_a_key_that_is_replaced_ends_its_tokens_at_once(start_server, tmp_path):
    keys = tmp_path / "keys.txt"
    keys.write_text("ann tml-key-of-ann-0123456789\nbob tml-key-of-bob-0123456789\n")
    server = start_server("--api-key-file", str(keys), "--token-seconds", "3600")
    ann, bob = (exchanged(server, f"tml-key-of-{name}-0123456789")[1] for name in ("ann", "bob"))

    def status(credential):
        return requests.get(server.url + "/api/v1/sessions", headers={"X-API-Key": credential}, timeout=10).status_code

    def read_again(word):
        before = len(server.errors)
        server.process.send_signal(signal.SIGHUP)
        for _ in range(1200):
            if any(word in line for line in server.errors[before:]):
                return
            time.sleep(0.05)
        raise AssertionError("".join(server.errors))

    assert status(ann) == status(bob) == 200
    keys.write_text("ann short\n")  # nothing changes
    read_again("could not be read again")
    assert status(ann) == status(bob) == status("tml-key-of-ann-0123456789") == 200
    keys.write_text("ann tml-another-key-of-ann-0123\nbob tml-key-of-bob-0123456789\n")
    read_again("read again")
    assert status(ann) == status("tml-key-of-ann-0123456789") == 401
    assert status(bob) == status("tml-another-key-of-ann-0123") == 200
    # And over a restart, whose tokens are signed with the same key.
    server.stop()
    server = start_server("--api-key-file", str(keys), "--token-seconds", "3600")
    assert status(ann) == 401 and status(bob) == 200


def test_a_token_without_keys_is_its_keys_owner(training_server):
    key = "tml-tokens-of-one"
    status, token = exchanged(training_server, key)
    assert status == 200
    made = requests.post(training_server.url + "/api/v1/create_session", json={}, headers={"X-API-Key": token}, timeout=10).json()["session_id"]
    got = requests.get(training_server.url + "/api/v1/sessions", headers={"X-API-Key": key}, timeout=10).json()["sessions"]
    assert made in got


def test_more_models_than_memory_has_room_for(start_server, training_server):
    """Models take turns in memory, with the gradients that no step has taken, and each has the bits of one that was alone."""
    def rounds(models):
        got = [[] for _ in models]
        for _ in range(3):
            for client in models:
                client.forward_backward([weighted()], "cross_entropy").result()
            for i, client in enumerate(models):
                got[i] += train(client, [weighted()], learning_rate=1e-2)  # two gradients a step
        return got

    alone = client_of(training_server)
    want = rounds([model_of(alone, 4, seed=i) for i in range(3)])
    server = start_server("--max-models", "1")
    crowded = client_of(server)
    models = [model_of(crowded, 4, seed=i) for i in range(3)]
    got = rounds(models)
    assert got == want and len({tuple(losses) for losses in got}) == 3

    def figure(name):
        return sum(map(float, re.findall(rf"^{name}(?:\{{.*\}})? (\S+)$", requests.get(server.url + "/metrics", timeout=10).text, re.M)))
    # Each makes another leave, twice a round, and before that two left when they were made; half of them leave with a gradient, which comes back.
    assert figure("lockstep_training_models_rested_total") == 2 + 3 * 6
    assert figure("lockstep_training_gradients_saved_total") == figure("lockstep_training_gradients_read_total") == 3 * 3
    # While one computes, the others wait for its place. Between two of them nobody does, so ask until it was seen.
    waiting, end = 0, time.monotonic() + 60
    while not waiting:
        assert time.monotonic() < end
        asked = [client.forward_backward([weighted()] * 40, "cross_entropy") for client in models]
        while not all(one.future().done() for one in asked):
            waiting = max(waiting, figure("lockstep_training_models_waiting"))
        for one in asked:
            one.result()
    assert waiting <= len(models) and figure("lockstep_training_models_waiting") == 0


def test_what_is_asked_about_accounts_is_answered_or_refused_at_once(training_server):
    """This server has keys and no accounts. The package repeats statuses of 500 and above for minutes: nobody waits for them here."""
    key = "tml-accounts"
    admin = tinker.AdminClient(base_url=training_server.url, api_key=key)
    begin = time.monotonic()
    for ask, said in ((lambda: admin.get_audit_log(), "keeps no audit log"), (lambda: admin.get_billing_usage("2026-07-13T00:00:00Z", "2026-07-14T00:00:00Z"), "bills nothing")):
        with pytest.raises(tinker.BadRequestError, match=said):
            ask().result()
    assert time.monotonic() - begin < 20
    assert admin.get_current_checkpoint_storage_usage().result().data == []
    service = tinker.ServiceClient(base_url=training_server.url, api_key=key, project_id="p-1")
    trainer = service.create_lora_training_client(base_model=BASE, rank=2)
    for name in ("a", "b"):
        trainer.save_state(name).result()
    [row] = admin.get_current_checkpoint_storage_usage().result().data
    sizes = [c.size_bytes for c in tinker.RestClient(base_url=training_server.url, api_key=key).list_user_checkpoints().result().checkpoints]
    assert (row.project_id, row.checkpoint_count, row.size_bytes, row.estimated_monthly_cost_usd) == ("p-1", 2, sum(sizes), None) and row.size_bytes > 0
    assert admin.get_current_checkpoint_storage_usage(project_id="p-2").result().data == []
    for method in ("GET", "DELETE"):
        answer = requests.request(method, training_server.url + "/api/v1/auth/apikey/me", headers={"X-API-Key": key}, timeout=20)
        assert answer.status_code == 501 and "has no accounts" in answer.json()["detail"]
    session = trainer.holder.get_session_id() if hasattr(trainer.holder, "get_session_id") else trainer.get_info().model_id.split(":")[0]
    with pytest.raises(RuntimeError, match="keeps no traces"):
        tinker.RestClient(base_url=training_server.url, api_key=key).export_session_trace(session).result()
