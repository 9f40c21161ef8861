"""config.json → one frozen dataclass. Whatever changes the forward pass must be there; nothing is defaulted.

`kimi-k3.md` section 2 has the fields. A field that is absent, of another type, or that asks for something this engine does not compute is a
problem; all problems are raised as one `ConfigError`. An explicit null has a meaning where the reference gives it one (see `Config`); an
absent field never has. The generation defaults that transformers writes beside the real fields (`max_length`, `top_k`, ...) are ignored.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from lilliput.errors import ConfigError, Problem
from lilliput.machine.fetching import fetch
from lilliput.model.config_fields import Fields, parse_object, read_bytes, some

MOST_LAYERS, MOST_EXPERTS = 4096, 65536  # bounds for what a hostile config can make us allocate, far above any K3
MOST_TAPS = 8  # of the short convolution: what its kernel keeps in registers (kMostTaps in src/core)
GROUP = 32  # MXFP4: weights that share one scale byte


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
    media_ids: tuple[int, ...]  # stand for images in the token stream: refused in prompts

    def is_moe(self, layer: int) -> bool:
        return layer >= self.first_k_dense_replace and layer % self.moe_layer_freq == 0


def read_config(directory: Path) -> Config:
    """The configuration in `directory`/config.json; ConfigError with every problem."""
    return read_hashed_config(directory)[0]


def read_hashed_config(directory: Path) -> tuple[Config, str]:
    """The configuration, and the SHA-256 in hex of the bytes it was read from: what names it in files of ours."""
    path = Path(directory) / "config.json"
    raw = read_bytes(path, fetch(Path(directory), "it"))
    return config_from_json(raw, path), hashlib.sha256(raw).hexdigest()


def config_from_json(raw: bytes, file: object) -> Config:
    """The configuration in the bytes of a config.json, nested (`text_config`) or flat; `file` names it in errors."""
    problems: list[Problem] = []
    top = Fields(parse_object(raw, file), "", file, problems)
    text: Fields | None = top
    if "text_config" in top.values:
        top.must_be("model_type", "kimi_k3", why="the wrapper's type", absent_ok=True)
        text = top.table("text_config")
    if text is None:
        raise ConfigError(problems)
    config = _read(top, text)
    if problems:
        raise ConfigError(problems)
    return config


def read_generation_config(directory: Path) -> tuple[int, ...]:
    """The eos ids of generation_config.json, ascending; () where there is no such file. Its other settings are not ours."""
    path = Path(directory) / "generation_config.json"
    if not path.exists() and not path.is_symlink():
        return ()
    problems: list[Problem] = []
    ids = Fields(parse_object(read_bytes(path, ""), path), "", path, problems).ids("eos_token_id")
    if problems:
        raise ConfigError(problems)
    return tuple(sorted(set(ids)))


def eos_ids(directory: Path, config: Config) -> tuple[int, ...]:
    """Where generation stops: the eos ids of config.json (both levels) and of generation_config.json, ascending."""
    return tuple(sorted({*config.eos_ids, *read_generation_config(directory)}))


def _read(top: Fields, text: Fields) -> Config:
    text.must_be("model_type", "kimi_linear", *(("kimi_k3",) if text is top else ()), why="the text model of Kimi K3", absent_ok=True)
    _refuse_other_models(text)
    hidden = text.integer("hidden_size")
    layers = text.integer("num_hidden_layers", most=MOST_LAYERS)
    if not text.is_sound("num_hidden_layers"):
        layers = MOST_LAYERS  # only so that the fields checked against it raise no further complaint
    is_kda, kda = _read_linear_attention(text, layers)
    config = Config(
        vocab_size=text.integer("vocab_size"),
        hidden_size=hidden,
        num_layers=layers,
        intermediate_size=text.integer("intermediate_size"),
        first_k_dense_replace=text.integer("first_k_dense_replace", 0, layers),
        moe_layer_freq=text.integer("moe_layer_freq"),
        rms_norm_eps=text.number("rms_norm_eps"),
        situ_beta=text.number("activation_situ_beta"),
        situ_linear_beta=text.number_or_null("activation_situ_linear_beta", "no bound"),
        attn_res_block_size=text.integer_or_null("attn_res_block_size", "an ordinary residual stream"),
        tie_word_embeddings=_read_tied(top, text),
        is_kda=is_kda,
        kda=kda,
        mla=_read_mla(text),
        moe=_read_moe(text),
        eos_ids=_ids(top, text, "eos_token_id"),
        media_ids=_ids(top, text, "media_placeholder_token_id"),
    )
    if any(config.is_moe(i) for i in range(layers)):
        _check_mxfp4(top, text, config)
    return config


def _ids(top: Fields, text: Fields, field: str) -> tuple[int, ...]:
    """The ids a field names at either level, ascending; () where it is absent."""
    return tuple(sorted({*text.ids(field), *(top.ids(field) if text is not top else ())}))


def _refuse_other_models(text: Fields) -> None:
    """Fields with one value this engine computes; any other is another model."""
    text.must_be("hidden_act", "situ", why="no other activation is implemented")
    text.must_be("moe_router_activation_func", "sigmoid", why="no other router is implemented")
    text.must_be("topk_method", "noaux_tc", why="the bias takes part in the choice only")
    text.flag("use_grouped_topk")  # without effect on a single group
    for field in ("num_expert_group", "topk_group"):
        text.must_be(field, 1, why="grouped routing is not implemented")
    text.must_be("mla_use_nope", True, why="rotary positions are not implemented")
    for field in ("rope_scaling", "rope_theta", "rope_parameters"):
        text.must_be_unset(field, "rotary positions are not implemented")
    for field in ("attention_bias", "mlp_bias"):
        text.must_be(field, False, None, why="no linear layer has a bias", absent_ok=True)
    text.must_be_unset("sliding_window", "attention always sees every position")
    if text.has("num_nextn_predict_layers"):
        text.must_be("num_nextn_predict_layers", 0, why="multi-token prediction layers are not implemented")


def _read_tied(top: Fields, text: Fields) -> bool:
    tied = text.flag("tie_word_embeddings")
    if top is not text and "tie_word_embeddings" in top.values:
        top.must_be("tie_word_embeddings", tied, why=f"as {text.name('tie_word_embeddings')}")
    return tied


def _read_linear_attention(text: Fields, layers: int) -> tuple[tuple[bool, ...], KdaConfig]:
    linear = text.table("linear_attn_config", "an object with the KDA fields")
    if linear is None:
        return (), KdaConfig(1, 1, 1, None, True)
    kda = KdaConfig(
        num_heads=linear.integer("num_heads"),
        head_dim=linear.integer("head_dim"),
        conv_kernel=linear.integer("short_conv_kernel_size", most=MOST_TAPS),
        gate_lower_bound=linear.number_or_null("gate_lower_bound", "the softplus gate", negative=True),
        full_rank_gate=linear.flag("use_full_rank_gate"),
    )
    kda_layers, full_layers = linear.one_based("kda_layers", layers), linear.one_based("full_attn_layers", layers)
    if kda_layers is None or full_layers is None or not text.is_sound("num_hidden_layers"):
        return (), kda
    is_kda, is_full = set(kda_layers), set(full_layers)
    both = sorted(is_kda & is_full)
    neither = [n for n in range(1, layers + 1) if n not in is_kda and n not in is_full]
    each = f"each of the layers 1..{layers} (one-based) in exactly one of the two lists"
    if both:
        linear.complain("kda_layers and full_attn_layers", each, f"{some(both)} in both")
    if neither:
        linear.complain("kda_layers and full_attn_layers", each, f"{some(neither)} in neither")
    return tuple(n in is_kda for n in range(1, layers + 1)), kda


def _read_mla(text: Fields) -> MlaConfig:
    before = len(text.problems)
    heads, kv_heads = text.integer("num_attention_heads"), text.integer("num_key_value_heads")
    if heads != kv_heads and len(text.problems) == before:
        text.complain("num_key_value_heads", f"num_attention_heads, {heads} (every head has its own keys)", str(kv_heads))
    return MlaConfig(
        num_heads=heads,
        q_lora_rank=text.integer_or_null("q_lora_rank", "a plain q_proj"),
        kv_lora_rank=text.integer("kv_lora_rank"),
        qk_nope_head_dim=text.integer("qk_nope_head_dim"),
        qk_rope_head_dim=text.integer("qk_rope_head_dim"),
        v_head_dim=text.integer("v_head_dim"),
        output_gate=text.flag("mla_use_output_gate"),
    )


def _read_moe(text: Fields) -> MoeConfig:
    before = len(text.problems)
    experts, top_k = text.integer("num_experts", most=MOST_EXPERTS), text.integer("num_experts_per_token")
    if top_k > experts and len(text.problems) == before:
        text.complain("num_experts_per_token", f"at most num_experts, {experts}", str(top_k))
    return MoeConfig(
        num_experts=experts,
        top_k=top_k,
        num_shared_experts=text.integer("num_shared_experts", 0),
        intermediate_size=text.integer("moe_intermediate_size"),
        latent_size=text.integer_or_null("routed_expert_hidden_size", "experts on the full width"),
        latent_norm=text.flag("latent_moe_use_norm"),
        renormalize=text.flag("moe_renormalize"),
        scaling_factor=text.number("routed_scaling_factor"),
    )


def _check_mxfp4(top: Fields, text: Fields, config: Config) -> None:
    """There are experts: they must be stored as MXFP4, the one coding of experts we read.

    The `ignore` patterns are not looked at: which tensors exist decides what is quantized (`kimi-k3.md` section 2.4).
    """
    latent, moe = config.moe.latent_size, config.moe
    field, width = ("hidden_size", config.hidden_size) if latent is None else ("routed_expert_hidden_size", latent)
    for name, size in ((field, width), ("moe_intermediate_size", moe.intermediate_size)):
        if size % GROUP and text.is_sound(name):
            text.complain(name, f"a multiple of {GROUP} (MXFP4: {GROUP} weights share one scale)", str(size))
    if top is not text and "quantization_config" in top.values:
        _check_quantization(top)
        if "quantization_config" not in text.values:
            return
    _check_quantization(text)


def _check_quantization(owner: Fields) -> None:
    table = owner.table("quantization_config", "an object that says how the experts are stored (MXFP4)")
    if table is None:
        return
    only = "the one coding of experts that is implemented"
    table.must_be("quant_method", "compressed-tensors", why=only)
    table.must_be("format", "mxfp4-pack-quantized", why=only)
    table.must_be("quantization_status", "compressed", why=only, absent_ok=True)
    table.must_be_unset("kv_cache_scheme", "the caches are not quantized")
    groups = table.table("config_groups", "an object of quantization groups")
    if groups is None:
        return
    if not groups.values:
        table.complain("config_groups", "at least one group", "none")
    for name in groups.values:
        group = groups.table(name)
        if group is None:
            continue
        group.must_be("format", "mxfp4-pack-quantized", why=only, absent_ok=True)
        for which in ("input_activations", "output_activations"):
            group.must_be_unset(which, "activations are not quantized")
        weights = group.table("weights", "an object that describes the stored weights")
        if weights is None:
            continue
        for field, value in (("num_bits", 4), ("type", "float"), ("strategy", "group"), ("group_size", GROUP), ("symmetric", True)):
            weights.must_be(field, value, why="MXFP4")
        weights.must_be("dynamic", False, why="MXFP4", absent_ok=True)
        weights.must_be("scale_dtype", "torch.uint8", None, why="MXFP4", absent_ok=True)
        for field in ("actorder", "block_structure", "zp_dtype"):
            weights.must_be_unset(field, "MXFP4")
