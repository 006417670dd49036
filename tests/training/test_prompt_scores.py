"""What a sample tells of its prompt, through the `tinker` package: given tokens scored at every position, tokens drawn there, the last
positions alone. Scores have the bits of the trainer's `forward`."""
import pytest
import tinker
import torch
from tinker import types

from comparison import largest_difference
from test_tinker import TOKENS, bits, client_of, datum, logprobs_of, model_of, train, weighted

ONE = types.SamplingParams(max_tokens=1, seed=4)


@pytest.fixture(params=[0, 8], ids=["full", "rank-8"])
def trained(request, training_server):
    client = model_of(client_of(training_server), request.param, seed=7)
    train(client, [weighted()], steps=2, learning_rate=1e-2)
    return client, client.save_weights_and_get_sampling_client().result()


def ask(sampler, params=ONE, tokens=TOKENS, **more):
    return sampler.sample(types.ModelInput.from_ints(tokens), num_samples=1, sampling_params=params, **more).result()


def tensor(values):
    return types.TensorData.from_torch(torch.tensor(values, dtype=torch.int64))


def test_targets_of_prompts_have_the_bits_of_forward(trained):
    client, sampler = trained
    targets = [[t, (t + 1) % 16, (t * 3) % 16] for t in TOKENS[1:]]
    weights = torch.full((len(targets), 3), 1.0)
    forward = client.forward([datum(target_tokens=torch.tensor(targets), weights=weights)], "cross_entropy").result().loss_fn_outputs[0]["logprobs"].to_torch()
    result = ask(sampler, target_prompt_logprobs=tensor(targets), include_prompt_logprobs=True)
    got = result.target_prompt_logprobs.to_torch()
    assert list(got.shape) == [len(TOKENS) - 1, 3]
    assert [bits(row) for row in got.tolist()] == [bits(row) for row in forward.tolist()]
    assert bits(got[:, 0].tolist()) == bits(result.prompt_logprobs[1:]) == bits(logprobs_of(client.forward([weighted()], "cross_entropy").result()))
    other = ask(sampler, target_prompt_logprobs=tensor([[1, 2, 3]] * len(targets))).target_prompt_logprobs.to_torch()
    assert bits(other[0].tolist()) != bits(got[0].tolist())  # the control: other tokens, other numbers


def test_skipped_and_sparse_targets(trained):
    client, sampler = trained
    whole = [[t, (t + 1) % 16] for t in TOKENS[1:]]
    dense = ask(sampler, target_prompt_logprobs=tensor(whole)).target_prompt_logprobs.to_torch()
    skipping = [row if i % 2 else [row[0], -1] for i, row in enumerate(whole)]
    got = ask(sampler, target_prompt_logprobs=tensor(skipping)).target_prompt_logprobs.to_torch()
    for i, row in enumerate(skipping):
        assert bits(got[i].tolist()) == bits([dense[i][0].item(), 0.0 if row[1] < 0 else dense[i][1].item()])
    # CSR, as torch makes it: some rows have both cells, some one, some none. Column numbers are places, wider than any row is full.
    wide = torch.full((len(whole), 40), -1)
    for i, row in enumerate(whole):
        for place, token in list(zip((7, 31), row))[: i % 3]:
            wide[i, place] = token
    request = types.TensorData.from_torch_sparse(wide, pad_value=-1)
    assert request.sparse_crow_indices is not None
    reply = ask(sampler, target_prompt_logprobs=request).target_prompt_logprobs
    assert list(reply.sparse_crow_indices) == list(request.sparse_crow_indices) and list(reply.sparse_col_indices) == list(request.sparse_col_indices)
    back = reply.to_torch()
    for i, row in enumerate(whole):
        for column, place in enumerate((7, 31)):
            assert bits([back[i, place].item()]) == bits([dense[i][column].item() if column < i % 3 else 0.0])


VOCABULARY = 512


def distributions(sampler):
    """[n - 1, vocabulary]: the log-probability of every token at every position after the first."""
    return ask(sampler, target_prompt_logprobs=tensor([list(range(VOCABULARY))] * (len(TOKENS) - 1))).target_prompt_logprobs.to_torch()


def alternatives(sampler, draws, **params):
    out = ask(sampler, types.SamplingParams(max_tokens=1, **params), prompt_alt_tokens_k=draws).prompt_alt_tokens
    return out.tokens.to_torch(), out.logprobs.to_torch()


def test_alternatives_are_drawn_from_the_distribution(trained):
    _, sampler = trained
    whole = distributions(sampler)
    draws, seeds = 64, 8
    counts = torch.zeros_like(whole)
    for seed in range(seeds):
        ids, logprobs = alternatives(sampler, draws, seed=seed)
        assert list(ids.shape) == list(logprobs.shape) == [len(TOKENS) - 1, draws]
        assert [bits(row) for row in logprobs.tolist()] == [bits(row) for row in whole.gather(1, ids).tolist()]
        counts.scatter_add_(1, ids, torch.ones_like(logprobs))
    total = draws * seeds
    p = whole.double().exp()
    assert largest_difference(p.sum(dim=1), torch.ones(p.shape[0])) < 1e-5
    assert bool(((counts / total - p).abs() < 6 * (p * (1 - p) / total).sqrt() + 2 / total).all())
    again = alternatives(sampler, 4, seed=3)[0].tolist()
    assert again == alternatives(sampler, 4, seed=3)[0].tolist() != alternatives(sampler, 4, seed=5)[0].tolist()
    assert alternatives(sampler, 3, temperature=0.0)[0].tolist() == [[t] * 3 for t in whole.argmax(dim=1).tolist()]


