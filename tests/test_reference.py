"""The float64 reference against the recorded outputs of independent implementations, and against other forms of its own formulas."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from agreement import REFERENCE_FILE, load_reference, reference
from hypothesis import given, settings
from hypothesis import strategies as st
from random_checkpoint import random_config, write_checkpoint
from strategies import checkpoint_options, configs_and_ids

RECORDED = 1e-5  # the recorded values are float64 results rounded to float32


def load(directory: Path) -> tuple[list[int], list[int], list[int]]:
    expected = json.loads((directory / "expected.json").read_bytes())
    return expected["prompt_ids"], expected["greedy_ids"], expected["hidden_positions"]


def test_logits_hidden_states_and_routing_are_those_recorded(oracle: Path) -> None:
    prompt, greedy, positions = load(oracle)
    result = reference.Reference(oracle).forward(prompt + greedy)
    logits, routing = np.load(oracle / "logits.npy"), np.load(oracle / "routing.npz")
    assert result.logits.shape == logits.shape
    assert np.abs(result.logits - logits).max() < RECORDED
    assert np.array_equal(result.logits.argmax(axis=1), logits.argmax(axis=1))
    assert np.abs(result.hidden[:, positions] - np.load(oracle / "hidden.npy")).max() < RECORDED
    assert np.array_equal(np.stack(result.expert_ids), routing["idx"])
    assert np.abs(np.stack(result.expert_weights) - routing["weight"]).max() < 1e-6


def test_greedy_ids_are_those_recorded(oracle: Path) -> None:
    prompt, greedy, _ = load(oracle)
    model = reference.Reference(oracle)
    assert model.forward(prompt + greedy).logits.argmax(axis=1)[len(prompt) - 1 : -1].tolist() == greedy
    assert model.greedy(prompt, 3) == greedy[:3]


def test_router_margins_are_those_recorded(oracle: Path) -> None:
    prompt, greedy, _ = load(oracle)
    recorded = json.loads((oracle / "expected.json").read_bytes())["comparison"]["route_margin"]
    margins = reference.Reference(oracle).forward(prompt + greedy).router_margins
    assert min(m.min() for m in margins) == pytest.approx(recorded, abs=1e-6)


def test_command_line(oracle: Path, tmp_path: Path) -> None:
    prompt, greedy, _ = load(oracle)
    argv = [sys.executable, str(REFERENCE_FILE), str(oracle), "--ids", ",".join(map(str, prompt)), "-n", "2", "-o", str(tmp_path / "l.npy")]
    printed = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    assert printed.strip() == ",".join(map(str, prompt + greedy[:2]))
    assert np.abs(np.load(tmp_path / "l.npy") - np.load(oracle / "logits.npy")[: len(prompt) + 2]).max() < RECORDED


# --- MXFP4 ----------------------------------------------------------------------------------------------------------------------


def test_mxfp4_against_ml_dtypes() -> None:
    rng = np.random.default_rng(0)
    packed, scale = rng.integers(0, 256, (7, 48), np.uint8), rng.integers(0, 255, (7, 3), np.uint8)
    codes = np.stack([packed & 15, packed >> 4], axis=-1).reshape(7, 96)
    values = codes.view(ml_dtypes.float4_e2m1fn).astype(np.float64).reshape(7, 3, 32)
    expected = values * scale.view(ml_dtypes.float8_e8m0fnu).astype(np.float64)[:, :, None]
    assert np.array_equal(reference.mxfp4(packed, scale), expected.reshape(7, 96))


def test_mxfp4_released_rows(shared_data: Path) -> None:
    packed = np.fromfile(shared_data / "k3-mxfp4-expert-w1-64rows.packed.bin", np.uint8).reshape(64, 1792)
    scale = np.fromfile(shared_data / "k3-mxfp4-expert-w1-64rows.scales.bin", np.uint8).reshape(64, 112)
    decoded = reference.mxfp4(packed, scale)
    assert decoded.shape == (64, 3584)
    published = [0.0625, 0.0078125, -0.0078125, -0.0234375, -0.0625, -0.03125, 0.0234375, 0.015625]
    assert decoded[0, :8].tolist() == published


def test_mxfp4_scale_of_nan_is_zero_and_of_zero_is_subnormal() -> None:
    packed = np.full((1, 32), 0x22, np.uint8)  # 1.0 everywhere
    decoded = reference.mxfp4(packed, np.array([[255, 0]], np.uint8))
    assert not decoded[0, :32].any()
    assert (decoded[0, 32:] == 2.0**-127).all()


# --- other forms of the same formulas -------------------------------------------------------------------------------------------


def absorbed(q_n: np.ndarray, q_r: np.ndarray, lat: np.ndarray, k_r: np.ndarray, kv_b: np.ndarray) -> np.ndarray:
    """Section 6, absorbed form: keys and values are never expanded."""
    n, r = q_n.shape[2], q_r.shape[2]
    folded = np.einsum("hdc,thd->thc", kv_b[:, :n], q_n)
    score = (n + r) ** -0.5 * (np.einsum("thc,sc->hts", folded, lat) + np.einsum("thd,sd->hts", q_r, k_r))
    p = reference.softmax(np.where(np.tri(len(lat), dtype=bool), score, -np.inf))
    return np.einsum("hdc,thc->thd", kv_b[:, n:], np.einsum("hts,sc->thc", p, lat))


def chunked(q: np.ndarray, k: np.ndarray, v: np.ndarray, alpha: np.ndarray, beta: np.ndarray, size: int = 7) -> np.ndarray:
    """Section 5.1, one head at a time."""
    out = np.zeros_like(v)
    for h in range(q.shape[1]):
        state = np.zeros((q.shape[2], q.shape[2]))
        for start in range(0, len(q), size):
            at = slice(start, min(start + size, len(q)))
            c = np.cumsum(np.log(alpha[at, h]), axis=0)
            k_up, k_down, q_up = k[at, h] * np.exp(c), k[at, h] * np.exp(-c), q[at, h] * np.exp(c)
            akk = np.tril(beta[at, h, None] * (k_up @ k_down.T), -1)
            u = np.linalg.solve(np.eye(len(c)) + akk, beta[at, h, None] * (v[at, h] - k_up @ state))
            out[at, h] = q_up @ state + np.tril(q_up @ k_down.T) @ u
            state = np.exp(c[-1])[:, None] * (state + k_down.T @ u)
    return out


def test_absorbed_and_chunked_forms_give_the_same_logits(oracle: Path) -> None:
    prompt, greedy, _ = load(oracle)
    other = load_reference("reference_other_forms")
    other.attend, other.recurrence = absorbed, chunked
    result = other.Reference(oracle).forward(prompt + greedy)
    assert np.abs(result.logits - np.load(oracle / "logits.npy")).max() < RECORDED


@settings(max_examples=25)
@given(configs_and_ids(min_size=2, gate_lower_bound=-5.0), st.integers(0, 99))
def test_other_forms_on_random_checkpoints(tmp_path_factory: pytest.TempPathFactory, drawn: tuple[dict, list[int]], seed: int) -> None:
    raw, ids = drawn
    directory = write_checkpoint(tmp_path_factory.mktemp("random"), raw, seed)
    expected = reference.Reference(directory).forward(ids).logits
    other = load_reference("reference_other_forms")
    other.attend, other.recurrence = absorbed, chunked
    assert np.abs(other.Reference(directory).forward(ids).logits - expected).max() < 1e-6


@settings(max_examples=20)
@given(configs_and_ids(min_size=3), st.integers(0, 99))
def test_no_token_sees_a_later_one(tmp_path_factory: pytest.TempPathFactory, drawn: tuple[dict, list[int]], seed: int) -> None:
    raw, ids = drawn
    model = reference.Reference(write_checkpoint(tmp_path_factory.mktemp("random"), raw, seed))
    whole, part = model.forward(ids), model.forward(ids[:-1])
    assert np.abs(whole.logits[:-1] - part.logits).max() < 1e-7
    assert np.abs(whole.hidden[:, :-1] - part.hidden).max() < 1e-7


@settings(max_examples=15)
@given(checkpoint_options(), st.integers(0, 99))
def test_how_a_checkpoint_is_written_changes_nothing(tmp_path_factory: pytest.TempPathFactory, options: dict, seed: int) -> None:
    raw = random_config(random.Random(seed))
    plain = reference.Reference(write_checkpoint(tmp_path_factory.mktemp("plain"), raw, seed)).forward([1, 2, 3, 1])
    other = reference.Reference(write_checkpoint(tmp_path_factory.mktemp("other"), raw, seed, **options)).forward([1, 2, 3, 1])
    assert np.array_equal(plain.logits, other.logits)
