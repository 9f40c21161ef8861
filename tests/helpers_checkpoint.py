"""Checkpoints for tests: any configuration, well formed or broken on purpose, and the release's 96 headers over files of holes."""

from __future__ import annotations

import copy
import json
import struct
from collections.abc import Callable, Iterable, Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lilliput.errors import CheckpointError
from lilliput.model.config import config_from_json
from lilliput.model.layout import layout
from lilliput.weights.checkpoint import Checkpoint
from lilliput.weights.layout import ITEM_SIZES, Layout

PREFIX = "language_model."
SIZES = ITEM_SIZES | {"F16": 2, "I8": 1, "F64": 8, "I64": 8, "F8_E8M0": 1}
Tensor = tuple[str, str, tuple[int, ...]]  # name, dtype, shape

QUANTIZATION: dict[str, Any] = {
    "quant_method": "compressed-tensors",
    "format": "mxfp4-pack-quantized",
    "quantization_status": "compressed",
    "kv_cache_scheme": None,
    "global_compression_ratio": None,
    "config_groups": {
        "group_0": {
            "format": "mxfp4-pack-quantized",
            "targets": ["Linear"],
            "input_activations": None,
            "output_activations": None,
            "weights": {
                "num_bits": 4,
                "type": "float",
                "strategy": "group",
                "group_size": 32,
                "symmetric": True,
                "dynamic": False,
                "scale_dtype": "torch.uint8",
                "observer": "minmax",
                "observer_kwargs": {},
                "actorder": None,
                "block_structure": None,
                "zp_dtype": None,
            },
        }
    },
    "ignore": ["re:.*self_attn.*"],
}

# The released text_config (kimi-k3.md sections 2.2 to 2.4).
RELEASED_TEXT: dict[str, Any] = {
    "model_type": "kimi_linear",
    "architectures": ["KimiLinearForCausalLM"],
    "vocab_size": 163840,
    "hidden_size": 7168,
    "num_hidden_layers": 93,
    "intermediate_size": 33792,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "hidden_act": "situ",
    "activation_situ_beta": 4.0,
    "activation_situ_linear_beta": 25.0,
    "rms_norm_eps": 1e-5,
    "attn_res_block_size": 12,
    "num_attention_heads": 96,
    "num_key_value_heads": 96,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "mla_use_nope": True,
    "mla_use_output_gate": True,
    "linear_attn_config": {
        "num_heads": 96,
        "head_dim": 128,
        "short_conv_kernel_size": 4,
        "gate_lower_bound": -5.0,
        "use_full_rank_gate": True,
        "full_attn_layers": [*range(4, 93, 4), 93],
        "kda_layers": [n for n in range(1, 93) if n % 4],
    },
    "num_experts": 896,
    "num_experts_per_token": 16,
    "num_shared_experts": 2,
    "moe_intermediate_size": 3072,
    "routed_expert_hidden_size": 3584,
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
    "max_position_embeddings": 1048576,
    "bos_token_id": 163584,
    "eos_token_id": 163586,
    "pad_token_id": 163839,
    "dtype": "bfloat16",
    "initializer_range": 0.02,
    "use_cache": True,
    # what transformers writes beside it, and what must not be taken for settings
    "max_length": 20,
    "do_sample": False,
    "top_k": 50,
    "repetition_penalty": 1.0,
    "quantization_config": QUANTIZATION,
}

SMALL_SIZES: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "intermediate_size": 24,
    "attn_res_block_size": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "q_lora_rank": 12,
    "kv_lora_rank": 8,
    "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 4,
    "v_head_dim": 5,
    "num_experts": 3,
    "num_experts_per_token": 2,
    "moe_intermediate_size": 32,
    "routed_expert_hidden_size": 64,
    "bos_token_id": 37,
    "eos_token_id": 38,
    "pad_token_id": 39,
}
SMALL_LINEAR = {"num_heads": 3, "head_dim": 4, "full_attn_layers": [3], "kda_layers": [1, 2]}


