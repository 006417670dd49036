"""Divergences of distillation and their gradients by the student's logits against torch's autograd in float64: over the whole vocabulary, and over some
tokens with the rest as one outcome. The bridge is build/distillation_bridge (tests/tools)."""
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from comparison import assert_near

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


@pytest.mark.parametrize("count", [1, 5, 20, VOCABULARY])
@pytest.mark.parametrize("kind", KINDS)
def test_value_and_gradient(kind, count):
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
        assert not all(np.allclose(a, b, rtol=1e-2, atol=1e-4) for a, b in zip(gradients(ask(wrong)), wanted))


def test_equal_distributions_have_no_divergence():
    for count in (5, VOCABULARY):
        for kind in KINDS:
            for (_, _, _, (student, _)) in cases(count)[:12]:
                answer = ask([{"divergence": kind, "rest": count < VOCABULARY, "student": student, "teacher": student}])[0]
                assert abs(answer["value"]) < 1e-12 and max(map(abs, answer["slopes"])) < 1e-12


def test_an_unknown_divergence_is_answered():
    assert "did you mean 'reverse'" in ask([{"divergence": "revers", "rest": False, "student": [-1], "teacher": [-1]}])[0]["error"]
