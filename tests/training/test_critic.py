"""Critics and reward models through the real `tinker` and `fireworks-ai`: a client's own PPO loop ends at the weights of `lockstep train rl --algorithm ppo`,
`pairwise_reward` at those of `lockstep train reward`; values are those of a model with a value head; what is wrong is named."""
import json
import sys
from pathlib import Path

import fireworks.training.sdk.types as fireworks_types
import numpy as np
import pytest
import tinker
from fireworks.training.sdk import FiretitanServiceClient
from tinker import types

from test_batch_losses import ADAM, END, PAIRS, STEPS, TOKENIZER, lockstep, masters
from test_tinker import BASE, FOLDER, TOKENS, client_of

LOOP = Path(FOLDER).parents[1] / "recipes" / "ppo_with_critic.py"
sys.path.insert(0, str(LOOP.parent))
import ppo_with_critic  # noqa: E402

CRITIC = BASE + ":value"


def critic_of(service, rank=8, **settings):
    return service.create_lora_training_client(base_model=CRITIC, rank=rank, **settings).result()


def states(tokens=TOKENS, sdk=types, **columns):
    return sdk.Datum(model_input=sdk.ModelInput.from_ints(tokens), loss_fn_inputs={name: np.array(column, np.float32) for name, column in columns.items()})


def values_of(client, data):
    return [out["values"].tolist() for out in client.forward(data, "value").result().loss_fn_outputs]


def moved(client, steps=3, sdk=types):
    """Steps towards returns of 1; the loss of each."""
    losses = []
    for _ in range(steps):
        result = client.forward_backward([states(sdk=sdk, returns=[1.0] * len(TOKENS))], "value", {"averaging": "token_mean"}).result()
        losses.append(result.metrics["loss:sum"])
        client.optim_step(sdk.AdamParams(learning_rate=1e-2)).result()
    return losses


def test_the_loop_has_at_most_60_lines():
    assert len(LOOP.read_text().splitlines()) <= 60


@pytest.mark.parametrize("rank", [8, 0], ids=["adapter", "full"])
def test_ppo_with_a_critic_has_the_weights_of_the_command(start_server, tmp_path, rank):
    shared = ["--model", FOLDER, "--algorithm", "ppo", "--problems", 1, "--rollouts", 16, "--steps", 5, "--schedule", "constant", "--warmup", 0, "--learning-rate", 1.5e-3,
              "--critic-learning-rate", 3e-3, "--transcripts", 16, "--no-page", "--json", "--name", "ppo"]
    adapters = ["--adapter-rank", rank, "--init-seed", 7, "--critic", "adapter", "--critic-rank", rank] if rank else []
    told = lockstep(tmp_path, "train", "rl", *shared, *adapters)
    assert told["different_bits"] == 0 and told["steps"] == 5
    rollouts = [json.loads(line) for line in (tmp_path / "runs/ppo/transcripts.jsonl").read_text().splitlines()]
    prompts = [TOKENIZER.decode(next(r["prompt_ids"] for r in rollouts if r["step"] == step), skip_special_tokens=False) for step in range(1, 6)]
    assert {r["reward"] for r in rollouts} == {0.0, 1.0}, "every answer has the same reward: the run shows nothing"

    service = client_of(start_server())
    policy, critic = service.create_lora_training_client(base_model=BASE, rank=rank, seed=7, train_unembed=False).result(), critic_of(service, rank, seed=7)
    ppo_with_critic.train(policy, critic, TOKENIZER, prompts)
    states_of = {}
    for client, name in ((policy, "policy"), (critic, "critic")):
        client.save_state(name).result()
        states_of[name] = masters(tmp_path, f"state/checkpoints/*/weights/{name}/**/state.safetensors")
    assert states_of["critic"] == masters(tmp_path, "runs/ppo/critic/checkpoints/*/state.safetensors")
    assert states_of["policy"] == masters(tmp_path, "runs/ppo/checkpoints/*/state.safetensors")
    # The control: a critic that learns faster gives other advantages, and so another policy.
    policy, critic = service.create_lora_training_client(base_model=BASE, rank=rank, seed=7, train_unembed=False).result(), critic_of(service, rank, seed=7)
    ppo_with_critic.train(policy, critic, TOKENIZER, prompts, critic_rate=4e-3)
    policy.save_state("other").result()
    assert masters(tmp_path, "state/checkpoints/*/weights/other/**/state.safetensors") != states_of["policy"]


