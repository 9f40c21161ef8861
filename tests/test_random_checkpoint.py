"""The generator of random checkpoints: every variant occurs, every mechanism shows, independent readers accept the files."""

from __future__ import annotations

import base64
import json
import random
from collections import defaultdict
from pathlib import Path

import ml_dtypes  # noqa: F401  (teaches numpy, and so safetensors, bfloat16)
import numpy as np
import pytest
import safetensors
from agreement import load_reference, reference
from random_checkpoint import make_tensors, random_config, text_config, write_checkpoint

SEEDS = range(40)


def test_every_variant_occurs() -> None:
    seen: dict[str, set[object]] = defaultdict(set)
    for seed in range(300):
        raw = random_config(random.Random(seed))
        c = text_config(raw)
        for name, value in (c | c["linear_attn_config"]).items():
            if not isinstance(value, dict | list):
                seen[name].add(value)
        seen["nested"].add("text_config" in raw)
        seen["first"].add("K" if 1 in c["linear_attn_config"]["kda_layers"] else "M")
        seen["dense"].add(c["first_k_dense_replace"] == c["num_hidden_layers"])
        seen["v is nope"].add(c["v_head_dim"] == c["qk_nope_head_dim"])
    both = {True, False}
    needed = {
        "nested": both,
        "first": {"K", "M"},
        "dense": both,
        "v is nope": both,
        "short_conv_kernel_size": {2, 3, 4},
        "use_full_rank_gate": both,
        "latent_moe_use_norm": both,
        "moe_renormalize": both,
        "mla_use_output_gate": both,
        "tie_word_embeddings": both,
        "routed_scaling_factor": {1.0, 2.5},
        "routed_expert_hidden_size": {None, 32},
        "num_experts_per_token": {1, 2, 4},
        "num_shared_experts": {0, 1, 2, 3},
        "first_k_dense_replace": {0, 1, 2},
        "moe_layer_freq": {1, 2},
        "gate_lower_bound": {None, -5.0},
        "activation_situ_linear_beta": {None, 25.0},
        "q_lora_rank": {None, 24},
        "attn_res_block_size": {None, 1, 12},
        "num_attention_heads": {1, 3, 5},
        "num_heads": {1, 3, 5},
        "head_dim": {8, 16, 24},
        "hidden_size": {33, 40, 100},
    }
    for name, values in needed.items():
        assert values <= seen[name], name


def test_overrides_are_taken_and_unknown_ones_refused() -> None:
    for seed in SEEDS:
        raw = random_config(random.Random(seed), layers="MKKM", nested=False, hidden_size=40, head_dim=8, gate_lower_bound=None)
        assert "text_config" not in raw
        assert raw["linear_attn_config"]["full_attn_layers"] == [1, 4]
        assert raw["linear_attn_config"]["kda_layers"] == [2, 3]
        assert (raw["num_hidden_layers"], raw["hidden_size"]) == (4, 40)
        assert (raw["linear_attn_config"]["head_dim"], raw["linear_attn_config"]["gate_lower_bound"]) == (8, None)
    with pytest.raises(TypeError, match="hiden_size"):
        random_config(random.Random(0), hiden_size=40)
    with pytest.raises(TypeError, match="layers has 2"):
        random_config(random.Random(0), layers="KM", num_hidden_layers=3)


