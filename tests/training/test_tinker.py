"""The `tinker` package, unmodified, trains and samples on our server: losses fall, results have the same bits on both
sides, saved models go on, one client never sees another's."""
import math
import struct
from pathlib import Path

import pytest
import tinker
import torch
from tinker import types

from comparison import largest_difference
from optimizer_oracle import muon_in_double, saved_state

BASE = "countdown-glm"
FOLDER = str(Path(__file__).resolve().parents[2] / "models/countdown-glm")
TOKENS = [1, 5, 7, 9, 11, 13, 8, 6, 3, 2]


def bits(values):
    return [struct.pack("<f", v).hex() for v in values]


def client_of(server, key="tml-dummy"):
    return tinker.ServiceClient(base_url=server.url, api_key=key)


@pytest.fixture(params=[0, 8], ids=["full", "rank-8"])
def rank(request):
    return request.param


def model_of(service, rank=0, **settings):
    return service.create_lora_training_client(base_model=BASE, rank=rank, **settings).result()


def datum(tokens=TOKENS, **more):
    inputs = {"target_tokens": tokens[1:], **more}
    return types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=inputs)


def weighted(tokens=TOKENS):
    return datum(tokens, weights=[1.0] * (len(tokens) - 1))


@pytest.fixture(scope="module")
def service(training_server):
    return client_of(training_server)


def train(client, data, steps=1, loss="cross_entropy", learning_rate=1e-3, config=None):
    losses = []
    for _ in range(steps):
        result = client.forward_backward(data, loss, config)
        step = client.optim_step(types.AdamParams(learning_rate=learning_rate))
        losses.append(result.result().metrics["loss:sum"])
        assert step.result().metrics["grad_norm"] >= 0
    return losses


def logprobs_of(result, i=0):
    return result.loss_fn_outputs[i]["logprobs"].tolist()


def test_training_lowers_the_loss_and_greedy_sampling_recites(service, rank):
    client = model_of(service, rank, seed=7)
    losses = train(client, [weighted()], steps=40, learning_rate=2e-3)
    assert losses[-1] < 0.05 * (len(TOKENS) - 1) < losses[0]
    sampler = client.save_weights_and_get_sampling_client().result()
    out = sampler.sample(types.ModelInput.from_ints(TOKENS[:2]), num_samples=1,
                         sampling_params=types.SamplingParams(max_tokens=len(TOKENS) - 2, temperature=0.0, stop=[])).result()
    assert list(out.sequences[0].tokens) == TOKENS[2:]
    assert out.sequences[0].stop_reason == "length"


def test_trainer_and_sampler_have_the_same_bits(service, rank):
    client = model_of(service, rank, seed=7)
    train(client, [weighted()], steps=2)
    trained = logprobs_of(client.forward([weighted()], "cross_entropy").result())
    sampler = client.save_weights_and_get_sampling_client().result()
    served = sampler.compute_logprobs(types.ModelInput.from_ints(TOKENS)).result()
    assert served[0] is None
    assert bits(trained) == bits(served[1:])
    sampled = sampler.sample(types.ModelInput.from_ints(TOKENS[:3]), num_samples=1,
                             sampling_params=types.SamplingParams(max_tokens=8, seed=3, stop=[])).result().sequences[0]
    again = client.forward([weighted(TOKENS[:3] + list(sampled.tokens))], "cross_entropy").result()
    assert bits(logprobs_of(again)[2:]) == bits(sampled.logprobs)
    train(client, [weighted()])  # the control: other weights, other bits
    assert bits(logprobs_of(client.forward([weighted()], "cross_entropy").result())) != bits(trained)


def test_a_snapshot_keeps_its_weights(service, rank):
    client = model_of(service, rank, seed=7)
    train(client, [weighted()])
    sampler = client.save_weights_and_get_sampling_client().result()
    prompt = types.ModelInput.from_ints(TOKENS)
    before = sampler.compute_logprobs(prompt).result()
    train(client, [weighted()], steps=3)
    assert bits(before[1:]) == bits(sampler.compute_logprobs(prompt).result()[1:])
    newer = client.save_weights_and_get_sampling_client().result()
    assert bits(before[1:]) != bits(newer.compute_logprobs(prompt).result()[1:])


