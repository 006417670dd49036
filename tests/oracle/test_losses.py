"""Every loss against torch in float64: the binary's losses and gradients through `lockstep grad --loss`, autograd through transformers.

The formulas below are written from the papers and from docs/losses.md, with torch's own clamp, min and detach. Losses are held against
the formula of the log-probabilities that the binary reports, which are held against transformers by themselves; gradients against
autograd from the first weight to the loss.
"""

import json

import make_goldens
import numpy as np
import pytest
import torch
from comparison import largest_difference, relative_error
from oracle_cases import LOGPROB_TOLERANCE, fresh_case, fresh_seeds
from safetensors.numpy import load_file

LOSS_TOLERANCE = 1e-6
GRADIENT_TOLERANCE = 1e-4


def policy(kind, c, lp, d):
    """The loss of each target before its weight."""
    q, a = d["logprobs"], d["advantages"]
    anchor = {"sampler": q, "proximal": d["proximal_logprobs"], "current": lp.detach()}[c.get("anchor", "sampler")]
    low, high = c.get("clip_low_threshold", 0.8), c.get("clip_high_threshold", 1.28 if kind in ("dapo", "cispo") else 1.2)
    low, high = d.get("clip_low_threshold", torch.tensor(low)), d.get("clip_high_threshold", torch.tensor(high))
    cap = c.get("ratio_log_cap", 80 if kind == "importance_sampling" else 20)
    if kind == "gspo":
        m = d["sequence_ratio_mask"]
        mean = ((lp - q) * m).sum() / m.sum()
        ratio = torch.exp(lp - lp.detach() + mean.detach().clamp(max=c.get("seq_ratio_log_cap", 10)))
    else:
        ratio = torch.exp((lp - anchor).clamp(-cap, cap))
    if kind in ("ppo", "grpo", "dapo", "gspo"):
        loss = -torch.minimum(ratio * a, torch.clamp(ratio, low, high) * a)
        if "eps_clip_c" in c:
            loss = torch.where(a < 0, torch.minimum(loss, -c["eps_clip_c"] * a), loss)
    elif kind == "importance_sampling":
        loss = -ratio * a
    elif kind == "cispo":
        loss = -torch.clamp(ratio, low, high).detach() * a * lp
    elif kind == "dro":
        gate = (a != 0) if c.get("gate_zero_advantage", True) else torch.ones_like(a)
        loss = -(a * lp - 0.5 * c.get("beta", 0.05) * (lp - q) ** 2 * gate)
    elif kind == "reinforce":
        loss = -a * lp
    elif kind == "dppo":
        p, before = lp.detach().exp(), anchor.exp()
        bound = torch.where(a > 0, c.get("trust_high_threshold", 0.2), c.get("trust_low_threshold", 0.2))
        if c.get("trust_distance", "tv") == "tv":
            distance = (p - before).abs()
        else:
            distance = before * (anchor - lp.detach()) + (1 - before) * torch.log((1 - before) / (1 - p))
        keep = ~(((p - before) * a > 0) & (distance > bound))
        loss = -torch.clamp(ratio, max=c.get("ratio_cap", 20)).detach() * a * lp * keep
    elif kind == "sapo":
        tau = torch.where(a > 0, c.get("tau_positive", 1.0), c.get("tau_negative", 1.05))
        loss = -4 / tau * torch.sigmoid(tau * (ratio - 1)) * a
    if c.get("correction", "none") != "none":
        distance = (d["proximal_logprobs"] if c.get("anchor") == "proximal" else lp.detach()) - q
        level, m = c.get("correction_level", "token"), d["sequence_ratio_mask"]
        if level != "token":
            distance = ((distance * m).sum() / (m.sum() if level == "geometric" else 1)).expand_as(distance)
        r, lowest, most = distance.exp(), c.get("correction_low", 0.0), c.get("correction_high", 2.0)
        inside = (r >= lowest) & (r <= most)
        loss = loss * {"tis": r.clamp(max=most), "clip": r.clamp(lowest, most), "icepop": r * inside, "mask": inside.double()}[c["correction"]]
    if "kl_coefficient" in c:
        k = lp - d["reference_logprobs"]
        k3 = torch.exp(-k) + k - 1
        kl = {"k1": k, "k2": k * k / 2, "k3": k3, "unbiased": ratio * k3, "k3_plus": k * k / 2 + (k3 - k * k / 2).detach()}[c.get("kl", "k3")]
        loss = loss + c["kl_coefficient"] * kl
    return loss