def test_released_values_keep_the_names_and_shapes_of_the_release() -> None:
    """The table of the specification's section 3.2, scaled down; the census of its section 3.1 at this size."""
    raw = random_config(
        random.Random(0),
        layers="KKKMM",
        hidden_size=64,
        num_heads=3,
        head_dim=16,
        short_conv_kernel_size=4,
        use_full_rank_gate=True,
        num_attention_heads=3,
        q_lora_rank=24,
        kv_lora_rank=16,
        qk_nope_head_dim=16,
        qk_rope_head_dim=8,
        v_head_dim=16,
        mla_use_output_gate=True,
        num_experts=5,
        num_shared_experts=2,
        moe_intermediate_size=96,
        routed_expert_hidden_size=32,
        latent_moe_use_norm=True,
        first_k_dense_replace=1,
        moe_layer_freq=1,
        attn_res_block_size=2,
        tie_word_embeddings=False,
        vocab_size=64,
        intermediate_size=100,
    )
    shapes = {t.name: (t.values.shape, t.dtype) for t in make_tensors(raw, 0)}
    experts = [name for name in shapes if ".experts." in name]
    assert len(experts) == 4 * 5 * 3 * 2
    # Six common tensors a layer, 14 of KDA, 8 of MLA, 8 of the trunk of MoE, 3 of the dense MLP, 5 at the top.
    assert len(shapes) - len(experts) == 5 * 6 + 3 * 14 + 2 * 8 + 4 * 8 + 3 + 5
    assert shapes["model.layers.1.self_attn.q_conv1d.weight"] == ((48, 1, 4), "F32")
    assert shapes["model.layers.1.self_attn.A_log"] == ((128,), "F32")
    assert shapes["model.layers.1.self_attn.dt_bias"] == ((48,), "F32")
    assert shapes["model.layers.1.self_attn.o_norm.weight"] == ((16,), "F32")
    assert shapes["model.layers.1.self_attn.f_b_proj.weight"] == ((48, 16), "BF16")
    assert shapes["model.layers.3.self_attn.kv_b_proj.weight"] == ((96, 16), "BF16")
    assert shapes["model.layers.3.self_attn.q_b_proj.weight"] == ((72, 24), "BF16")
    assert shapes["model.layers.3.self_attn.kv_a_proj_with_mqa.weight"] == ((24, 64), "BF16")
    assert shapes["model.layers.3.block_sparse_moe.gate.e_score_correction_bias"] == ((5,), "F32")
    assert shapes["model.layers.3.block_sparse_moe.shared_experts.down_proj.weight"] == ((64, 192), "BF16")
    assert shapes["model.layers.3.block_sparse_moe.experts.4.w1.weight_packed"] == ((96, 16), "U8")
    assert shapes["model.layers.3.block_sparse_moe.experts.4.w2.weight_packed"] == ((32, 48), "U8")
    assert shapes["model.layers.3.block_sparse_moe.experts.4.w2.weight_scale"] == ((32, 3), "U8")
    assert shapes["model.layers.0.mlp.down_proj.weight"] == ((64, 100), "BF16")
    assert shapes["model.layers.0.mlp_res_proj.weight"] == ((1, 64), "BF16")


def test_names_are_those_of_an_oracle(oracle: Path) -> None:
    """From an oracle's own config the generator derives exactly the tensors that the oracle's files hold."""
    raw = json.loads((oracle / "config.json").read_bytes())
    written = {}
    for file in oracle.glob("*.safetensors"):
        with safetensors.safe_open(file, "np") as f:
            for name in f.keys():  # noqa: SIM118  (not a mapping)
                part = f.get_slice(name)
                written[name] = (tuple(part.get_shape()), part.get_dtype())
    a_log_length = next(shape[0] for name, (shape, _) in written.items() if name.endswith("A_log"))
    ours = {f"language_model.{t.name}": (t.values.shape, t.dtype) for t in make_tensors(raw, 0, a_log_length=a_log_length)}
    assert ours == {name: what for name, what in written.items() if name.startswith("language_model.")}


def test_weights_are_the_same_for_a_seed_and_differ_between_seeds() -> None:
    raw = random_config(random.Random(1))
    a, b, c = (make_tensors(raw, seed) for seed in (5, 5, 6))
    assert all(x.name == y.name and np.array_equal(x.values, y.values) for x, y in zip(a, b, strict=True))
    assert sum(np.array_equal(x.values, y.values) for x, y in zip(a, c, strict=True)) == 0


@pytest.mark.parametrize("shards", [1, 2, 3])
@pytest.mark.parametrize("split_layers", [False, True])
def test_files_are_read_by_the_safetensors_library(tmp_path: Path, shards: int, split_layers: bool) -> None:
    raw = random_config(random.Random(2), layers="KMK", tie_word_embeddings=False)
    write_checkpoint(tmp_path, raw, 2, shards=shards, split_layers=split_layers)
    weight_map = json.loads((tmp_path / "model.safetensors.index.json").read_bytes())["weight_map"]
    assert set(weight_map.values()) == {f"model-{i + 1:05d}-of-{shards:06d}.safetensors" for i in range(shards)}
    expected = {f"language_model.{t.name}": t for t in make_tensors(raw, 2)}
    assert weight_map.keys() == expected.keys()
    for file in set(weight_map.values()):
        with safetensors.safe_open(tmp_path / file, "np") as f:
            assert set(f.keys()) == {name for name, where in weight_map.items() if where == file}
            for name in f.keys():  # noqa: SIM118
                assert f.get_tensor(name).tobytes() == expected[name].values.tobytes()
    if not split_layers:
        layers = defaultdict(set)
        for name, file in weight_map.items():
            layers[".".join(name.split(".")[:4])].add(file)
        assert all(len(files) == 1 for name, files in layers.items() if ".layers." in name)