def test_resume_with_optimizer_is_the_client_that_went_on(service, rank):
    client = model_of(service, rank, seed=7)
    train(client, [weighted()], steps=2)
    path = client.save_state("here").result().path
    went_on = train(client, [weighted()], steps=3)
    resumed = service.create_training_client_from_state_with_optimizer(path).result()
    assert train(resumed, [weighted()], steps=3) == went_on
    fresh = service.create_training_client_from_state(path).result()
    other = train(fresh, [weighted()], steps=3)
    assert other[0] == went_on[0] and other[1:] != went_on[1:]  # new moments


@pytest.mark.parametrize("loss", ["importance_sampling", "ppo", "cispo", "dro", "gspo"])
def test_losses_are_their_formulas(service, loss):
    client = model_of(service)
    now = logprobs_of(client.forward([weighted()], "cross_entropy").result())
    old = [lp + d for lp, d in zip(now, [0.3, -0.3, 0.05, 0.0, -0.05, 0.5, -0.5, 0.1, 0.0])]
    advantages = [1.0, -1.0, 0.5, 0.0, 2.0, -0.5, 1.0, -2.0, 1.0]
    result = client.forward_backward([datum(logprobs=old, advantages=advantages)], loss).result()
    old = [struct.unpack("<f", struct.pack("<f", x))[0] for x in old]
    ratio = [math.exp(lp - q) for lp, q in zip(now, old)]
    clip = lambda r, low, high: min(max(r, low), high)
    if loss == "importance_sampling":
        want = [-r * a for r, a in zip(ratio, advantages)]
    elif loss == "ppo":
        want = [-min(r * a, clip(r, 0.8, 1.2) * a) for r, a in zip(ratio, advantages)]
    elif loss == "cispo":
        want = [-clip(r, 0.0, 4.0) * lp * a for r, lp, a in zip(ratio, now, advantages)]
    elif loss == "dro":
        want = [-(lp * a - 0.5 * 0.05 * (lp - q) ** 2) for lp, q, a in zip(now, old, advantages)]
    else:
        s = math.exp(sum(lp - q for lp, q in zip(now, old)) / len(now))
        want = [-min(s * a, clip(s, 0.8, 1.2) * a) for a in advantages]
    assert result.metrics["loss:sum"] == pytest.approx(sum(want), rel=1e-5)
    assert bits(logprobs_of(result)) == bits(now)
    client.optim_step(types.AdamParams(learning_rate=1e-4)).result()


def test_custom_loss_is_the_built_in_one(service, rank):
    """DPO and friends: the function runs in the client, its gradient is sent as weights."""
    built_in, custom = model_of(service, rank, seed=7), model_of(service, rank, seed=7)
    train(built_in, [weighted()])

    def loss(data, logprobs):
        value = -logprobs[0].sum()
        return value, {"mine": float(value)}

    result = custom.forward_backward_custom([weighted()], loss).result()
    custom.optim_step(types.AdamParams(learning_rate=1e-3)).result()
    assert result.metrics["mine"] == pytest.approx(result.metrics["loss:sum"])
    compare = [logprobs_of(c.forward([weighted()], "cross_entropy").result()) for c in (built_in, custom)]
    assert bits(compare[0]) == bits(compare[1])


def test_several_targets_a_position(service):
    import torch
    client = model_of(service)
    targets = torch.tensor([[t, (t + 1) % 16] for t in TOKENS[1:]])
    weights = torch.tensor([[0.75, 0.25]] * (len(TOKENS) - 1))
    result = client.forward_backward([datum(target_tokens=targets, weights=weights)], "cross_entropy").result()
    got = result.loss_fn_outputs[0]["logprobs"]
    assert list(got.shape) == [len(TOKENS) - 1, 2]
    single = logprobs_of(client.forward([weighted()], "cross_entropy").result())
    assert bits(got.to_torch()[:, 0].tolist()) == bits(single)
    assert result.metrics["loss:sum"] == pytest.approx(float(-(weights * got.to_torch()).sum()), rel=1e-5)


def test_thousands_of_datums_in_chunks_out_of_order(service):
    client = model_of(service)
    data = [weighted([1 + i % 7, 2, 3 + i % 5]) for i in range(3000)]
    result = client.forward_backward(data, "cross_entropy").result()
    assert len(result.loss_fn_outputs) == 3000
    assert bits(logprobs_of(result, 2999)) == bits(logprobs_of(client.forward([data[2999]], "cross_entropy").result()))
    assert client.optim_step(types.AdamParams(learning_rate=1e-4)).result().metrics["grad_norm"] > 0


