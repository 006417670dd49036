"""Multi-token prediction in torch, float64: the layer of numpy_mtp.py once more, so that autograd makes the gradients of its training.

    loss, gradients, logits = training_gradients(config, weights, tokens, depths, "ce")
    loss, gradients = joint_gradients(config, weights, tokens, depths, "ce")

"ce" is the mean over depths of the summed cross-entropy of each row's token k ahead, divided by the number of targets that the text has. "tv" is the mean over
rows that have a token at all depths of 1 - (1 / depths) sum over j of the product over i <= j of alpha_i, alpha_i = sum over v of min(p_i(v), q_i(v)), p_i
the trunk's distribution at that place and q_i that of depth i. Only the layer's tensors get gradients; the trunk's logits and hidden states, the
embedding and the head are constants. Jointly none of them is: the model is transformers', its own loss the mean cross-entropy, and what both losses say of a
tensor is added. The selection of keys and experts has no gradient.
"""

import numpy as np
import torch

import make_goldens
import numpy_glm_moe_dsa
import numpy_mtp
import numpy_rope


def rms_norm(x, weight, eps):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def turned(config, x, pairs, positions):
    """numpy_rope.rotate as a linear map of x, so that torch has its gradient."""
    inverse, factor = numpy_rope.inverse_frequencies(config, config["qk_rope_head_dim"])
    angle = torch.from_numpy(positions[:, None, None] * inverse)
    cos, sin = factor * torch.cos(angle), factor * torch.sin(angle)
    if pairs:
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, b * cos + a * sin], dim=-1).flatten(-2)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def queries(config, w, attention, x_norm, positions):
    heads, nope, rope = (config[k] for k in ("num_attention_heads", "qk_nope_head_dim", "qk_rope_head_dim"))
    if attention + "q_proj.weight" in w:
        q = x_norm @ w[attention + "q_proj.weight"].T
    else:
        q = rms_norm(x_norm @ w[attention + "q_a_proj.weight"].T, w[attention + "q_a_layernorm.weight"], 1e-6) @ w[attention + "q_b_proj.weight"].T
    q = q.view(len(x_norm), heads, nope + rope)
    return torch.cat([q[..., :nope], turned(config, q[..., nope:], numpy_mtp.mla_pairs(config), positions)], dim=-1)


def mixture(config, w, mlp, x_norm):
    def swiglu(prefix):
        gate, up = x_norm @ w[prefix + "gate_proj.weight"].T, x_norm @ w[prefix + "up_proj.weight"].T
        return (torch.nn.functional.silu(gate) * up) @ w[prefix + "down_proj.weight"].T

    scores = torch.sigmoid(x_norm @ w[mlp + "gate.weight"].T)
    choice = (scores + w[mlp + "gate.e_score_correction_bias"]).detach().numpy()
    groups = config.get("n_group", 1)
    if groups > 1:
        by_group = choice.reshape(len(choice), groups, -1)
        stay, _ = numpy_glm_moe_dsa.select(np.sort(by_group, axis=-1)[..., -2:].sum(axis=-1), config["topk_group"])
        choice = np.where(stay[..., None], by_group, -np.inf).reshape(choice.shape)
    chosen, _ = numpy_glm_moe_dsa.select(choice, config["num_experts_per_tok"])
    weight = torch.where(torch.from_numpy(chosen), scores, torch.zeros_like(scores))
    if config["norm_topk_prob"]:
        weight = weight / (weight.sum(-1, keepdim=True) + 1e-20)
    weight = weight * config["routed_scaling_factor"]
    return sum(weight[:, e : e + 1] * swiglu(f"{mlp}experts.{e}.") for e in range(config["n_routed_experts"])) + swiglu(mlp + "shared_experts.")


