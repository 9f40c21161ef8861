"""Mistakes in the residual stream, in states and in passes."""

from __future__ import annotations

from mistakes.table import MLA, MODEL, OPS, RESIDUAL, STATE, Edit, Mistake, kernel

MISTAKES = (
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