def test_seeds_stops_and_many_samples(service):
    sampler = service.create_sampling_client(base_model=FOLDER).result()  # by its folder, where the tokenizer is
    prompt = types.ModelInput.from_ints(TOKENS[:4])
    ask = lambda **k: sampler.sample(prompt, num_samples=k.pop("num_samples", 1), sampling_params=types.SamplingParams(**k)).result()
    one = ask(max_tokens=12, seed=5, num_samples=3, stop=[])
    assert len({tuple(s.tokens) for s in one.sequences}) > 1
    assert [list(s.tokens) for s in ask(max_tokens=12, seed=5, num_samples=3, stop=[]).sequences] == [list(s.tokens) for s in one.sequences]
    first = list(one.sequences[0].tokens)
    stopped = ask(max_tokens=12, seed=5, stop=[first[3]]).sequences[0]
    assert list(stopped.tokens) == first[: first.index(first[3]) + 1] and stopped.stop_reason == "stop"
    tokenizer = sampler.get_tokenizer()
    text = tokenizer.decode(first)
    by_text = ask(max_tokens=12, seed=5, stop=[text[2:4]]).sequences[0]
    assert text[2:4] in tokenizer.decode(list(by_text.tokens)) and by_text.stop_reason == "stop"
    tops = sampler.sample(prompt, num_samples=1, sampling_params=types.SamplingParams(max_tokens=1, temperature=0.0),
                          include_prompt_logprobs=True, topk_prompt_logprobs=3).result()
    assert tops.topk_prompt_logprobs[0] is None and len(tops.topk_prompt_logprobs[1]) == 3


def test_hundreds_of_samples_at_once(service):
    sampler = service.create_sampling_client(base_model=BASE).result()
    asked = [sampler.sample(types.ModelInput.from_ints(TOKENS[:3]), num_samples=1, sampling_params=types.SamplingParams(max_tokens=4, seed=i % 10, stop=[])) for i in range(400)]
    got = [tuple(f.result().sequences[0].tokens) for f in asked]
    assert all(got[i] == got[i % 10] for i in range(400))


def test_what_is_wrong_is_said_and_the_client_goes_on(service):
    client = model_of(service)
    with pytest.raises(tinker.RequestFailedError, match=r"data\[0\].loss_fn_inputs.target_tokens\[0\] is 99999"):
        client.forward_backward([datum(target_tokens=[99999] + TOKENS[2:], weights=[1.0] * 9)], "cross_entropy").result()
    with pytest.raises(tinker.RequestFailedError, match="has no logprobs and no advantages"):
        client.forward_backward([weighted()], "importance_sampling").result()
    with pytest.raises(tinker.RequestFailedError, match="importance_sampling is what most recipes want"):
        client.forward_backward([datum(logprobs=[0.0] * 9, advantages=[1.0] * 9)], "stable_reinforce").result()
    assert train(client, [weighted()])[0] > 0


def test_one_key_never_sees_anothers(service, training_server):
    client = model_of(service)
    train(client, [weighted()])
    path = client.save_state("mine").result().path
    other = client_of(training_server, "tml-somebody-else")
    with pytest.raises(tinker.RequestFailedError, match="there is no checkpoint"):
        other.create_training_client_from_state(path).result()
    with pytest.raises(tinker.NotFoundError):
        other.create_sampling_client(model_path=path).result()
    listed = tinker.RestClient(base_url=training_server.url, api_key="tml-somebody-else").list_training_runs().result()
    mine = tinker.RestClient(base_url=training_server.url, api_key="tml-dummy").list_training_runs(limit=1000).result()
    assert client.get_info().model_id in {r.training_run_id for r in mine.training_runs}
    assert not {r.training_run_id for r in mine.training_runs} & {r.training_run_id for r in listed.training_runs}


def test_checkpoints_are_listed_and_removed(service, training_server):
    client = model_of(service)
    train(client, [weighted()])
    run = client.get_info().model_id
    client.save_state("state").result()
    path = client.save_weights_for_sampler("sampler").result().path
    rest = tinker.RestClient(base_url=training_server.url, api_key="tml-dummy")
    assert {c.checkpoint_id for c in rest.list_checkpoints(run).result().checkpoints} == {"weights/state", "sampler_weights/sampler"}
    named = service.create_sampling_client(model_path=path).result()
    assert bits(named.compute_logprobs(types.ModelInput.from_ints(TOKENS)).result()[1:]) == bits(logprobs_of(client.forward([weighted()], "cross_entropy").result()))
    rest.delete_checkpoint(run, "weights/state").result()
    assert {c.checkpoint_id for c in rest.list_checkpoints(run).result().checkpoints} == {"sampler_weights/sampler"}