def nested(text: dict[str, Any], **top: Any) -> dict[str, Any]:
    return {"model_type": "kimi_k3", "text_config": text, "vision_config": {}, "tie_word_embeddings": False, "eos_token_id": 163586} | top


def small_text(linear: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """A text_config of 3 layers (KDA dense, KDA MoE, MLA MoE) with changes."""
    text = copy.deepcopy(RELEASED_TEXT) | SMALL_SIZES
    text["linear_attn_config"] |= SMALL_LINEAR | (linear or {})
    return text | changes


def encoded(value: object) -> bytes:
    return json.dumps(value).encode()


def layout_of(config: dict[str, Any]) -> Layout:
    return layout(config_from_json(encoded(config), "config.json"))


def tensors_of(wanted: Layout, prefix: str = PREFIX) -> list[Tensor]:
    """Every tensor of a layout, in its order."""
    return [(prefix + t.name, t.dtype, t.shape) for t in wanted.trunk] + list(_experts_of(wanted, prefix))


def _experts_of(wanted: Layout, prefix: str) -> Iterator[Tensor]:
    spec = wanted.experts
    for layer in spec.layers if spec else ():
        for expert in range(spec.num_experts):
            for part, shape in enumerate(spec.shapes):
                yield prefix + spec.name(layer, expert, part), "U8", shape


def header_of(tensors: Iterable[Tensor]) -> tuple[dict[str, Any], int]:
    """(header object with the tensors one after the other, bytes of data)."""
    header: dict[str, Any] = {}
    at = 0
    for name, dtype, shape in tensors:
        size = prod(shape) * SIZES[dtype]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    return header, at


def write_file(path: Path, header: object, data: bytes | int = b"", length: int | None = None) -> Path:
    """A safetensors file of any header (an object, or raw bytes); `data` is bytes, or so many bytes of holes; `length` lies if given."""
    raw = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(raw) if length is None else length) + raw)
        if isinstance(data, int):
            file.truncate(8 + len(raw) + data)
        else:
            file.write(data)
    return path


def write_tensors(path: Path, tensors: Iterable[Tensor]) -> Path:
    header, size = header_of(tensors)
    return write_file(path, header, size)


