"""The four sizes, and their config.json in the released nested form with every field of `kimi-k3.md` section 2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_BOS, _END_OF_MESSAGE, _MEDIA_PAD, _PAD = 0, 2, 21, 255  # places among the added tokens


@dataclass(frozen=True, slots=True)
class Shape:
    """One size. What is not a field here is the same in all of them (`raw_config`)."""

    name: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    block_size: int  # layers between two stored residual states
    intermediate_size: int  # dense MLP of layer 0
    num_heads: int  # of KDA and of MLA
    q_lora_rank: int
    kv_lora_rank: int
    num_experts: int
    top_k: int
    expert_width: int
    latent_size: int
    context: int
    ranks: int = 256  # of tiktoken.model: one for each byte value; the 256 added tokens follow
    sparse: bool = False  # only the small tensors and what routing needs are real, the rest are holes
    free_bytes: int | None = None  # refuse below this; None: what the files need

    @property
    def full_attention_layers(self) -> list[int]:
        """One-based, as in config.json: every fourth layer and the last two are MLA; all others are KDA."""
        last = self.num_layers
        return sorted({*range(4, last + 1, 4), last - 1, last})

    @property
    def usable_ids(self) -> int:
        """Ids below this have an embedding and a head row."""
        return SPARSE_IDS if self.sparse else self.vocab_size


SPARSE_IDS = 256
SPARSE_LIMIT = 600_000_000  # bytes the full size may take on disk

SHAPES = {
    s.name: s
    for s in (
        Shape("tiny", 640, 128, 9, 3, 256, 2, 64, 64, 16, 2, 64, 64, 4096),
        Shape("mini", 4608, 2048, 18, 6, 5120, 10, 384, 512, 128, 4, 352, 1024, 65536),
        Shape("midi", 32768, 3584, 28, 12, 16896, 28, 768, 512, 224, 16, 352, 1792, 131072, free_bytes=20_000_000_000),
        Shape("k3", 163840, 7168, 93, 12, 33792, 96, 1536, 512, 896, 16, 3072, 3584, 1048576, 163584, sparse=True, free_bytes=SPARSE_LIMIT),
    )
}


def raw_config(shape: Shape) -> dict[str, Any]:
    """config.json as a dict: the multimodal wrapper with `text_config` inside, released spellings and released noise."""
    ids = _special_ids(shape)
    return {
        "architectures": ["KimiK3ForConditionalGeneration"],
        "auto_map": {
            "AutoConfig": "configuration_kimi_k3.KimiK3Config",
            "AutoModelForCausalLM": "modeling_kimi_k3.KimiK3ForConditionalGeneration",
        },
        **ids,
        "dtype": "bfloat16",
        "ignore_index": -100,
        "image_placeholder": "<|kimi_image_placeholder|>",
        "media_placeholder_token_id": shape.ranks + _MEDIA_PAD,
        "model_type": "kimi_k3",
        "text_config": _text_config(shape) | ids,
        "tie_word_embeddings": False,
        "vision_config": _vision_config(shape),
    }


def raw_generation_config(shape: Shape) -> dict[str, Any]:
    """generation_config.json: the two fields the release has."""
    return {"max_length": shape.context, "eos_token_id": _special_ids(shape)["eos_token_id"]}


def _special_ids(shape: Shape) -> dict[str, int]:
    first = shape.ranks
    return {"bos_token_id": first + _BOS, "eos_token_id": first + _END_OF_MESSAGE, "pad_token_id": first + _PAD}


def _text_config(shape: Shape) -> dict[str, Any]:
    full = shape.full_attention_layers
    return {
        "model_type": "kimi_linear",
        "architectures": ["KimiLinearForCausalLM"],
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden_size,
        "num_hidden_layers": shape.num_layers,
        "intermediate_size": shape.intermediate_size,
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
        "hidden_act": "situ",
        "activation_situ_beta": 4.0,
        "activation_situ_linear_beta": 25.0,
        "rms_norm_eps": 1e-05,
        "attn_res_block_size": shape.block_size,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_heads,
        "q_lora_rank": shape.q_lora_rank,
        "kv_lora_rank": shape.kv_lora_rank,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "mla_use_nope": True,
        "mla_use_output_gate": True,
        "linear_attn_config": {
            "full_attn_layers": full,
            "gate_lower_bound": -5.0,
            "head_dim": 128,
            "kda_layers": [i for i in range(1, shape.num_layers + 1) if i not in full],
            "num_heads": shape.num_heads,
            "short_conv_kernel_size": 4,
            "use_full_rank_gate": True,
        },
        "num_experts": shape.num_experts,
        "num_experts_per_token": shape.top_k,
        "num_shared_experts": 2,
        "moe_intermediate_size": shape.expert_width,
        "routed_expert_hidden_size": shape.latent_size,
        "latent_moe_use_norm": True,
        "moe_router_activation_func": "sigmoid",
        "moe_renormalize": True,
        "routed_scaling_factor": 1.0,
        "topk_method": "noaux_tc",
        "use_grouped_topk": True,
        "num_expert_group": 1,
        "topk_group": 1,
        "num_nextn_predict_layers": 0,
        "tie_word_embeddings": False,
        "max_position_embeddings": shape.context,
        "dtype": "bfloat16",
        "initializer_range": 0.02,
        "use_cache": True,
        "quantization_config": _QUANTIZATION,
    } | _OLD_GENERATION_DEFAULTS


# Written into the release's sub-config by an old library; no setting of the model, and a reader must not take it for one.
_OLD_GENERATION_DEFAULTS = {
    "do_sample": False,
    "id2label": {"0": "LABEL_0", "1": "LABEL_1"},
    "max_length": 20,
    "min_length": 0,
    "num_beams": 1,
    "pruned_heads": {},
    "repetition_penalty": 1.0,
    "temperature": 1.0,
    "top_k": 50,
    "top_p": 1.0,
}

_QUANTIZATION: dict[str, Any] = {
    "config_groups": {
        "group_0": {
            "format": "mxfp4-pack-quantized",
            "input_activations": None,
            "output_activations": None,
            "targets": ["Linear"],
            "weights": {
                "actorder": None,
                "block_structure": None,
                "dynamic": False,
                "group_size": 32,
                "num_bits": 4,
                "observer": "minmax",
                "observer_kwargs": {},
                "scale_dtype": "torch.uint8",
                "strategy": "group",
                "symmetric": True,
                "type": "float",
                "zp_dtype": None,
            },
        }
    },
    "format": "mxfp4-pack-quantized",
    "global_compression_ratio": None,
    "ignore": [
        "re:.*self_attn.*",
        "re:.*shared_experts.*",
        "re:.*mlp\\.(gate|up|gate_up|down)_proj.*",
        "re:.*lm_head.*",
        "re:.*vision_tower.*",
        "re:.*mm_projector.*",
    ],
    "kv_cache_scheme": None,
    "quant_method": "compressed-tensors",
    "quantization_status": "compressed",
}


def _vision_config(shape: Shape) -> dict[str, Any]:
    return {
        "init_pos_emb_height": 64,
        "init_pos_emb_time": 4,
        "init_pos_emb_width": 64,
        "merge_kernel_size": [2, 2],
        "merge_type": "sd2_tpool",
        "mm_projector_type": "patchmergerv2",
        "patch_size": 14,
        "text_hidden_size": shape.hidden_size,
        "vt_hidden_size": 1024,
        "vt_intermediate_size": 4096,
        "vt_num_attention_heads": 12,
        "vt_num_hidden_layers": 27,
    }
