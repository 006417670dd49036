"""Losses as users of `tinker` write them for create_custom_loss: each a function of one datum, and the ranks of what it reads.
Inputs are made by NAME below; every one has T elements (or [T, K])."""
import math

import torch
import torch.nn.functional as F


def neg_ll(logprobs, weights):
    loss = -(logprobs * weights).sum()
    return loss, {"custom/neg_ll:sum": loss, "custom/share:mean": weights.mean()}


def ppo_clip(logprobs, old, advantages, mask):
    ratio = torch.exp(logprobs - old)
    clipped = torch.clamp(ratio, 0.8, 1.2)
    loss = -(torch.min(ratio * advantages, clipped * advantages) * mask).sum() / mask.sum().clamp(min=1)
    outside = ((ratio < 0.8) | (ratio > 1.2)).float()
    return loss, {"custom/clipped:mean": (outside * mask).sum() / mask.sum().clamp(min=1), "custom/ratio:mean": ratio.mean()}


def ppo_clip_where(logprobs, old, advantages, mask):
    ratio = (logprobs - old).exp()
    surrogate = torch.where(advantages > 0, torch.minimum(ratio, torch.full_like(ratio, 1.28)), torch.maximum(ratio, torch.full_like(ratio, 0.8))) * advantages
    return -surrogate.masked_select(mask.bool()).mean(), {}


def grpo_kl_k3(logprobs, old, reference, advantages, mask):
    ratio = torch.exp(logprobs - logprobs.detach())
    policy = -ratio * advantages
    difference = reference - logprobs
    kl = torch.exp(difference) - difference - 1.0
    per_token = (policy + 0.04 * kl) * mask
    loss = per_token.sum() / torch.clamp_min(mask.sum(), 1.0)
    return loss, {"custom/kl:mean": (kl * mask).sum() / mask.sum().clamp(min=1.0)}


def dual_clip(logprobs, old, advantages):
    ratio = torch.exp((logprobs - old).clamp(-20, 20))
    first = torch.maximum(-advantages * ratio, -advantages * ratio.clip(1 - 0.2, 1 + 0.2))
    both = torch.where(advantages < 0, torch.minimum(first, -advantages * 3.0), first)
    return both.mean(), {"custom/low:sum": (advantages < 0).sum()}


def gspo(logprobs, old, advantages, mask):
    log_ratio = ((logprobs - old) * mask).sum() / mask.sum()
    token = log_ratio.detach() + logprobs - logprobs.detach()
    ratio = token.exp()
    return -(torch.min(ratio * advantages, ratio.clamp(0.9, 1.1) * advantages) * mask).sum(), {"custom/log_ratio:mean": log_ratio}


def dpo_columns(logprobs, reference):
    """Chosen and rejected as the two targets of each position."""
    chosen, rejected = (logprobs - reference).sum(dim=0).unbind(0)
    margin = 0.1 * (chosen - rejected)
    return -F.logsigmoid(margin), {"custom/margin:mean": margin, "custom/accuracy:mean": (margin > 0).float()}


def ipo_columns(logprobs, reference):
    margins = (logprobs - reference).sum(0)
    return (margins[0] - margins[1] - 1 / (2 * 0.1)) ** 2, {}


def simpo_columns(logprobs, mask2):
    mean = (logprobs * mask2).sum(dim=0) / mask2.sum(dim=0)
    return F.softplus(-(2.0 * (mean[0] - mean[1]) - 0.5)), {"custom/reward:mean": mean[0].detach()}


def entropy_like(logprobs, mask):
    p = logprobs.exp()
    return (p * logprobs * mask).sum() + 0.1 * (torch.square(logprobs) * mask).mean(), {}


def focal(logprobs):
    p = torch.exp(logprobs)
    return -((1 - p) ** 2 * logprobs).sum(), {}


def unlikelihood(logprobs, mask):
    probability = logprobs.exp().clamp(max=1 - 1e-4)
    return -torch.log1p(-probability).masked_fill(mask == 0, 0.0).sum(), {}


def huber_to_reference(logprobs, reference):
    return F.huber_loss(logprobs, reference, reduction="sum", delta=0.5) + F.mse_loss(logprobs, reference) + 0.3 * F.smooth_l1_loss(logprobs, reference) + F.l1_loss(logprobs, reference), {}


def listwise(logprobs, advantages):
    return -(F.softmax(advantages / 0.5, dim=-1) * F.log_softmax(logprobs, dim=0)).sum() + torch.logsumexp(logprobs, dim=0), {"custom/best:mean": logprobs.max()}


def normalised_advantages(logprobs, advantages):
    scaled = (advantages - advantages.mean()) / (advantages.std() + 1e-6)
    spread = logprobs.var(unbiased=False).sqrt() + logprobs.std()
    return -(scaled * logprobs).mean() + 0.01 * spread, {}


