"""Preference losses, their gradients and rewards against torch in float64, and against TRL's own code: of its trainers the statements that compute a loss
are taken out of their files and run alone, since importing a trainer needs half of the field. The bridge is build/preference_bridge (tests/tools)."""
import ast
import importlib.machinery
import json
import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import make_goldens
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from comparison import assert_near, largest_difference
from safetensors.numpy import load_file
from transformers import AutoModelForSequenceClassification, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

REPOSITORY = Path(__file__).resolve().parents[2]
BRIDGE = Path(os.environ.get("LOCKSTEP_BINARY", REPOSITORY / "build" / "lockstep")).resolve().parent / "preference_bridge"
TOLERANCE = 1e-9
DEFAULTS = {"beta": 0.1, "label_smoothing": 0.1, "gamma": 0.5, "alpha": 1.0, "desirable_weight": 1.0, "undesirable_weight": 1.0}
CASES = [{"loss": "dpo"}, {"loss": "dpo", "beta": 2.5}, {"loss": "cdpo"}, {"loss": "cdpo", "label_smoothing": 0.3, "beta": 0.5}, {"loss": "robust"}, {"loss": "robust", "label_smoothing": 0.4}, {"loss": "hinge"},
         {"loss": "hinge", "beta": 1.0}, {"loss": "ipo"}, {"loss": "ipo", "beta": 0.7}, {"loss": "sigmoid_norm"}, {"loss": "sigmoid_norm", "beta": 3.0}, {"loss": "simpo", "beta": 2.0}, {"loss": "simpo", "beta": 0.1, "gamma": 1.5}, {"loss": "orpo"}, {"loss": "orpo", "beta": 0.6},
         {"loss": "cpo"}, {"loss": "cpo", "alpha": 0.25, "beta": 0.4}, {"loss": "reward"}]  # fmt: skip
NAMES = [" ".join(str(v) for v in case.values()) for case in CASES]