def write_checkpoint(
    directory: Path,
    config: dict[str, Any],
    shards: int = 2,
    prefix: str = PREFIX,
    change: Callable[[list[Tensor]], list[Tensor]] = lambda tensors: tensors,
) -> Path:
    """A whole checkpoint of zeros; `change` edits the list of tensors before it is dealt out to the shards."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_bytes(encoded(config))
    tensors = change(tensors_of(layout_of(config), prefix))
    names = [f"model-{n:05}-of-{shards:06}.safetensors" for n in range(1, shards + 1)]
    weight_map = {}
    for n, name in enumerate(names):
        part = tensors[n * len(tensors) // shards : (n + 1) * len(tensors) // shards]
        write_tensors(directory / name, part)
        weight_map |= {tensor: name for tensor, _, _ in part}
    write_index(directory, weight_map)
    return directory


def write_index(directory: Path, weight_map: dict[str, str]) -> Path:
    path = directory / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": dict(sorted(weight_map.items()))}, indent=0))
    return path


def change_header(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Edits the header of a file in place of its data: what `change` returns (or has edited) becomes the header."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    result = change(header)
    write_file(path, header if result is None else result, raw[8 + length :])


def vision_tensors() -> list[Tensor]:
    """The 168 tensors of the released vision tower and projector (kimi-k3.md section 12)."""
    shapes: dict[str, tuple[int, ...]] = {
        "vision_tower.patch_embed.proj.weight": (1024, 3, 14, 14),
        "vision_tower.patch_embed.pos_emb.weight": (64, 64, 1024),
        "vision_tower.encoder.final_layernorm.weight": (1024,),
        "mm_projector.proj.0.weight": (4096, 4096),
        "mm_projector.proj.2.weight": (7168, 4096),
        "mm_projector.post_norm.weight": (7168,),
    }
    for i in range(27):
        block = f"vision_tower.encoder.blocks.{i}."
        shapes |= {f"{block}norm0.weight": (1024,), f"{block}norm1.weight": (1024,), f"{block}wqkv.weight": (4608, 1024)}
        shapes |= {f"{block}wo.weight": (1024, 1536), f"{block}mlp.fc0.weight": (4096, 1024), f"{block}mlp.fc1.weight": (1024, 4096)}
    return [(name, "BF16", shape) for name, shape in shapes.items()]


def write_release(directory: Path) -> dict[str, int]:
    """The release's 96 shards with true names, shapes and sizes over holes, and its index; about 140 MB on disk. Sizes by shard name."""
    wanted = layout_of(nested(RELEASED_TEXT))
    padded = [(name, dtype, (128,) if name.endswith("A_log") else shape) for name, dtype, shape in tensors_of(wanted)]
    shards: list[list[Tensor]] = [[] for _ in range(96)]
    for name, dtype, shape in padded:
        found = name.split(".layers.")
        shards[int(found[1].split(".")[0]) if len(found) == 2 else 93].append((name, dtype, shape))
    for tensor in vision_tensors():
        shards[94 if tensor[0].startswith("mm_") else 95].append(tensor)
    sizes, weight_map = {}, {}
    order = {"F32": 0, "BF16": 1, "U8": 2}
    for n, tensors in enumerate(shards, 1):
        name = f"model-{n:05}-of-000096.safetensors"
        header, size = header_of(sorted(tensors, key=lambda t: (order[t[1]], t[0])))
        raw = json.dumps(header, separators=(",", ":")).encode()
        write_file(directory / name, raw + b" " * (-len(raw) % 8), size)
        sizes[name] = (directory / name).stat().st_size
        weight_map |= dict.fromkeys(header, name)
    (directory / "config.json").write_bytes(encoded(nested(RELEASED_TEXT)))
    index = {"metadata": {"total_size": 1560860280320}, "weight_map": dict(sorted(weight_map.items()))}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
    return sizes


SMALL = nested(small_text())
NAMES = ("model-00001-of-000002.safetensors", "model-00002-of-000002.safetensors")
HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
Change = Callable[[list[Tensor]], list[Tensor]]


def opened(directory: Path | str, config: dict[str, Any] = SMALL, **options: bool) -> Checkpoint:
    return Checkpoint.open(directory, layout_of(config), **options)


def refused(directory: Path, config: dict[str, Any] = SMALL) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        opened(directory, config, cache=False)
    assert caught.value.exit_code == 2
    assert all(p.needed and p.found for p in caught.value.problems)
    return caught.value


def swap(name: str, new: Tensor | None) -> Change:
    """Replaces one tensor (None: drops it); the name is without prefix."""

    def change(tensors: list[Tensor]) -> list[Tensor]:
        assert any(t[0] == PREFIX + name for t in tensors)
        pairs = ((t, t if t[0] != PREFIX + name else new) for t in tensors)
        return [kept for _, kept in pairs if kept is not None]

    return change


def rename(pairs: Callable[[str], str]) -> Change:
    return lambda tensors: [(pairs(name), dtype, shape) for name, dtype, shape in tensors]


def same(a: Checkpoint, b: Checkpoint) -> bool:
    if any(getattr(a, n) != getattr(b, n) for n in ("tensors", "identity", "sizes", "skipped", "padding")) or (a.experts is None) != (
        b.experts is None
    ):
        return False
    if a.experts is None or b.experts is None:
        return True
    return np.array_equal(a.experts.file, b.experts.file) and np.array_equal(a.experts.offset, b.experts.offset)
