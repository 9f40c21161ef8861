"""The content of synthetic checkpoints: sizes and census of the release, real numbers where they matter, no holes elsewhere."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from math import prod
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors import safe_open

from lilliput.model.config import config_from_json
from lilliput.synth import SHAPES, write_synthetic
from lilliput.synth.shapes import raw_config
from lilliput.synth.shards import plan, pretty

P = "language_model.model."
ITEM = {"F32": 4, "BF16": 2, "U8": 1}
NUMPY = {"F32": np.dtype("<f4"), "BF16": np.dtype(ml_dtypes.bfloat16), "U8": np.dtype("u1")}


class Shards:
    """A plain reader written for these tests: name → (file, dtype, shape, absolute begin, absolute end)."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.files = sorted(directory.glob("*.safetensors"))
        self.raw: dict[Path, bytes] = {}
        self.tensors: dict[str, tuple[Path, str, list[int], int, int]] = {}
        for file in self.files:
            with file.open("rb") as f:
                length = int.from_bytes(f.read(8), "little")
                self.raw[file] = f.read(length)
            for name, e in json.loads(self.raw[file]).items():
                begin, end = (8 + length + o for o in e["data_offsets"])
                self.tensors[name] = (file, e["dtype"], e["shape"], begin, end)

    def __getitem__(self, name: str) -> np.ndarray:
        file, dtype, shape, begin, end = self.tensors[name]
        with file.open("rb") as f:
            f.seek(begin)
            return np.frombuffer(f.read(end - begin), NUMPY[dtype]).reshape(shape)

    def float64(self, name: str) -> np.ndarray:
        return self[name].astype(np.float64)


@pytest.fixture(scope="module")
def k3(k3_sparse: Path) -> Shards:
    return Shards(k3_sparse)


@pytest.fixture(scope="module")
def small(mini: Path) -> Shards:
    return Shards(mini)


def on_disk(directory: Path) -> int:
    return sum(p.stat().st_blocks * 512 for p in directory.iterdir())


# --- the full size ---------------------------------------------------------------------------------------------------------------


def test_shard_sizes_are_those_of_the_release(k3_sparse: Path, shared_data: Path) -> None:
    lines = (shared_data / "k3-shard-sizes.txt").read_text().split()
    assert {p.name: p.stat().st_size for p in k3_sparse.glob("*.safetensors")} == dict(zip(lines[::2], map(int, lines[1::2]), strict=True))


def test_shard_total_without_the_list(k3_sparse: Path) -> None:
    assert sum(p.stat().st_size for p in k3_sparse.glob("*.safetensors")) == 1_560_936_091_448


def test_index_has_the_released_size_and_names_every_tensor(k3: Shards) -> None:
    path = k3.directory / "model.safetensors.index.json"
    assert path.stat().st_size == 59_764_096
    index = json.loads(path.read_bytes())
    assert index["weight_map"] == {name: t[0].name for name, t in k3.tensors.items()}
    assert index["metadata"] == {"total_size": sum(end - begin for *_, begin, end in k3.tensors.values())}


def test_census_of_the_release(k3: Shards) -> None:
    assert len(k3.tensors) == 497_220
    assert Counter(t[1] for t in k3.tensors.values()) == {"U8": 494_592, "BF16": 2_122, "F32": 506}
    count = {name: prod(shape) for name, (_, dtype, shape, *_) in k3.tensors.items() if dtype != "U8"}
    assert sum(n for name, n in count.items() if name.startswith("language_model.")) == 56_743_648_000
    assert sum(n for name, n in count.items() if name.startswith("vision_tower.")) == 401_214_464
    assert sum(n for name, n in count.items() if name.startswith("mm_projector.")) == 46_144_512
    assert sum(prod(t[2]) for t in k3.tensors.values() if t[1] == "F32") == 11_122_432


def test_every_expert_is_one_run_of_17547264_bytes_in_its_layers_shard(k3: Shards) -> None:
    spans: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for name, (file, dtype, _, begin, end) in k3.tensors.items():
        if dtype == "U8":
            layer, expert = name.split(".")[3], name.split(".")[6]
            assert int(file.name[6:11]) == int(layer) + 1
            spans.setdefault((layer, expert), []).append((begin, end))
    assert len(spans) == 92 * 896
    for parts in spans.values():
        assert len(parts) == 6
        assert max(e for _, e in parts) - min(b for b, _ in parts) == sum(e - b for b, e in parts) == 17_547_264


