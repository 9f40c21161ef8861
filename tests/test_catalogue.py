"""Every tensor against the layout: names, shapes, dtypes, padding of A_log, tied embeddings."""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np
import pytest
from helpers_checkpoint import (
    EMBEDDING,
    HEAD,
    NAMES,
    PREFIX,
    SMALL,
    Change,
    Tensor,
    layout_of,
    nested,
    opened,
    refused,
    rename,
    small_text,
    swap,
    tensors_of,
    vision_tensors,
    write_checkpoint,
    write_tensors,
)

from lilliput.weights import checkpoint as checkpoint_module
from lilliput.weights import safetensors_faults as faults

A_LOG = "model.layers.1.self_attn.A_log"
DIFFERENCES: dict[str, tuple[Change, str, str, str]] = {
    "missing": (swap("model.norm.weight", None), "model.norm.weight", "BF16 [32]", "no such tensor in any shard"),
    "shape": (swap("model.norm.weight", (PREFIX + "model.norm.weight", "BF16", (33,))), "", "BF16 [32]", "BF16 [33]"),
    "rank": (swap("model.norm.weight", (PREFIX + "model.norm.weight", "BF16", (1, 32))), "", "BF16 [32]", "BF16 [1, 32]"),
    "dtype": (swap("model.norm.weight", (PREFIX + "model.norm.weight", "F32", (32,))), "", "BF16 [32]", "F32 [32]"),
    "A_log too short": (swap(A_LOG, (PREFIX + A_LOG, "F32", (2,))), PREFIX + A_LOG, "F32 [3]", "F32 [2]"),
    "A_log of another dtype": (swap(A_LOG, (PREFIX + A_LOG, "BF16", (3,))), PREFIX + A_LOG, "F32 [3]", "BF16 [3]"),
    "bias": (lambda t: [*t, (PREFIX + "model.layers.0.self_attn.q_proj.bias", "BF16", (12,))], "", "no such tensor", "BF16 [12]"),
    "weight_shape": (
        lambda t: [*t, (PREFIX + "model.layers.1.block_sparse_moe.experts.0.w1.weight_shape", "I64", (2,))],
        *("", "no such tensor", "I64 [2]"),
    ),
    "another layer": (lambda t: [*t, (PREFIX + "model.layers.3.input_layernorm.weight", "BF16", (32,))], "", "no such tensor", "BF16 [32]"),
    "expert missing": (
        swap("model.layers.2.block_sparse_moe.experts.1.w2.weight_scale", None),
        *("model.layers.2.block_sparse_moe.experts.1.w2.weight_scale", "U8 [64, 1]", "no such tensor"),
    ),
    "expert too many": (
        lambda t: [*t, (PREFIX + "model.layers.2.block_sparse_moe.experts.3.w1.weight_packed", "U8", (32, 32))],
        *("", "no such tensor", "U8 [32, 32]"),
    ),
    "scale as F8_E8M0": (
        swap(
            "model.layers.2.block_sparse_moe.experts.1.w2.weight_scale",
            (PREFIX + "model.layers.2.block_sparse_moe.experts.1.w2.weight_scale", "F8_E8M0", (64, 1)),
        ),
        *("", "U8 [64, 1]", "F8_E8M0 [64, 1]"),
    ),
    "group of 16": (
        swap(
            "model.layers.1.block_sparse_moe.experts.2.w1.weight_scale",
            (PREFIX + "model.layers.1.block_sparse_moe.experts.2.w1.weight_scale", "U8", (32, 4)),
        ),
        *("", "U8 [32, 2]", "U8 [32, 4]"),
    ),
}


@pytest.mark.parametrize(("change", "what", "needed", "found"), DIFFERENCES.values(), ids=DIFFERENCES)
def test_differences(tmp_path: Path, change: Change, what: str, needed: str, found: str) -> None:
    error = refused(write_checkpoint(tmp_path / "m", SMALL, change=change))
    assert len(error.problems) == 1
    assert what in error.what
    assert needed in error.needed
    assert found in error.found