def test_a_client_goes_on_after_a_restart(start_server):
    server = start_server()
    port = server.port
    client = model_of(client_of(server))
    before = train(client, [weighted()], steps=2)
    untouched = model_of(client_of(server))
    want = train(untouched, [weighted()], steps=4)
    assert server.stop() == 0
    start_server("--port", str(port))
    assert before + train(client, [weighted()], steps=2) == want


def test_a_fresh_adapter_is_the_base(service):
    client = model_of(service, 16)
    base = service.create_sampling_client(base_model=BASE).result()
    prompt = types.ModelInput.from_ints(TOKENS)
    assert bits(logprobs_of(client.forward([weighted()], "cross_entropy").result())) == bits(base.compute_logprobs(prompt).result()[1:])


def test_no_session_leaks_into_another(service):
    """Alone, and among others of other ranks that are trained and sampled beside it: the same bits."""
    def run():
        client = model_of(service, 4, seed=3)
        losses = train(client, [weighted()], steps=3)
        sampler = client.save_weights_and_get_sampling_client().result()
        out = sampler.sample(types.ModelInput.from_ints(TOKENS[:3]), num_samples=2, sampling_params=types.SamplingParams(max_tokens=8, seed=1, stop=[])).result()
        return losses, [list(s.tokens) for s in out.sequences], [bits(s.logprobs) for s in out.sequences]

    alone = run()
    others = [model_of(service, 1 + i % 5, seed=100 + i) for i in range(10)]
    pending = [o.forward_backward([weighted(TOKENS[i % 3:])], "cross_entropy") for i, o in enumerate(others)]
    pending += [o.optim_step(types.AdamParams(learning_rate=1e-2)) for o in others]
    samplers = [o.save_weights_and_get_sampling_client() for o in others]
    crowded = run()
    asked = [s.result().sample(types.ModelInput.from_ints(TOKENS[:4]), num_samples=1, sampling_params=types.SamplingParams(max_tokens=8, stop=[])) for s in samplers]
    among = run()
    for future in pending + asked:
        future.result()
    assert alone == crowded == among
    control = others[0].forward([weighted()], "cross_entropy").result()
    assert bits(logprobs_of(control)) != bits(logprobs_of(others[1].forward([weighted()], "cross_entropy").result()))


DIMUON = types.DimuonOptimizerConfig()


def muon_steps(client, count, **params):
    losses = []
    for i in range(count):
        losses.append(client.forward_backward([weighted(), weighted(TOKENS[i % 4:])], "cross_entropy").result().metrics["loss:sum"])
        client.optim_step(types.DimuonParams(**{"learning_rate": 0.02, **params})).result()
    return losses


def test_dimuon_is_torchs_muon(start_server, tmp_path, rank):
    """Every matrix that one tensor of the checkpoint holds whole; kv_b lies here as a matrix a head."""
    client = model_of(client_of(start_server()), rank, seed=7, optimizer=DIMUON)
    steps, beta, rate = 3, 0.9, 0.02
    for step in range(steps):
        client.save_state(f"step{step}").result()
        muon_steps(client, 1, learning_rate=rate, beta1=beta)
    client.save_state(f"step{steps}").result()
    states = [saved_state(tmp_path / "state", f"step{step}") for step in range(steps + 1)]
    checked = 0
    for name, want in states[-1]["master"].items():
        if want.dim() != 2 or "kv_b" in name or "indexer" in name or (rank == 0 and ("embed" in name or "lm_head" in name)):
            continue
        moments = [s["m"][name] for s in states]
        gradients = [(after - beta * before) / (1 - beta) for before, after in zip(moments, moments[1:])]
        oracle = muon_in_double(states[0]["master"][name], gradients, lr=rate, momentum=beta)
        moved = largest_difference(want, states[0]["master"][name])
        if all((g == 0).all() for g in gradients):  # an expert that no token came to
            assert moved == 0
            continue
        assert moved > 1e-4 and largest_difference(want, oracle) <= moved * 2e-3, name
        checked += 1
    assert checked >= 6