def test_headers_are_compact_ordered_padded_and_without_gaps(k3: Shards) -> None:
    order = {"F32": 0, "BF16": 1, "U8": 2}
    for file in k3.files:
        raw = k3.raw[file]
        text = raw.rstrip(b" ")
        entries = json.loads(text)
        assert len(raw) % 8 == 0
        assert len(raw) - len(text) < 8
        assert json.dumps(entries, separators=(",", ":")).encode() == text
        keys = [(order[e["dtype"]], name) for name, e in entries.items()]
        assert keys == sorted(keys)
        at = 0
        for e in entries.values():
            assert e["data_offsets"] == [at, at := at + prod(e["shape"]) * ITEM[e["dtype"]]]
        assert file.stat().st_size == 8 + len(raw) + at


def test_disk_use_stays_below_600_mb(k3_sparse: Path) -> None:
    assert on_disk(k3_sparse) <= 600_000_000


def test_the_safetensors_library_reads_every_kind_of_shard(k3: Shards) -> None:
    for number in (1, 2, 4, 94, 95, 96):
        file = k3.files[number - 1]
        names = [n for n, t in k3.tensors.items() if t[0] == file]
        with safe_open(file, framework="numpy") as f:
            assert sorted(f.keys()) == sorted(names)
            for name in names[:3] + names[-3:]:
                assert f.get_slice(name).get_shape() == k3.tensors[name][2]


def test_what_is_real_in_the_full_size(k3: Shards) -> None:
    for layer in (0, 3, 4, 45, 92):
        for name, (_, dtype, shape, *_) in k3.tensors.items():
            small = dtype == "F32" or (dtype == "BF16" and (len(shape) == 1 or shape[0] == 1))
            if name.startswith(f"{P}layers.{layer}.") and small and not name.endswith("A_log"):
                assert np.count_nonzero(k3[name]) > 0.99 * prod(shape), name
    for name in (P + "embed_tokens.weight", "language_model.lm_head.weight"):
        file, _, shape, begin, _ = k3.tensors[name]
        assert shape == [163840, 7168]
        with file.open("rb") as f:
            f.seek(begin)
            rows = np.frombuffer(f.read(257 * 2 * 7168), ml_dtypes.bfloat16).reshape(257, 7168)
        assert (np.count_nonzero(rows[:256], axis=1) > 7000).all()
        assert not rows[256].any()
    for name in (P + "layers.5.self_attn.q_proj.weight", P + "layers.7.block_sparse_moe.experts.895.w2.weight_scale"):
        assert not k3[name].any()


def test_decay_parameters_are_padded_and_span_the_released_range(k3: Shards) -> None:
    for layer in (0, 45, 90):
        a_log = k3.float64(f"{P}layers.{layer}.self_attn.A_log")
        assert a_log.shape == (128,)
        assert not a_log[96:].any()
        decay = np.exp(a_log[:96])
        assert 0.46 < decay.min() < 0.8
        assert 8 < decay.max() < 11.81


def router(k3: Shards, layer: int) -> tuple[np.ndarray, int]:
    name = f"{P}layers.{layer}.block_sparse_moe.gate.weight"
    return k3[name], k3.tensors[name][3]