def test_plain_weights_in_place_of_packed_ones(tmp_path: Path) -> None:
    """faults.md 18: the unknown tensor and the missing pair are named."""
    name = "model.layers.1.block_sparse_moe.experts.0.w1.weight"
    drop = {PREFIX + name + "_packed", PREFIX + name + "_scale"}

    def change(tensors: list[Tensor]) -> list[Tensor]:
        return [t for t in tensors if t[0] not in drop] + [(PREFIX + name, "BF16", (32, 64))]

    error = refused(write_checkpoint(tmp_path / "m", SMALL, change=change))
    assert {p.what.removeprefix(PREFIX) for p in error.problems} == {name, name + "_packed", name + "_scale"}


def test_all_differences_at_once(tmp_path: Path) -> None:
    def change(tensors: list[Tensor]) -> list[Tensor]:
        tensors = swap("model.norm.weight", None)(tensors)
        tensors = swap("model.layers.1.block_sparse_moe.experts.0.w1.weight_packed", None)(tensors)
        tensors = swap(A_LOG, (PREFIX + A_LOG, "F32", (2,)))(tensors)
        return [*tensors, ("model.extra", "BF16", (1,)), ("vision_tower.x", "F16", (1,))]

    error = refused(write_checkpoint(tmp_path / "m", SMALL, change=change))
    packed = "model.layers.1.block_sparse_moe.experts.0.w1.weight_packed"
    assert {p.what for p in error.problems} == {"model.norm.weight", packed, PREFIX + A_LOG, "model.extra"}
    assert "config.json and the shards must be of one model" in str(error)


def test_another_model_altogether(tmp_path: Path) -> None:
    """Thousands of differences are counted, and a few hundred kept."""
    config = nested(small_text(num_experts=200))
    written = write_checkpoint(tmp_path / "m", config, change=rename(lambda n: n.replace("block_sparse_moe", "mlp")))
    error = refused(written, config)
    assert len(error.problems) < 1000
    moe = sum("block_sparse_moe" in name for name, _, _ in tensors_of(layout_of(config)))
    kept = sum("no such tensor in a checkpoint" in p.needed for p in error.problems)
    assert f"{moe - kept:,} more unknown" in str(error.problems[-2]) + str(error.problems[-1])