NOT_OF_TARGETS = ("tokens", "targets", "temperature", "kept_tokens", "kept_by_rank")


def losses_of(kind, c, d, lp, entropy, divisor):
    """The loss of each target of one sequence, weights and averaging in."""
    tensors = {key: torch.tensor(value, dtype=torch.float64) for key, value in d.items() if key not in NOT_OF_TARGETS}
    tensors["weights"] = tensors["weights"] * (torch.tensor(d["targets"]) >= 0)
    loss = -lp if kind == "cross_entropy" else policy(kind, c, lp, tensors)
    if "entropy_coefficient" in c:
        loss = loss - c["entropy_coefficient"] * entropy
    w = tensors["weights"] / divisor
    return torch.where(w != 0, loss * w, torch.zeros_like(loss))


def divisors(data, c):
    """What the weights of each sequence are divided by."""
    counts = [sum(w for w, t in zip(d["weights"], d["targets"]) if t >= 0) for d in data]
    live = sum(any(w != 0 and t >= 0 for w, t in zip(d["weights"], d["targets"])) for d in data)
    return [{"sum": 1, "token_mean": sum(counts), "sequence_token_mean": live * count, "sequence_token_sum": live,
             "sequence_token_sum_norm": live * c.get("length_norm", 1)}[c.get("averaging", "sum")] for count in counts]  # fmt: skip


def log_probabilities(logits, d):
    """Of logits / temperature over the tokens that are kept at each row; -infinity for the others."""
    z = logits / d.get("temperature", [1.0])[0]
    for row, kept in enumerate(d.get("kept_tokens", [])):
        if ids := [i for i in kept if i >= 0]:
            cut = torch.ones(z.shape[1], dtype=torch.bool)
            cut[ids] = False
            z = torch.where((torch.arange(len(z)) == row)[:, None] & cut, -torch.inf, z)
    return z.log_softmax(-1)


def reference(case, data, kind, c):
    """(log-probabilities of each sequence's targets, name -> gradient) in float64."""
    with make_goldens.float64_everywhere():
        model = make_goldens.build_model(case.arguments, case.weights)
        total, logprobs = 0, []
        for d, divisor in zip(data, divisors(data, c)):
            z = log_probabilities(model(input_ids=torch.tensor(d["tokens"])[None], use_cache=False).logits[0], d)
            targets = torch.tensor(d["targets"]).reshape(len(d["tokens"]), -1)
            lp = z.gather(1, targets.clamp(min=0)).reshape(-1)
            logprobs.append((lp * (targets.reshape(-1) >= 0)).detach().numpy())
            total = total + losses_of(kind, c, d, lp, -(z.exp() * z.clamp(min=-1e30)).sum(-1), divisor).sum()
        total.backward()
    return logprobs, {name: p.grad.numpy() for name, p in model.named_parameters() if p.grad is not None}


def make_data(case, seed, targets_per_row):
    rng = np.random.default_rng(seed)
    vocabulary, data = case.arguments["vocab_size"], []
    for rows in (len(case.tokens) - 1, 7):
        n = rows * targets_per_row
        near = lambda: np.float32(-np.log(vocabulary) + rng.uniform(-0.5, 0.5, n)).tolist()  # noqa: E731
        d = dict(
            tokens=[int(t) for t in case.tokens[:rows]], targets=rng.integers(0, vocabulary, n).tolist(),
            weights=np.float32(rng.uniform(0.2, 1, n)).tolist(), advantages=np.float32(rng.uniform(-2, 2, n)).tolist(), logprobs=near(),
            proximal_logprobs=near(), reference_logprobs=near(), sequence_ratio_mask=(rng.uniform(size=n) < 0.7).astype(float).tolist(),
        )  # fmt: skip
        for i in range(0, n, 5):
            d["targets"][i], d["sequence_ratio_mask"][i] = -1, 0.0
        d["weights"][1], d["weights"][2], d["advantages"][3], d["sequence_ratio_mask"][4] = 0.0, -0.5, 0.0, 1.0
        data.append(d)
    return data