@pytest.mark.parametrize("layer", [1, 3, 46, 92])
def test_every_router_row_has_one_block_on_the_files_grid(k3: Shards, layer: int) -> None:
    gate, begin = router(k3, layer)
    assert gate.shape == (896, 7168)
    touched = set()
    for row in range(896):
        at = np.flatnonzero(gate[row])
        assert len(at) > 2000
        blocks = {(begin + row * 14336 + 2 * int(c)) // 4096 for c in at}
        assert len(blocks) == 1, row
        first = 4096 * blocks.pop() - begin - row * 14336
        assert 0 <= first <= 14336 - 4096
        touched.add(first // 2)
    assert len(touched) >= 4  # not every row sees the same columns


def mixed(blocks: list[np.ndarray], s: np.ndarray, norm: np.ndarray, proj: np.ndarray) -> np.ndarray:
    v = np.stack([*blocks, s])
    logit = (v / np.sqrt((v * v).mean(-1, keepdims=True) + 1e-5)) @ (norm * proj[0])
    p = np.exp(logit - logit.max())
    return (p / p.sum()) @ v


def rms(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return w * x / np.sqrt(np.mean(x * x) + 1e-5)


def first_rows(k3: Shards, name: str) -> np.ndarray:
    file, _, _, begin, _ = k3.tensors[name]
    with file.open("rb") as f:
        f.seek(begin)
        return np.frombuffer(f.read(256 * 14336), ml_dtypes.bfloat16).reshape(256, 7168).astype(np.float64)


def test_ids_and_experts_of_every_layer_depend_on_the_token(k3: Shards) -> None:
    """All matrices but the routers are zero, so each layer adds zero and the embedding reaches the routers through the mixing alone."""
    tokens = (1, 2, 255)
    embedding = first_rows(k3, P + "embed_tokens.weight")
    blocks: list[list[np.ndarray]] = [[embedding[t]] for t in tokens]
    zero = np.zeros(7168)
    for i in range(1, 93):
        if i % 12 == 0:
            blocks = [[*b, zero] for b in blocks]
        p = f"{P}layers.{i}."
        norm, proj = k3.float64(p + "mlp_res_norm.weight"), k3.float64(p + "mlp_res_proj.weight")
        x = np.stack([rms(mixed(b, zero, norm, proj), k3.float64(p + "post_attention_layernorm.weight")) for b in blocks])
        assert (np.sqrt((x * x).mean(-1)) > 0.3).all()  # far from where epsilon would take over
        logit = router(k3, i)[0].astype(np.float32) @ x.T.astype(np.float32)
        score = 1 / (1 + np.exp(-logit)) + k3[p + "block_sparse_moe.gate.e_score_correction_bias"][:, None]
        first, second, third = (set(chosen.tolist()) for chosen in np.argsort(-score, axis=0)[:16].T)
        assert max(len(first & second), len(first & third), len(second & third)) < 8, i
    norm, proj = k3.float64(P + "output_attn_res_norm.weight"), k3.float64(P + "output_attn_res_proj.weight")
    h = np.stack([rms(mixed(b, zero, norm, proj), k3.float64(P + "norm.weight")) for b in blocks])
    logits = h @ first_rows(k3, "language_model.lm_head.weight").T
    assert np.isfinite(logits).all()
    assert (logits.max(-1) > 0).all()  # above the zero logits of the ids without a row
    assert len(set(logits.argmax(-1).tolist())) == 3


def test_side_file_limits_the_ids(k3_sparse: Path, mini: Path) -> None:
    assert json.loads((k3_sparse / "synth.json").read_bytes()) == {"format": 1, "shape": "k3", "seed": 0, "usable_ids": 256}
    assert (
        json.loads((mini / "synth.json").read_bytes())["usable_ids"]
        == json.loads((mini / "config.json").read_bytes())["text_config"]["vocab_size"]
    )


RELEASED = {  # the specification's section 2.2 and 2.3
    "model_type": "kimi_linear", "vocab_size": 163840, "hidden_size": 7168, "num_hidden_layers": 93, "intermediate_size": 33792,
    "first_k_dense_replace": 1, "moe_layer_freq": 1, "hidden_act": "situ", "activation_situ_beta": 4.0, "activation_situ_linear_beta": 25.0,
    "rms_norm_eps": 1e-5, "attn_res_block_size": 12, "num_attention_heads": 96, "num_key_value_heads": 96, "q_lora_rank": 1536,
    "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "mla_use_nope": True,
    "mla_use_output_gate": True, "num_experts": 896, "num_experts_per_token": 16, "num_shared_experts": 2, "moe_intermediate_size": 3072,
    "routed_expert_hidden_size": 3584, "latent_moe_use_norm": True, "moe_router_activation_func": "sigmoid", "moe_renormalize": True,
    "routed_scaling_factor": 1.0, "topk_method": "noaux_tc", "use_grouped_topk": True, "num_expert_group": 1, "topk_group": 1,
    "num_nextn_predict_layers": 0, "tie_word_embeddings": False, "max_position_embeddings": 1048576, "bos_token_id": 163584,
    "eos_token_id": 163586, "pad_token_id": 163839, "dtype": "bfloat16",
}  # fmt: skip


def test_config_is_the_released_one(k3_sparse: Path) -> None:
    config = json.loads((k3_sparse / "config.json").read_bytes())
    text: dict[str, Any] = config["text_config"]
    assert {k: text[k] for k in RELEASED} == RELEASED
    assert (config["model_type"], config["media_placeholder_token_id"], config["eos_token_id"]) == ("kimi_k3", 163605, 163586)
    linear = text["linear_attn_config"]
    assert linear["full_attn_layers"] == [*range(4, 89, 4), 92, 93]
    assert sorted(linear["full_attn_layers"] + linear["kda_layers"]) == list(range(1, 94))
    assert len(linear["kda_layers"]) == 69
    quantization = text["quantization_config"]
    assert (quantization["format"], quantization["config_groups"]["group_0"]["weights"]["group_size"]) == ("mxfp4-pack-quantized", 32)
    assert "quantization_config" not in config
    assert (k3_sparse / "generation_config.json").read_bytes() == b'{"max_length": 1048576, "eos_token_id": 163586}'
    assert not (k3_sparse / "tiktoken.model").exists()


def test_special_ids_are_those_of_the_tokenizer(tiny_synth: Path) -> None:
    config = json.loads((tiny_synth / "config.json").read_bytes())
    names = json.loads((tiny_synth / "tokenizer_config.json").read_bytes())["added_tokens_decoder"]
    fields = ("bos_token_id", "eos_token_id", "media_placeholder_token_id", "pad_token_id")
    assert [names[str(config[f])]["content"] for f in fields] == ["[BOS]", "<|end_of_msg|>", "<|media_pad|>", "[PAD]"]
    for f in ("bos_token_id", "eos_token_id", "pad_token_id"):
        assert config["text_config"][f] == config[f]
    assert json.loads((tiny_synth / "generation_config.json").read_bytes())["eos_token_id"] == config["eos_token_id"]


# --- mini, midi, tiny ------------------------------------------------------------------------------------------------------------


def test_mini_has_no_holes(mini: Path) -> None:
    for path in mini.glob("*.safetensors"):
        assert path.stat().st_blocks * 512 >= path.stat().st_size, path.name


def test_mini_is_what_it_is_said_to_be(small: Shards) -> None:
    text = json.loads((small.directory / "config.json").read_bytes())["text_config"]
    assert (text["hidden_size"], text["num_hidden_layers"], text["num_experts"], text["num_experts_per_token"]) == (2048, 18, 128, 4)
    assert text["linear_attn_config"]["full_attn_layers"] == [4, 8, 12, 16, 17, 18]
    matrices = [t for n, t in small.tensors.items() if t[1] == "BF16" and t[2][0] > 1 and len(t[2]) == 2 and "embed_tokens" not in n]
    assert sum(2 * prod(t[2]) for t in matrices) == pytest.approx(0.8e9, rel=0.05)
    assert sum(prod(t[2]) for t in small.tensors.values() if t[1] == "U8") == pytest.approx(1.2e9, rel=0.05)
    assert f"{P}layers.0.mlp.gate_proj.weight" in small.tensors
    assert len(small.files) > 1
    assert small.files[0].name == f"model-00001-of-{len(small.files):06d}.safetensors"
    # three stored residual states at least
    assert len(range(0, 18, text["attn_res_block_size"])) >= 3


def test_midi_is_what_it_is_said_to_be() -> None:
    tensors = [t for shard in plan(config_from_json(pretty(raw_config(SHAPES["midi"])), "midi"), vision=False) for t in shard.tensors]
    tape = [t for t in tensors if t.dtype == "BF16" and t.shape[0] > 1 and len(t.shape) == 2 and "embed_tokens" not in t.name]
    assert sum(2 * prod(t.shape) for t in tape) == pytest.approx(5e9, rel=0.05)
    assert sum(prod(t.shape) for t in tensors if t.dtype == "U8") == pytest.approx(6e9, rel=0.05)


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.0.mlp.down_proj",
        "model.layers.4.self_attn.f_b_proj",
        "model.layers.9.block_sparse_moe.gate",
        "model.embed_tokens",
        "lm_head",
    ],
)
def test_matrices_are_normal_with_deviation_one_by_root_of_inputs(small: Shards, name: str) -> None:
    w = small.float64(f"language_model.{name}.weight")
    z = w.ravel() * np.sqrt(w.shape[1])
    error = 1 / np.sqrt(len(z))
    assert abs(z.mean()) < 5 * error
    assert z.std() == pytest.approx(1, abs=5 * error + 1e-3)
    assert (z**4).mean() == pytest.approx(3, abs=50 * error + 0.01)
    for bound, share in ((0.6745, 0.5), (1.96, 0.05), (3.2905, 0.001)):
        assert (np.abs(z) > bound).mean() == pytest.approx(share, abs=5 * error + 0.01 * share + 2e-4)
    neighbours = np.corrcoef(z[:-1], z[1:])[0, 1], np.corrcoef(w[0], w[1])[0, 1]
    assert np.abs(neighbours).max() < max(5 * error, 5 / np.sqrt(w.shape[1]))


def test_experts_have_uniform_nibbles_and_scales_118_to_122(small: Shards) -> None:
    prefix = f"{P}layers.7.block_sparse_moe.experts.100."
    for part in ("w1", "w2", "w3"):
        packed = small[f"{prefix}{part}.weight_packed"].ravel()
        for nibble in (packed & 15, packed >> 4):
            counts = np.bincount(nibble, minlength=16)
            assert ((counts - len(packed) / 16) ** 2 / (len(packed) / 16)).sum() < 60  # chi-squared, 15 degrees of freedom
        counts = np.bincount(small[f"{prefix}{part}.weight_scale"].ravel(), minlength=256)
        assert counts[118:123].sum() == counts.sum()
        assert (counts[118:123] > 0.8 * counts.sum() / 5).all()
    other = small[f"{P}layers.7.block_sparse_moe.experts.101.w1.weight_packed"]
    assert (small[prefix + "w1.weight_packed"] != other).mean() > 0.9


def test_norms_are_near_one(small: Shards) -> None:
    names = [n for n, t in small.tensors.items() if "norm" in n and t[1] != "U8"]
    assert len(names) > 18 * 4
    for name in names:
        w = small.float64(name)
        assert 0.7 < w.min() < 1 < w.max() < 1.3, name
        assert abs(w.mean() - 1) < 0.03


def test_the_same_seed_gives_the_same_bytes_on_every_machine(tiny_synth: Path) -> None:
    digest = hashlib.sha256()
    for path in sorted(tiny_synth.glob("*.safetensors")):
        digest.update(path.read_bytes())
    assert digest.hexdigest() == "56fa1fef7f92b9709504621df3c6224019ca38efa9991a1b72018198a6cc5bc2"


def test_another_seed_gives_other_bytes_of_the_same_sizes(tiny_synth: Path, tmp_path: Path) -> None:
    write_synthetic(tmp_path / "a", "tiny", seed=1)
    write_synthetic(tmp_path / "b", "tiny", seed=1)
    names = [p.name for p in tiny_synth.glob("*.safetensors")]
    for name in names:
        a = (tmp_path / "a" / name).read_bytes()
        assert a == (tmp_path / "b" / name).read_bytes()
        first = (tiny_synth / name).read_bytes()
        assert len(a) == len(first)
        assert a != first


@pytest.mark.parametrize("size", ["tiny_synth", "mini"])
def test_the_safetensors_library_reads_every_tensor(size: str, request: pytest.FixtureRequest) -> None:
    shards = Shards(request.getfixturevalue(size))
    index = json.loads((shards.directory / "model.safetensors.index.json").read_bytes())["weight_map"]
    assert index == {name: t[0].name for name, t in shards.tensors.items()}
    for file in shards.files:
        with safe_open(file, framework="numpy") as f:
            for name in f.keys():  # noqa: SIM118 (not a mapping)
                _, dtype, shape, *_ = shards.tensors[name]
                assert (f.get_slice(name).get_dtype(), f.get_slice(name).get_shape()) == (dtype, shape)


def test_report(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    report = write_synthetic(tmp_path / "t", "tiny", progress=lambda done, total: seen.append((done, total)))
    shards = Shards(tmp_path / "t")
    total = sum(p.stat().st_size for p in shards.files)
    assert seen[-1] == (total, total)
    assert len(seen) == len(shards.files) == report["shards"]
    assert [d for d, _ in seen] == sorted(d for d, _ in seen)
    assert report["bytes"] == total
    assert report["tensors"] == len(shards.tensors)
    assert report["files"] == len(list((tmp_path / "t").iterdir()))
    assert report["bytes_on_disk"] == on_disk(tmp_path / "t")
    assert report["trunk_parameters"] == sum(prod(t[2]) for t in shards.tensors.values() if t[1] != "U8")
    assert report["experts"] * report["expert_bytes"] == sum(prod(t[2]) for t in shards.tensors.values() if t[1] == "U8")
