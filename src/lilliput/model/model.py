"""The model in one page (`kimi-k3.md` section 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lilliput import _core
from lilliput.errors import NumericError
from lilliput.model.batch import Batch, Span
from lilliput.model.config import Config
from lilliput.model.kda import Kda
from lilliput.model.linear import Linear, Mlp
from lilliput.model.mla import Mla
from lilliput.model.moe import Moe, mlp
from lilliput.model.ops import Array, rms
from lilliput.model.residual import Mixer, Stream
from lilliput.weights.layout import HEAD
from lilliput.weights.weights import Weights


@dataclass(frozen=True, slots=True)
class Layer:
    index: int
    attention_mix: Mixer
    attention_norm: Array
    attention: Kda | Mla
    mlp_mix: Mixer
    mlp_norm: Array
    mlp: Mlp | Moe


class Model:
    def __init__(self, config: Config, weights: Weights) -> None:
        self.config, self.weights = config, weights
        self.layers = [self._layer(i) for i in range(config.num_layers)]
        self.final_mix = self._mixer("model.output_attn_res")
        self.final_norm = weights.resident["model.norm.weight"]
        self.head = Linear(weights, HEAD, config.vocab_size)

    def forward(self, spans: Sequence[Span], *, more: bool = False) -> None:
        """One pass over the new tokens of all spans: fills in their `hidden`, `logits` and `change`; commits nothing.

        `more`: another pass will follow at once, so its first weights are read ahead.

        Raises NumericError when a router or output logit is not finite.
        """
        with self.weights.turn():
            self._forward(Batch(spans), more)

    def _forward(self, batch: Batch, more: bool) -> None:
        self.weights.begin_pass(head=bool(batch.asked()), more=more)
        eps = self.config.rms_norm_eps
        stream = Stream(self.weights.embed(batch.ids), self.config.attn_res_block_size)
        for layer in self.layers:
            x = stream.read(layer.attention_mix)
            stream.boundary(layer.index)
            stream.add(layer.attention(rms(x, layer.attention_norm, eps), batch))
            x = stream.read(layer.mlp_mix)
            y = rms(x, layer.mlp_norm, eps)
            stream.add(layer.mlp(y))
            self.weights.watch.layer(layer.index, stream.sum)
        stream.only(batch.asked())
        hidden = rms(stream.read(self.final_mix), self.final_norm, eps)
        batch.hand_out(hidden, self._logits(hidden))

    def _logits(self, hidden: Array) -> Array:
        if not len(hidden):  # nobody asked: the head is not played
            return np.empty((0, self.config.vocab_size), np.float32)
        logits = self.head(hidden)
        if _core.nonfinite(logits) >= 0:
            raise NumericError("an output logit is not finite: the weights or the state are damaged")
        return logits

    def _layer(self, i: int) -> Layer:
        config, weights, p = self.config, self.weights, f"model.layers.{i}."
        return Layer(
            i,
            self._mixer(f"{p}self_attention_res"),
            weights.resident[f"{p}input_layernorm.weight"],
            Kda(config, weights, i) if config.is_kda[i] else Mla(config, weights, i),
            self._mixer(f"{p}mlp_res"),
            weights.resident[f"{p}post_attention_layernorm.weight"],
            Moe(config, weights, i) if config.is_moe(i) else mlp(config, weights, f"{p}mlp.", config.intermediate_size),
        )

    def _mixer(self, name: str) -> Mixer:
        if self.config.attn_res_block_size is None:
            return Mixer(None, 0.0)
        resident = self.weights.resident
        return Mixer(resident[f"{name}_norm.weight"] * resident[f"{name}_proj.weight"][0], self.config.rms_norm_eps)
