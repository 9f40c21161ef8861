"""config.json → one frozen dataclass. Whatever changes the forward pass must be there; nothing is defaulted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KdaConfig:
    num_heads: int
    head_dim: int
    conv_kernel: int
    gate_lower_bound: float | None  # None: softplus gate
    full_rank_gate: bool


@dataclass(frozen=True, slots=True)
class MlaConfig:
    num_heads: int
    q_lora_rank: int | None  # None: a plain q_proj
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    output_gate: bool


@dataclass(frozen=True, slots=True)
class MoeConfig:
    num_experts: int
    top_k: int
    num_shared_experts: int
    intermediate_size: int
    latent_size: int | None  # None: experts work on the full width
    latent_norm: bool
    renormalize: bool
    scaling_factor: float


@dataclass(frozen=True, slots=True)
class Config:
    """Everything the forward pass depends on. Layer indices are zero-based here."""

    vocab_size: int
    hidden_size: int
    num_layers: int
    intermediate_size: int  # width of the dense MLP
    first_k_dense_replace: int
    moe_layer_freq: int
    rms_norm_eps: float
    situ_beta: float
    situ_linear_beta: float | None  # None: the up branch is not bounded
    attn_res_block_size: int | None  # None: an ordinary residual stream
    tie_word_embeddings: bool
    is_kda: tuple[bool, ...]  # per layer; False is MLA
    kda: KdaConfig
    mla: MlaConfig
    moe: MoeConfig
    eos_ids: tuple[int, ...]  # those of config.json
    media_id: int | None  # stands for an image in the token stream; refused

    def is_moe(self, layer: int) -> bool:
        return layer >= self.first_k_dense_replace and layer % self.moe_layer_freq == 0