CORRECTED = dict(anchor="proximal", correction="icepop", correction_low=0.8, correction_high=1.3)
CASES = [
    ("cross_entropy", {}, 1), ("cross_entropy", {}, 4), ("cross_entropy", dict(averaging="token_mean"), 1), ("importance_sampling", {}, 1),
    ("importance_sampling", dict(ratio_log_cap=0.2), 1), ("ppo", {}, 1), ("ppo", dict(clip_low_threshold=0.95, clip_high_threshold=1.02), 2),
    ("ppo", dict(entropy_coefficient=0.1), 1), ("ppo", CORRECTED, 1), ("ppo", CORRECTED | dict(correction="tis"), 1),
    ("ppo", CORRECTED | dict(correction="clip"), 1), ("ppo", CORRECTED | dict(correction_level="sequence", correction_low=0.01, correction_high=9.0), 1),
    ("ppo", dict(correction="mask", correction_low=0.8, correction_high=1.3), 1),
    ("grpo", dict(kl="k1", kl_coefficient=0.2), 1), ("grpo", dict(kl="k2", kl_coefficient=0.2), 1),
    ("grpo", dict(kl="k3", kl_coefficient=0.2, averaging="sequence_token_mean"), 1), ("grpo", dict(kl="unbiased", kl_coefficient=0.2), 1),
    ("grpo", dict(kl="k3_plus", kl_coefficient=0.2), 1), ("dapo", dict(eps_clip_c=1.1, averaging="token_mean"), 1), ("gspo", {}, 1),
    ("gspo", dict(clip_low_threshold=0.99, clip_high_threshold=1.01, seq_ratio_log_cap=0.02, averaging="sequence_token_sum"), 1), ("cispo", {}, 1),
    ("cispo", dict(clip_low_threshold=0.0, clip_high_threshold=4.0), 1), ("dro", {}, 1), ("dro", dict(beta=0.5, gate_zero_advantage=False), 1),
    ("reinforce", {}, 1), ("reinforce", dict(anchor="current", correction="tis", correction_high=1.1), 1),
    ("dppo", dict(trust_low_threshold=0.001, trust_high_threshold=0.002, averaging="sequence_token_sum_norm", length_norm=50.0), 1),
    ("dppo", dict(trust_distance="kl", trust_low_threshold=0.0005, trust_high_threshold=0.0002), 1), ("sapo", {}, 1),
]  # fmt: skip


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    seed = fresh_seeds()[0]
    config = dict(
        model_type="llama", hidden_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=12, intermediate_size=60,
        rms_norm_eps=1e-5, vocab_size=160, max_position_embeddings=512, tie_word_embeddings=False, bos_token_id=None, eos_token_id=1,
        rope_parameters={"rope_theta": 10000.0, "rope_type": "default"},
    )  # fmt: skip
    made = fresh_case(config, 33, seed, tmp_path_factory.mktemp("losses"))
    made.seed = seed
    return made