def test_skipped_tensors(tmp_path: Path) -> None:
    extra: list[Tensor] = [*vision_tensors()[:5], ("vision_model.a", "F16", (3,)), ("multi_modal_projector.a", "I8", (3,))]
    extra += [("model.mtp.layers.0.x", "BF16", (3,)), ("mtp.x", "F64", (3,)), (PREFIX + "model.mtp_norm.weight", "BF16", (3,))]
    found = opened(write_checkpoint(tmp_path / "m", SMALL, change=lambda t: [*extra[::2], *t, *extra[1::2]]))
    assert len(found.tensors) == len(layout_of(SMALL).trunk)
    parameters = sum(prod(shape) for _, _, shape in extra)
    nbytes = sum(prod(shape) * faults.DTYPES[dtype] // 8 for _, dtype, shape in extra)
    assert found.skipped == opened(tmp_path / "m").skipped == (len(extra), parameters, nbytes)


TWICE: dict[str, tuple[str, str, str]] = {
    "trunk": (PREFIX + "model.norm.weight", PREFIX + "model.norm.weight", "it in model-00001-of-000002.safetensors too"),
    "prefix": (PREFIX + "model.norm.weight", "model.norm.weight", "as language_model.model.norm.weight"),
    "legacy": (PREFIX + "model.output_attn_res_norm.weight", PREFIX + "model.output_attn_res.norm_weight", "as language_model."),
    "vision": ("vision_tower.x", "vision_tower.x", "it in model-00001-of-000002.safetensors too"),
}
EXPERT = "model.layers.1.block_sparse_moe.experts.1.w3.weight_packed"
TWICE |= {"expert": (PREFIX + EXPERT, PREFIX + EXPERT, "it in model-00001"), "expert without prefix": (PREFIX + EXPERT, EXPERT, "it in")}


@pytest.mark.parametrize(("first", "second", "found"), TWICE.values(), ids=TWICE)
def test_a_tensor_in_two_shards(tmp_path: Path, first: str, second: str, found: str) -> None:
    tensors = {name: (name, dtype, shape) for name, dtype, shape in tensors_of(layout_of(SMALL))}
    copy = tensors.get(first, (first, "BF16", (3,)))
    rest = [t for name, t in tensors.items() if name != first]
    write_tensors(tmp_path / NAMES[0], [copy, *rest[:9]])
    write_tensors(tmp_path / NAMES[1], [*rest[9:], (second, *copy[1:])])
    error = refused(tmp_path)
    assert [p.what for p in error.problems] == [second]
    assert Path(error.file).name == NAMES[1]
    assert found in error.found


def test_a_tensor_twice_in_one_shard_by_its_prefix(tmp_path: Path) -> None:
    for extra in (EXPERT, "model.norm.weight"):
        shape = (32, 32) if extra == EXPERT else (32,)
        dtype = "U8" if extra == EXPERT else "BF16"
        model = write_checkpoint(tmp_path / extra, SMALL, shards=1, change=lambda t, e=(extra, dtype, shape): [*t, e])  # type: ignore[misc]
        assert [p.what for p in refused(model).problems] == [extra]


def a_log_model(directory: Path, values: list[float]) -> Path:
    """The small model with A_log of layer 1 as given (three heads and a tail)."""
    new = (PREFIX + A_LOG, "F32", (len(values),))
    model = write_checkpoint(directory, SMALL, shards=1, change=swap(A_LOG, new))
    path = model / "model-00001-of-000001.safetensors"
    offset = opened(model, cache=False).tensors[A_LOG].offset
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(np.array(values, "<f4").tobytes())
    return model


def test_a_log_tail_must_be_zero(tmp_path: Path) -> None:
    """faults.md 16: exact length, zero tail (either zero), anything else."""
    for n, values in enumerate([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 0.0], [1.0, 2.0, 3.0, 0.0, -0.0, 0.0, 0.0, 0.0]]):
        ref = opened(a_log_model(tmp_path / f"good{n}", values)).tensors[A_LOG]
        assert (ref.shape, ref.nbytes) == ((3,), 12)
        assert opened(tmp_path / f"good{n}").padding == len(values) - 3
    for n, tail in enumerate([[1e-45], [0.0, 0.0, 2.0], [float("nan")], [0.0] * 300_000 + [1.0]]):
        error = refused(a_log_model(tmp_path / f"bad{n}", [1.0, 2.0, 3.0, *tail]))
        assert error.what == PREFIX + A_LOG
        assert error.needed == "zeros behind the 3 heads"
        assert error.found == f"1 of the {len(tail)} padding values not zero"


TIED = nested(small_text(tie_word_embeddings=True), tie_word_embeddings=True)


def test_tied_embeddings_need_no_head(tmp_path: Path) -> None:
    assert HEAD not in opened(write_checkpoint(tmp_path / "m", TIED), TIED).tensors
    assert refused(tmp_path / "m", SMALL).what == HEAD


def test_tied_embeddings_with_a_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A head beside tied embeddings is the embedding again, byte for byte, or it is refused."""
    monkeypatch.setattr(checkpoint_module, "BLOCK", 100)
    model = write_checkpoint(tmp_path / "m", TIED, change=lambda t: [(PREFIX + HEAD, "BF16", (40, 32)), *t])
    assert HEAD not in opened(model, TIED, cache=False).tensors
    path = model / NAMES[0]
    embedding = opened(model, TIED, cache=False).tensors[EMBEDDING].offset
    with path.open("r+b") as file:
        file.seek(embedding + 2 * 32 * 33 + 5)
        file.write(b"\1")
    error = refused(model, TIED)
    assert error.what == PREFIX + HEAD
    assert "tie_word_embeddings" in error.needed
    assert error.found == "other values in row 33"


def test_tied_embeddings_with_a_head_of_another_shape(tmp_path: Path) -> None:
    model = write_checkpoint(tmp_path / "m", TIED, change=lambda t: [*t, (PREFIX + HEAD, "BF16", (41, 32))])
    assert "tie_word_embeddings" in refused(model, TIED).needed
    twice = write_checkpoint(tmp_path / "n", TIED, change=lambda t: [*t, (PREFIX + HEAD, "BF16", (40, 32)), (HEAD, "BF16", (40, 32))])
    assert "each tensor once" in str(refused(twice, TIED))
