"""Mistakes in the router, the experts and SiTU."""

from __future__ import annotations

from mistakes.table import EXPERTS, LINEAR, MOE, Edit, Mistake, kernel


def once_landed(change: str) -> tuple[Edit, ...]:
    """`change`, of v and p, is what becomes of the bytes v of part number p of every expert once they are there."""
    return (
        Edit(
            EXPERTS,
            "        self.stats.reads += 1\n",
            "        self.stats.reads += 1\n        self.__dict__.setdefault('fresh', {})[slot] = places\n",
        ),
        Edit(
            EXPERTS,
            "                raise\n            landing.tickets.pop(0)\n",
            "                raise\n            landing.tickets.pop(0)\n"
            "        for p, place in enumerate(self.fresh.pop(landing.slot, ())):\n"
            "            v = self._view[place : place + self.spec.part_bytes[p]]\n"
            f"            v[:] = {change}\n",
        ),
    )


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
        (Edit(EXPERTS, "self._view, places,", "self._view, [*places[4:], *places[2:4], *places[:2]],"),),
    ),
    Mistake(
        "nibbles swapped",
        "tiny-a",
        ("np.stack([packed & 15, packed >> 4], axis=-1)", "np.stack([packed >> 4, packed & 15], axis=-1)"),
        once_landed("v if p % 2 else (v >> 4) | (v << 4)"),
    ),
    Mistake(
        "scales with a bias of 128",
        "tiny-a",
        ("scale.astype(np.int64) - 127", "scale.astype(np.int64) - 128"),
        once_landed("v - 1 if p % 2 else v"),
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
)
