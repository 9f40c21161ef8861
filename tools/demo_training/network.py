"""Kimi K3's text model in torch, for training: whole sequences in float32, experts not yet quantised.

Built from the engine's own `Config`; parameters carry the released names (`kimi-k3.md` section 3.2) without `language_model.`, except
that the experts of a layer are stacked: `experts.w13` [E, 2 F, L] holds gate and up, `experts.w2` [E, L, F]. Comments name sections.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from demo_training.gradients import head_loss
from demo_training.kda import CHUNK, kda_core, log_decay, short_conv
from demo_training.moe import Gate, LatentMoe
from demo_training.parts import OUTPUT_GAIN, Mlp, Weight, gated_rms, matrix, mix, ones, rms
from lilliput.model.config import Config

LATENT_EPS = 1e-6  # of the two MLA norms, whatever the configuration says (section 6)


class Kda(nn.Module):
    """Kimi Delta Attention (section 5)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        kda, d = config.kda, config.hidden_size
        self.heads, self.width, self.bound, self.eps = kda.num_heads, kda.head_dim, kda.gate_lower_bound, config.rms_norm_eps
        p = kda.num_heads * kda.head_dim
        self.q_proj, self.k_proj, self.v_proj = matrix(p, d), matrix(p, d), matrix(p, d)
        self.q_conv1d, self.k_conv1d, self.v_conv1d = (self._conv(p, kda.conv_kernel) for _ in range(3))
        self.f_a_proj, self.f_b_proj = matrix(kda.head_dim, d), matrix(p, kda.head_dim)
        self.A_log = nn.Parameter(torch.zeros(kda.num_heads))
        self.dt_bias = nn.Parameter(self._biases(p))
        self.b_proj = matrix(kda.num_heads, d)
        self.full_rank_gate = kda.full_rank_gate
        if kda.full_rank_gate:
            self.g_proj = matrix(p, d)
        else:
            self.g_a_proj, self.g_b_proj = matrix(kda.head_dim, d), matrix(p, kda.head_dim)
        self.o_norm, self.o_proj = ones(kda.head_dim), matrix(d, p, OUTPUT_GAIN)

    @staticmethod
    def _conv(channels: int, taps: int) -> Weight:
        """Mostly the current token."""
        made = Weight(channels, 1, taps)
        nn.init.normal_(made.weight, std=0.1)
        with torch.no_grad():
            made.weight[..., -1] += 1
        return made

    def _biases(self, channels: int) -> Tensor:
        """Bias of the decay gate such that the channels of every head forget over 2 to 500 tokens, evenly in the logarithm."""
        rates = torch.logspace(math.log10(1 / 500), math.log10(1 / 2), self.width).repeat(channels // self.width)
        return torch.log(torch.expm1(rates)) if self.bound is None else torch.logit(rates / -self.bound)

    def forward(self, x: Tensor) -> Tensor:
        """x [B, T, D], T a multiple of 16."""
        p = self.heads * self.width
        gates = (self.g_proj if self.full_rank_gate else self.g_a_proj).weight
        weights = [self.q_proj.weight, self.k_proj.weight, self.v_proj.weight, self.f_a_proj.weight, self.b_proj.weight, gates]
        qkv, f, b, gate = F.linear(x, torch.cat(weights)).split([3 * p, len(self.f_a_proj.weight), self.heads, len(gates)], -1)
        heads = (*x.shape[:2], self.heads, self.width)
        qkv = short_conv(qkv, torch.cat([self.q_conv1d.weight, self.k_conv1d.weight, self.v_conv1d.weight]))
        g = log_decay(F.linear(f, self.f_b_proj.weight).view(heads), self.A_log, self.dt_bias, self.bound)
        o = kda_core(qkv.view(*x.shape[:2], 3, self.heads, self.width), g, torch.sigmoid(b))
        if not self.full_rank_gate:
            gate = F.linear(gate, self.g_b_proj.weight)
        o = gated_rms(o, self.o_norm.weight, gate.view(heads), self.eps)
        return F.linear(o.flatten(2), self.o_proj.weight)


class Mla(nn.Module):
    """Gated latent attention without positions, keys and values expanded (section 6)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        mla, d = config.mla, config.hidden_size
        self.mla = mla
        h, n, r, v = mla.num_heads, mla.qk_nope_head_dim, mla.qk_rope_head_dim, mla.v_head_dim
        if mla.q_lora_rank is None:
            self.q_proj = matrix(h * (n + r), d)
        else:
            self.q_a_proj, self.q_a_layernorm = matrix(mla.q_lora_rank, d), ones(mla.q_lora_rank)
            self.q_b_proj = matrix(h * (n + r), mla.q_lora_rank)
        self.kv_a_proj_with_mqa, self.kv_a_layernorm = matrix(mla.kv_lora_rank + r, d), ones(mla.kv_lora_rank)
        self.kv_b_proj = matrix(h * (n + v), mla.kv_lora_rank)
        if mla.output_gate:
            self.g_proj = matrix(h * v, d)
        self.o_proj = matrix(d, h * v, OUTPUT_GAIN)

    def forward(self, x: Tensor) -> Tensor:
        """x [B, T, D]."""
        c = self.mla
        h, n, r, v = c.num_heads, c.qk_nope_head_dim, c.qk_rope_head_dim, c.v_head_dim
        batch, tokens, _ = x.shape
        if c.q_lora_rank is None:
            q = F.linear(x, self.q_proj.weight)
        else:
            q = F.linear(rms(F.linear(x, self.q_a_proj.weight), self.q_a_layernorm.weight, LATENT_EPS), self.q_b_proj.weight)
        latent, rope = F.linear(x, self.kv_a_proj_with_mqa.weight).split([c.kv_lora_rank, r], -1)
        kv = F.linear(rms(latent, self.kv_a_layernorm.weight, LATENT_EPS), self.kv_b_proj.weight).view(batch, tokens, h, n + v)
        key, value = kv.split([n, v], -1)
        key = torch.cat([key, rope.unsqueeze(2).expand(-1, -1, h, -1)], -1)
        o = attend(q.view(batch, tokens, h, n + r), key, value).flatten(2)
        if c.output_gate:
            o = o * torch.sigmoid(F.linear(x, self.g_proj.weight))
        return F.linear(o, self.o_proj.weight)


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """q, k [B, T, H, N], v [B, T, H, V <= N] → [B, T, H, V]; causal. v is padded to N: only equal widths have a fused CPU kernel."""
    width = v.shape[-1]
    v = F.pad(v, (0, q.shape[-1] - width))
    o = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
    return o.transpose(1, 2)[..., :width]


class Layer(nn.Module):
    def __init__(self, config: Config, index: int) -> None:
        super().__init__()
        d = config.hidden_size
        self.is_boundary = config.attn_res_block_size is not None and index % config.attn_res_block_size == 0
        self.eps = config.rms_norm_eps
        if config.attn_res_block_size is not None:
            self.self_attention_res_norm, self.self_attention_res_proj = ones(d), matrix(1, d, 0.0)
            self.mlp_res_norm, self.mlp_res_proj = ones(d), matrix(1, d, 0.0)
        self.input_layernorm, self.post_attention_layernorm = ones(d), ones(d)
        self.self_attn = Kda(config) if config.is_kda[index] else Mla(config)
        if config.is_moe(index):
            self.block_sparse_moe = LatentMoe(config)
        else:
            self.mlp = Mlp(config, config.intermediate_size)

    @property
    def feed(self) -> nn.Module:
        return self.mlp if hasattr(self, "mlp") else self.block_sparse_moe

    def forward(self, s: Tensor, blocks: list[Tensor]) -> Tensor:
        """s [B, T, D] → s; a boundary layer appends to `blocks` (sections 1 and 7)."""
        x = residual(blocks, s, self, "self_attention_res", self.eps)
        if self.is_boundary:
            blocks.append(s)
        y = self.self_attn(rms(x, self.input_layernorm.weight, self.eps))
        s = y if self.is_boundary else s + y
        x = rms(residual(blocks, s, self, "mlp_res", self.eps), self.post_attention_layernorm.weight, self.eps)
        return s + self.feed(x.flatten(0, 1)).view_as(s)


def residual(blocks: list[Tensor], s: Tensor, owner: nn.Module, which: str, eps: float) -> Tensor:
    if not blocks:
        return s
    norm, proj = owner.get_submodule(f"{which}_norm").weight, owner.get_submodule(f"{which}_proj").weight
    return mix([*blocks, s], norm * proj[0], eps)


class Trunk(nn.Module):
    """Everything under `model.`."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        d = config.hidden_size
        self.eps = config.rms_norm_eps
        self.embed_tokens = matrix(config.vocab_size, d, math.sqrt(d) / 2)
        self.layers = nn.ModuleList(Layer(config, i) for i in range(config.num_layers))
        if config.attn_res_block_size is not None:
            self.output_attn_res_norm, self.output_attn_res_proj = ones(d), matrix(1, d, 0.0)
        self.norm = ones(d)

    def forward(self, ids: Tensor) -> Tensor:
        """ids [B, T], T a multiple of 16 → what the head sees [B, T, D]."""
        s, blocks = F.embedding(ids, self.embed_tokens.weight), []
        for layer in self.layers:
            s = layer(s, blocks)
        return rms(residual(blocks, s, self, "output_attn_res", self.eps), self.norm.weight, self.eps)


class Network(nn.Module):
    """The whole model."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        if config.tie_word_embeddings:
            raise ValueError("needed tie_word_embeddings false: the head is trained apart from the embedding")
        self.config = config
        self.model = Trunk(config)
        self.lm_head = matrix(config.vocab_size, config.hidden_size, 0.1)

    def loss(self, ids: Tensor, targets: Tensor) -> Tensor:
        """ids, targets [B, T], T a multiple of 16 → summed cross entropy in nats."""
        return head_loss(self.model(ids).flatten(0, 1), self.lm_head.weight, targets.flatten())

    @torch.no_grad()
    def logits(self, ids: Sequence[int]) -> Tensor:
        """[len(ids), V] of one sequence of any length: what follows it changes nothing, so it is padded to whole chunks."""
        padded = torch.tensor([[*ids, *[0] * (-len(ids) % CHUNK)]])
        return F.linear(self.model(padded)[0, : len(ids)], self.lm_head.weight)

    def balance(self, step: float) -> None:
        """Move every router's selection bias (section 9) after an optimiser step."""
        for gate in self.gates():
            gate.balance(step)

    def gates(self) -> list[Gate]:
        return [m for m in self.modules() if isinstance(m, Gate)]


def greedy(logits: Callable[[Sequence[int]], Tensor], prompt: Sequence[int], count: int) -> list[int]:
    """The `count` ids that follow; stop ids are not looked at."""
    ids = list(prompt)
    for _ in range(count):
        ids.append(int(logits(ids)[-1].argmax()))
    return ids[len(prompt) :]
