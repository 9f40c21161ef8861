"""Which tensor lies in which shard, and the exact bytes of every safetensors header (`kimi-k3.md` sections 3.1, 3.4 and 12)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from lilliput.model.config import Config
from lilliput.model.layout import A_LOG_MULTIPLE, layout
from lilliput.weights.catalogue import PREFIX
from lilliput.weights.layout import ITEM_SIZES, Layout, TensorSpec

_DTYPE_ORDER = {"F32": 0, "BF16": 1, "U8": 2}


@dataclass(frozen=True, slots=True)
class Placed:
    """One tensor of a shard. `offset` is absolute in the file; `source` is None for the experts and for vision."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    source: TensorSpec | None

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * ITEM_SIZES[self.dtype]


@dataclass(frozen=True, slots=True)
class Shard:
    """One file: `header` is everything before the first tensor, `tensors` lie behind it without gaps, `size` is in bytes."""

    file: str
    header: bytes
    tensors: tuple[Placed, ...]
    size: int


Entry = tuple[str, str, tuple[int, ...], TensorSpec | None]


def plan(config: Config, vision: bool) -> list[Shard]:
    """All shards of a checkpoint: one for each layer, one for embedding, head and final norm, and (with `vision`) two more."""
    wanted = layout(config)
    groups = _text_groups(wanted, config.num_layers)
    if vision:
        groups += [_projector(config.hidden_size), list(_tower())]
    return [_shard(f"model-{i:05d}-of-{len(groups):06d}.safetensors", group) for i, group in enumerate(groups, 1)]


def index_json(shards: Sequence[Shard]) -> bytes:
    """model.safetensors.index.json as the release formats it (byte for byte its length at full size)."""
    places = sorted((t.name, s.file) for s in shards for t in s.tensors)
    total = sum(s.size - len(s.header) for s in shards)
    lines = ",\n".join(f'    "{name}": "{file}"' for name, file in places)
    return f'{{\n  "metadata": {{\n    "total_size": {total}\n  }},\n  "weight_map": {{\n{lines}\n  }}\n}}'.encode()


def _text_groups(wanted: Layout, layers: int) -> list[list[Entry]]:
    groups: list[list[Entry]] = [[] for _ in range(layers + 1)]
    for t in wanted.trunk:
        layer = int(t.name.split(".")[2]) if t.name.startswith("model.layers.") else layers
        shape = (-(-t.shape[0] // A_LOG_MULTIPLE) * A_LOG_MULTIPLE,) if t.at_least else t.shape
        groups[layer].append((PREFIX + t.name, t.dtype, shape, t))
    if (e := wanted.experts) is not None:
        parts = [(i, shape) for i, shape in enumerate(e.shapes)]
        for layer in e.layers:
            groups[layer] += [(PREFIX + e.name(layer, m, i), "U8", shape, None) for m in range(e.num_experts) for i, shape in parts]
    return groups


def _shard(file: str, entries: list[Entry]) -> Shard:
    entries.sort(key=lambda entry: (_DTYPE_ORDER[entry[1]], entry[0]))
    parts, ends, end = [], [0], 0
    for name, dtype, shape, _ in entries:
        begin, end = end, end + prod(shape) * ITEM_SIZES[dtype]
        parts.append(f'"{name}":{{"dtype":"{dtype}","shape":[{",".join(map(str, shape))}],"data_offsets":[{begin},{end}]}}')
        ends.append(end)
    text = ("{" + ",".join(parts) + "}").encode()
    text += b" " * (-len(text) % 8)
    header = len(text).to_bytes(8, "little") + text
    tensors = tuple(Placed(*entry[:3], len(header) + begin, entry[3]) for entry, begin in zip(entries, ends, strict=False))
    return Shard(file, header, tensors, len(header) + end)


def _projector(hidden: int) -> list[Entry]:
    p = "mm_projector."
    shapes = (("proj.0.weight", (4096, 4096)), ("proj.2.weight", (hidden, 4096)), ("post_norm.weight", (hidden,)))
    return [(p + name, "BF16", shape, None) for name, shape in shapes]


def _tower() -> Iterator[Entry]:
    p, width, inner, wide = "vision_tower.", 1024, 1536, 4096

    def entry(name: str, *shape: int) -> Entry:
        return (f"{p}{name}.weight", "BF16", shape, None)

    yield entry("patch_embed.proj", width, 3, 14, 14)
    yield entry("patch_embed.pos_emb", 64, 64, width)
    for i in range(27):
        block = f"encoder.blocks.{i}."
        yield entry(block + "norm0", width)
        yield entry(block + "norm1", width)
        yield entry(block + "wqkv", 3 * inner, width)
        yield entry(block + "wo", width, inner)
        yield entry(block + "mlp.fc0", wide, width)
        yield entry(block + "mlp.fc1", width, wide)
    yield entry("encoder.final_layernorm", width)


def pretty(data: dict[str, Any]) -> bytes:
    """JSON the way configuration files are written: two spaces, sorted keys, a newline at the end."""
    return (json.dumps(data, indent=2, sort_keys=True) + "\n").encode()
