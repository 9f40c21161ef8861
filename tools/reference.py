"""Kimi K3's text model in plain numpy, float64: slow, whole, and short enough to check against the specification line by line.

Written from the specification alone; nothing of the engine is imported, so the engine can be tested against it. A whole sequence
goes through at once, nothing is cached, KDA runs by its recurrence and MLA with expanded keys and values. Section numbers are
those of the specification. T = tokens, D = hidden size, H = heads; matrices are stored [out, in].

    python tools/reference.py MODEL --ids 1,2,3 [-n 8] [-o logits.npy]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray
Weights = Callable[[str], Array]  # the tensors of one layer or module, by the rest of their name

L2_EPS = 1e-6  # section 5, step 4
LATENT_EPS = 1e-6  # section 6: not rms_norm_eps
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])  # section 10


@dataclass
class Result:
    """What one forward pass gives. `expert_*` hold one entry per MoE layer, in order."""

    logits: Array  # [T, V]
    hidden: Array  # [L, T, D]: the running residual sum after each layer
    expert_ids: list[Array]  # [T, k], ascending
    expert_weights: list[Array]  # [T, k], in the order of the ids
    router_margins: list[Array]  # [T]: by how much the last chosen score exceeds the best one not chosen


# --- files (sections 2.1, 3 and 10) ---------------------------------------------------------------------------------------------


def read_safetensors(path: Path) -> dict[str, Array]:
    """Every tensor of a file; BF16 and F32 widened to float64, U8 as it is."""
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    tensors: dict[str, Array] = {}
    for name, entry in json.loads(raw[8:start]).items():
        if name != "__metadata__":
            data = raw[start + entry["data_offsets"][0] : start + entry["data_offsets"][1]]
            if entry["dtype"] == "BF16":
                values = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32).astype(np.float64)
            else:
                values = np.frombuffer(data, {"F32": "<f4", "U8": "u1"}[entry["dtype"]])
                values = values.astype(np.float64) if entry["dtype"] == "F32" else values
            tensors[name] = values.reshape(entry["shape"])
    return tensors


def canonical(name: str) -> str:
    """A tensor's name in the release, without `language_model.`."""
    name = name.removeprefix("language_model.").replace("block_sparse_moe.e_score", "block_sparse_moe.gate.e_score")
    return name.replace("_res.proj_weight", "_res_proj.weight").replace("_res.norm_weight", "_res_norm.weight")


def mxfp4(packed: Array, scale: Array) -> Array:
    """[out, in/2] bytes and [out, in/32] scale bytes → [out, in]. A scale of 255 makes its group zero."""
    codes = np.stack([packed & 15, packed >> 4], axis=-1).reshape(len(packed), -1)
    factor = np.where(scale == 255, 0.0, np.ldexp(1.0, scale.astype(np.int64) - 127))
    return E2M1[codes] * np.repeat(factor, 32, axis=1)


# --- elementary functions -------------------------------------------------------------------------------------------------------


def sigmoid(x: Array) -> Array:
    return 0.5 * (1 + np.tanh(0.5 * x))


def silu(x: Array) -> Array:
    return x * sigmoid(x)


def softplus(x: Array) -> Array:
    return np.logaddexp(0.0, x)


