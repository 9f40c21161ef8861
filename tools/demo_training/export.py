"""Write a trained network in the released file layout, and what torch computes from the written files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from demo_training.network import Network, greedy
from demo_training.release import load_release, tensors
from demo_training.shape import raw_demo_config, raw_demo_generation_config
from lilliput.synth.shards import Shard, index_json, plan, pretty
from lilliput.text.tokenizer import Tokenizer
from lilliput.text.vocabulary import NAMES_FILE, RANKS_FILE
from lilliput.weights.catalogue import PREFIX
from lilliput.weights.shards import INDEX

LARGEST_SHARD = 2_400_000  # bytes: what one file of the repository may have
LOGIT_TOKENS, GREEDY_TOKENS = 48, 64
CLEAR_MARGIN = 0.01  # logits: far above the difference between two float32 programs


def export(network: Network, text: Path, out: Path) -> dict[str, int]:
    """Write config, index, shards and tokenizer (copied from `text`) into `out`; file name → bytes.

    One shard for each layer and one for embedding, head and final norm. Other files in `out` stay, old shards do not.
    """
    stored = tensors(network)
    shards = plan(network.config, vision=False)
    for shard in shards:
        if shard.size > LARGEST_SHARD:
            raise ValueError(f"{shard.file}: needed at most {LARGEST_SHARD:,} bytes, found {shard.size:,}")
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").unlink(missing_ok=True)  # written last: without it nothing is a checkpoint
    for old in out.glob("model-*.safetensors"):
        old.unlink()
    for shard in shards:
        (out / shard.file).write_bytes(_contents(shard, stored))
    (out / INDEX).write_bytes(index_json(shards))
    for name in (RANKS_FILE, NAMES_FILE):
        shutil.copyfile(text / name, out / name)
    (out / "generation_config.json").write_text(json.dumps(raw_demo_generation_config()))
    (out / "config.json").write_bytes(pretty(raw_demo_config()))
    return {p.name: p.stat().st_size for p in sorted(out.iterdir()) if p.is_file()}


def _contents(shard: Shard, stored: dict[str, np.ndarray]) -> bytes:
    parts = [shard.header]
    for tensor in shard.tensors:
        data = stored[tensor.name.removeprefix(PREFIX)].tobytes()
        padding = tensor.nbytes - len(data)
        if padding and not tensor.name.endswith(".A_log"):
            raise ValueError(f"{tensor.name}: needed {tensor.nbytes} bytes, found {len(data)}")
        parts.append(data + bytes(padding))
    return b"".join(parts)


def expected(model: Path, out: Path, heldout: Sequence[int], prompts: dict[str, Sequence[int]]) -> dict[str, Any]:
    """Torch's float32 results on the written checkpoint, for the tests: `logits.npy` and `expected.json` in `out`.

    `heldout` are the ids whose logits are recorded. Of `prompts` (name → ids) those are kept, in order, whose greedy continuation
    never has to choose between logits closer than `CLEAR_MARGIN`, until there are three; ValueError if there are fewer.
    """
    network = load_release(model)
    ids = list(heldout)[:LOGIT_TOKENS]
    logits = network.logits(ids).numpy()
    kept: list[dict[str, Any]] = []
    for name, prompt in prompts.items():
        new = greedy(network.logits, prompt, GREEDY_TOKENS)
        ranked = np.sort(network.logits([*prompt, *new]).numpy(), axis=1)
        margin = float((ranked[:, -1] - ranked[:, -2])[len(prompt) - 1 : -1].min())
        if margin >= CLEAR_MARGIN:
            kept.append({"name": name, "prompt_ids": list(prompt), "greedy_ids": new, "smallest_margin": margin})
        if len(kept) == 3:
            break
    else:
        raise ValueError(f"needed three prompts with clear continuations, found {len(kept)} among {len(prompts)}: add prompts")
    out.mkdir(parents=True, exist_ok=True)
    np.save(out / "logits.npy", logits.astype("<f4"))
    tokenizer = Tokenizer.open(model, network.config.vocab_size)
    found = {"heldout_ids": ids, "heldout_text": tokenizer.decode(ids), "prompts": kept}
    (out / "expected.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    return found
