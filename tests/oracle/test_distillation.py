"""Divergences of distillation and their gradients by the student's logits against torch's autograd in float64: over the whole vocabulary, and over some
tokens with the rest as one outcome. Those of the fused head, which are over vocabularies of any size, by the student's hidden states and its head, and in
`train distill` through transformers. The bridge is build/distillation_bridge (tests/tools)."""
import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from comparison import assert_near, is_near, relative_error

REPOSITORY = Path(__file__).resolve().parents[2]
BRIDGE = Path(os.environ.get("LOCKSTEP_BINARY", REPOSITORY / "build" / "lockstep")).resolve().parent / "distillation_bridge"
KINDS = ["reverse", "forward", "jensen_shannon"]
VOCABULARY = 40


def ask(requests):
    if not os.access(BRIDGE, os.X_OK):
        pytest.fail(f"there is no distillation_bridge at {BRIDGE}; build the tests first")
    done = subprocess.run([BRIDGE], input="".join(json.dumps(r) + "\n" for r in requests), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def rows():
    """Logits of student and teacher: alike, far apart, nearly certain, equal."""
    random = np.random.default_rng(11)
    for i in range(60):
        student = random.normal(scale=[0.3, 2, 8][i % 3], size=VOCABULARY)
        teacher = student.copy() if i % 10 == 9 else student + random.normal(scale=[0.1, 3, 8][(i // 3) % 3], size=VOCABULARY)
        yield torch.tensor(student, dtype=torch.float64, requires_grad=True), torch.tensor(teacher, dtype=torch.float64)


def outcomes(logits, chosen):
    """Log-probabilities of the chosen tokens, and of all others as one where there are others."""
    logprobs = torch.log_softmax(logits, -1)
    if len(chosen) == VOCABULARY:
        return logprobs
    others = [v for v in range(VOCABULARY) if v not in set(chosen)]
    return torch.cat([logprobs[chosen], torch.logsumexp(logprobs[others], -1, keepdim=True)])


def divergence(kind, q, p):
    kl = lambda a, b: (a.exp() * (a - b)).sum()  # noqa: E731
    if kind == "reverse":
        return kl(q, p)
    if kind == "forward":
        return kl(p, q)
    mean = torch.log((q.exp() + p.exp()) / 2)
    return (kl(q, mean) + kl(p, mean)) / 2


def cases(count):
    """The chosen tokens of each row are the teacher's likeliest."""
    made = []
    for student, teacher in rows():
        chosen = torch.argsort(teacher, descending=True)[:count].tolist() if count < VOCABULARY else list(range(VOCABULARY))
        told = [torch.log_softmax(x.detach(), -1).float()[chosen].tolist() for x in (student, teacher)]
        made.append((student, teacher, chosen, told))
    return made


def by_logits(answer, student, chosen):
    """The gradient by logits of a cross-entropy whose weights are -slope: what the trainer does with them."""
    student.grad = None
    (torch.log_softmax(student, -1)[chosen] * torch.tensor(answer["slopes"], dtype=torch.float64)).sum().backward()
    return student.grad.numpy().copy()


LEAST_REST = 2.0**-24  # what fp32 log-probabilities do not tell from 0


def of_told(kind, told, rest):
    """Value, and derivative by the student's log-probabilities, of the very numbers that were told, in float64. Where nothing else has a probability of its
    own, the derivatives' sum is 0, as a softmax's are."""
    q, p = (torch.tensor(side, dtype=torch.float64) for side in told)
    q.requires_grad_()
    left = [1 - x.exp().sum() for x in (q, p)]
    with_rest = lambda x, other: torch.cat([x, other.clamp(min=LEAST_REST).log()[None]]) if rest else x  # noqa: E731
    value = divergence(kind, with_rest(q, left[0]), with_rest(p, left[1]))
    value.backward()
    slopes, probability = q.grad.numpy(), q.detach().exp().numpy()
    return value.item(), slopes if rest and left[0] > LEAST_REST else slopes - probability * slopes.sum() / probability.sum()


@pytest.mark.parametrize("count", [1, 5, 20, VOCABULARY])
@pytest.mark.parametrize("kind", KINDS)
def test_value_and_gradient_of_what_is_told(kind, count):
    made = cases(count)
    rest = count < VOCABULARY
    answers = ask([{"divergence": kind, "rest": rest, "student": s, "teacher": t} for _, _, _, (s, t) in made])
    for (_, _, _, told), answer in zip(made, answers, strict=True):
        value, slopes = of_told(kind, told, rest)
        assert_near(answer["value"], value, rtol=1e-6, atol=1e-10)
        assert_near(answer["slopes"], slopes, rtol=1e-6, atol=1e-6 * np.abs(slopes).max() + 1e-12)


@pytest.mark.parametrize("count", [1, 5, 20, VOCABULARY])
@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_is_the_one_by_logits(kind, count):
    """As far as log-probabilities in fp32 tell the distributions."""
    made = cases(count)
    answers = ask([{"divergence": kind, "rest": count < VOCABULARY, "student": s, "teacher": t} for _, _, _, (s, t) in made])
    compared = 0
    for (student, teacher, chosen, _), answer in zip(made, answers, strict=True):
        others = [x.detach().softmax(-1)[[v for v in range(VOCABULARY) if v not in set(chosen)]].sum().item() for x in (student, teacher)]
        if count < VOCABULARY and min(others) < 1e-4:
            continue  # what fp32 log-probabilities leave of 1 is not known as well
        compared += 1
        wanted = divergence(kind, outcomes(student, chosen), outcomes(teacher, chosen))
        assert_near(answer["value"], wanted.item(), rtol=1e-3 if count < VOCABULARY else 1e-5, atol=1e-6)
        ours = by_logits(answer, student, chosen)
        student.grad = None
        wanted.backward()
        assert_near(ours, student.grad.numpy(), rtol=2e-3 if count < VOCABULARY else 1e-4, atol=2e-6)
    assert compared >= 20


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_writings_are_told_apart(kind):
    """The controls: another divergence, a rest that is left out, student and teacher exchanged."""
    made = cases(5)
    request = lambda s, t, rest, name=kind: {"divergence": name, "rest": rest, "student": s, "teacher": t}  # noqa: E731
    right = ask([request(s, t, True) for _, _, _, (s, t) in made])
    gradients = lambda answers: [by_logits(a, student, chosen) for (student, _, chosen, _), a in zip(made, answers)]  # noqa: E731
    wanted = gradients(right)
    wrongs = [[request(s, t, True, other) for _, _, _, (s, t) in made] for other in KINDS if other != kind]
    wrongs += [[request(s, t, False) for _, _, _, (s, t) in made], [request(t, s, True) for _, _, _, (s, t) in made]]
    for wrong in wrongs:
        assert not all(is_near(a, b, rtol=1e-2, atol=1e-4) for a, b in zip(gradients(ask(wrong)), wanted))


def test_equal_distributions_have_no_divergence():
    for count in (5, VOCABULARY):
        for kind in KINDS:
            for (_, _, _, (student, _)) in cases(count)[:12]:
                answer = ask([{"divergence": kind, "rest": count < VOCABULARY, "student": student, "teacher": student}])[0]
                assert abs(answer["value"]) < 1e-12 and max(map(abs, answer["slopes"])) < 1e-12


def test_an_unknown_divergence_is_answered():
    assert "did you mean 'reverse'" in ask([{"divergence": "revers", "rest": False, "student": [-1], "teacher": [-1]}])[0]["error"]


LARGE = 1531  # of the fused head: above what teachers tell (1,024), and in panels of 16 with a rest


def heads(seed, vocabulary=LARGE):
    """Hidden states and heads of student and teacher, and the rows' weights, one of them 0."""
    random = np.random.default_rng(seed)
    draw = lambda *shape: torch.tensor(random.normal(size=shape).astype(np.float32), dtype=torch.float64)  # noqa: E731
    made = {"student": draw(7, 24), "student_head": 0.5 * draw(vocabulary, 24), "teacher": draw(7, 40), "teacher_head": 0.4 * draw(vocabulary, 40)}
    made = {name: tensor.float().double() for name, tensor in made.items()}
    return made | {"weights": torch.tensor([0.5, 1, 0, 0.25, 2, 0.125, 1], dtype=torch.float64)}


def of_head(kind, made):
    lists = {name: tensor.detach().tolist() for name, tensor in made.items()}
    return {"divergence": kind, **lists}


def by_autograd(kind, made):
    """Losses, and the gradients by the student's states and head."""
    states, head = (made[name].clone().requires_grad_() for name in ("student", "student_head"))
    q, p = torch.log_softmax(states @ head.T, -1), torch.log_softmax(made["teacher"] @ made["teacher_head"].T, -1)
    losses = made["weights"] * torch.stack([divergence(kind, q[t], p[t]) for t in range(len(q))])
    losses.sum().backward()
    return losses.detach().numpy(), states.grad.numpy(), head.grad.numpy()


@pytest.mark.parametrize("kind", KINDS)
def test_the_fused_head_has_autograds_value_and_gradient(kind):
    made = heads(21)
    answer = ask([of_head(kind, made)])[0]
    for name, wanted in zip(("losses", "states", "head"), by_autograd(kind, made), strict=True):
        ours = np.array(answer[name])
        assert_near(ours, wanted, rtol=0, atol=(1e-6 if name == "losses" else 1e-4) * np.abs(wanted).max())
    assert answer["losses"][2] == 0 and not np.any(answer["states"][2])


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_writings_of_the_fused_head_are_told_apart(kind):
    """The controls: another divergence, student and teacher exchanged, a vocabulary that ends earlier."""
    made = heads(21)
    far = lambda other, against: any(  # noqa: E731
        relative_error(other[name], wanted) > 1e-2 for name, wanted in zip(("losses", "states"), against, strict=False))
    wanted = by_autograd(kind, made)
    for other in KINDS:
        if other != kind:
            assert far(ask([of_head(other, made)])[0], wanted)
    swapped = made | {"student": made["teacher"], "student_head": made["teacher_head"], "teacher": made["student"], "teacher_head": made["student_head"]}
    if kind != "jensen_shannon":  # whose value is the same
        assert relative_error(ask([of_head(kind, swapped)])[0]["losses"], wanted[0]) > 1e-2
    cut = made | {"student_head": made["student_head"][:1024], "teacher_head": made["teacher_head"][:1024]}
    assert far(ask([of_head(kind, cut)])[0], wanted)


# The whole way: a student and a teacher of another size with 1,536 tokens, one step on what the student writes.
MODEL = REPOSITORY / "models" / "agent-glm"


def make_model(folder, seed, hidden, scale):
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    config = Qwen3Config(vocab_size=1536, hidden_size=hidden, intermediate_size=2 * hidden, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
                         max_position_embeddings=256, tie_word_embeddings=seed == 1, initializer_range=scale, bos_token_id=1533, eos_token_id=1534, pad_token_id=1535)  # fmt: skip
    model = Qwen3ForCausalLM(config)
    model.save_pretrained(folder)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(MODEL / file, folder / file)
    return model.double().eval()


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    student, teacher = make_model(folder / "student", 1, 64, 0.2), make_model(folder / "teacher", 2, 96, 0.15)
    make_model(folder / "second", 3, 96, 0.15)
    named = lambda name, of: f'[[teacher]]\nname = "{name}"\nfolder = "{of}"\n'  # noqa: E731
    (folder / "teachers.toml").write_text(named("t", "teacher"))
    (folder / "two.toml").write_text(named("t", "teacher") + named("u", "second") + "weight = 3\n")
    prompts = ("12 7", "reverse abc", "3 + 4 =", "sort 9 1 5", "a b", "remainder of 17 and 5")
    (folder / "prompts.jsonl").write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))
    return folder, student, teacher


def distill(folder, name, *words, teachers="teachers.toml"):
    command = [str(BRIDGE.with_name("lockstep")), "train", "distill", "--model", folder / "student", "--teachers", folder / teachers, "--data", folder / "prompts.jsonl", "--profile", "cpu-f32",
               "--steps", 1, "--prompts", 6, "--learning-rate", 1e-4, "--runs", folder / "runs", "--name", name, "--no-page", "--quiet", "--json", *words]  # fmt: skip
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout.splitlines()[-1])
    return told, json.loads((folder / "runs" / name / "metrics.jsonl").read_text().splitlines()[0])


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_over_a_large_vocabulary(models, kind):
    """Completions of one token, whichever it is: their divergence is that behind the prompt."""
    from tokenizers import Tokenizer

    folder, student, teacher = models
    told, metrics = distill(folder, f"step-{kind}", "--divergence", kind, "--max-tokens", 1)
    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    student.zero_grad()
    rows = []
    for prompt in (json.loads(line)["prompt"] for line in (folder / "prompts.jsonl").read_text().splitlines()):
        tokens = torch.tensor([tokenizer.encode(prompt).ids])
        with torch.no_grad():
            p = torch.log_softmax(teacher(tokens).logits[0, -1], -1)
        rows.append(divergence(kind, torch.log_softmax(student(tokens).logits[0, -1], -1), p))
    assert metrics["tokens"] == len(rows) and told["different_bits"] == 0
    loss = torch.stack(rows).mean()
    loss.backward()
    norm = torch.sqrt(sum((parameter.grad**2).sum() for parameter in student.parameters())).item()
    assert_near(metrics["loss"], loss.item(), rtol=1e-5, atol=0)
    assert_near(metrics["divergence_t"], loss.item(), rtol=1e-5, atol=0)
    assert_near(metrics["gradient_norm"], norm, rtol=1e-4, atol=0)


def test_a_step_over_a_large_vocabulary_has_the_same_bits_however_it_is_cut(models):
    folder, *_ = models
    ways = [[], ["--threads", 1], ["--micro-batch", 1], ["--ranks", "dp=2"], ["--ranks", "dp=2,shard=weights"], ["--ranks", "cp=2"], ["--ranks", "pp=2"], ["--ranks", "tp=2"], ["--ranks", "tp=2,dp=2"], ["--checkpoint-activations"], ["--isa", "avx2"]]
    told = [distill(folder, f"cut-{i}", "--max-tokens", 8, *words)[0] for i, words in enumerate(ways)]
    assert {one["different_bits"] for one in told} == {0}
    hashes = [one["weights_sha256"] for one in told]
    assert len(set(hashes)) == 1, hashes
    assert distill(folder, "cut-other", "--max-tokens", 8, "--divergence", "forward")[0]["weights_sha256"] != hashes[0]  # the control


def test_teachers_in_turn_have_the_same_bits(models):
    """Two folders of 1.8 MB: both in memory, or one at a time. All weights of the student, and an adapter."""
    folder, *_ = models
    seen = set()
    for kind, words in (("all", []), ("adapter", ["--adapter-rank", 4])):
        run = lambda name, *more, **others: distill(folder, f"{kind}-{name}", "--max-tokens", 6, *words, *more, **others)  # noqa: B023, E731
        (both, metrics), (turns, in_turns) = run("both", teachers="two.toml"), run("turns", "--teacher-megabytes", 2, "--micro-batch", 2, teachers="two.toml")
        assert both["weights_sha256"] == turns["weights_sha256"] and metrics["loss"] == in_turns["loss"]
        assert_near(metrics["loss"], (metrics["divergence_t"] + 3 * metrics["divergence_u"]) / 4, rtol=1e-6, atol=0)
        seen |= {both["weights_sha256"], run("one")[0]["weights_sha256"]}
    assert len(seen) == 4  # the control


def test_adapters_of_one_base_teach_together_what_each_teaches_alone(models):
    """A folder and an adapter over it: asked in one pass, each has its own states, whatever else is learned in the step."""
    folder, *_ = models
    (folder / "answers.jsonl").write_text("".join(json.dumps({"prompt": str(i), "completion": str(i + 1)}) + "\n" for i in range(8)))
    command = [BRIDGE.with_name("lockstep"), "train", "sft", "--model", folder / "teacher", "--data", folder / "answers.jsonl", "--profile", "cpu-f32", "--adapter-rank", 4, "--steps", 8, "--batch", 4,
               "--warmup", 0, "--learning-rate", 1e-2, "--eval-share", 0, "--runs", folder / "runs", "--name", "adapted", "--no-page", "--quiet", "--json"]  # fmt: skip
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    base, adapter = ('[[teacher]]\nname = "t"\nfolder = "teacher"\n', f'[[teacher]]\nname = "a"\nfolder = "teacher"\nadapter = "{folder / "runs/adapted/export"}"\n')
    for name, text in (("adapter.toml", adapter), ("both.toml", adapter + base)):
        (folder / name).write_text(text)
    run = lambda name, teachers, *more: distill(folder, name, "--max-tokens", 6, *more, teachers=teachers)  # noqa: E731
    (both, metrics), (in_pieces, _) = run("beside", "both.toml"), run("beside-pieces", "both.toml", "--micro-batch", 1)
    alone = {"t": run("alone-t", "teachers.toml")[1], "a": run("alone-a", "adapter.toml")[1]}
    for name, one in alone.items():
        assert_near(metrics[f"divergence_{name}"], one[f"divergence_{name}"], rtol=1e-5, atol=0)
    assert abs(alone["a"]["divergence_a"] - alone["t"]["divergence_t"]) > 1e-3 * alone["t"]["divergence_t"]  # the control
    assert both["weights_sha256"] == in_pieces["weights_sha256"]
