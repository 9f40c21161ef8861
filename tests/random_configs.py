"""Random configs of the supported kind, small enough to run in milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Raw = dict[str, Any]


class Chooser(Protocol):
    """What `random_config` needs of its source: `random.Random` has it, and so does the hypothesis strategy."""

    def choice(self, seq: Sequence[T], /) -> T: ...


def random_config(rng: Chooser, **overrides: Any) -> Raw:
    """A small supported config as raw JSON; in each list of choices the first is the plainest.

    Overrides are fields of `text_config` or of `linear_attn_config` by their own names, and two more: `layers`, a string such as
    "KKMK" (KDA or MLA), and `nested`, whether there is a `text_config`. An unknown name is an error.
    """
    used = set()

    def pick(name: str, *choices: Any) -> Any:
        used.add(name)
        chosen = rng.choice(choices)  # drawn even where overridden: the other fields stay what they were
        return overrides.get(name, chosen)

    block = pick("attn_res_block_size", 2, 3, None, 1, 4, 12)
    depth = pick("num_hidden_layers", *((13, 14, 5) if block == 12 else (3, 4, 2, 5, 1, 6)))
    kinds = [rng.choice("KM") for _ in range(depth)]
    used.add("layers")
    kinds = list(overrides.get("layers", kinds))
    depth = overrides.get("num_hidden_layers", len(kinds))
    latent = pick("routed_expert_hidden_size", 64, 32, None, 96)
    hidden = pick("hidden_size", *((64, 40, 100, 33, 136) if latent is not None else (64, 96, 160)))
    experts = pick("num_experts", 8, 5, 12, 16)
    vocab = pick("vocab_size", 64, 97, 130, 270)
    heads = pick("num_attention_heads", 2, 1, 3, 5)
    eos = vocab - 2
    text: Raw = {
        "model_type": "kimi_linear",
        "architectures": ["KimiLinearForCausalLM"],
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": pick("intermediate_size", 64, 40, 100, 33),
        "num_hidden_layers": depth,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "hidden_act": "situ",
        "activation_situ_beta": pick("activation_situ_beta", 4.0, 1.0, 2.5),
        "activation_situ_linear_beta": pick("activation_situ_linear_beta", 25.0, None, 7.5),
        "attn_res_block_size": block,
        "rms_norm_eps": pick("rms_norm_eps", 1e-5, 1e-6, 3e-4),
        "q_lora_rank": pick("q_lora_rank", 24, None, 16, 40),
        "kv_lora_rank": pick("kv_lora_rank", 16, 32, 20, 48),
        "qk_nope_head_dim": pick("qk_nope_head_dim", 16, 8, 24),
        "qk_rope_head_dim": pick("qk_rope_head_dim", 8, 4, 10),
        "v_head_dim": pick("v_head_dim", 16, 8, 24, 12),
        "mla_use_nope": True,
        "mla_use_output_gate": pick("mla_use_output_gate", True, False),
        "linear_attn_config": {
            "kda_layers": [i + 1 for i, kind in enumerate(kinds) if kind == "K"],
            "full_attn_layers": [i + 1 for i, kind in enumerate(kinds) if kind == "M"],
            "num_heads": pick("num_heads", 2, 1, 3, 5),
            "head_dim": pick("head_dim", 16, 8, 24),
            "short_conv_kernel_size": pick("short_conv_kernel_size", 4, 3, 2),
            "gate_lower_bound": pick("gate_lower_bound", -5.0, None, -2.0),
            "use_full_rank_gate": pick("use_full_rank_gate", True, False),
        },
        "num_experts": experts,
        "num_experts_per_token": pick("num_experts_per_token", 2, 1, 4, 3),
        "num_shared_experts": pick("num_shared_experts", 2, 1, 0, 3),
        "moe_intermediate_size": pick("moe_intermediate_size", 32, 64, 96),
        "routed_expert_hidden_size": latent,
        "latent_moe_use_norm": pick("latent_moe_use_norm", True, False),
        "moe_router_activation_func": "sigmoid",
        "moe_renormalize": pick("moe_renormalize", True, False),
        "routed_scaling_factor": pick("routed_scaling_factor", 1.0, 2.5, 0.4),
        "first_k_dense_replace": min(depth, pick("first_k_dense_replace", 1, 0, 2, 99)),
        "moe_layer_freq": pick("moe_layer_freq", 1, 2),
        "use_grouped_topk": True,
        "num_expert_group": 1,
        "topk_group": 1,
        "topk_method": "noaux_tc",
        "num_nextn_predict_layers": 0,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": pick("tie_word_embeddings", False, True),
        "initializer_range": 0.02,
        "use_cache": True,
        "dtype": "bfloat16",
        "bos_token_id": vocab - 4,
        "eos_token_id": eos,
        "pad_token_id": vocab - 1,
        "quantization_config": _quantization(),
    }
    nested = pick("nested", True, False)
    if unknown := sorted(set(overrides) - used):
        raise TypeError(f"random_config has no field {', '.join(unknown)}")
    if len(kinds) != depth:
        raise TypeError(f"layers has {len(kinds)} entries, num_hidden_layers is {depth}")
    if not nested:
        return text
    wrapper = ("bos_token_id", "eos_token_id", "pad_token_id", "tie_word_embeddings", "dtype")
    return {
        "model_type": "kimi_k3",
        "architectures": ["KimiK3ForConditionalGeneration"],
        "text_config": text,
        "vision_config": {"vt_hidden_size": 16, "vt_num_hidden_layers": 1},
        "media_placeholder_token_id": vocab - 3,
        "ignore_index": -100,
    } | {name: text[name] for name in wrapper}


def text_config(raw: Raw) -> Raw:
    """The language model's part of a nested or flat config."""
    found: Raw = raw.get("text_config", raw)
    return found


def _quantization() -> Raw:
    weights = {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32, "symmetric": True, "dynamic": False}
    weights |= {"scale_dtype": "torch.uint8", "observer": "minmax", "observer_kwargs": {}}
    weights |= {"actorder": None, "block_structure": None, "zp_dtype": None}
    group = {"format": "mxfp4-pack-quantized", "targets": ["Linear"], "weights": weights}
    group |= {"input_activations": None, "output_activations": None}
    return {
        "quant_method": "compressed-tensors",
        "format": "mxfp4-pack-quantized",
        "quantization_status": "compressed",
        "kv_cache_scheme": None,
        "global_compression_ratio": None,
        "config_groups": {"group_0": group},
        "ignore": ["re:.*self_attn.*", "re:.*shared_experts.*", "re:.*lm_head.*"],
    }