@pytest.mark.parametrize("kind, options, targets_per_row", CASES, ids=lambda v: "-".join(map(str, v.values())) if isinstance(v, dict) else str(v))
def test_losses_and_gradients_are_torchs(lockstep, case, kind, options, targets_per_row):
    data = make_data(case, case.seed, targets_per_row)
    if kind == "cross_entropy":
        data = [{key: d[key] for key in ("tokens", "targets", "weights")} for d in data]
    if options.get("averaging", "sum") != "sum":
        for d in data:
            d["weights"] = [abs(w) for w in d["weights"]]
    logprobs, gradients = reference(case, data, kind, options)
    tokens, out, rows_file = (lockstep.folder / name for name in ("data.jsonl", "gradients.safetensors", "rows.jsonl"))
    tokens.write_text("".join(json.dumps(d) + "\n" for d in data))
    config = [part for key, value in options.items() for part in ("--loss-config", f"{key}={str(value).lower()}")]
    said = json.loads(lockstep.run("grad", "--model", case.folder, "--tokens", tokens, "--out", out, "--loss", kind, *config, "--rows", rows_file, "--json"))
    rows = [{key: np.array(values) for key, values in json.loads(line).items()} for line in rows_file.read_text().splitlines()]
    total = 0
    for row, d, truth, divisor in zip(rows, data, logprobs, divisors(data, options)):
        assert relative_error(row["logprobs"], truth) <= LOGPROB_TOLERANCE
        want = losses_of(kind, options, d, torch.tensor(row["logprobs"]), torch.tensor(row["entropies"]), divisor).numpy()
        assert largest_difference(row["losses"], want) <= LOSS_TOLERANCE * max(np.abs(want).max(), 1e-9)
        total += row["losses"].sum()
    assert len(rows) == len(data) and abs(said["loss"] - total) <= 1e-8 * sum(np.abs(row["losses"]).sum() for row in rows)
    assert said["metrics"]["loss:sum"] == said["loss"] and all(name.count(":") == 1 for name in said["metrics"])
    for name, value in load_file(out).items():
        assert relative_error(value, gradients[name]) <= GRADIENT_TOLERANCE, name


@pytest.mark.parametrize("kind, options", [("importance_sampling", dict(anchor="proximal")), ("reinforce", dict(anchor="current")),
                                           ("cispo", dict(anchor="current", clip_low_threshold=0, clip_high_threshold=9))], ids=lambda v: v if isinstance(v, str) else "")  # fmt: skip
def test_ratio_and_correction_are_the_whole_importance_weight(lockstep, case, kind, options):
    """Truncated importance sampling by hand: what weighs a token of the sampler's is exp(lp - q), whatever the ratio is over; cut at `high` it is
    the correction's part of it. o (proximal_logprobs) is in the data of all, and is read where the ratio goes on from it."""
    data = make_data(case, case.seed, 1)
    tokens, out, rows_file = (lockstep.folder / name for name in ("data.jsonl", "gradients.safetensors", "rows.jsonl"))
    tokens.write_text("".join(json.dumps(d) + "\n" for d in data))
    for high in (1e6, 1.1):
        config = [part for key, value in {**options, "correction": "tis", "correction_high": high}.items() for part in ("--loss-config", f"{key}={value}")]
        lockstep.run("grad", "--model", case.folder, "--tokens", tokens, "--out", out, "--overwrite", "--loss", kind, *config, "--rows", rows_file)
        for line, d in zip(rows_file.read_text().splitlines(), data):
            row = {key: np.array(values) for key, values in json.loads(line).items()}
            lp, q, o, a = (np.array(v) for v in (row["logprobs"], d["logprobs"], d["proximal_logprobs"], d["advantages"]))
            w = np.array(d["weights"]) * (np.array(d["targets"]) >= 0)
            proximal = options["anchor"] == "proximal"
            c, ratio = (np.exp(o - q), np.exp(lp - o)) if proximal else (np.exp(lp - q), np.ones_like(lp))
            want = -w * np.minimum(c, high) * ratio * a * (1 if kind == "importance_sampling" else lp)
            assert largest_difference(row["losses"], want) <= LOSS_TOLERANCE * np.abs(want).max()
            if high > 1e5:  # not cut
                whole = -w * np.exp(lp - q) * a * (1 if kind == "importance_sampling" else lp)
                assert largest_difference(row["losses"], whole) <= LOSS_TOLERANCE * np.abs(whole).max()
            # The control: the other probability in the correction is seen.
            other = -w * np.minimum(np.exp((lp if proximal else o) - q), high) * ratio * a * (1 if kind == "importance_sampling" else lp)
            assert largest_difference(row["losses"], other) > 1e-3 * np.abs(want).max()