def distillation(logprobs, teacher):
    """[T, K] targets of a teacher."""
    p = torch.softmax(teacher, dim=-1)
    student = logprobs - torch.logsumexp(logprobs, dim=-1, keepdim=True)
    return (p * (p.log() - student)).sum(dim=-1).mean(), {"custom/top:mean": logprobs[:, 0].mean()}


def top_of_columns(logprobs, teacher):
    best = logprobs.max(dim=1)
    return -(best.values * teacher.gather(1, best.indices.unsqueeze(-1)).squeeze(-1)).sum() - logprobs.amax(dim=0).sum() + logprobs.amin(), {}


def discounted(logprobs, advantages):
    t = torch.arange(logprobs.shape[0]).type_as(logprobs)
    weight = 0.9 ** t
    togo = torch.flip(torch.cumsum(torch.flip(advantages * weight, [0]), 0), [0])
    return -(togo * logprobs).sum() / math.sqrt(logprobs.shape[0]) + logprobs.cumsum(dim=0).pow(2).mean(), {}


def windows(logprobs, mask):
    shifted = torch.cat([logprobs[:1], logprobs[:-1]])
    jumps = (logprobs[1:] - logprobs[:-1]).abs().sum() + (logprobs - shifted).relu().sum() + logprobs[mask.bool()].sum() + logprobs[-1] * logprobs[2:5].sum()
    return jumps + logprobs.roll(1).dot(logprobs) + logprobs[None, :, None].expand(2, -1, 3).mean() + logprobs[[0, 2]].sum() + logprobs[..., ::2].repeat(2).mean(), {}


def matrices(logprobs, teacher):
    gram = logprobs.t() @ teacher
    both = torch.stack([logprobs, teacher], dim=0).permute(1, 0, 2).reshape(logprobs.size(0), -1)
    return gram.tanh().sum() + both.flatten().sigmoid().sum() + torch.matmul(teacher, logprobs[0]).sum(), {}


def pairwise(logprobs, advantages):
    difference = logprobs.unsqueeze(0) - logprobs.unsqueeze(1)
    wanted = (advantages.unsqueeze(0) > advantages.unsqueeze(1)).to(logprobs.dtype)
    return -(wanted * F.logsigmoid(difference)).sum() / torch.clamp(wanted.sum(), min=1.0), {"custom/pairs:sum": wanted.sum()}


def scalar_temperature(logprobs, advantages, temperature):
    return -(advantages * torch.sigmoid(logprobs / temperature)).sum() + (temperature * logprobs).square().mean() + torch.expm1(logprobs).sum() + torch.rsqrt(1 - logprobs).sum(), {"custom/t:mean": temperature}


def by_token(logprobs, target_tokens, advantages):
    rare = torch.where(target_tokens % 3 == 0, 2.0, 0.5)
    return -(rare * advantages * logprobs).sum() + (logprobs * (target_tokens > 5)).sum() * 0.5, {"custom/rare:sum": (target_tokens % 3 == 0).sum()}


T1, T2 = 1, 2
LOSSES = [
    (neg_ll, {"weights": T1}), (ppo_clip, {"old": T1, "advantages": T1, "mask": T1}), (ppo_clip_where, {"old": T1, "advantages": T1, "mask": T1}),
    (grpo_kl_k3, {"old": T1, "reference": T1, "advantages": T1, "mask": T1}), (dual_clip, {"old": T1, "advantages": T1}),
    (gspo, {"old": T1, "advantages": T1, "mask": T1}), (dpo_columns, {"reference": T2}), (ipo_columns, {"reference": T2}), (simpo_columns, {"mask2": T2}),
    (entropy_like, {"mask": T1}), (focal, {}), (unlikelihood, {"mask": T1}), (huber_to_reference, {"reference": T1}), (listwise, {"advantages": T1}),
    (normalised_advantages, {"advantages": T1}), (distillation, {"teacher": T2}), (top_of_columns, {"teacher": T2}), (discounted, {"advantages": T1}),
    (windows, {"mask": T1}), (matrices, {"teacher": T2}), (pairwise, {"advantages": T1}), (scalar_temperature, {"advantages": T1, "temperature": 0}),
    (by_token, {"target_tokens": T1, "advantages": T1}),
]


def ranks_of(inputs):
    """input_ranks of create_custom_loss: logprobs has the rank of the widest input."""
    return {"logprobs": max([1, *inputs.values()]), **inputs}


def input_of(name, rank, length, columns, draws):
    """A tensor for an input of that name; `draws` a torch.Generator."""
    shape = [(), (length,), (length, columns)][rank]
    if name == "temperature":
        return torch.tensor(0.7)
    if name == "target_tokens":
        return torch.randint(0, 29, shape, generator=draws)
    if name.startswith("mask"):
        mask = (torch.rand(shape, generator=draws) > 0.3).float()
        mask[0] = 1.0
        return mask
    if name in ("old", "reference"):
        return -3.0 * torch.rand(shape, generator=draws) - 0.01
    return torch.randn(shape, generator=draws)
