"""Mistakes in KDA and MLA."""

from __future__ import annotations

from mistakes.table import KDA, MLA, OPS, STATE, Edit, Mistake, kernel

KDA_LONG = "_core.kda(o, after, state.s, q, k, v, alpha, beta)"
KDA_SHORT = "_core.kda(o, None, state.s, q, k, v, alpha, beta)"
KDA_REPLAY = "_core.kda(None, state.s, state.s, k, k, self.v[:n], self.alpha[:n], self.beta[:n])"


def recurrence(mistake: str) -> tuple[Edit, ...]:
    calls = ((KDA, KDA_LONG), (KDA, KDA_SHORT), (STATE, KDA_REPLAY))
    return tuple(edit for file, call in calls for edit in kernel(file, "kda", mistake, call))


MISTAKES = (
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
        (Edit(KDA, "_core.inverse_root(dim))", "None)"),),
    ),
    Mistake(
        "k scaled like q",
        "tiny-a",
        ("k = l2(k)", 'k = l2(k) * lin["head_dim"] ** -0.5'),
        (Edit(KDA, "l2_heads(k, heads, L2_EPS, None)", "l2_heads(k, heads, L2_EPS, _core.inverse_root(dim))"),),
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
        kernel(KDA, "kda_decay", "A_log per channel"),
    ),
    Mistake(
        "dt_bias added after the factor",
        "tiny-a",
        ("lower * sigmoid(a * (z + dt_bias))", "lower * sigmoid(a * z + dt_bias)"),
        kernel(KDA, "kda_decay", "dt_bias after the factor"),
    ),
    Mistake(
        "dt_bias laid out channel-major",
        "tiny-a",
        ('w("dt_bias").reshape(shape[1:])', 'w("dt_bias").reshape(shape[:0:-1]).T'),
        kernel(KDA, "kda_decay", "dt_bias channel-major"),
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
        (Edit(MLA, "_core.inverse_root(n + r)", "_core.inverse_root(n)"),),
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
)
