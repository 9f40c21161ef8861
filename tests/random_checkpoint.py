"""Random checkpoints in the released layout whose weights make every mechanism of the model show.

    raw = random_config(random.Random(3), layers="MKKM", nested=False)
    write_checkpoint(directory, raw, seed=3, shards=2, prefix=False)

Tensor names and shapes are derived here from the raw config and the specification, not from the engine's own layout, so that an
error there cannot hide. Matrices are scaled to their job: half of the q and k heads are so small that the L2 epsilon counts, the
latents of MLA so small that 1e-6 and 1e-5 differ, the decay covers the released range of `A_log` and comes close to its bound,
the selection bias reorders, SiTU runs into both of its bounds. Logits keep a standard deviation of a few units.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from random_configs import Raw, random_config, text_config

__all__ = ["Raw", "Tensor", "make_tensors", "random_config", "text_config", "write_checkpoint", "write_safetensors", "write_tokenizer"]

EXP_A_LOG = (0.47, 11.8)  # range of exp(A_log) in the release
ADDED_TOKENS = 4  # bos, media, eos, pad: the last ids of the vocabulary


# --- weights --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tensor:
    """`values` are uint16 (BF16 bit patterns), float32 or uint8, as `dtype` says."""

    name: str
    dtype: str
    values: np.ndarray

    @property
    def unit(self) -> str:
        """What must stay in one shard: a layer, or everything outside of the layers."""
        parts = self.name.split(".")
        return parts[2] if parts[:2] == ["model", "layers"] else "top"


class _Maker:
    """Draws tensors; every tensor has a stream of its own, so that leaving one out does not change the others."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def rng(self, name: str) -> np.random.Generator:
        return np.random.default_rng([self.seed, zlib.crc32(name.encode())])

    def bf16(self, name: str, values: np.ndarray) -> Tensor:
        bits = values.astype(np.float32).view(np.uint32)
        return Tensor(name, "BF16", ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16))

    def matrix(self, name: str, rows: int, columns: int, gain: float | np.ndarray = 1.0) -> Tensor:
        """Normal; an input of unit mean square gives rows of root mean square `gain` (one for all, or one per row)."""
        values = self.rng(name).standard_normal((rows, columns)) / math.sqrt(columns)
        return self.bf16(name, values * np.broadcast_to(np.asarray(gain), (rows,))[:, None])

    def norm(self, name: str, size: int) -> Tensor:
        return self.bf16(name, self.rng(name).uniform(0.4, 1.7, size))

    def f32(self, name: str, values: np.ndarray) -> Tensor:
        return Tensor(name, "F32", values.astype(np.float32))

    def mxfp4(self, name: str, rows: int, columns: int, scales: tuple[int, int]) -> Iterator[Tensor]:
        """Every code is as likely as any other, -0 included; scale bytes from the closed range `scales`."""
        rng = self.rng(name)
        yield Tensor(f"{name}.weight_packed", "U8", rng.integers(0, 256, (rows, columns // 2), np.uint8))
        yield Tensor(f"{name}.weight_scale", "U8", rng.integers(*scales, (rows, columns // 32), np.uint8, endpoint=True))


def make_tensors(raw: Raw, seed: int, *, a_log_length: int | None = None) -> list[Tensor]:
    """Every text tensor, named as in the release without `language_model.`.

    `A_log` gets zeros up to `a_log_length`, or to a multiple of 128 as in the release; never less than the number of heads.
    """
    c, make = text_config(raw), _Maker(seed)
    d, vocab, tied = c["hidden_size"], c["vocab_size"], c["tie_word_embeddings"]
    has_blocks = c["attn_res_block_size"] is not None
    tensors = [make.matrix("model.embed_tokens.weight", vocab, d, 4.0 if tied else math.sqrt(d))]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        tensors += [make.norm(f"{p}input_layernorm.weight", d), make.norm(f"{p}post_attention_layernorm.weight", d)]
        if has_blocks:
            tensors += [*_mixing(make, f"{p}self_attention_res", d), *_mixing(make, f"{p}mlp_res", d)]
        if i + 1 in c["linear_attn_config"]["kda_layers"]:
            tensors += _kda(make, f"{p}self_attn.", d, c["linear_attn_config"], a_log_length)
        else:
            tensors += _mla(make, f"{p}self_attn.", d, c)
        if i >= c["first_k_dense_replace"] and i % c["moe_layer_freq"] == 0:
            tensors += _moe(make, f"{p}block_sparse_moe.", d, c)
        else:
            tensors += _mlp(make, f"{p}mlp.", d, c["intermediate_size"])
    if has_blocks:
        tensors += _mixing(make, "model.output_attn_res", d)
    tensors.append(make.norm("model.norm.weight", d))
    if not tied:
        tensors.append(make.matrix("lm_head.weight", vocab, d, 4.0))
    return tensors


def _mixing(make: _Maker, p: str, d: int) -> Iterator[Tensor]:
    yield make.norm(f"{p}_norm.weight", d)
    yield make.matrix(f"{p}_proj.weight", 1, d, 1.3)


def _alternating(heads: int, width: int, first_small: int, small: float) -> np.ndarray:
    """A gain per row: every other head small, the first of them head number `first_small`."""
    gain = np.where(np.arange(heads) % 2 == first_small, small, 1.5)
    return np.repeat(gain, width)


def _kda(make: _Maker, p: str, d: int, c: Raw, a_log_length: int | None) -> Iterator[Tensor]:
    heads, width = c["num_heads"], c["head_dim"]
    wide = heads * width
    # Sums of squares near 1e-5 after the convolution, so that the L2 epsilon of 1e-6 matters.
    small = 4e-3 / math.sqrt(width)
    yield make.matrix(f"{p}q_proj.weight", wide, d, _alternating(heads, width, 0, small))
    yield make.matrix(f"{p}k_proj.weight", wide, d, _alternating(heads, width, 1, small))
    yield make.matrix(f"{p}v_proj.weight", wide, d, 2.0)
    for which in "qkv":
        name = f"{p}{which}_conv1d.weight"
        yield make.f32(name, make.rng(name).normal(0.2, 0.7, (wide, 1, c["short_conv_kernel_size"])))
    a_log = np.log(np.geomspace(*EXP_A_LOG, heads)) if heads > 1 else np.log([2.0])
    padded = np.zeros(-(-heads // 128) * 128 if a_log_length is None else max(heads, a_log_length))
    padded[:heads] = make.rng(f"{p}A_log").permutation(a_log)
    yield make.f32(f"{p}A_log", padded)
    # Mostly slow decay, as a useful memory needs; some channels at the bound.
    yield make.f32(f"{p}dt_bias", make.rng(f"{p}dt_bias").uniform(-1.8, 1.0, wide))
    yield make.matrix(f"{p}f_a_proj.weight", width, d)
    yield make.matrix(f"{p}f_b_proj.weight", wide, width, 0.5)
    yield make.matrix(f"{p}b_proj.weight", heads, d, 1.5)
    if c["use_full_rank_gate"]:
        yield make.matrix(f"{p}g_proj.weight", wide, d, 1.5)
    else:
        yield make.matrix(f"{p}g_a_proj.weight", width, d)
        yield make.matrix(f"{p}g_b_proj.weight", wide, width, 1.5)
    yield make.f32(f"{p}o_norm.weight", make.rng(f"{p}o_norm").uniform(0.4, 1.7, width))
    yield make.matrix(f"{p}o_proj.weight", d, wide, 1.5)


def _mla(make: _Maker, p: str, d: int, c: Raw) -> Iterator[Tensor]:
    heads, n, r, v = c["num_attention_heads"], c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
    rank, q_rank = c["kv_lora_rank"], c["q_lora_rank"]
    small = 2e-3  # a mean square of 4e-6: between the latent epsilon and rms_norm_eps
    if q_rank is None:
        yield make.matrix(f"{p}q_proj.weight", heads * (n + r), d, 1.5)
    else:
        yield make.matrix(f"{p}q_a_proj.weight", q_rank, d, small)
        yield make.norm(f"{p}q_a_layernorm.weight", q_rank)
        yield make.matrix(f"{p}q_b_proj.weight", heads * (n + r), q_rank, 1.5)
    yield make.matrix(f"{p}kv_a_proj_with_mqa.weight", rank + r, d, np.where(np.arange(rank + r) < rank, small, 1.5))
    yield make.norm(f"{p}kv_a_layernorm.weight", rank)
    yield make.matrix(f"{p}kv_b_proj.weight", heads * (n + v), rank, 1.5)
    if c["mla_use_output_gate"]:
        yield make.matrix(f"{p}g_proj.weight", heads * v, d, 1.5)
    yield make.matrix(f"{p}o_proj.weight", d, heads * v, 2.0)


def _mlp(make: _Maker, p: str, outer: int, inner: int) -> Iterator[Tensor]:
    # Every fifth row far beyond the gate's bound of 4, every fifth beyond the up bound of 25, both together now and then.
    rows = np.arange(inner)
    yield make.matrix(f"{p}gate_proj.weight", inner, outer, np.where(rows % 5 == 1, 6.0, 1.2))
    yield make.matrix(f"{p}up_proj.weight", inner, outer, np.where(rows % 5 <= 1, 20.0, 1.5))
    yield make.matrix(f"{p}down_proj.weight", outer, inner, 0.2)


def _moe(make: _Maker, p: str, d: int, c: Raw) -> Iterator[Tensor]:
    experts, latent, width = c["num_experts"], c["routed_expert_hidden_size"], c["moe_intermediate_size"]
    yield make.matrix(f"{p}gate.weight", experts, d, 1.2)
    bias = make.rng(f"{p}gate.bias").normal(0.1, 0.25, experts)
    yield make.f32(f"{p}gate.e_score_correction_bias", bias)
    if latent is not None:
        yield make.matrix(f"{p}routed_expert_down_proj.weight", latent, d, 3.0)
        if c["latent_moe_use_norm"]:
            yield make.norm(f"{p}routed_expert_norm.weight", latent)
        yield make.matrix(f"{p}routed_expert_up_proj.weight", d, latent, 1.0 if c["latent_moe_use_norm"] else 0.1)
    if c["num_shared_experts"]:
        yield from _mlp(make, f"{p}shared_experts.", d, c["num_shared_experts"] * width)
    inner = latent or d
    for e in range(experts):
        yield from make.mxfp4(f"{p}experts.{e}.w1", width, inner, (118, 124))
        yield from make.mxfp4(f"{p}experts.{e}.w2", inner, width, (118, 122 if latent is not None else 119))
        yield from make.mxfp4(f"{p}experts.{e}.w3", width, inner, (119, 124))


# --- files ----------------------------------------------------------------------------------------------------------------------


def write_safetensors(path: Path, tensors: Sequence[Tensor], metadata: Raw | None = None) -> None:
    """In the release's manner: F32, BF16, U8, then by name; compact JSON; spaces to a multiple of 8."""
    ordered = sorted(tensors, key=lambda t: (("F32", "BF16", "U8").index(t.dtype), t.name))
    header: Raw = {} if metadata is None else {"__metadata__": metadata}
    offset = 0
    for t in ordered:
        header[t.name] = {"dtype": t.dtype, "shape": list(t.values.shape), "data_offsets": [offset, offset + t.values.nbytes]}
        offset += t.values.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for t in ordered:
            file.write(t.values.astype(t.values.dtype.newbyteorder("<")).tobytes())


def write_checkpoint(
    directory: Path,
    raw: Raw,
    seed: int,
    *,
    shards: int = 1,
    prefix: bool = True,
    split_layers: bool = False,
    legacy_names: bool = False,
    vision: bool = False,
    tokenizer: bool = False,
    a_log_length: int | None = None,
) -> Path:
    """Write a complete checkpoint and return its directory, which is made if need be.

    Without `split_layers` a layer stays in one shard and `shards` is at most the number of layers + 1; with it tensors are dealt out
    one by one, even those of an expert. `legacy_names` spells some names as early converters did. `vision` adds tensors a text
    engine skips. `tokenizer` adds a byte-level `tiktoken.model` (needs a vocabulary of 260 or more).
    """
    directory.mkdir(parents=True, exist_ok=True)
    tensors = make_tensors(raw, seed, a_log_length=a_log_length)
    groups: list[list[Tensor]]
    if split_layers:
        groups = [tensors[i::shards] for i in range(shards)]
    else:
        units = [*dict.fromkeys(t.unit for t in tensors if t.unit != "top"), "top"]
        place = {unit: i * min(shards, len(units)) // len(units) for i, unit in enumerate(units)}
        groups = [[t for t in tensors if place[t.unit] == i] for i in range(place["top"] + 1)]

    def rename(name: str) -> str:
        if legacy_names:
            name = name.replace("_res_proj.weight", "_res.proj_weight").replace("_res_norm.weight", "_res.norm_weight")
            name = name.replace("gate.e_score_correction_bias", "e_score_correction_bias")
        return f"language_model.{name}" if prefix else name

    groups = [[Tensor(rename(t.name), t.dtype, t.values) for t in group] for group in groups]
    if vision:
        groups[-1] += [
            Tensor("vision_tower.patch_embed.proj.weight", "BF16", np.zeros((4, 3, 2, 2), np.uint16)),
            Tensor("mm_projector.proj.0.weight", "BF16", np.zeros((4, 4), np.uint16)),
        ]
    weight_map, total = {}, 0
    for i, group in enumerate(groups):
        file = f"model-{i + 1:05d}-of-{len(groups):06d}.safetensors"
        write_safetensors(directory / file, group)
        weight_map |= {t.name: file for t in group}
        total += sum(t.values.nbytes for t in group)
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    c = text_config(raw)
    _write_json(directory / "model.safetensors.index.json", index)
    _write_json(directory / "config.json", raw)
    _write_json(directory / "generation_config.json", {"max_length": 4096, "eos_token_id": c["eos_token_id"]})
    if tokenizer:
        write_tokenizer(directory, c["vocab_size"])
    return directory


def write_tokenizer(directory: Path, vocab_size: int) -> None:
    """One rank per byte, and names for the last four ids; the ids between are unnamed added tokens."""
    if vocab_size < 256 + ADDED_TOKENS:
        raise ValueError(f"a byte-level tokenizer needs a vocabulary of {256 + ADDED_TOKENS} or more, not {vocab_size}")
    ranks = b"".join(base64.b64encode(bytes([i])) + f" {i}\n".encode() for i in range(256))
    (directory / "tiktoken.model").write_bytes(ranks)
    names = ("[BOS]", "<|media_pad|>", "<|end_of_msg|>", "[PAD]")
    added = {str(vocab_size - ADDED_TOKENS + i): {"content": name, "special": True} for i, name in enumerate(names)}
    _write_json(directory / "tokenizer_config.json", {"added_tokens_decoder": added, "tokenizer_class": "TikTokenTokenizer"})


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")
