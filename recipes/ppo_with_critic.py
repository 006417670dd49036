"""PPO with a critic in a client's own loop, through the training API: answers, values and steps are the server's, rewards and advantages are made here.
After every step both models have, bit for bit, the weights of `lockstep train rl --algorithm ppo` with the same settings (tests/training/test_critic.py)."""
import re
import struct

import numpy as np
import xxhash
from tinker import types


def countdown(prompt, answer):
    """1 where steps as '12*3=36,36*7=252' use each number of '3 7 12=252:' once and end at its target."""
    *left, target = re.split("[ =]", prompt.rstrip(":"))
    for step in answer.split(","):
        parts = re.fullmatch(r"(\d+)([-+*/])(\d+)=(\d+)", step)
        for number in (parts[1], parts[3]) if parts else [None]:
            if number not in left:
                return 0.0
            left.remove(number)
        a, b = int(parts[1]), int(parts[3])
        if parts[4] != str({"+": a + b, "-": a - b, "*": a * b, "/": a // b if b and a % b == 0 else None}[parts[2]]):
            return 0.0
        left.append(parts[4])
    return float(left == [target])


def advantages_of(values, reward):
    """Generalised advantage estimation with gamma and lambda 1, from the last token to the first."""
    advantages, ahead, later = [0.0] * len(values), 0.0, 0.0
    for i in reversed(range(len(values))):
        advantages[i] = later = (((reward if i + 1 == len(values) else 0.0) + ahead) - values[i]) + later
        ahead = values[i]
    return advantages


def whitened(rows):
    flat = np.concatenate(rows)
    centred = flat - np.cumsum(flat)[-1] / len(flat) if np.any(flat != flat[0]) else np.zeros_like(flat)  # cumsum adds one after the other
    return np.split(centred / np.sqrt(np.cumsum(centred * centred)[-1] / (len(flat) - 1) + 1e-8), np.cumsum([len(row) for row in rows])[:-1])


def train(policy, critic, tokenizer, prompts, reward=countdown, rollouts=16, max_tokens=16, seed=1, rate=1.5e-3, critic_rate=3e-3):
    for step, prompt in enumerate(prompts):
        sampler, ids = policy.save_weights_and_get_sampling_client().result(), tokenizer.encode(prompt).ids
        noise = types.SamplingParams(max_tokens=max_tokens, temperature=1.0, seed=xxhash.xxh3_64_intdigest(struct.pack("<3Q", seed, 1, step)))
        answers = sampler.sample(types.ModelInput.from_ints(ids), num_samples=rollouts, sampling_params=noise).result().sequences
        rewards = [reward(prompt, tokenizer.decode(a.tokens[:-1], skip_special_tokens=False)) if a.stop_reason == "stop" else 0.0 for a in answers]
        def data(**columns):  # each a row for each answer, of its tokens; those of the prompt have zeros
            rows = [{name: np.array([0.0] * (len(ids) - 1) + list(column[i]), np.float32) for name, column in columns.items()} for i in range(len(answers))]
            tokens = [ids + list(a.tokens) for a in answers]
            return [types.Datum(model_input=types.ModelInput.from_ints(t[:-1]), loss_fn_inputs={"target_tokens": t[1:], **r}) for t, r in zip(tokens, rows)]
        trained = [[1.0] * len(a.tokens) for a in answers]
        values = [out["values"].tolist()[len(ids) - 1 :] for out in critic.forward(data(weights=trained), "value").result().loss_fn_outputs]
        advantages = [advantages_of(*pair) for pair in zip(values, rewards)]
        returns = [[a + v for a, v in zip(*pair)] for pair in zip(advantages, values)]
        losses = ((critic, "value", critic_rate, {"returns": returns}),
                  (policy, "ppo", rate, {"logprobs": [a.logprobs for a in answers], "advantages": whitened(advantages)}))
        for client, loss, learning_rate, columns in losses:
            client.forward_backward(data(weights=trained, **columns), loss, {"averaging": "token_mean"}).result()
            client.optim_step(types.AdamParams(learning_rate=learning_rate, beta1=0.95, beta2=0.999, eps=1e-8, grad_clip_norm=1.0)).result()