def test_dimuon_learns_and_goes_on_with_the_same_bits(service, rank):
    client = model_of(service, rank, seed=7, optimizer=DIMUON)
    losses = muon_steps(client, 4)
    assert losses[-1] < losses[0]
    path = client.save_state("muon").result().path
    went_on = muon_steps(client, 3)
    resumed = service.create_training_client_from_state_with_optimizer(path).result()
    assert resumed.get_info().optimizer_config.type == DIMUON.type
    assert muon_steps(resumed, 3) == went_on
    client.load_state_with_optimizer(path).result()
    assert muon_steps(client, 3) == went_on
    fresh = service.create_training_client_from_state(path, optimizer=DIMUON).result()
    other = muon_steps(fresh, 3)
    assert other[0] == went_on[0] and other != went_on  # new momentum
    assert service.create_training_client_from_state(path).result().get_info().optimizer_config.type == types.AdamOptimizerConfig().type


def test_optimizers_are_not_mixed(service, training_server):
    muon, adam = model_of(service, 8, optimizer=DIMUON), model_of(service, 8)
    assert muon.get_info().optimizer_config.type == DIMUON.type and adam.get_info().optimizer_config.type == types.AdamOptimizerConfig().type
    with pytest.raises(tinker.RequestFailedError, match="the step is of optimizer 'adamw', the model's is dimuon"):
        train(muon, [weighted()])
    with pytest.raises(tinker.RequestFailedError, match="the step is of optimizer 'dimuon', the model's is adamw"):
        muon_steps(adam, 1)
    assert muon_steps(muon, 1)[0] > 0 and train(adam, [weighted()])[0] > 0  # the gradients are still there
    path = muon.save_state("of-muon").result().path
    info = tinker.RestClient(base_url=training_server.url, api_key="tml-dummy").get_weights_info_by_tinker_path(path).result()
    assert info.optimizer_config.type == DIMUON.type
    with pytest.raises(tinker.RequestFailedError, match="has the state of optimizer dimuon"):
        adam.load_state_with_optimizer(path).result()
    adam.load_state(path).result()

    class Unknown(types.DimuonOptimizerConfig.__mro__[1], frozen=True):
        type: str = "adam"

    with pytest.raises(tinker.RequestFailedError, match="optimizer_config.type is 'adam', allowed are adamw, dimuon"):
        model_of(service, 8, optimizer=Unknown())


def test_dimuon_clips_and_offers_no_surprise(service):
    client = model_of(service, 8, seed=7, optimizer=DIMUON)
    client.forward_backward([weighted()], "cross_entropy").result()
    norm = client.optim_step(types.DimuonParams(learning_rate=0.02, grad_clip_norm=-1)).result().metrics["grad_norm"]
    clipped = model_of(service, 8, seed=7, optimizer=DIMUON)
    clipped.forward_backward([weighted()], "cross_entropy").result()
    assert clipped.optim_step(types.DimuonParams(learning_rate=0.02, grad_clip_norm=norm / 4)).result().metrics["grad_norm"] == norm
    # A power of two: the momentum is a quarter, its direction the same to the bit; the second step tells.
    first, second = (logprobs_of(c.forward([weighted()], "cross_entropy").result()) for c in (client, clipped))
    assert bits(first) == bits(second)
    muon_steps(client, 1), muon_steps(clipped, 1)
    first, second = (logprobs_of(c.forward([weighted()], "cross_entropy").result()) for c in (client, clipped))
    assert bits(first) != bits(second)


def test_an_offloaded_optimizer_changes_no_bit(start_server, service, tmp_path, rank):
    def run(at, optimizer):
        client = model_of(at, rank, seed=7, optimizer=optimizer)
        losses = muon_steps(client, 3) if optimizer else train(client, [weighted()], steps=3)
        path = client.save_state("offloaded").result().path
        again = at.create_training_client_from_state_with_optimizer(path).result()
        return losses, muon_steps(again, 2) if optimizer else train(again, [weighted()], steps=2)

    server = start_server("--offload-optimizer")
    for optimizer in (None, DIMUON):
        assert run(client_of(server), optimizer) == run(service, optimizer)
    assert not list((tmp_path / "state/optimizer").iterdir())  # its files have no name
    mapped = Path(f"/proc/{server.process.pid}/maps").read_text()
    assert "state/optimizer/.optimizer-" in mapped
    server.stop(9)
    assert not list((tmp_path / "state/optimizer").iterdir())
