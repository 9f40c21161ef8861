"""From a configuration to the tensors its checkpoint must hold, in the order a pass uses them (`kimi-k3.md` section 3.2)."""

from __future__ import annotations

from collections.abc import Iterator

from lilliput.model.config import Config
from lilliput.weights.layout import EMBEDDING, HEAD, ExpertSpec, Layout, TensorSpec

A_LOG_MULTIPLE = 128  # the release pads A_log with zeros to a multiple of this; a reader takes any length >= num_heads


def layout(config: Config) -> Layout:
    """Every text tensor of a checkpoint with this configuration; with tied embeddings there is no `lm_head.weight`."""
    trunk: list[TensorSpec] = [TensorSpec(EMBEDDING, (config.vocab_size, config.hidden_size), "BF16", "embedding")]
    for i in range(config.num_layers):
        trunk += _layer(config, i)
    d = config.hidden_size
    if config.attn_res_block_size is not None:
        trunk += [_vector("model.output_attn_res_norm.weight", d), TensorSpec("model.output_attn_res_proj.weight", (1, d), "BF16", "other")]
    trunk.append(_vector("model.norm.weight", d))
    if not config.tie_word_embeddings:
        trunk.append(TensorSpec(HEAD, (config.vocab_size, d), "BF16", "embedding"))
    moe_layers = tuple(i for i in range(config.num_layers) if config.is_moe(i))
    moe = config.moe
    experts = ExpertSpec(moe_layers, moe.num_experts, moe.intermediate_size, moe.latent_size or d) if moe_layers else None
    return Layout(tuple(trunk), experts)


def _vector(name: str, size: int, group: str = "other") -> TensorSpec:
    return TensorSpec(name, (size,), "BF16", group)


def _layer(config: Config, i: int) -> Iterator[TensorSpec]:
    d, p = config.hidden_size, f"model.layers.{i}."
    if config.attn_res_block_size is not None:
        for which in ("self_attention_res", "mlp_res"):
            yield _vector(f"{p}{which}_norm.weight", d)
            yield TensorSpec(f"{p}{which}_proj.weight", (1, d), "BF16", "other")
    yield _vector(f"{p}input_layernorm.weight", d)
    yield from (_kda if config.is_kda[i] else _mla)(config, p + "self_attn.")
    yield _vector(f"{p}post_attention_layernorm.weight", d)
    if config.is_moe(i):
        yield from _moe(config, p + "block_sparse_moe.")
    else:
        yield from _mlp(p + "mlp.", d, config.intermediate_size, "other")


def _kda(config: Config, p: str) -> Iterator[TensorSpec]:
    d, kda = config.hidden_size, config.kda
    wide = kda.num_heads * kda.head_dim

    def matrix(name: str, rows: int, columns: int) -> TensorSpec:
        return TensorSpec(f"{p}{name}.weight", (rows, columns), "BF16", "attention")

    for n in "qkv":
        yield matrix(f"{n}_proj", wide, d)
    for n in "qkv":
        yield TensorSpec(f"{p}{n}_conv1d.weight", (wide, 1, kda.conv_kernel), "F32", "attention")
    yield matrix("f_a_proj", kda.head_dim, d)
    yield matrix("f_b_proj", wide, kda.head_dim)
    yield TensorSpec(f"{p}A_log", (kda.num_heads,), "F32", "attention", at_least=True)
    yield TensorSpec(f"{p}dt_bias", (wide,), "F32", "attention")
    yield matrix("b_proj", kda.num_heads, d)
    if kda.full_rank_gate:
        yield matrix("g_proj", wide, d)
    else:
        yield matrix("g_a_proj", kda.head_dim, d)
        yield matrix("g_b_proj", wide, kda.head_dim)
    yield TensorSpec(f"{p}o_norm.weight", (kda.head_dim,), "F32", "attention")
    yield matrix("o_proj", d, wide)


def _mla(config: Config, p: str) -> Iterator[TensorSpec]:
    d, mla = config.hidden_size, config.mla
    h, n, r, v = mla.num_heads, mla.qk_nope_head_dim, mla.qk_rope_head_dim, mla.v_head_dim

    def matrix(name: str, rows: int, columns: int) -> TensorSpec:
        return TensorSpec(f"{p}{name}.weight", (rows, columns), "BF16", "attention")

    if mla.q_lora_rank is None:
        yield matrix("q_proj", h * (n + r), d)
    else:
        yield matrix("q_a_proj", mla.q_lora_rank, d)
        yield _vector(f"{p}q_a_layernorm.weight", mla.q_lora_rank, "attention")
        yield matrix("q_b_proj", h * (n + r), mla.q_lora_rank)
    yield matrix("kv_a_proj_with_mqa", mla.kv_lora_rank + r, d)
    yield _vector(f"{p}kv_a_layernorm.weight", mla.kv_lora_rank, "attention")
    yield matrix("kv_b_proj", h * (n + v), mla.kv_lora_rank)
    if mla.output_gate:
        yield matrix("g_proj", h * v, d)
    yield matrix("o_proj", d, h * v)


def _mlp(p: str, outer: int, inner: int, group: str) -> Iterator[TensorSpec]:
    for name, rows, columns in (("gate_proj", inner, outer), ("up_proj", inner, outer), ("down_proj", outer, inner)):
        yield TensorSpec(f"{p}{name}.weight", (rows, columns), "BF16", group)


def _moe(config: Config, p: str) -> Iterator[TensorSpec]:
    # The router comes first, so that expert reads are under way while the shared experts are multiplied.
    d, moe = config.hidden_size, config.moe
    yield TensorSpec(f"{p}gate.weight", (moe.num_experts, d), "BF16", "other")
    yield TensorSpec(f"{p}gate.e_score_correction_bias", (moe.num_experts,), "F32", "other")
    if moe.latent_size is not None:
        yield TensorSpec(f"{p}routed_expert_down_proj.weight", (moe.latent_size, d), "BF16", "other")
    if moe.num_shared_experts:
        yield from _mlp(f"{p}shared_experts.", d, moe.num_shared_experts * moe.intermediate_size, "shared")
    if moe.latent_size is not None:
        if moe.latent_norm:
            yield _vector(f"{p}routed_expert_norm.weight", moe.latent_size)
        yield TensorSpec(f"{p}routed_expert_up_proj.weight", (d, moe.latent_size), "BF16", "other")