def sampled(data, case, temperature):
    """Data whose targets were drawn at a temperature from some tokens: few and many, by rank and by id, and all."""
    rng = np.random.default_rng(case.seed + 1)
    vocabulary = case.arguments["vocab_size"]
    for d in data:
        rows, width = len(d["tokens"]), vocabulary // 2
        d["temperature"], d["kept_tokens"], d["kept_by_rank"] = [temperature], [], []
        for row in range(rows):
            target = d["targets"][row]
            ids = [] if row % 4 == 0 or target < 0 else rng.permutation(vocabulary)[: 3 if row % 4 == 1 else width - 1].tolist()
            if ids and target not in ids:
                ids.append(target)
            d["kept_tokens"].append(ids + [-1] * (width - len(ids)))
            d["kept_by_rank"].append(row % 2)
    return data


@pytest.mark.parametrize("temperature", [0.3, 0.7, 1.0, 1.5])
@pytest.mark.parametrize("kind, options", [("cross_entropy", {}), ("ppo", dict(entropy_coefficient=0.1)), ("gspo", {}), ("grpo", dict(kl="k3", kl_coefficient=0.2))],
                         ids=lambda v: v if isinstance(v, str) else "")  # fmt: skip
def test_tempered_and_kept_targets_are_torchs(lockstep, case, kind, options, temperature):
    """Value and gradient where the log-probability is that of logits / temperature over the tokens that sampling kept."""
    data = sampled(make_data(case, case.seed, 1), case, temperature)
    if kind == "cross_entropy":
        data = [{key: d[key] for key in ("tokens", "targets", "weights", "temperature", "kept_tokens", "kept_by_rank")} for d in data]
    logprobs, gradients = reference(case, data, kind, options)
    tokens, out, rows_file = (lockstep.folder / name for name in ("data.jsonl", "gradients.safetensors", "rows.jsonl"))
    config = [part for key, value in options.items() for part in ("--loss-config", f"{key}={value}")]

    def run(of):
        tokens.write_text("".join(json.dumps(d) + "\n" for d in of))
        lockstep.run("grad", "--model", case.folder, "--tokens", tokens, "--out", out, "--overwrite", "--loss", kind, *config, "--rows", rows_file)
        return [{key: np.array(values) for key, values in json.loads(line).items()} for line in rows_file.read_text().splitlines()]

    for row, d, truth, divisor in zip(run(data), data, logprobs, divisors(data, options)):
        assert relative_error(row["logprobs"], truth) <= LOGPROB_TOLERANCE
        want = losses_of(kind, options, d, torch.tensor(row["logprobs"]), torch.tensor(row["entropies"]), divisor).numpy()
        assert largest_difference(row["losses"], want) <= LOSS_TOLERANCE * max(np.abs(want).max(), 1e-9)
    for name, value in load_file(out).items():
        assert relative_error(value, gradients[name]) <= GRADIENT_TOLERANCE, name
    # The control: without the kept sets the gradient is another.
    run([{key: value for key, value in d.items() if not key.startswith("kept")} for d in data])
    assert max(relative_error(value, gradients[name]) for name, value in load_file(out).items()) > 100 * GRADIENT_TOLERANCE


def test_a_wrong_option_is_seen(lockstep, case):
    """The control: another clip bound gives other gradients than torch's. Every ratio lies between the two bounds, whatever weights were drawn."""
    data = make_data(case, case.seed, 1)
    logprobs, _ = reference(case, data, "ppo", {})
    for d, now in zip(data, logprobs):
        d["logprobs"] = np.float32(now - np.log(1.4)).tolist()
        d["advantages"] = np.abs(d["advantages"]).tolist()
    tokens, out = lockstep.folder / "data.jsonl", lockstep.folder / "gradients.safetensors"
    tokens.write_text("".join(json.dumps(d) + "\n" for d in data))
    for bound, right in ((1.02, True), (8, False)):
        _, gradients = reference(case, data, "ppo", dict(clip_high_threshold=1.02))
        lockstep.run("grad", "--model", case.folder, "--tokens", tokens, "--out", out, "--overwrite", "--loss", "ppo", "--loss-config", f"clip_high_threshold={bound}")
        differs = max(relative_error(value, gradients[name]) for name, value in load_file(out).items()) > GRADIENT_TOLERANCE
        assert differs != right, bound