def softmax(x: Array) -> Array:
    """Over the last axis."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def rms(x: Array, w: Array, eps: float) -> Array:
    return w * x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)


def l2(x: Array) -> Array:
    return x / np.sqrt(np.sum(x * x, axis=-1, keepdims=True) + L2_EPS)


# --- section 5: KDA -------------------------------------------------------------------------------------------------------------


def short_conv(u: Array, w: Array) -> Array:
    """u [T, P], w [P, 1, kernel] → [T, P]; the last tap multiplies the current token."""
    kernel = w.shape[2]
    past = np.concatenate([np.zeros((kernel - 1, u.shape[1])), u])
    y = np.zeros_like(u)
    for j in range(kernel):
        y += w[:, 0, j] * past[j : j + len(u)]
    return silu(y)


def recurrence(q: Array, k: Array, v: Array, alpha: Array, beta: Array) -> Array:
    """q, k, v, alpha [T, H, K], beta [T, H] → o [T, H, K]. The state is [H, key, value] and starts at zero."""
    state = np.zeros((q.shape[1], q.shape[2], v.shape[2]))
    o = np.zeros_like(v)
    for t in range(len(q)):
        state = alpha[t][:, :, None] * state
        u = beta[t][:, None] * (v[t] - np.einsum("hkv,hk->hv", state, k[t]))
        state = state + k[t][:, :, None] * u[:, None, :]
        o[t] = np.einsum("hkv,hk->hv", state, q[t])
    return o


def decay(z: Array, a_log: Array, dt_bias: Array, lower: float | None) -> Array:
    """z, dt_bias [.., H, K], a_log [H] → log alpha. One factor per head, one bias per channel."""
    a = np.exp(a_log)[:, None]
    if lower is None:
        return -a * softplus(z + dt_bias)
    return lower * sigmoid(a * (z + dt_bias))


def kda(x: Array, w: Weights, c: dict[str, Any]) -> Array:
    """x [T, D], normed → [T, D]."""
    lin = c["linear_attn_config"]
    shape = (len(x), lin["num_heads"], lin["head_dim"])
    q = short_conv(x @ w("q_proj.weight").T, w("q_conv1d.weight")).reshape(shape)
    k = short_conv(x @ w("k_proj.weight").T, w("k_conv1d.weight")).reshape(shape)
    v = short_conv(x @ w("v_proj.weight").T, w("v_conv1d.weight")).reshape(shape)
    q = l2(q) * lin["head_dim"] ** -0.5
    k = l2(k)
    z = (x @ w("f_a_proj.weight").T @ w("f_b_proj.weight").T).reshape(shape)
    g = decay(z, w("A_log")[: lin["num_heads"]], w("dt_bias").reshape(shape[1:]), lin["gate_lower_bound"])
    beta = sigmoid(x @ w("b_proj.weight").T)
    gate = x @ w("g_proj.weight").T if lin["use_full_rank_gate"] else x @ w("g_a_proj.weight").T @ w("g_b_proj.weight").T
    o = recurrence(q, k, v, np.exp(g), beta)
    o = rms(o, w("o_norm.weight"), c["rms_norm_eps"]) * sigmoid(gate.reshape(shape))
    return o.reshape(len(x), -1) @ w("o_proj.weight").T


# --- section 6: gated MLA -------------------------------------------------------------------------------------------------------


def attend(q_n: Array, q_r: Array, lat: Array, k_r: Array, kv_b: Array) -> Array:
    """q_n [T, H, n], q_r [T, H, r], lat [T, C], k_r [T, r], kv_b [H, n + v, C] → [T, H, v]."""
    n, r, tokens = q_n.shape[2], q_r.shape[2], len(lat)
    kv = np.einsum("hdc,tc->thd", kv_b, lat)
    k_n, v = kv[:, :, :n], kv[:, :, n:]
    score = (np.einsum("thd,shd->hts", q_n, k_n) + np.einsum("thd,sd->hts", q_r, k_r)) * (n + r) ** -0.5
    score = np.where(np.tri(tokens, dtype=bool), score, -np.inf)
    return np.einsum("hts,shd->thd", softmax(score), v)


def mla(x: Array, w: Weights, c: dict[str, Any]) -> Array:
    """x [T, D], normed → [T, D]. Nothing is rotated."""
    heads, n, rank = c["num_attention_heads"], c["qk_nope_head_dim"], c["kv_lora_rank"]
    if c["q_lora_rank"] is None:
        q = x @ w("q_proj.weight").T
    else:
        q = rms(x @ w("q_a_proj.weight").T, w("q_a_layernorm.weight"), LATENT_EPS) @ w("q_b_proj.weight").T
    q = q.reshape(len(x), heads, -1)
    compressed = x @ w("kv_a_proj_with_mqa.weight").T
    lat = rms(compressed[:, :rank], w("kv_a_layernorm.weight"), LATENT_EPS)
    k_r = compressed[:, rank:]
    o = attend(q[:, :, :n], q[:, :, n:], lat, k_r, w("kv_b_proj.weight").reshape(heads, -1, rank))
    o = o.reshape(len(x), -1)
    if c["mla_use_output_gate"]:
        o = o * sigmoid(x @ w("g_proj.weight").T)
    return o @ w("o_proj.weight").T


# --- section 7: attention residuals ---------------------------------------------------------------------------------------------


def mix(blocks: list[Array], s: Array, norm: Array, proj: Array, eps: float) -> Array:
    """blocks and s [T, D] → [T, D]: softmax over the depth, of the unnormalised values."""
    v = np.stack([*blocks, s], axis=1)
    logit = np.sum(v / np.sqrt(np.mean(v * v, axis=-1, keepdims=True) + eps) * (norm * proj[0]), axis=-1)
    return np.einsum("tb,tbd->td", softmax(logit), v)


# --- sections 8 and 9: SiTU, MLP, latent MoE ------------------------------------------------------------------------------------


def situ(gate: Array, up: Array, c: dict[str, Any]) -> Array:
    beta, bound = c["activation_situ_beta"], c["activation_situ_linear_beta"]
    if bound is not None:
        up = bound * np.tanh(up / bound)
    return beta * np.tanh(gate / beta) * sigmoid(gate) * up


def mlp(x: Array, w: Weights, c: dict[str, Any]) -> Array:
    return situ(x @ w("gate_proj.weight").T, x @ w("up_proj.weight").T, c) @ w("down_proj.weight").T


def route(x: Array, w: Weights, c: dict[str, Any]) -> tuple[Array, Array, Array]:
    """x [T, D] → chosen ids [T, k] ascending, their weights [T, k], the margin of the choice [T]."""
    k = c["num_experts_per_token"]
    s = sigmoid(x @ w("gate.weight").T)
    chosen_by = s + w("gate.e_score_correction_bias")
    order = np.argsort(-chosen_by, axis=-1, kind="stable")
    ranked = np.take_along_axis(chosen_by, order, axis=-1)
    margin = ranked[:, k - 1] - ranked[:, k] if k < s.shape[1] else np.full(len(x), np.inf)
    ids = np.sort(order[:, :k], axis=-1)
    weight = np.take_along_axis(s, ids, axis=-1)
    if k > 1 and c["moe_renormalize"]:
        weight = weight / (weight.sum(axis=-1, keepdims=True) + 1e-20)
    return ids, weight * c["routed_scaling_factor"], margin


def expert(a: Array, w: Weights, c: dict[str, Any]) -> Array:
    """a [tokens, latent] → [tokens, latent]."""
    w1, w2, w3 = (mxfp4(w(f"w{i}.weight_packed"), w(f"w{i}.weight_scale")) for i in (1, 2, 3))
    return situ(a @ w1.T, a @ w3.T, c) @ w2.T


def moe(x: Array, w: Weights, c: dict[str, Any], ids: Array, weight: Array) -> Array:
    """x [T, D], normed → [T, D]."""
    is_latent = c["routed_expert_hidden_size"] is not None
    a = x @ w("routed_expert_down_proj.weight").T if is_latent else x
    y = np.zeros_like(a)
    for e in np.unique(ids):
        token, place = np.nonzero(ids == e)
        y[token] += weight[token, place][:, None] * expert(a[token], lambda name, e=e: w(f"experts.{e}.{name}"), c)
    if is_latent:
        if c["latent_moe_use_norm"]:
            y = rms(y, w("routed_expert_norm.weight"), c["rms_norm_eps"])
        y = y @ w("routed_expert_up_proj.weight").T
    if c["num_shared_experts"]:
        y = y + mlp(x, lambda name: w(f"shared_experts.{name}"), c)
    return y


# --- section 1: the machine -----------------------------------------------------------------------------------------------------


class Reference:
    """A checkpoint, wholly in memory as float64. Only for small ones."""

    def __init__(self, directory: Path) -> None:
        raw = json.loads((directory / "config.json").read_bytes())
        self.config: dict[str, Any] = raw.get("text_config", raw)
        index = json.loads((directory / "model.safetensors.index.json").read_bytes())["weight_map"]
        self.tensors: dict[str, Array] = {}
        for file in sorted(set(index.values())):
            self.tensors |= {canonical(name): value for name, value in read_safetensors(directory / file).items()}

    def weights(self, prefix: str) -> Weights:
        return lambda name: self.tensors[prefix + name]

    def forward(self, ids: Sequence[int]) -> Result:
        """One pass over a whole sequence."""
        c, top = self.config, self.weights("model.")
        eps, block = c["rms_norm_eps"], c["attn_res_block_size"]
        result = Result(np.empty(0), np.empty(0), [], [], [])
        hidden = []

        s = top("embed_tokens.weight")[np.asarray(ids)]
        blocks: list[Array] = []
        for i in range(c["num_hidden_layers"]):
            w = self.weights(f"model.layers.{i}.")
            x = mix(blocks, s, w("self_attention_res_norm.weight"), w("self_attention_res_proj.weight"), eps) if blocks else s
            is_boundary = block is not None and i % block == 0
            if is_boundary:
                blocks.append(s)
            is_kda = i + 1 in c["linear_attn_config"]["kda_layers"]
            attention = kda if is_kda else mla
            y = attention(rms(x, w("input_layernorm.weight"), eps), self.weights(f"model.layers.{i}.self_attn."), c)
            s = y if is_boundary else s + y

            x = mix(blocks, s, w("mlp_res_norm.weight"), w("mlp_res_proj.weight"), eps) if blocks else s
            x = rms(x, w("post_attention_layernorm.weight"), eps)
            if i >= c["first_k_dense_replace"] and i % c["moe_layer_freq"] == 0:
                inner = self.weights(f"model.layers.{i}.block_sparse_moe.")
                chosen, weight, margin = route(x, inner, c)
                y = moe(x, inner, c, chosen, weight)
                result.expert_ids.append(chosen)
                result.expert_weights.append(weight)
                result.router_margins.append(margin)
            else:
                y = mlp(x, self.weights(f"model.layers.{i}.mlp."), c)
            s = s + y
            hidden.append(s)

        h = mix(blocks, s, top("output_attn_res_norm.weight"), top("output_attn_res_proj.weight"), eps) if blocks else s
        head = top("embed_tokens.weight") if c["tie_word_embeddings"] else self.tensors["lm_head.weight"]
        result.logits = rms(h, top("norm.weight"), eps) @ head.T
        result.hidden = np.stack(hidden)
        return result

    def greedy(self, prompt: Sequence[int], count: int) -> list[int]:
        """The `count` ids that follow the prompt, each the lowest id of the largest logit; stop ids are not looked at."""
        ids = list(prompt)
        for _ in range(count):
            ids.append(int(np.argmax(self.forward(ids).logits[-1])))
        return ids[len(prompt) :]


def main() -> None:
    parser = argparse.ArgumentParser(description="Run a small checkpoint in float64.")
    parser.add_argument("model", type=Path)
    parser.add_argument("--ids", required=True, help="comma-separated prompt ids")
    parser.add_argument("-n", type=int, default=0, help="continue by this many ids")
    parser.add_argument("-o", type=Path, help="write the logits of every position, float64")
    args = parser.parse_args()
    reference = Reference(args.model)
    ids = [int(i) for i in args.ids.split(",")]
    ids += reference.greedy(ids, args.n)
    print(",".join(map(str, ids)))
    if args.o:
        np.save(args.o, reference.forward(ids).logits)


if __name__ == "__main__":
    main()