def whole(pair, side):
    """The text and its end: a reward model says the value of the last token."""
    return states(TOKENIZER.encode(pair["prompt"]).ids + TOKENIZER.encode(pair[side]).ids + [END])


def test_a_reward_model_has_the_weights_of_the_command(start_server, tmp_path):
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in PAIRS))
    told = lockstep(tmp_path, "train", "reward", "--model", FOLDER, "--data", "pairs.jsonl", "--name", "judge", "--batch", len(PAIRS), "--eval-share", 0, "--learning-rate", "1e-3",
                    "--warmup", "0", "--steps", STEPS, "--no-page", "--json")
    service = client_of(start_server())
    client = critic_of(service, 0)
    data = [whole(pair, side) for pair in PAIRS for side in ("chosen", "rejected")]
    results = []
    for _ in range(STEPS):
        results.append(client.forward_backward(data, "pairwise_reward", {"averaging": "pair_mean"}).result().metrics)
        client.optim_step(ADAM).result()
    saved = client.save_state("judge").result().path
    state = lambda name: masters(tmp_path, f"state/checkpoints/*/weights/{name}/**/state.safetensors")  # noqa: E731
    assert state("judge") == masters(tmp_path, "runs/judge/checkpoints/*/state.safetensors")
    assert results[0]["loss:sum"] == pytest.approx(0.6931472, abs=1e-6) and results[0]["accuracy:mean"] == 0.5
    assert results[-1]["loss:sum"] < results[0]["loss:sum"] and results[-1]["accuracy:mean"] == told["last"]["accuracy"] == 1.0
    # What a pair begins with may be one sequence in the backward.
    lockstep(tmp_path, "train", "reward", "--model", FOLDER, "--data", "pairs.jsonl", "--name", "shared", "--batch", len(PAIRS), "--eval-share", 0, "--learning-rate", "1e-3",
             "--warmup", "0", "--steps", STEPS, "--no-page", "--json", "--share-prompts", "backward")
    sharing = critic_of(service, 0)
    for _ in range(STEPS):
        sharing.forward_backward(data, "pairwise_reward", {"averaging": "pair_mean", "share_prompts": "backward"}).result()
        sharing.optim_step(ADAM).result()
    sharing.save_state("shared").result()
    assert state("shared") == masters(tmp_path, "runs/shared/checkpoints/*/state.safetensors") != state("judge")
    # A critic begins as the reward model, and a policy does not.
    again = service.create_training_client_from_state(saved).result()
    assert values_of(again, data) == values_of(client, data)
    with pytest.raises((tinker.RequestFailedError, tinker.APIStatusError), match="allowed are two critics"):
        service.create_lora_training_client(base_model=BASE, rank=0).result().load_state(saved).result()


@pytest.fixture(params=[8, 0], ids=["rank-8", "full"])
def critic(request, training_server):
    return critic_of(client_of(training_server), request.param, seed=5)


def test_values_begin_as_zeros_and_learn_returns(critic):
    assert values_of(critic, [states()]) == [[0.0] * len(TOKENS)]
    losses = moved(critic, 12)
    assert losses[0] == pytest.approx(0.5, rel=1e-6) and losses[-1] < 0.1
    assert all(abs(v - 1) < 0.5 for v in values_of(critic, [states()])[0])


def test_a_forward_with_returns_tells_the_loss(critic):
    moved(critic, 2)
    values = np.array(values_of(critic, [states()])[0], np.float32)
    returns = values + np.where(np.arange(len(TOKENS)) % 2 == 0, 1, -1).astype(np.float32)
    result = critic.forward([states(returns=returns)], "value").result()
    assert result.loss_fn_outputs[0]["values"].tolist() == values.tolist() and "logprobs" not in result.loss_fn_outputs[0]
    assert result.metrics["loss:sum"] == pytest.approx(0.5 * np.sum((values.astype(float) - returns) ** 2), rel=1e-6)
    assert "loss:sum" not in critic.forward([states()], "value").result().metrics
    # Held around what the values were: those are 1 lower, so the held square is the larger one where the return is above, in every second row.
    old = values - 1
    held = critic.forward([states(returns=returns, values=old)], "value", {"value_clip": 0.25}).result()
    squares = np.maximum((values.astype(float) - returns) ** 2, (np.clip(values, old - 0.25, old + 0.25).astype(float) - returns) ** 2)
    assert held.metrics["loss:sum"] == pytest.approx(0.5 * np.sum(squares), rel=1e-5)
    assert held.metrics["values_held:mean"] == 0.5


