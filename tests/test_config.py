"""config.json: what is read, what is refused and in which words. Expected values are those of kimi-k3.md section 2."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers_checkpoint import QUANTIZATION, RELEASED_TEXT, encoded, nested, small_text
from hypothesis import given, settings
from hypothesis import strategies as st

from lilliput.errors import ConfigError
from lilliput.model.config import Config, config_from_json, eos_ids, read_config, read_generation_config
from lilliput.model.layout import layout


def read(config: dict[str, Any] | bytes) -> Config:
    return config_from_json(config if isinstance(config, bytes) else encoded(config), "config.json")


def refused(config: dict[str, Any] | bytes) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        read(config)
    assert caught.value.exit_code == 2
    return caught.value


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    text = small_text()
    change(text)
    return nested(text)


def with_value(path: str, value: object) -> dict[str, Any]:
    """The small config with one value replaced; `path` as in messages, below text_config."""
    text = small_text()
    *owners, field = path.split(".")
    owner = text
    for name in owners:
        owner = owner[name]
    owner[field] = value
    return nested(text)


def test_released() -> None:
    c = read(nested(RELEASED_TEXT))
    assert (c.vocab_size, c.hidden_size, c.num_layers, c.intermediate_size) == (163840, 7168, 93, 33792)
    assert (c.first_k_dense_replace, c.moe_layer_freq, c.rms_norm_eps) == (1, 1, 1e-5)
    assert (c.situ_beta, c.situ_linear_beta, c.attn_res_block_size, c.tie_word_embeddings) == (4.0, 25.0, 12, False)
    assert [i for i, kda in enumerate(c.is_kda) if not kda] == [*range(3, 92, 4), 92]
    k, m, e = c.kda, c.mla, c.moe
    assert (k.num_heads, k.head_dim, k.conv_kernel, k.gate_lower_bound, k.full_rank_gate) == (96, 128, 4, -5.0, True)
    assert (m.num_heads, m.q_lora_rank, m.kv_lora_rank, m.qk_nope_head_dim) == (96, 1536, 512, 128)
    assert (m.qk_rope_head_dim, m.v_head_dim, m.output_gate) == (64, 128, True)
    assert (e.num_experts, e.top_k, e.num_shared_experts, e.intermediate_size) == (896, 16, 2, 3072)
    assert (e.latent_size, e.latent_norm, e.renormalize, e.scaling_factor) == (3584, True, True, 1.0)
    assert c.eos_ids == (163586,)
    assert not c.is_moe(0)
    assert all(c.is_moe(i) for i in range(1, 93))


def test_oracles_are_read(oracle: Path) -> None:
    assert layout(read_config(oracle)).experts is not None


def test_flat_is_the_same() -> None:
    assert read(small_text()) == read(nested(small_text(), eos_token_id=38))
    assert read(small_text(model_type="kimi_k3")) == read(small_text())


NEVER_REQUIRED = {
    *("architectures", "max_position_embeddings", "bos_token_id", "pad_token_id", "eos_token_id", "dtype", "initializer_range"),
    *("model_type", "use_cache", "num_nextn_predict_layers", "max_length", "do_sample", "top_k", "repetition_penalty"),
}
IN_TEXT = sorted(set(RELEASED_TEXT) - NEVER_REQUIRED)
IN_LINEAR = [f"linear_attn_config.{name}" for name in RELEASED_TEXT["linear_attn_config"]]
QUANTIZATION_FIELDS = ["quant_method", "format", "config_groups"]
WEIGHT_FIELDS = ["num_bits", "type", "strategy", "group_size", "symmetric"]
IN_QUANTIZATION = [f"quantization_config.{name}" for name in QUANTIZATION_FIELDS]
IN_WEIGHTS = [f"quantization_config.config_groups.group_0.weights.{name}" for name in WEIGHT_FIELDS]
EVERY_FIELD = [*IN_TEXT, *IN_LINEAR, *IN_QUANTIZATION, "quantization_config.config_groups.group_0.weights", *IN_WEIGHTS]


@pytest.mark.parametrize("flat", [False, True], ids=["nested", "flat"])
@pytest.mark.parametrize("path", EVERY_FIELD)
def test_each_required_field_is_missed_by_name(path: str, flat: bool) -> None:
    text = small_text()
    *owners, field = path.split(".")
    owner = text
    for name in owners:
        owner = owner[name]
    del owner[field]
    error = refused(text if flat else nested(text))
    full = path if flat else f"text_config.{path}"
    assert [p.what for p in error.problems] == [full]
    assert error.found == "nothing (this field is required; it has no default)"
    assert f"config.json: {full}: needed " in str(error)


@pytest.mark.parametrize("field", sorted(NEVER_REQUIRED))
def test_fields_without_a_meaning_may_be_absent(field: str) -> None:
    text = small_text()
    del text[field]
    read(nested(text))
    if field != "model_type":
        read(small_text() | {field: None})


def test_thirty_fields_at_least_are_required() -> None:
    assert len(EVERY_FIELD) >= 45


INTEGERS = [
    *("vocab_size", "hidden_size", "num_hidden_layers", "intermediate_size", "first_k_dense_replace", "moe_layer_freq"),
    *("attn_res_block_size", "num_attention_heads", "num_key_value_heads", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim"),
    *("qk_rope_head_dim", "v_head_dim", "num_experts", "num_experts_per_token", "num_shared_experts", "moe_intermediate_size"),
    *("routed_expert_hidden_size", "linear_attn_config.num_heads", "linear_attn_config.head_dim"),
    "linear_attn_config.short_conv_kernel_size",
]
NUMBERS = [
    *("activation_situ_beta", "activation_situ_linear_beta", "rms_norm_eps", "routed_scaling_factor"),
    "linear_attn_config.gate_lower_bound",
]
FLAGS = [
    *("mla_use_nope", "mla_use_output_gate", "latent_moe_use_norm", "moe_renormalize", "use_grouped_topk", "tie_word_embeddings"),
    "linear_attn_config.use_full_rank_gate",
]
MAY_BE_ZERO = {"first_k_dense_replace", "num_shared_experts"}
NULL = {"gate_lower_bound", "activation_situ_linear_beta", "routed_expert_hidden_size", "q_lora_rank", "attn_res_block_size"}


def mistyped() -> list[tuple[str, object]]:
    cases: list[tuple[str, object]] = []
    for field in INTEGERS:
        cases += [(field, v) for v in (True, "4", 4.0, -1, 2**31, [4], {})]
        cases += [] if field in MAY_BE_ZERO else [(field, 0)]
    for field in NUMBERS:
        cases += [(field, v) for v in (True, "4.0", 0, 0.0, 1e-46, 1e39, [1.0])]
        cases.append((field, 5.0 if field.endswith("gate_lower_bound") else -5.0))
    for field in FLAGS:
        cases += [(field, v) for v in (0, 1, "true", [])]
    cases += [(f, None) for f in INTEGERS + NUMBERS + FLAGS if f.split(".")[-1] not in NULL]
    return cases


@pytest.mark.parametrize(("path", "value"), mistyped(), ids=lambda v: str(v))
def test_no_value_is_coerced(path: str, value: object) -> None:
    error = refused(with_value(path, value))
    assert f"text_config.{path}" in {p.what for p in error.problems}
    assert all(p.needed and p.found for p in error.problems)


@pytest.mark.parametrize("path", NUMBERS)
@pytest.mark.parametrize("spelling", ["NaN", "Infinity", "-Infinity", "1e400"])
def test_numbers_are_finite(path: str, spelling: str) -> None:
    raw = encoded(with_value(path, "HERE")).replace(b'"HERE"', spelling.encode())
    assert refused(raw)


def test_an_integer_is_a_number() -> None:
    assert read(with_value("activation_situ_beta", 4)).situ_beta == 4.0
    assert read(with_value("linear_attn_config.gate_lower_bound", -5)).kda.gate_lower_bound == -5.0


def test_explicit_null_has_its_meaning() -> None:
    assert read(with_value("linear_attn_config.gate_lower_bound", None)).kda.gate_lower_bound is None
    assert read(with_value("activation_situ_linear_beta", None)).situ_linear_beta is None
    assert read(with_value("q_lora_rank", None)).mla.q_lora_rank is None
    full = read(with_value("routed_expert_hidden_size", None))
    plain = read(with_value("attn_res_block_size", None))
    assert full.moe.latent_size is None
    assert plain.attn_res_block_size is None
    names = {t.name for t in layout(full).trunk} | {t.name for t in layout(plain).trunk}
    assert not any("output_attn_res" in t.name or "_res_" in t.name for t in layout(plain).trunk)
    assert not any("routed_expert" in t.name for t in layout(full).trunk)
    assert "model.norm.weight" in names
    assert layout(full).experts.shapes[0] == (32, 16)  # type: ignore[union-attr]  # hidden_size 32


REFUSED: list[tuple[str, object, str]] = [
    ("hidden_act", "silu", "no other activation"),
    ("moe_router_activation_func", "softmax", "no other router"),
    ("topk_method", "greedy", "noaux_tc"),
    ("num_expert_group", 2, "grouped routing"),
    ("topk_group", 2, "grouped routing"),
    ("num_expert_group", True, "grouped routing"),
    ("mla_use_nope", False, "rotary"),
    ("rope_scaling", {"type": "yarn"}, "rotary"),
    ("rope_theta", 10000.0, "rotary"),
    ("attention_bias", True, "bias"),
    ("sliding_window", 4096, "every position"),
    ("num_nextn_predict_layers", 1, "multi-token prediction"),
    ("num_nextn_predict_layers", "0", "multi-token prediction"),
    ("num_key_value_heads", 1, "num_attention_heads, 2"),
    ("num_experts_per_token", 4, "at most num_experts, 3"),
    ("first_k_dense_replace", 4, "in 0..3"),
    ("model_type", "kimi_k2", "Kimi K3"),
    ("model_type", "kimi_k3", "Kimi K3"),
    ("routed_expert_hidden_size", 48, "a multiple of 32"),
    ("moe_intermediate_size", 40, "a multiple of 32"),
    ("eos_token_id", "38", "a token id or a list"),
    ("eos_token_id", [38, -1], "a token id or a list"),
    ("eos_token_id", True, "a token id or a list"),
    ("linear_attn_config", [], "an object"),
    ("quantization_config", None, "MXFP4"),
    ("quantization_config.quant_method", "fp8", "compressed-tensors"),
    ("quantization_config.format", "pack-quantized", "mxfp4-pack-quantized"),
    ("quantization_config.config_groups", {}, "at least one group"),
    ("quantization_config.kv_cache_scheme", {"num_bits": 8}, "not quantized"),
    ("quantization_config.config_groups.group_0.format", "nvfp4-pack-quantized", "mxfp4-pack-quantized"),
    ("quantization_config.config_groups.group_0.input_activations", {"num_bits": 8}, "activations are not quantized"),
    ("quantization_config.config_groups.group_0.weights.num_bits", 8, "MXFP4"),
    ("quantization_config.config_groups.group_0.weights.num_bits", 4.0, "MXFP4"),
    ("quantization_config.config_groups.group_0.weights.type", "int", "MXFP4"),
    ("quantization_config.config_groups.group_0.weights.group_size", 16, "MXFP4"),
    ("quantization_config.config_groups.group_0.weights.strategy", "tensor_group", "MXFP4"),
    ("quantization_config.config_groups.group_0.weights.symmetric", False, "MXFP4"),
    ("quantization_config.config_groups.group_0.weights.actorder", "group", "MXFP4"),
]


@pytest.mark.parametrize(("path", "value", "reason"), REFUSED, ids=lambda v: str(v)[:40])
def test_other_models_are_refused_with_a_reason(path: str, value: object, reason: str) -> None:
    error = refused(with_value(path, value))
    assert error.what == f"text_config.{path}"
    assert reason in error.needed
    assert len(error.problems) == 1


LISTS: list[tuple[object, object, str, str]] = [
    ([1, 2, 3], [3], "kda_layers and full_attn_layers", "3 in both"),
    ([1], [3], "kda_layers and full_attn_layers", "2 in neither"),
    ([0, 1], [2], "kda_layers", "0 outside of it"),
    ([1, 2], [4], "full_attn_layers", "4 outside of it"),
    ([1, 2, 2], [3], "kda_layers", "2 more than once"),
    ([1, 2.0], [3], "kda_layers", "2.0"),
    ([1, True], [3], "kda_layers", "true"),
    ([1, "2"], [3], "kda_layers", '"2"'),
    ("1, 2", [3], "kda_layers", '"1, 2"'),
    (None, [3], "kda_layers", "null"),
]


@pytest.mark.parametrize(("kda", "full", "field", "found"), LISTS, ids=lambda v: str(v))
def test_layer_lists_partition(kda: object, full: object, field: str, found: str) -> None:
    error = refused(nested(small_text({"kda_layers": kda, "full_attn_layers": full})))
    problems = {p.what: p.found for p in error.problems}
    assert problems[f"text_config.linear_attn_config.{field}"] == found


def test_zero_based_lists_are_told_apart() -> None:
    """Layers 0..2 instead of 1..3: both ends are named."""
    error = refused(nested(small_text({"kda_layers": [0, 1], "full_attn_layers": [2]})))
    assert "0 outside of it" in str(error)
    assert "3 in neither" in str(error)


def test_a_released_list_shifted_by_one() -> None:
    text = copy.deepcopy(RELEASED_TEXT)
    text["linear_attn_config"]["full_attn_layers"] = [n - 1 for n in text["linear_attn_config"]["full_attn_layers"]]
    assert "3, 7, 11" in str(refused(nested(text)))


def test_all_complaints_at_once() -> None:
    text = small_text({"num_heads": "3", "kda_layers": [1]}, hidden_act="gelu", rms_norm_eps=None)
    del text["vocab_size"], text["kv_lora_rank"], text["linear_attn_config"]["gate_lower_bound"]
    error = refused(nested(text))
    linear = {"num_heads", "gate_lower_bound", "kda_layers and full_attn_layers"}
    expected = {"hidden_act", "rms_norm_eps", "vocab_size", "kv_lora_rank"} | {f"linear_attn_config.{n}" for n in linear}
    assert {p.what for p in error.problems} == {f"text_config.{n}" for n in expected}
    assert all(p.what in str(error) for p in error.problems)


def test_a_broken_size_raises_no_complaint_about_others() -> None:
    for path in ("num_hidden_layers", "num_experts", "num_attention_heads", "moe_intermediate_size", "routed_expert_hidden_size"):
        error = refused(with_value(path, "x"))
        assert [p.what for p in error.problems] == [f"text_config.{path}"]


def variant(linear: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    return nested(small_text(linear, **changes))


VARIANTS = {
    "kernel 2": variant({"short_conv_kernel_size": 2}),
    "kernel 3": variant({"short_conv_kernel_size": 3}),
    "low-rank gate": variant({"use_full_rank_gate": False}),
    "top-1": variant(num_experts_per_token=1),
    "first layer MLA": variant({"full_attn_layers": [1], "kda_layers": [2, 3]}),
    "all MLA": variant({"full_attn_layers": [1, 2, 3], "kda_layers": []}),
    "all KDA": variant({"full_attn_layers": [], "kda_layers": [3, 1, 2]}),
    "block 1": variant(attn_res_block_size=1),
    "block 12": variant(attn_res_block_size=12),
    "odd sizes": variant({"num_heads": 5, "head_dim": 7}, hidden_size=33, vocab_size=41, v_head_dim=3, kv_lora_rank=9, q_lora_rank=11),
    "no shared experts": variant(num_shared_experts=0),
    "three shared experts": variant(num_shared_experts=3),
    "no latent norm": variant(latent_moe_use_norm=False),
    "every layer MoE": variant(first_k_dense_replace=0),
    "no layer MoE": variant(first_k_dense_replace=3),
    "every second": variant(moe_layer_freq=2),
    "tied": nested(small_text(tie_word_embeddings=True), tie_word_embeddings=True),
    "no output gate": variant(mla_use_output_gate=False),
    "not renormalized": variant(moe_renormalize=False, routed_scaling_factor=2.5),
    "no grouping": variant(use_grouped_topk=False),
    "head_dim is nobody's": variant(head_dim=74),
    "rope null": variant(rope_theta=None, rope_scaling=None),
}


@pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS)
def test_supported_variants(config: dict[str, Any]) -> None:
    assert layout(read(config)).trunk


def test_dense_models_need_no_quantization() -> None:
    text = small_text(first_k_dense_replace=3, moe_intermediate_size=33)
    del text["quantization_config"]
    assert layout(read(nested(text))).experts is None


def test_quantization_at_the_top() -> None:
    """transformers writes it at the top level when it saves a model again; both places are checked."""
    text = small_text()
    del text["quantization_config"]
    read(nested(text, quantization_config=QUANTIZATION))
    assert refused(nested(text, quantization_config=QUANTIZATION | {"format": "x"})).what == "quantization_config.format"
    assert refused(nested(small_text(), quantization_config={"quant_method": "fp8"}))


def test_tied_levels_must_agree() -> None:
    assert refused(nested(small_text(tie_word_embeddings=True))).what == "tie_word_embeddings"


def test_wrapper_of_another_model() -> None:
    assert refused(nested(small_text(), model_type="kimi_vl")).what == "model_type"
    assert refused({"text_config": None}).what == "text_config"
    assert refused({"text_config": []}).what == "text_config"


MALFORMED: list[tuple[bytes, str]] = [
    (b"", "valid JSON"),
    (b"{", "valid JSON"),
    (b"[1]", "a JSON object"),
    (b"null", "a JSON object"),
    (b'"text"', "a JSON object"),
    (b"{}{}", "valid JSON"),
    (b"\xff\xfe{}", "not UTF-8"),
    (b'{"a": NaN}', "NaN is not JSON"),
    (b'{"a": Infinity}', "Infinity is not JSON"),
    (b'{"a": 1, "a": 1}', "this key once"),
    (b'{"text_config": {"hidden_size": 1, "hidden_size": 2}}', "hidden_size: needed this key once, found it 2 times"),
    (b"[" * 100_000, "nesting too deep"),
    (b'{"a":' + b"9" * 10_000 + b"}", "valid JSON"),
    (b"<!DOCTYPE html>", "valid JSON"),
    (b"{'a': 1}", "valid JSON"),
    (b'{"a": 1,}', "valid JSON"),
    (b"\0" * 100, "valid JSON"),
]


@pytest.mark.parametrize(("raw", "message"), MALFORMED, ids=[m[0][:20].hex() for m in MALFORMED])
def test_malformed_files(raw: bytes, message: str) -> None:
    assert message in str(refused(raw))


def test_a_byte_order_mark_is_no_fault() -> None:
    read(b"\xef\xbb\xbf" + encoded(nested(small_text())))


def test_messages_stay_short_and_on_one_line() -> None:
    error = refused(with_value("hidden_act", "\x1b[31mred\n" * 1000))
    assert "\x1b" not in str(error)
    assert len(str(error)) < 500
    error = refused(nested(small_text({"kda_layers": list(range(5, 5000))})))
    assert len(str(error)) < 1000


def test_no_config_at_all(tmp_path: Path) -> None:
    place = tmp_path / "my model"
    place.mkdir()
    with pytest.raises(ConfigError, match=r"hf download moonshotai/Kimi-K3 --local-dir '.*my model'") as caught:
        read_config(place)
    assert caught.value.found == "nothing"
    (place / "config.json").mkdir()
    with pytest.raises(ConfigError, match="a regular file"):
        read_config(place)


def test_huge_config(tmp_path: Path) -> None:
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(10**12)
    with pytest.raises(ConfigError, match="1,000,000,000,000 bytes"):
        read_config(tmp_path)


def test_sizes_that_would_allocate_are_refused() -> None:
    for path in ("num_hidden_layers", "num_experts"):
        assert refused(with_value(path, 2**31 - 1)).what == f"text_config.{path}"


GENERATION: list[tuple[object, tuple[int, ...]]] = [
    ({"max_length": 4096, "eos_token_id": 163586}, (163586,)),
    ({"eos_token_id": [7, 5, 7]}, (5, 7)),
    ({}, ()),
    ({"eos_token_id": None}, ()),
]


@pytest.mark.parametrize(("content", "ids"), GENERATION)
def test_generation_config(tmp_path: Path, content: object, ids: tuple[int, ...]) -> None:
    (tmp_path / "generation_config.json").write_text(json.dumps(content))
    assert read_generation_config(tmp_path) == ids


BAD_GENERATION = ["{", "[]", '{"eos_token_id": "5"}', '{"eos_token_id": [5.0]}', '{"eos_token_id": 1, "eos_token_id": 2}']


@pytest.mark.parametrize("content", BAD_GENERATION)
def test_malformed_generation_config(tmp_path: Path, content: str) -> None:
    (tmp_path / "generation_config.json").write_text(content)
    with pytest.raises(ConfigError, match="generation_config"):
        read_generation_config(tmp_path)


def test_eos_ids_are_the_union_of_three_places(tmp_path: Path) -> None:
    config = read(nested(small_text(eos_token_id=[38, 30]), eos_token_id=31))
    assert config.eos_ids == (30, 31, 38)
    assert eos_ids(tmp_path, config) == (30, 31, 38)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [32, 30]}')
    assert eos_ids(tmp_path, config) == (30, 31, 32, 38)
    text = small_text()
    del text["eos_token_id"]
    alone = nested(text)
    del alone["eos_token_id"]
    assert eos_ids(tmp_path, read(alone)) == (30, 32)


def test_placeholders_of_images_at_either_level() -> None:
    assert read(nested(small_text(), media_placeholder_token_id=36)).media_ids == (36,)
    assert read(nested(small_text(media_placeholder_token_id=[35, 36]), media_placeholder_token_id=36)).media_ids == (35, 36)
    assert refused(nested(small_text(), media_placeholder_token_id="36")).what == "media_placeholder_token_id"


def test_a_dangling_generation_config_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").symlink_to(tmp_path / "gone")
    with pytest.raises(ConfigError, match="generation_config"):
        read_generation_config(tmp_path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=300)
@given(paths=st.lists(st.sampled_from([*EVERY_FIELD, "rope_theta", "num_nextn_predict_layers", "eos_token_id"]), max_size=3), value=JSON)
def test_fuzz(paths: list[str], value: object) -> None:
    """Any JSON in any field: a configuration or a ConfigError that can be printed, nothing else."""
    text = small_text()
    for path in paths:
        *owners, field = path.split(".")
        owner: Any = text
        for name in owners:
            owner = owner.get(name) if isinstance(owner, dict) else None
        if isinstance(owner, dict):
            owner[field] = copy.deepcopy(value)
    try:
        assert layout(read(nested(text))).trunk
    except ConfigError as error:
        assert str(error).encode()  # noqa: PT017


def test_fuzz_bytes() -> None:
    """Flipped and dropped bytes of a whole file."""
    raw = encoded(nested(small_text()))
    rng = random.Random(7)
    refusals = 0
    for _ in range(1000):
        data = bytearray(raw)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(data))
            data[at : at + rng.randint(0, 2)] = bytes([rng.choice((rng.randrange(256), *b'"{}[]:,01-.eE'))])
        try:
            read(bytes(data))
        except ConfigError as error:
            refusals += 1 if str(error) else 0
    assert 200 < refusals <= 1000


def test_a_convolution_longer_than_its_kernel_is_refused_before_it_starts() -> None:
    assert read(with_value("linear_attn_config.short_conv_kernel_size", 8)).kda.conv_kernel == 8
    error = refused(with_value("linear_attn_config.short_conv_kernel_size", 9))
    assert (error.what, error.needed) == ("text_config.linear_attn_config.short_conv_kernel_size", "an integer in 1..8")
