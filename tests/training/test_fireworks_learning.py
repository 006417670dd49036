"""PPO with a critic, DPO, KTO and distillation through the unmodified `fireworks-ai`: after a few steps of all weights these are, bit for bit, those of `lockstep train rl`,
`train preference` and `train distill`. Answers come from a deployment into which the weights are hot-loaded before each step."""
import json
import warnings

import fireworks.training.sdk.types as types
import numpy as np
from fireworks.training.sdk import FiretitanServiceClient
from fireworks.training.sdk.client import FiretitanSamplingClient

import test_batch_losses
from fireworks_tools import Deployed, client_of, logprobs_of
from test_batch_losses import PAIRS, STEPS, TOKENIZER, labelled, lockstep, masters, preferred, train
from test_critic import CRITIC, ppo_with_critic
from test_tinker import FOLDER


class Policy:
    """A training client as a loop written for tinker has it: its sampler is a deployment."""

    def __init__(self, url, key):
        self.client, self.deployment, self.count = client_of(url, key), Deployed(url, key, f"of-{key}"), 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.sampler = FiretitanSamplingClient.create(inference_url=url, model=self.deployment.model, api_key=key)

    def __getattr__(self, name):
        return getattr(self.client, name)

    def save_weights_and_get_sampling_client(self):
        self.count += 1
        self.deployment.load(self.client.save_weights_for_sampler_ext(f"step-{self.count}", checkpoint_type="base").snapshot_name)
        return self

    def result(self):
        return self.sampler


def test_ppo_with_a_critic_has_the_weights_of_the_command(start_server, tmp_path, monkeypatch):
    """The loop of tinker's test, of single rollouts: a deployment gives one answer a request."""
    monkeypatch.setattr(ppo_with_critic, "types", types)
    steps = 8
    told = lockstep(tmp_path, "train", "rl", "--model", FOLDER, "--algorithm", "ppo", "--problems", 1, "--rollouts", 1, "--steps", steps, "--schedule", "constant", "--warmup", 0,
                    "--learning-rate", 1.5e-3, "--critic-learning-rate", 3e-3, "--transcripts", 1, "--no-page", "--json", "--name", "ppo")  # fmt: skip
    rollouts = [json.loads(line) for line in (tmp_path / "runs/ppo/transcripts.jsonl").read_text().splitlines()]
    assert told["different_bits"] == 0 and [r["step"] for r in rollouts] == list(range(1, steps + 1))
    assert 1.0 in {r["reward"] for r in rollouts[:-1]}, "no answer earned anything: the run shows nothing"
    prompts = [TOKENIZER.decode(r["prompt_ids"], skip_special_tokens=False) for r in rollouts]
    url = start_server().url
    state = lambda name: masters(tmp_path, f"state/checkpoints/*/weights/{name}/**/state.safetensors")  # noqa: E731

    def loop(name, **settings):
        policy = Policy(url, name)
        critic = FiretitanServiceClient(base_url=url, api_key=f"{name}-critic").create_training_client(base_model=CRITIC)
        ppo_with_critic.train(policy, critic, TOKENIZER, prompts, rollouts=1, **settings)
        for client, saved in ((policy, name), (critic, f"{name}-critic")):
            client.save_state(saved).result()
        return state(name), state(f"{name}-critic")

    wanted = tuple(masters(tmp_path, f"runs/ppo/{of}checkpoints/*/state.safetensors") for of in ("", "critic/"))
    assert loop("same") == wanted
    other = loop("faster", critic_rate=4e-3)  # the control: both differ
    assert other[0] != wanted[0] and other[1] != wanted[1]


ADAM = types.AdamParams(learning_rate=1e-3, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.0, grad_clip_norm=1.0)
WHOLE = ["--model", FOLDER, "--learning-rate", "1e-3", "--schedule", "constant", "--warmup", 0, "--beta1", 0.9, "--beta2", 0.95, "--eps", 1e-8, "--weight-decay", 0, "--max-norm", 1, "--steps", STEPS,
         "--export-dtype", "f32", "--no-page", "--json"]  # fmt: skip