def test_prefix_and_tokenizer(tmp_path: Path) -> None:
    raw = random_config(random.Random(3), vocab_size=270, nested=False)
    write_checkpoint(tmp_path, raw, 3, prefix=False, tokenizer=True)
    names = json.loads((tmp_path / "model.safetensors.index.json").read_bytes())["weight_map"]
    assert all(name.startswith(("model.", "lm_head.")) for name in names)
    lines = (tmp_path / "tiktoken.model").read_text(encoding="ascii").splitlines()
    assert [base64.b64decode(line.split()[0]) for line in lines] == [bytes([i]) for i in range(256)]
    added = json.loads((tmp_path / "tokenizer_config.json").read_bytes())["added_tokens_decoder"]
    assert added[str(raw["eos_token_id"])]["content"] == "<|end_of_msg|>"
    with pytest.raises(ValueError, match="260"):
        write_checkpoint(tmp_path, random_config(random.Random(3), vocab_size=64), 3, tokenizer=True)


def test_every_mechanism_shows(tmp_path: Path) -> None:
    """What the inner formulas see over a set of random checkpoints. Each line is a mechanism that a test could otherwise miss."""
    spy = load_reference("reference_spy")
    seen: dict[str, list[np.ndarray]] = defaultdict(list)

    def watch(name: str, look) -> None:
        plain = getattr(spy, name)

        def watched(*args):
            result = plain(*args)
            look(result, *args)
            return result

        setattr(spy, name, watched)

    watch("decay", lambda g, z, a_log, dt, lower: seen["decay" if lower == -5.0 else "other decay"].append(np.ravel(g)))
    watch("decay", lambda g, z, a_log, dt, lower: seen["factor"].append(np.exp(a_log)))
    watch("l2", lambda y, x: seen["square sum"].append(np.ravel(np.sum(x * x, axis=-1))))
    watch("rms", lambda y, x, w, eps: seen["latent"].append(np.ravel(np.mean(x * x, axis=-1))) if eps == spy.LATENT_EPS else None)
    watch("situ", lambda y, gate, up, c: seen["gate"].append(np.ravel(gate / c["activation_situ_beta"])))
    watch("situ", lambda y, gate, up, c: seen["up"].append(np.ravel(up / (c["activation_situ_linear_beta"] or np.inf))))

    def routed(result, x, w, c) -> None:
        ids, _, _ = result
        s = spy.sigmoid(x @ w("gate.weight").T)
        without = np.sort(np.argsort(-s, axis=-1)[:, : c["num_experts_per_token"]], axis=-1)
        seen["reordered"].append(np.any(ids != without, axis=-1))
        seen["same twice"].append(np.array([len(np.unique(ids))]))

    watch("route", routed)
    for seed in SEEDS:
        raw = random_config(random.Random(seed), rms_norm_eps=1e-5)  # so that the latent norms' epsilon tells them apart
        model = spy.Reference(write_checkpoint(tmp_path / str(seed), raw, seed))
        ids = np.random.default_rng(seed).integers(0, text_config(raw)["vocab_size"], 24).tolist()
        logits = model.forward(ids).logits
        assert np.isfinite(logits).all()
        assert 2 < logits.std() < 12
        assert len(set(logits.argmax(axis=1).tolist())) > 8  # not one answer for everything
    have = {name: np.concatenate(values) for name, values in seen.items()}

    def share(condition: np.ndarray) -> float:
        return float(np.mean(condition))

    assert have["factor"].min() == pytest.approx(0.47, rel=1e-5)
    assert have["factor"].max() == pytest.approx(11.8, rel=1e-5)
    assert share(have["decay"] < -4.95) > 0.05
    assert share(have["decay"] > -0.2) > 0.2
    assert have["other decay"].min() < -5.0  # softplus has no bound
    assert share((have["square sum"] > 1e-7) & (have["square sum"] < 3e-5)) > 0.2
    assert share((have["latent"] > 1e-6) & (have["latent"] < 2e-5)) > 0.8
    assert share(np.abs(have["gate"]) > 1.5) > 0.05
    assert share(np.abs(have["up"]) > 1.0) > 0.02
    assert share(have["reordered"]) > 0.2
    assert have["same twice"].min() >= 2
    assert reference.L2_EPS == spy.L2_EPS