def test_alternatives_at_another_temperature_have_its_probabilities(trained):
    _, sampler = trained
    scaled = torch.log_softmax(distributions(sampler).double() / 0.5, dim=1)
    ids, logprobs = alternatives(sampler, 8, seed=1, temperature=0.5)
    assert largest_difference(logprobs, scaled.gather(1, ids)) < 1e-4


def test_the_last_positions_and_the_likeliest_of_samples(trained):
    _, sampler = trained
    whole = sampler.compute_logprobs(types.ModelInput.from_ints(TOKENS)).result()
    last = sampler.compute_logprobs(types.ModelInput.from_ints(TOKENS), prompt_logprobs_last_n=3).result()
    assert last[:-3] == [None] * (len(TOKENS) - 3) and bits(last[-3:]) == bits(whole[-3:])
    result = ask(sampler, types.SamplingParams(max_tokens=4, temperature=0.0, stop=[]), topk_sample_logprobs=2).sequences[0]
    for token, logprob, top in zip(result.tokens, result.logprobs, result.topk_logprobs):
        assert top[0][0] == token and bits([top[0][1]]) == bits([logprob]) and len(top) == 2


def test_what_is_wrong_with_targets_is_said(trained):
    _, sampler = trained
    with pytest.raises(tinker.APIStatusError, match=r"target_prompt_logprobs.shape is \[3, 1\], allowed is \[9, K\]"):
        ask(sampler, target_prompt_logprobs=tensor([[1], [2], [3]]))
    with pytest.raises(tinker.RequestFailedError, match=r"target_prompt_logprobs\[0\] is 99999, allowed are token ids from 0 to"):
        ask(sampler, target_prompt_logprobs=tensor([[99999]] * (len(TOKENS) - 1)))
    with pytest.raises(tinker.RequestFailedError, match="prompt_alt_tokens_k is 65, allowed is 0 to 64"):
        ask(sampler, prompt_alt_tokens_k=65)


@pytest.mark.parametrize("loss", ["importance_sampling", "ppo", "cispo", "dro", "gspo"])
def test_a_forward_says_a_policy_losss_numbers_and_moves_nothing(trained, loss):
    client, _ = trained
    now = logprobs_of(client.forward([weighted()], "cross_entropy").result())
    data = [datum(logprobs=[lp + d for lp, d in zip(now, [0.3, -0.3, 0.05, 0.0, -0.05, 0.5, -0.5, 0.1, 0.0])], advantages=[1.0, -1.0, 0.5, 0.0, 2.0, -0.5, 1.0, -2.0, 1.0])]
    alone = client.forward(data, loss).result()
    with_gradient = client.forward_backward(data, loss).result()
    assert alone.metrics == with_gradient.metrics and alone.metrics["loss:sum"] != 0
    assert bits(logprobs_of(alone)) == bits(logprobs_of(with_gradient)) == bits(now)
    other = client.forward([datum(logprobs=now, advantages=[1.0] * 9)], loss).result()
    assert other.metrics["loss:sum"] != alone.metrics["loss:sum"]
    client.optim_step(types.AdamParams(learning_rate=0.0)).result()  # of the one gradient
    with pytest.raises(tinker.RequestFailedError, match="optim_step without a forward_backward"):
        client.forward(data, loss).result()
        client.optim_step(types.AdamParams(learning_rate=0.0)).result()


def test_a_prompt_as_long_as_the_context_is_scored(training_server):
    """As forward takes it: 512 tokens were refused, since the token that is sampled behind a prompt had no place."""
    client = model_of(client_of(training_server), 0, seed=7)
    train(client, [weighted()], steps=1, learning_rate=1e-2)
    sampler = client.save_weights_and_get_sampling_client().result()
    long = [(i * 7 + 3) % 16 for i in range(513)]
    forward = bits(logprobs_of(client.forward([datum(long[:512], weights=torch.ones(511))], "cross_entropy").result()))
    assert bits(sampler.compute_logprobs(types.ModelInput.from_ints(long[:512])).result()[1:]) == forward
    targets = tensor([[t] for t in long[1:512]])
    assert bits(ask(sampler, tokens=long[:512], target_prompt_logprobs=targets).target_prompt_logprobs.to_torch()[:, 0].tolist()) == forward
    last = sampler.sample(types.ModelInput.from_ints(long[:511]), num_samples=1, sampling_params=types.SamplingParams(max_tokens=9, stop=[])).result()
    assert len(last.sequences[0].tokens) == 1
    for tokens, more, needs in ((long, {"include_prompt_logprobs": True}, ""), (long[:512], {}, ", and the answer has 1 or more")):
        with pytest.raises(tinker.RequestFailedError, match=rf"prompt makes {len(tokens)} tokens{needs}; this model's maximum context length is 512 tokens"):
            ask(sampler, tokens=tokens, **more)