def taught_by(teacher, pupil):
    """What the pupil writes, greedily, with the teacher's log-probabilities of all tokens at each place."""
    sampler, vocabulary = pupil.save_weights_and_get_sampling_client().result(), TOKENIZER.get_vocab_size()
    data = []
    for pair in PAIRS:
        prompt = TOKENIZER.encode(pair["prompt"]).ids
        greedy = types.SamplingParams(max_tokens=12, temperature=0.0)
        tokens = prompt + list(sampler.sample(types.ModelInput.from_ints(prompt), num_samples=1, sampling_params=greedy).result().sequences[0].tokens)
        rows = len(tokens) - 1
        weights = np.zeros((rows, vocabulary), np.float32)
        weights[len(prompt) - 1 :] = 1
        inputs = {"target_tokens": np.tile(np.arange(vocabulary, dtype=np.int64), (rows, 1)), "weights": weights}
        said = logprobs_of(teacher.forward([types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=inputs)], "cross_entropy").result())
        teachers = np.array(said, np.float32).reshape(rows, vocabulary)
        data.append(types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs={**inputs, "teacher_logprobs": teachers}))
    return data


def test_dpo_and_distillation_have_the_weights_of_the_commands(start_server, tmp_path, monkeypatch):
    for name, own in (("types", types), ("ADAM", ADAM), ("logprobs_of", logprobs_of)):
        monkeypatch.setattr(test_batch_losses, name, own)
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in PAIRS))
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps({"prompt": pair["prompt"]}) + "\n" for pair in PAIRS))
    (tmp_path / "teachers.toml").write_text('[[teacher]]\nname = "dpo"\nfolder = "runs/dpo/export"\n')
    lockstep(tmp_path, "train", "preference", *WHOLE, "--loss", "dpo", "--data", "pairs.jsonl", "--name", "dpo", "--batch", len(PAIRS), "--eval-share", 0)
    url = start_server().url
    state = lambda name: masters(tmp_path, f"state/checkpoints/*/weights/{name}/**/state.safetensors")  # noqa: E731
    teacher = client_of(url, "teacher")
    data = preferred(teacher)
    train(teacher, data, "dpo", {"beta": 0.1, "averaging": "pair_mean"})
    teacher.save_state("dpo").result()
    assert state("dpo") == masters(tmp_path, "runs/dpo/checkpoints/*/state.safetensors")
    other = client_of(url, "other")  # the control
    train(other, data, "ipo", {"averaging": "pair_mean"})
    other.save_state("ipo").result()
    assert state("ipo") != state("dpo")

    lockstep(tmp_path, "train", "distill", *WHOLE, "--teachers", "teachers.toml", "--data", "prompts.jsonl", "--name", "distilled", "--prompts", len(PAIRS), "--temperature", 0.001, "--max-tokens", 12)
    wanted = masters(tmp_path, "runs/distilled/checkpoints/*/state.safetensors")
    for name, of, equal in (("distilled", teacher, True), ("untaught", other, False)):
        pupil = Policy(url, name)
        train(pupil, lambda: taught_by(of, pupil), "distill", {"divergence": "reverse", "averaging": "token_mean"})  # noqa: B023
        pupil.save_state(name).result()
        assert (state(name) == wanted) == equal, name


def test_kto_has_the_weights_of_the_command(start_server, tmp_path, monkeypatch):
    for name, own in (("types", types), ("ADAM", ADAM), ("logprobs_of", logprobs_of)):
        monkeypatch.setattr(test_batch_losses, name, own)
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in PAIRS))
    lockstep(tmp_path, "train", "kto", *WHOLE, "--data", "pairs.jsonl", "--name", "kto", "--batch", 2 * len(PAIRS), "--eval-share", 0)
    wanted, url = masters(tmp_path, "runs/kto/checkpoints/*/state.safetensors"), start_server().url
    # The controls: mismatched answers that fit, so another shift, and another weight of bad answers.
    for name, other, config in (("kto", 1, {}), ("own", 0, {}), ("heavy", 1, {"undesirable_weight": 2.0})):
        client = client_of(url, name)
        data = labelled(client, other)
        results = train(client, data, "kto", {"averaging": "answer_mean", **config})
        for i, datum in enumerate(data):  # results are in the order of the data, whichever are scored first
            assert [np.float32(x) for x in logprobs_of(results[0], i)] == list(np.array(datum.loss_fn_inputs["reference_logprobs"].data, np.float32)), (name, i)
        client.save_state(name).result()
        assert (masters(tmp_path, f"state/checkpoints/*/weights/{name}/**/state.safetensors") == wanted) == (name == "kto"), name