def ask(requests):
    if not os.access(BRIDGE, os.X_OK):
        pytest.fail(f"there is no preference_bridge at {BRIDGE}; build the tests first")
    done = subprocess.run([BRIDGE], input="".join(json.dumps(r) + "\n" for r in requests), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def answers(count, seed, with_reference=True):
    """Sums over 1 to 60 tokens; among them ones far apart, equal ones, and one nearly certain."""
    random = np.random.default_rng(seed)
    made = []
    for i in range(count):
        tokens = int(random.integers(1, 60)) if i % 7 else 1
        logprob = -float(random.exponential(0.8)) * tokens if i % 5 else -1e-6 * tokens
        reference = logprob + float(random.normal(0, 1 if i % 3 else 40)) if i % 4 else logprob
        made.append({"logprob": logprob, "reference": reference if with_reference else 0.0, "weight": float(tokens)})
    return made


def torch_loss(case, c, r):
    """Of sums of log-probabilities: a list of tensors a side, (logprob, reference, tokens)."""
    s = {**DEFAULTS, **case}
    (lc, fc, nc), (lr, fr, nr) = c, r
    delta = (lc - fc) - (lr - fr)
    name, b, e = s["loss"], s["beta"], s["label_smoothing"]
    odds = lambda m: m - torch.log(-torch.expm1(m))  # noqa: E731
    return {
        "dpo": lambda: -F.logsigmoid(b * delta),
        "cdpo": lambda: -(1 - e) * F.logsigmoid(b * delta) - e * F.logsigmoid(-b * delta),
        "robust": lambda: (-(1 - e) * F.logsigmoid(b * delta) + e * F.logsigmoid(-b * delta)) / (1 - 2 * e),
        "hinge": lambda: torch.relu(1 - b * delta),
        "ipo": lambda: ((lc - fc) / nc - (lr - fr) / nr - 1 / (2 * b)) ** 2,
        "sigmoid_norm": lambda: -F.logsigmoid(b * ((lc - fc) / nc - (lr - fr) / nr)),
        "simpo": lambda: -F.logsigmoid(b * (lc / nc - lr / nr - s["gamma"] / b)),
        "orpo": lambda: -lc / nc - b * F.logsigmoid(odds(lc / nc) - odds(lr / nr)),
        "cpo": lambda: -F.logsigmoid(b * (lc - lr)) - s["alpha"] * lc / nc,
        "reward": lambda: -F.logsigmoid(lc - lr),
    }[name]()


def tensors(scores):
    columns = [torch.tensor([s[key] for s in scores], dtype=torch.float64) for key in ("logprob", "reference", "weight")]
    columns[0].requires_grad_(True)
    return columns


def near(ours, wanted, tolerance=TOLERANCE):
    assert_near(ours, wanted.detach().numpy() if isinstance(wanted, torch.Tensor) else wanted, rtol=tolerance, atol=tolerance)


def case_of(case, seed=3):
    reference = case["loss"] not in ("simpo", "orpo", "cpo", "reward")
    chosen, rejected = answers(80, seed, reference), answers(80, seed + 1, reference)
    return chosen, rejected, ask([{"settings": case, "pairs": list(zip(chosen, rejected))}])[0]


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_pairs_against_torch(case):
    chosen, rejected, ours = case_of(case)
    c, r = tensors(chosen), tensors(rejected)
    loss = torch_loss(case, c, r)
    loss.sum().backward()
    near([o["loss"] for o in ours], loss)
    near([o["chosen_slope"] for o in ours], c[0].grad)
    near([o["rejected_slope"] for o in ours], r[0].grad)


@pytest.mark.parametrize("weights", [{}, {"desirable_weight": 1.3, "undesirable_weight": 0.2, "beta": 0.5}], ids=["plain", "weighted"])
def test_kto_against_torch(weights):
    given, mismatched = answers(60, 8), [{**a, "logprob": a["logprob"] + 1.5} for a in answers(60, 9)]
    desirable = [i % 3 != 0 for i in range(60)]
    ours = ask([{"settings": {"loss": "kto", **weights}, "answers": given, "desirable": desirable, "mismatched": mismatched}])[0]
    s = {**DEFAULTS, **weights}
    (l, f, _), (kl, kf, _) = tensors(given), tensors(mismatched)
    z = (kl - kf).mean().detach().clamp(min=0)
    assert z > 0
    good = torch.tensor(desirable)
    loss = torch.where(good, s["desirable_weight"] * (1 - torch.sigmoid(s["beta"] * (l - f - z))), s["undesirable_weight"] * (1 - torch.sigmoid(s["beta"] * (z - (l - f)))))
    loss.sum().backward()
    near([o["loss"] for o in ours], loss)
    near([o["chosen_slope"] for o in ours], l.grad)
    near([o["chosen_reward"] for o in ours], s["beta"] * (l - f))


# --- a whole step of `lockstep train`, against autograd through transformers in float64

PAIRS = [(f"{a} {a + 5} {b}={b - a}:", f"{b}-{a}={b - a}", f"{a}+{b}") for a, b in ((3, 17), (8, 21), (2, 9), (11, 40), (6, 33))]
END = 102  # of the shipped model's tokenizer


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A random Llama with the shipped model's tokenizer, and the pairs as a file and as token ids."""
    folder = tmp_path_factory.mktemp("small") / "model"
    torch.manual_seed(5)
    config = LlamaConfig(vocab_size=512, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
                         tie_word_embeddings=False, initializer_range=0.2, eos_token_id=END, bos_token_id=None)  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(REPOSITORY / "models/countdown-glm" / name, folder / name)
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    ids = lambda text: tokenizer.encode(text, add_special_tokens=False)  # noqa: E731
    data = folder.parent / "pairs.jsonl"
    data.write_text("".join(json.dumps({"prompt": p, "chosen": c, "rejected": r}) + "\n" for p, c, r in PAIRS))
    return folder, data, [(ids(p), ids(c) + [END], ids(r) + [END]) for p, c, r in PAIRS]


def answer_logprob(model, prompt, answer):
    logits = model(input_ids=torch.tensor([prompt + answer[:-1]]), use_cache=False).logits[0, len(prompt) - 1 :]
    return F.log_softmax(logits, dim=-1).gather(1, torch.tensor(answer)[:, None]).sum()


def answer_value(model, prompt, answer):
    return model.score(model.model(input_ids=torch.tensor([prompt + answer]), use_cache=False).last_hidden_state)[0, -1, 0]


def mean_loss(case, of_model, of_reference, pairs):
    """Both: (prompt, answer) -> the answer's log-probability, or its value."""
    count = lambda answer: torch.tensor(float(len(answer)), dtype=torch.float64)  # noqa: E731
    score = lambda prompt, answer: (of_model(prompt, answer), of_reference(prompt, answer).detach(), count(answer))  # noqa: E731
    if case["loss"] != "kto":
        return torch.stack([torch_loss(case, score(p, c), score(p, r)) for p, c, r in pairs]).mean()
    with torch.no_grad():  # each answer's prompt with the next line's chosen answer
        others = [score(p, pairs[(i + 1) % len(pairs)][1]) for i, (p, _, _) in enumerate(pairs)]
        z = torch.stack([l - f for l, f, _ in others]).mean().clamp(min=0)
    s = {**DEFAULTS, **case}
    losses = [1 - torch.sigmoid(sign * s["beta"] * (l - f - z)) for p, c, r in pairs for sign, (l, f, _) in ((1, score(p, c)), (-1, score(p, r)))]
    return torch.stack(losses).mean()


def told_scores(lockstep, model, pairs, values):
    """(prompt, answer) -> the sum of the program's own fp32 log-probabilities of the answer, or its value: what the loss of a step is made of."""
    asked = [(p, answer) for i, (p, c, r) in enumerate(pairs) for answer in (c, r, pairs[(i + 1) % len(pairs)][1])]
    tokens, rows = lockstep.folder / "answers.jsonl", lockstep.folder / "rows.jsonl"
    line = lambda p, a: {"tokens": p + a, "targets": p + a, "returns": [0.0] * len(p + a)} if values else {"tokens": (p + a)[:-1], "targets": (p + a)[1:]}  # noqa: E731
    tokens.write_text("".join(json.dumps(line(p, answer)) + "\n" for p, answer in asked))
    lockstep.run("grad", "--model", model, "--tokens", tokens, "--out", lockstep.folder / "unused.safetensors", "--rows", rows, "--overwrite", *(["--loss", "value"] if values else []))
    told = [json.loads(row)["logprobs"] for row in rows.read_text().splitlines()]
    sums = {(tuple(p), tuple(a)): row[-1] if values else sum(row[-len(a) :]) for (p, a), row in zip(asked, told, strict=True)}
    return lambda p, a: torch.tensor(sums[tuple(p), tuple(a)], dtype=torch.float64)


@pytest.mark.parametrize("loss", ["dpo", "cdpo", "robust", "hinge", "ipo", "sigmoid_norm", "simpo", "orpo", "cpo", "kto", "reward"])
def test_a_step_against_autograd(lockstep, small, tmp_path, loss):
    """AdamW with both betas at 0 moves a weight by rate * g / (|g| + eps), which tells its gradient g."""
    folder, data, pairs = small
    values = loss == "reward"
    batch = 2 * len(pairs) if loss == "kto" else len(pairs)

    def train(name, steps, rate, eps):
        lockstep.run("train", "preference", "--loss", loss, "--model", folder, "--data", data, "--runs", tmp_path, "--name", name, "--steps", steps, "--batch", batch, "--learning-rate", rate,
                     "--schedule", "constant", "--warmup", 0, "--beta1", 0, "--beta2", 0, "--eps", eps, "--weight-decay", 0, "--max-norm", 0, "--eval-share", 0, "--profile", "cpu-f32",
                     "--export-dtype", "f32", "--quiet", "--no-page")  # fmt: skip
        return [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]

    # A first step as far as 0.2, whatever the gradient's size: near enough for no loss to be at its end.
    rate, eps = 1.0, 5 * train("still", 1, 0, 1)[0]["gradient_norm"]
    train("run1", 1, rate, eps)
    told = train("run2", 2, rate, eps)[1]  # the second step's numbers are those of the weights after the first
    kind = AutoModelForSequenceClassification if values else LlamaForCausalLM
    model = kind.from_pretrained(tmp_path / "run1/export", dtype=torch.float32, attn_implementation="eager").double().eval()
    model.model.embed_tokens.padding_idx = None  # a value model's config has a padding token, whose row torch would leave without a gradient
    of_model = lambda p, a: (answer_value if values else answer_logprob)(model, p, a)  # noqa: E731
    none = lambda p, a: torch.zeros((), dtype=torch.float64)  # noqa: E731
    reference = None if values else LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").double().eval()
    case = {"loss": loss, "beta": 2.0 if loss == "simpo" else 0.1}
    with make_goldens.float64_everywhere():
        wanted = mean_loss(case, of_model, none if values else lambda p, a: answer_logprob(reference, p, a), pairs)
        wanted.backward()
        chosen = sum(of_model(p, c).item() for p, c, _ in pairs) / len(pairs)
    gradients = {name: p.grad.numpy() for name, p in model.named_parameters()}
    norm = np.sqrt(sum((g**2).sum() for g in gradients.values()))
    assert norm > 1e-3
    assert abs(told["loss"] - wanted.item()) <= 1e-5 * max(1.0, abs(wanted.item())), (told["loss"], wanted.item())
    assert abs(told["gradient_norm"] - norm) <= 1e-4 * norm, (told["gradient_norm"], norm)
    assert abs(told["chosen_logprob"] - chosen) <= 1e-5 * max(1.0, abs(chosen))
    own, before = told_scores(lockstep, tmp_path / "run1/export", pairs, values), none if values else told_scores(lockstep, folder, pairs, False)
    same = mean_loss(case, own, before, pairs).item()  # of the same fp32 numbers
    assert abs(told["loss"] - same) <= 1e-6 * max(1.0, abs(same)), (told["loss"], same)
    weights, after = (load_file(tmp_path / run / "export/model.safetensors") for run in ("run1", "run2"))
    assert set(weights) == set(gradients)
    for name, wanted_gradient in gradients.items():
        moved = weights[name].astype(np.float64) - after[name].astype(np.float64)
        resolution = np.spacing(np.abs(weights[name]).max()) * eps / rate  # of what a weight in fp32 tells of its gradient
        error = largest_difference(moved * eps / (rate - np.abs(moved)), wanted_gradient)
        assert error <= 1e-4 * np.abs(wanted_gradient).max() + resolution, (name, error, np.abs(wanted_gradient).max(), resolution)


# --- TRL

def trl_source(file):
    place = importlib.machinery.PathFinder.find_spec("trl")
    assert place, "trl is not in the oracle environment (tools/oracle-requirements-alone.txt)"
    return ast.parse((Path(place.submodule_search_locations[0]) / file).read_text())


def run_statements(nodes, names):
    exec(compile(ast.fix_missing_locations(ast.Module(body=list(nodes), type_ignores=[])), "trl", "exec"), names)  # noqa: S102
    return names


def method(file, name):
    found = next(n for n in ast.walk(trl_source(file)) if isinstance(n, ast.FunctionDef) and n.name == name)
    found.decorator_list, found.returns = [], None
    for argument in found.args.args:
        argument.annotation = None
    return run_statements([found], {"torch": torch, "F": F, "log1mexp": lambda x: torch.log(-torch.expm1(x))})[name]


TRL_DPO = {"dpo": "sigmoid", "robust": "robust", "hinge": "hinge", "ipo": "ipo", "sigmoid_norm": "sigmoid_norm"}


@pytest.mark.parametrize("case", [c for c in CASES if c["loss"] in TRL_DPO], ids=[n for c, n in zip(CASES, NAMES) if c["loss"] in TRL_DPO])
def test_pairs_against_trl_dpo(case):
    chosen, rejected, ours = case_of(case, 21)
    s = {**DEFAULTS, **case}
    loop = next(n for n in ast.walk(trl_source("trainer/dpo_trainer.py")) if isinstance(n, ast.For) and "loss_types" in ast.dump(n.iter))
    (lc, fc, nc), (lr, fr, nr) = tensors(chosen), tensors(rejected)
    longest = int(max(nc.max(), nr.max()))
    mask = torch.stack([(torch.arange(longest) < n).double() for n in torch.cat([nc, nr])])
    names = {"torch": torch, "F": F, "self": SimpleNamespace(loss_types=[TRL_DPO[s["loss"]]], loss_weights=[1.0], use_weighting=False, beta=s["beta"], label_smoothing=s["label_smoothing"]),
             "chosen_scores": lc - fc, "rejected_scores": lr - fr, "chosen_logratios": lc - fc, "rejected_logratios": lr - fr,
             "delta_score": (lc - fc) - (lr - fr), "completion_mask": mask, "loss": 0.0}  # fmt: skip
    loss = run_statements([loop], names)["per_sequence_loss"]
    loss.sum().backward()
    near([o["loss"] for o in ours], loss)
    near([o["chosen_slope"] for o in ours], lc.grad)
    near([o["rejected_slope"] for o in ours], lr.grad)


@pytest.mark.parametrize("case", [c for c in CASES if c["loss"] in ("simpo", "cpo")], ids=[n for c, n in zip(CASES, NAMES) if c["loss"] in ("simpo", "cpo")])
def test_pairs_against_trl_cpo(case):
    chosen, rejected, ours = case_of(case, 31)
    s = {**DEFAULTS, **case}
    (lc, _, nc), (lr, _, nr) = tensors(chosen), tensors(rejected)
    simpo = s["loss"] == "simpo"
    trainer = SimpleNamespace(alpha=0.0, beta=s["beta"], label_smoothing=0.0, loss_type="simpo" if simpo else "sigmoid", simpo_gamma=s["gamma"], accelerator=SimpleNamespace(device="cpu"))
    loss, good, bad = method("experimental/cpo/cpo_trainer.py", "cpo_loss")(trainer, lc / nc if simpo else lc, lr / nr if simpo else lr)
    near([o["loss"] for o in ours], loss - (0 if simpo else s["alpha"] * lc / nc))  # its trainer adds the chosen answers' likelihood
    near([o["chosen_reward"] for o in ours], good)
    near([o["rejected_reward"] for o in ours], bad)


def test_pairs_against_trl_orpo():
    # TRL computes it in float32.
    case = {"loss": "orpo"}
    chosen, rejected, ours = case_of(case, 41)
    (lc, _, nc), (lr, _, nr) = tensors(chosen), tensors(rejected)
    trainer = SimpleNamespace(beta=0.1, accelerator=SimpleNamespace(device="cpu"))
    loss, good, bad, *_ = method("experimental/orpo/orpo_trainer.py", "odds_ratio_loss")(trainer, lc / nc, lr / nr)
    near([o["loss"] for o in ours], -lc / nc - loss, 1e-5)
    near([o["chosen_reward"] for o in ours], good, 1e-6)
    near([o["rejected_reward"] for o in ours], bad, 1e-6)


def test_rewards_against_trl():
    chosen, rejected, ours = case_of({"loss": "reward"}, 51)
    (lc, *_), (lr, *_) = tensors(chosen), tensors(rejected)
    step = next(n for n in ast.walk(trl_source("trainer/reward_trainer.py")) if isinstance(n, ast.FunctionDef) and n.name == "compute_loss")
    statement = next(n for n in step.body if isinstance(n, ast.If) and "margin" in ast.dump(n.test))
    loss = run_statements([statement], {"nn": torch.nn, "inputs": {}, "rewards_chosen": lc, "rewards_rejected": lr})["loss"]
    (loss * len(ours)).backward()  # it is a mean
    near(np.mean([o["loss"] for o in ours]), loss)
    near([o["chosen_slope"] for o in ours], lc.grad)
    near([o["rejected_slope"] for o in ours], lr.grad)


@pytest.mark.parametrize("weights", [{}, {"desirable_weight": 1.3, "undesirable_weight": 0.2, "beta": 0.5}], ids=["plain", "weighted"])
@pytest.mark.parametrize("shift", [1.5, -90.0])  # of the mismatched answers: their mean is above 0, and below, where it is held at 0
def test_kto_against_trl(weights, shift):
    given, mismatched = answers(60, 61), [{**a, "logprob": a["reference"] + shift + 0.1 * i} for i, a in enumerate(answers(60, 62))]
    desirable = [i % 3 != 0 for i in range(60)]
    ours = ask([{"settings": {"loss": "kto", **weights}, "answers": given, "desirable": desirable, "mismatched": mismatched}])[0]
    s = {**DEFAULTS, **weights}
    (l, f, _), (kl, kf, _) = tensors(given), tensors(mismatched)
    accelerator = SimpleNamespace(device="cpu", gather_for_metrics=lambda x: x)
    trainer = SimpleNamespace(precompute_ref_logps=True, calculate_KL=True, loss_type="kto", beta=s["beta"], desirable_weight=s["desirable_weight"], undesirable_weight=s["undesirable_weight"],
                              accelerator=accelerator)  # fmt: skip
    names = {"torch": torch, "F": F, "self": trainer, "device": "cpu", "batch": {"label": desirable, "ref_logps": f, "ref_KL_logps": kf}, "completion_logps": l, "KL_logps": kl}
    body = next(n for n in ast.walk(trl_source("trainer/kto_trainer.py")) if isinstance(n, ast.FunctionDef) and n.name == "_compute_loss").body
    place = lambda name: next(i for i, n in enumerate(body) if isinstance(n, ast.Assign) and getattr(n.targets[0], "id", "") == name)  # noqa: E731
    found = run_statements(body[place("bool_labels") : place("losses") + 1], names)
    order = [i for i in range(60) if desirable[i]] + [i for i in range(60) if not desirable[i]]  # chosen answers are first
    found["losses"].sum().backward()
    assert (found["kl"] > 0) == (shift > 0)
    near([ours[i]["loss"] for i in order], found["losses"])
    near([o["chosen_slope"] for o in ours], l.grad)
    near([ours[i]["chosen_reward"] for i in order], torch.cat([found["chosen_rewards"], found["rejected_rewards"]]))


def test_what_is_wrong_is_told():
    wrong = ask([{"settings": {"loss": "dop"}, "pairs": []}, {"settings": {"loss": "dpo", "beta": 0}, "pairs": []}, {"settings": {"loss": "cdpo", "label_smoothing": 0.5}, "pairs": []}])
    for answer, words in zip(wrong, ("dpo", "beta is 0", "label_smoothing is 0.5")):
        assert words in answer["error"]