def depths(config, w, tokens, hidden, selected, count):
    """[logits of depth k]: as numpy_mtp.depths, with tensors of torch; `selected`: the keys that each depth attends to."""
    eps, layer = config["rms_norm_eps"], f"model.layers.{config['num_hidden_layers']}."
    attention, heads = layer + "self_attn.", config["num_attention_heads"]
    nope, v, kv_rank = config["qk_nope_head_dim"], config["v_head_dim"], config["kv_lora_rank"]
    scale = (nope + config["qk_rope_head_dim"]) ** -0.5 * numpy_rope.softmax_factor(config)
    kv_b = w[attention + "kv_b_proj.weight"].view(heads, nope + v, kv_rank)
    embedded, result, keys, values = w["model.embed_tokens.weight"][torch.from_numpy(np.asarray(tokens, np.int64))], [], None, None
    rows, carried = np.arange(1, len(tokens)), hidden[:-1]
    for depth in range(1, count + 1):
        rows, carried = rows[: len(tokens) - depth], carried[: len(tokens) - depth]
        parts = [rms_norm(embedded[rows + depth - 1], w[layer + "enorm.weight"], eps), rms_norm(carried, w[layer + "hnorm.weight"], eps)]
        u = torch.cat(parts, dim=-1) @ w[layer + "eh_proj.weight"].T
        x_norm = rms_norm(u, w[layer + "input_layernorm.weight"], eps)
        q = queries(config, w, attention, x_norm, rows + depth - 1)
        if keys is None or not numpy_mtp.shares_keys(config):
            kv_a = x_norm @ w[attention + "kv_a_proj_with_mqa.weight"].T
            c = rms_norm(kv_a[:, :kv_rank], w[attention + "kv_a_layernorm.weight"], 1e-6)
            k_pe = turned(config, kv_a[:, None, kv_rank:], numpy_mtp.mla_pairs(config), rows + depth - 1)
            keys = torch.cat([torch.einsum("sc,hnc->shn", c, kv_b[:, :nope]), k_pe.expand(-1, heads, -1)], dim=-1)
            values = torch.einsum("sc,hvc->shv", c, kv_b[:, nope:])
        scores = torch.einsum("thk,shk->ths", q, keys) * scale
        scores = scores.masked_fill(~torch.from_numpy(selected[depth - 1][: len(rows), None]), -torch.inf)
        mixed = torch.einsum("ths,shv->thv", scores.softmax(-1), values).flatten(1)
        after = u + mixed @ w[attention + "o_proj.weight"].T
        y = after + mixture(config, w, layer + "mlp.", rms_norm(after, w[layer + "post_attention_layernorm.weight"], eps))
        n = rms_norm(y, w[layer + "shared_head.norm.weight"], eps)
        carried = n if numpy_mtp.normed_state(config) else y
        result.append(n @ w["lm_head.weight"].T)
    return result


def cross_entropy(tokens, logits):
    ids, targets = torch.from_numpy(np.asarray(tokens, np.int64)), len(tokens) - 1
    losses = []
    for k, of_depth in enumerate(logits, 1):
        # The row of position p predicts the token at p + k; the text's last token is no input of training.
        wanted = ids[k + 1 :]
        losses.append(torch.nn.functional.cross_entropy(of_depth[: len(wanted)], wanted, reduction="sum") / targets)
    return sum(losses) / len(logits)


def variation(tokens, trunk_logits, logits):
    p, rows, alphas = trunk_logits.softmax(-1), len(tokens) - 1 - len(logits), []
    for ahead, of_depth in enumerate(logits):  # row i of a depth is position 1 + i
        alphas.append(torch.minimum(p[1 + ahead : 1 + ahead + rows], of_depth[:rows].softmax(-1)).sum(-1))
    return (1 - torch.stack(alphas).cumprod(0).mean(0)).mean()


def training_gradients(config, weights, tokens, count, kind):
    """The loss, {tensor of the layer: gradient}, and the logits of each depth."""
    seen = {}
    numpy_glm_moe_dsa.forward(config, weights, tokens, record=seen.__setitem__)
    layer = f"model.layers.{config['num_hidden_layers']}."
    w = {name: torch.from_numpy(np.asarray(value, np.float64)) for name, value in weights.items()}
    for name in w:
        w[name].requires_grad_(name.startswith(layer))
    selected = []
    numpy_mtp.depths(config, weights, tokens, count, selections=selected)
    logits = depths(config, w, tokens, torch.from_numpy(seen["final_norm"]), selected, count)
    loss = cross_entropy(tokens, logits) if kind == "ce" else variation(tokens, torch.from_numpy(seen["logits"]), logits)
    loss.backward()
    gradients = {name: w[name].grad.numpy() for name in w if name.startswith(layer) and w[name].grad is not None}
    return float(loss.detach()), gradients, [of_depth.detach().numpy() for of_depth in logits]


def joint_gradients(config, weights, tokens, count, kind):
    """The layer's loss, and {tensor: gradient of it and of the model's own loss, added}, of the layer's and the model's tensors."""
    layer, selected, ids = f"model.layers.{config['num_hidden_layers']}.", [], torch.from_numpy(np.asarray(tokens, np.int64))
    numpy_mtp.depths(config, weights, tokens, count, selections=selected)
    with make_goldens.float64_everywhere():
        model = make_goldens.build_model(config, {name: value for name, value in weights.items() if not name.startswith(layer)})
        hidden = model.model(input_ids=ids[None], use_cache=False).last_hidden_state[0]
        of_model = model.lm_head(hidden)
        w = {name: torch.from_numpy(np.asarray(value, np.float64)).requires_grad_() for name, value in weights.items() if name.startswith(layer)}
        w |= {"model.embed_tokens.weight": model.get_input_embeddings().weight, "lm_head.weight": model.lm_head.weight}
        logits = depths(config, w, tokens, hidden, selected, count)
        loss = cross_entropy(tokens, logits) if kind == "ce" else variation(tokens, of_model, logits)
        (loss + torch.nn.functional.cross_entropy(of_model[:-1], ids[1:])).backward()
    gradients = {name: tensor.grad.numpy() for name, tensor in w.items() if name.startswith(layer) and tensor.grad is not None}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            gradients |= {file_name: part.numpy() for file_name, part in make_goldens.file_tensors(name, parameter.grad, config["model_type"])}
    return float(loss.detach()), gradients
