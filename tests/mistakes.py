"""Plausible mistakes, each as a change of text: in the float64 reference, and in the engine's own sources.

A change replaces a text that occurs exactly once in its file. `shows_on` names the checkpoint whose logits must give the mistake
away: an oracle, or one of `CHECKPOINTS` for what the released configuration hides (with the latent norm on, a common factor of the
router's weights cancels).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

CHECKPOINTS: dict[str, dict[str, Any]] = {
    "bare": {
        "latent_moe_use_norm": False,
        "moe_renormalize": True,
        "routed_scaling_factor": 2.5,
        "num_experts_per_token": 3,
        "num_experts": 8,
        "num_shared_experts": 1,
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
        "layers": "MKKMK",
        "attn_res_block_size": 2,
        "gate_lower_bound": -5.0,
        "tie_word_embeddings": False,
    },
    "top-1": {
        "latent_moe_use_norm": False,
        "moe_renormalize": True,
        "num_experts_per_token": 1,
        "num_experts": 8,
        "first_k_dense_replace": 0,
        "moe_layer_freq": 1,
        "layers": "KMK",
        "gate_lower_bound": None,
        "num_heads": 3,
        "head_dim": 8,
    },
}

MODEL, RESIDUAL, KDA, MLA, MOE = (f"model/{name}.py" for name in ("model", "residual", "kda", "mla", "moe"))
LINEAR, OPS, STATE, EXPERTS = "model/linear.py", "model/ops.py", "model/state.py", "weights/experts.py"


@dataclass(frozen=True)
class Edit:
    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Mistake:
    """`reference` is (old, new) in tools/reference.py; None where the reference has nothing of the kind (states, passes)."""

    name: str
    shows_on: str
    reference: tuple[str, str] | None
    engine: tuple[Edit, ...]


def kernel(file: str, name: str, mistake: str, call: str | None = None) -> tuple[Edit, ...]:
    """The call `_core.name(` of `file` goes to the plain kernel with a mistake; `call` is a longer text where there are several."""
    old = call or f"_core.{name}("
    return (Edit(file, old, old.replace(f"_core.{name}(", f'plain_kernels.wrong("{name}", "{mistake}")(')),)


KDA_LONG = "_core.kda(o, after, state.s, q, k, v, alpha, beta)"
KDA_SHORT = "_core.kda(o, None, state.s, q, k, v, alpha, beta)"
KDA_REPLAY = "_core.kda(None, state.s, state.s, k, k, self.v[:n], self.alpha[:n], self.beta[:n])"


def recurrence(mistake: str) -> tuple[Edit, ...]:
    calls = ((KDA, KDA_LONG), (KDA, KDA_SHORT), (STATE, KDA_REPLAY))
    return tuple(edit for file, call in calls for edit in kernel(file, "kda", mistake, call))


MISTAKES = (
    # Router and experts
    Mistake(
        "bias used as part of the weights",
        "tiny-a",
        ("weight = np.take_along_axis(s, ids, axis=-1)", "weight = np.take_along_axis(chosen_by, ids, axis=-1)"),
        kernel(MOE, "route", "bias in the weights"),
    ),
    Mistake(
        "selection without the bias",
        "tiny-a",
        ('chosen_by = s + w("gate.e_score_correction_bias")', "chosen_by = s"),
        kernel(MOE, "route", "selection without bias"),
    ),
    Mistake(
        "router without sigmoid",
        "tiny-a",
        ('s = sigmoid(x @ w("gate.weight").T)', 's = x @ w("gate.weight").T'),
        kernel(MOE, "route", "no sigmoid"),
    ),
    Mistake(
        "weights not renormalised",
        "bare",
        ('if k > 1 and c["moe_renormalize"]:', "if False:"),
        (Edit(MOE, "moe.renormalize", "False"),),
    ),
    Mistake(
        "a single expert renormalised",
        "top-1",
        ('if k > 1 and c["moe_renormalize"]:', 'if c["moe_renormalize"]:'),
        kernel(MOE, "route", "one expert renormalised"),
    ),
    Mistake(
        "scaling factor missing",
        "bare",
        ('weight * c["routed_scaling_factor"]', "weight"),
        (Edit(MOE, "moe.scaling_factor", "1.0"),),
    ),
    Mistake(
        "shared experts scaled by the factor",
        "bare",
        (
            'y = y + mlp(x, lambda name: w(f"shared_experts.{name}"), c)',
            'y = y + c["routed_scaling_factor"] * mlp(x, lambda name: w(f"shared_experts.{name}"), c)',
        ),
        (Edit(MOE, "_core.add(y, shared)", "_core.add(y, shared * np.float32(self.moe.scaling_factor))"),),
    ),
    Mistake(
        "latent norm per expert instead of once",
        "tiny-a",
        (
            'expert(a[token], lambda name, e=e: w(f"experts.{e}.{name}"), c)',
            'rms(expert(a[token], lambda name, e=e: w(f"experts.{e}.{name}"), c), w("routed_expert_norm.weight"), c["rms_norm_eps"])',
        ),
        (
            Edit(
                MOE,
                "y = chosen.apply(weights, latent, self.beta, self.linear_beta)",
                "ones = np.ones((len(x), 1), np.float32)\n"
                "        y = np.zeros_like(latent)\n"
                "        for j in range(self.moe.top_k):\n"
                "            one = self.weights.experts.request(self.layer, np.ascontiguousarray(ids[:, j : j + 1]))\n"
                "            y += weights[:, j : j + 1] * rms(one.apply(ones, latent, self.beta, self.linear_beta), self.norm, self.eps)",
            ),
        ),
    ),
    Mistake(
        "latent norm missing",
        "tiny-a",
        ('if c["latent_moe_use_norm"]:', "if False:"),
        (Edit(MOE, "if self.norm is not None:", "if False:"),),
    ),
    Mistake(
        "w1 and w3 exchanged",
        "tiny-a",
        ("for i in (1, 2, 3))", "for i in (3, 2, 1))"),
        (Edit(EXPERTS, "loaded = tuple(parts)", "loaded = (*parts[4:], *parts[2:4], *parts[:2])"),),
    ),
    Mistake(
        "nibbles swapped",
        "tiny-a",
        ("np.stack([packed & 15, packed >> 4], axis=-1)", "np.stack([packed >> 4, packed & 15], axis=-1)"),
        (Edit(EXPERTS, "parts.append(view)", "parts.append(view if part % 2 else (view >> 4) | (view << 4))"),),
    ),
    Mistake(
        "scales with a bias of 128",
        "tiny-a",
        ("scale.astype(np.int64) - 127", "scale.astype(np.int64) - 128"),
        (Edit(EXPERTS, "parts.append(view)", "parts.append(view - 1 if part % 2 else view)"),),
    ),
    # KDA
    Mistake("wrong epsilon in the L2 norm", "tiny-a", ("L2_EPS = 1e-6", "L2_EPS = 1e-5"), (Edit(KDA, "L2_EPS = 1e-6", "L2_EPS = 1e-5"),)),
    Mistake(
        "L2 epsilon outside of the root",
        "tiny-a",
        (
            "x / np.sqrt(np.sum(x * x, axis=-1, keepdims=True) + L2_EPS)",
            "x / (np.sqrt(np.sum(x * x, axis=-1, keepdims=True)) + L2_EPS)",
        ),
        kernel(OPS, "l2_heads", "epsilon outside of the root"),
    ),
    Mistake(
        "L2 norm by the mean",
        "tiny-a",
        ("np.sqrt(np.sum(x * x, axis=-1, keepdims=True) + L2_EPS)", "np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + L2_EPS)"),
        kernel(OPS, "l2_heads", "mean for sum"),
    ),
    Mistake(
        "q scale missing",
        "tiny-a",
        ('q = l2(q) * lin["head_dim"] ** -0.5', "q = l2(q)"),
        (Edit(KDA, "1.0 / sqrt(dim))", "None)"),),
    ),
    Mistake(
        "k scaled like q",
        "tiny-a",
        ("k = l2(k)", 'k = l2(k) * lin["head_dim"] ** -0.5'),
        (Edit(KDA, "l2_heads(k, heads, L2_EPS, None)", "l2_heads(k, heads, L2_EPS, 1.0 / sqrt(dim))"),),
    ),
    Mistake(
        "v normalised as well",
        "tiny-a",
        ("    k = l2(k)\n", "    k = l2(k)\n    v = l2(v)\n"),
        (Edit(KDA, "v = v.reshape(o.shape)", "v = l2_heads(v, heads, L2_EPS, None).reshape(o.shape)"),),
    ),
    Mistake(
        "convolution taps reversed",
        "tiny-a",
        ("y += w[:, 0, j] * past", "y += w[:, 0, kernel - 1 - j] * past"),
        (Edit(KDA, ".reshape(wide, kda.conv_kernel) for", ".reshape(wide, kda.conv_kernel)[:, ::-1].copy() for"),),
    ),
    Mistake("convolution without SiLU", "tiny-a", ("return silu(y)", "return y"), kernel(OPS, "short_conv", "no silu")),
    Mistake(
        "A_log per channel",
        "tiny-a",
        ('w("A_log")[: lin["num_heads"]]', 'w("A_log")[None, : lin["head_dim"]]'),
        (*kernel(KDA, "kda_decay", "A_log per channel"), Edit(KDA, 'A_log"][: kda.num_heads]', 'A_log"]')),
    ),
    Mistake(
        "dt_bias added after the factor",
        "tiny-a",
        ("lower * sigmoid(a * (z + dt_bias))", "lower * sigmoid(a * z + dt_bias)"),
        kernel(KDA, "kda_decay", "dt_bias after the factor"),
    ),
    Mistake(
        "softplus gate where there is a bound",
        "tiny-a",
        ("    if lower is None:", "    if True:"),
        (Edit(KDA, "self.kda.gate_lower_bound", "None"),),
    ),
    Mistake(
        "bounded gate where there is no bound",
        "top-1",
        ("    if lower is None:", "    lower = -5.0 if lower is None else lower\n    if lower is None:"),
        (Edit(KDA, "self.kda.gate_lower_bound", "self.kda.gate_lower_bound or -5.0"),),
    ),
    Mistake(
        "beta with a factor 2",
        "tiny-a",
        ('beta = sigmoid(x @ w("b_proj.weight").T)', 'beta = 2 * sigmoid(x @ w("b_proj.weight").T)'),
        (Edit(KDA, "beta = sigmoid(self.b(x))", "beta = sigmoid(self.b(x)) * np.float32(2)"),),
    ),
    Mistake(
        "decay after the update",
        "tiny-a",
        (
            "        state = alpha[t][:, :, None] * state\n"
            '        u = beta[t][:, None] * (v[t] - np.einsum("hkv,hk->hv", state, k[t]))\n'
            "        state = state + k[t][:, :, None] * u[:, None, :]\n",
            '        u = beta[t][:, None] * (v[t] - np.einsum("hkv,hk->hv", state, k[t]))\n'
            "        state = alpha[t][:, :, None] * (state + k[t][:, :, None] * u[:, None, :])\n",
        ),
        recurrence("decay after the update"),
    ),
    Mistake(
        "delta taken from the state before the decay",
        "tiny-a",
        (
            '        state = alpha[t][:, :, None] * state\n        u = beta[t][:, None] * (v[t] - np.einsum("hkv,hk->hv", state, k[t]))\n',
            '        u = beta[t][:, None] * (v[t] - np.einsum("hkv,hk->hv", state, k[t]))\n        state = alpha[t][:, :, None] * state\n',
        ),
        recurrence("delta from the state before decay"),
    ),
    Mistake(
        "output read before the update",
        "tiny-a",
        (
            '        state = state + k[t][:, :, None] * u[:, None, :]\n        o[t] = np.einsum("hkv,hk->hv", state, q[t])\n',
            '        o[t] = np.einsum("hkv,hk->hv", state, q[t])\n        state = state + k[t][:, :, None] * u[:, None, :]\n',
        ),
        recurrence("output before the update"),
    ),
    Mistake(
        "decay along the value channels",
        "tiny-a",
        ("state = alpha[t][:, :, None] * state", "state = alpha[t][:, None, :] * state"),
        recurrence("decay per value channel"),
    ),
    Mistake(
        "output gate SiLU instead of sigmoid",
        "tiny-a",
        ("* sigmoid(gate.reshape(shape))", "* silu(gate.reshape(shape))"),
        kernel(KDA, "gated_norm", "silu gate"),
    ),
    Mistake(
        "output norm after the gate",
        "tiny-a",
        (
            'o = rms(o, w("o_norm.weight"), c["rms_norm_eps"]) * sigmoid(gate.reshape(shape))',
            'o = rms(o * sigmoid(gate.reshape(shape)), w("o_norm.weight"), c["rms_norm_eps"])',
        ),
        kernel(KDA, "gated_norm", "norm after the gate"),
    ),
    # MLA
    Mistake(
        "wrong epsilon in the latent norms",
        "tiny-a",
        ("LATENT_EPS = 1e-6", "LATENT_EPS = 1e-5"),
        (Edit(MLA, "LATENT_EPS = 1e-6", "LATENT_EPS = 1e-5"),),
    ),
    Mistake(
        "unrotated keys normed",
        "tiny-a",
        ("k_r = compressed[:, rank:]", "k_r = rms(compressed[:, rank:], 1.0, LATENT_EPS)"),
        (
            Edit(
                MLA,
                "latents[:, :c] = rms(latents[:, :c], self.kv_norm, LATENT_EPS)",
                "latents[:, :c] = rms(latents[:, :c], self.kv_norm, LATENT_EPS)\n"
                "        latents[:, c:] = rms(latents[:, c:], np.ones(mla.qk_rope_head_dim, np.float32), LATENT_EPS)",
            ),
        ),
    ),
    Mistake(
        "scale of the nope dimensions alone",
        "tiny-a",
        ("* (n + r) ** -0.5", "* n**-0.5"),
        (Edit(MLA, "1.0 / sqrt(n + r)", "1.0 / sqrt(n)"),),
    ),
    Mistake(
        "MLA gate missing",
        "tiny-a",
        ('if c["mla_use_output_gate"]:', "if False:"),
        (Edit(MLA, "_core.gate(flat, self.gate(x))", "self.gate(x)"),),
    ),
    Mistake(
        "MLA gate SiLU instead of sigmoid",
        "tiny-a",
        ('o = o * sigmoid(x @ w("g_proj.weight").T)', 'o = o * silu(x @ w("g_proj.weight").T)'),
        kernel(MLA, "gate", "silu gate"),
    ),
    # Residual stream
    Mistake(
        "addition instead of assignment at a boundary",
        "tiny-a",
        ("s = y if is_boundary else s + y", "s = s + y"),
        (Edit(RESIDUAL, "            self._sum = None\n", ""),),
    ),
    Mistake(
        "mixed value enters the running sum",
        "tiny-a",
        (
            "            is_boundary = block is not None",
            "            s = x\n            is_boundary = block is not None",
        ),
        (Edit(MODEL, "x = stream.read(layer.attention_mix)", "x = stream._sum = stream.read(layer.attention_mix)"),),
    ),
    Mistake(
        "boundary stores before it is read",
        "tiny-a",
        ('x = mix(blocks, s, w("self_attention', 'x = mix([*blocks, s][: i // block + 1], s, w("self_attention'),
        (
            Edit(
                MODEL,
                "            x = stream.read(layer.attention_mix)\n",
                "            x = stream.read(layer.attention_mix)\n"
                "            if layer.index and layer.index % stream._block_size == 0:\n"
                "                stream._blocks.append(stream.sum)\n"
                "                x = stream.read(layer.attention_mix)\n"
                "                stream._blocks.pop()\n",
            ),
        ),
    ),
    Mistake(
        "mixing with the normalised values",
        "tiny-a",
        (
            'return np.einsum("tb,tbd->td", softmax(logit), v)',
            'return np.einsum("tb,tbd->td", softmax(logit), v / np.sqrt(np.mean(v * v, axis=-1, keepdims=True) + eps))',
        ),
        kernel(OPS, "mix", "normalised values"),
    ),
    Mistake(
        "mixing by the values as they are",
        "tiny-a",
        ("np.sum(v / np.sqrt(np.mean(v * v, axis=-1, keepdims=True) + eps) * (norm", "np.sum(v * (norm"),
        kernel(OPS, "mix", "logits of the values as they are"),
    ),
    Mistake(
        "norm weight of the mixing left out",
        "tiny-a",
        ("(norm * proj[0])", "proj[0]"),
        (Edit(MODEL, 'resident[f"{name}_norm.weight"] * resident[f"{name}_proj.weight"][0]', 'resident[f"{name}_proj.weight"][0]'),),
    ),
    Mistake(
        "last short block forgotten at the end",
        "tiny-a",
        (
            'h = mix(blocks, s, top("output_attn_res_norm.weight")',
            'h = mix(blocks[:-1], blocks[-1], top("output_attn_res_norm.weight")',
        ),
        (
            Edit(
                MODEL,
                "        stream.only(batch.asked())\n",
                "        stream._sum = stream._blocks.pop()\n        stream.only(batch.asked())\n",
            ),
        ),
    ),
    Mistake(
        "final mix missing",
        "tiny-a",
        ('h = mix(blocks, s, top("output_attn_res_norm.weight"), top("output_attn_res_proj.weight"), eps) if blocks else s', "h = s"),
        (Edit(MODEL, "rms(stream.read(self.final_mix)", "rms(stream.sum"),),
    ),
    Mistake(
        "attention's norm before the MLP",
        "tiny-a",
        ('x = rms(x, w("post_attention_layernorm.weight"), eps)', 'x = rms(x, w("input_layernorm.weight"), eps)'),
        (Edit(MODEL, "y = rms(x, layer.mlp_norm, eps)", "y = rms(x, layer.attention_norm, eps)"),),
    ),
    # SiTU
    Mistake(
        "SiTU: sigmoid of the bounded gate",
        "tiny-a",
        ("beta * np.tanh(gate / beta) * sigmoid(gate) * up", "beta * np.tanh(gate / beta) * sigmoid(beta * np.tanh(gate / beta)) * up"),
        kernel(LINEAR, "situ", "sigmoid of the bounded gate"),
    ),
    Mistake("SiTU: up not bounded", "tiny-a", ("    if bound is not None:", "    if False:"), kernel(LINEAR, "situ", "up not bounded")),
    Mistake(
        "SiTU: gate not bounded",
        "tiny-a",
        ("beta * np.tanh(gate / beta) * sigmoid(gate) * up", "gate * sigmoid(gate) * up"),
        kernel(LINEAR, "situ", "gate not bounded"),
    ),
    Mistake(
        "experts without the up bound",
        "tiny-a",
        ("return situ(a @ w1.T, a @ w3.T, c) @ w2.T", 'return situ(a @ w1.T, a @ w3.T, c | {"activation_situ_linear_beta": None}) @ w2.T'),
        (Edit(MOE, "latent, self.beta, self.linear_beta)", "latent, self.beta, None)"),),
    ),
    # States and passes: nothing of the kind is in the reference
    Mistake(
        "latents written at the start of each pass",
        "tiny-a",
        None,
        (Edit(MLA, "state.write(span.state.position, latents[rows])", "state.write(0, latents[rows])"),),
    ),
    Mistake(
        "convolution tail of a replay one token short",
        "tiny-a",
        None,
        (Edit(STATE, "tails_after(state.tails, self.inputs, n)", "tails_after(state.tails, self.inputs, max(n - 1, 0))"),),
    ),
    Mistake("replay without decay", "tiny-a", None, (Edit(STATE, "self.alpha[:n]", "np.ones_like(self.alpha[:n])"),)),
    Mistake("long spans leave the state as it was", "tiny-a", None, (Edit(STATE, "= self.s, self.tails", "= state.s, self.tails"),)),
)