def test_a_saved_critic_goes_on(training_server, critic):
    moved(critic, 2)
    middle = critic.save_state("middle").result().path
    before = values_of(critic, [states()])
    went_on = moved(critic, 2), values_of(critic, [states()])
    again = client_of(training_server).create_training_client_from_state_with_optimizer(middle).result()
    assert values_of(again, [states()]) == before != went_on[1]
    assert (moved(again, 2), values_of(again, [states()])) == went_on


def test_fireworks_trains_the_same_critic(training_server):
    client, firetitan = critic_of(client_of(training_server), 0), FiretitanServiceClient(base_url=training_server.url, api_key="x").create_training_client(base_model=CRITIC)
    losses = moved(client)
    assert losses == moved(firetitan, sdk=fireworks_types) and losses[0] != losses[-1]
    assert values_of(client, [states()]) == values_of(firetitan, [states(sdk=fireworks_types)])


def refused(call, *texts):
    with pytest.raises((tinker.RequestFailedError, tinker.APIStatusError)) as failure:
        call()
    assert all(text in str(failure.value) for text in texts), str(failure.value)


def test_what_is_wrong_is_named(training_server):
    service = client_of(training_server)
    client = critic_of(service, 8, seed=5)
    policy = service.create_lora_training_client(base_model=BASE, rank=8, seed=5).result()
    size = len(TOKENS)

    def backward(of, data, loss, config=None):
        return lambda: of.forward_backward(data, loss, config).result()

    plain = types.Datum(model_input=types.ModelInput.from_ints(TOKENS[:-1]), loss_fn_inputs={"target_tokens": TOKENS[1:]})
    refused(backward(client, [plain], "cross_entropy"), "the loss is 'cross_entropy', and the model is a critic", "allowed are value, pairwise_reward")
    refused(lambda: client.forward([plain], "cross_entropy").result(), "the model is a critic")
    refused(backward(client, [states()] * 2, "dpo"), "the loss is 'dpo', and the model is a critic")
    refused(backward(client, [states()], "valu"), "did you mean 'value'")
    refused(backward(policy, [plain], "value"), "the model has no value head", "where base_model is NAME:value")
    refused(backward(policy, [plain] * 2, "pairwise_reward"), "the model has no value head")
    refused(backward(client, [states()], "value"), "data[0].loss_fn_inputs has no returns, which the loss value needs")
    refused(backward(client, [states(returns=[0] * size)], "value", {"value_clip": 0.2}), "has no values, which the loss value needs")
    refused(backward(client, [states(returns=[0] * size, advantages=[0] * size)], "value"), "loss_fn_inputs.advantages is not known, allowed are target_tokens, mask, weights, returns, values")
    refused(backward(client, [states(returns=[0] * (size - 1))], "value"), "has shape [9], allowed is [10]")
    refused(backward(client, [states(returns=[0] * size)], "value", {"clip": 0.2}), "'clip' is no option of the loss value", "value_clip")
    refused(backward(client, [states()] * 3, "pairwise_reward"), "data[2] is alone")
    refused(backward(client, [states(returns=[0] * size)] * 2, "pairwise_reward"), "loss_fn_inputs.returns is nothing that the loss pairwise_reward takes")
    refused(backward(client, [states(), states()], "pairwise_reward", {"beta": 1.0}), "'beta' is no option")
    refused(lambda: client.save_weights_and_get_sampling_client().result(), "is a critic", "there are no tokens to sample")
    refused(lambda: client.save_weights_for_sampler("s").result(), "is a critic")
    refused(lambda: service.create_sampling_client(base_model=CRITIC).result(), "is a critic")
    refused(lambda: service.create_lora_training_client(base_model="countdown-glx:value", rank=8).result(), "each with :value behind it", "did you mean 'countdown-glm'")
    assert values_of(client, [states()]) == [[0.0] * size]  # none of it has moved anything
