"""Rotary position embedding in plain NumPy, float64: the frequencies of every scaling, and the rotation."""

import math

import numpy as np


def mscale(factor, m):
    """YaRN's temperature: grows with the factor by which the context was stretched."""
    return 1.0 if factor <= 1 else 0.1 * m * math.log(factor) + 1


def inverse_frequencies(config, d, scaling=True):
    """(theta^(-2j/d) scaled as rope_parameters say, the factor on cosines and sines) for d rotated columns. scaling False: a wrong variant."""
    rope = config["rope_parameters"]
    j = np.arange(d // 2)
    theta, kind = rope["rope_theta"], rope["rope_type"] if scaling else "default"
    inverse = theta ** (-2 * j / d)
    if kind == "default":
        return inverse, 1.0
    if kind == "linear":
        return inverse / rope["factor"], 1.0
    original = rope.get("original_max_position_embeddings", config["max_position_embeddings"])
    if kind == "llama3":
        low, high, wave = rope["low_freq_factor"], rope["high_freq_factor"], 2 * np.pi / inverse
        smooth = (original / wave - low) / (high - low)
        mixed = (1 - smooth) * inverse / rope["factor"] + smooth * inverse
        return np.where(wave > original / low, inverse / rope["factor"], np.where(wave < original / high, inverse, mixed)), 1.0
    if kind == "yarn":
        turns = [d * math.log(original / (b * 2 * math.pi)) / (2 * math.log(theta))
                 for b in (rope.get("beta_fast") or 32, rope.get("beta_slow") or 1)]  # fmt: skip
        if rope.get("truncate", True):
            turns = [math.floor(turns[0]), math.ceil(turns[1])]
        low, high = max(turns[0], 0), min(turns[1], d - 1)
        ramp = np.clip((j - low) / ((high if high != low else high + 0.001) - low), 0, 1)
        factor = rope.get("attention_factor")
        if factor is None and rope.get("mscale") and rope.get("mscale_all_dim"):
            factor = mscale(rope["factor"], rope["mscale"]) / mscale(rope["factor"], rope["mscale_all_dim"])
        factor = mscale(rope["factor"], 1) if factor is None else factor
        return inverse / rope["factor"] * ramp + inverse * (1 - ramp), factor
    raise ValueError(f"rope_type {kind}")


def softmax_factor(config):
    """The factor on DeepSeek's attention scale: the square of the temperature where `mscale_all_dim` asks for it, else 1."""
    rope = config["rope_parameters"]
    if rope["rope_type"] == "default" or not rope.get("mscale_all_dim"):
        return 1.0
    return mscale(rope["factor"], rope["mscale_all_dim"]) ** 2


def rotate(x_THR, inverse, factor, pairs, positions=None):
    """All R columns rotated by position * inverse. pairs: (x[2j], x[2j+1]), in place; else the two halves. positions None: 0, 1, ..."""
    tokens, _, r = x_THR.shape
    angle = (np.arange(tokens) if positions is None else positions)[:, None, None] * inverse
    cos, sin = factor * np.cos(angle), factor * np.sin(angle)
    first, second = (slice(0, r, 2), slice(1, r, 2)) if pairs else (slice(0, r // 2), slice(r // 2, r))
    out, a, b = np.empty_like(x_THR), x_THR[..., first], x_THR[..., second]
    out[..., first], out[..., second] = a * cos - b * sin, b * cos + a * sin
    return out
