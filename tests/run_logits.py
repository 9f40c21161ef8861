"""Runs a checkpoint through the package that is first on the path and writes its logits: a process of its own for the mutation test.

    python tests/run_logits.py PACKAGE_PATH CHECKPOINT 1,2,3 LOGITS.npy

The ids go through as several passes with commits between them (20 tokens, 3, 1, the rest), so that states are carried over both
ways of committing. Only the copy of the package under PACKAGE_PATH is used, whatever is installed.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np

CUTS = (20, 23, 24)


def main() -> None:
    path, directory, ids, out = Path(sys.argv[1]), Path(sys.argv[2]), [int(i) for i in sys.argv[3].split(",")], Path(sys.argv[4])
    # An editable install puts a finder of its own in front of the path: keep Python's alone.
    sys.meta_path[:] = [finder for finder in sys.meta_path if finder.__module__.startswith("_frozen_importlib")]
    sys.path.insert(0, str(path))

    def the(name: str) -> Any:
        module, _, attribute = f"lilliput.{name}".rpartition(".")
        found = importlib.import_module(module)
        assert Path(found.__file__ or "").resolve().is_relative_to(path.resolve()), f"{found.__file__} is not the copy under {path}"
        return getattr(found, attribute)

    config = the("model.config.read_config")(directory)
    layout = the("model.layout.layout")(config)
    checkpoint = the("weights.checkpoint.Checkpoint").open(directory, layout, cache=False)
    specs = the("weights.pieces.in_place")(checkpoint.tensors, layout)
    weights = the("weights.weights.Weights")(checkpoint, layout)
    in_memory = the("weights.weights.Storage")(frozenset(range(len(specs))), 0, expert_slots=0, window=1)
    weights.allocate(in_memory, specs, list(zip(checkpoint.files, checkpoint.sizes, strict=True)))
    model = the("model.model.Model")(config, weights)
    state, logits = the("model.state.State")(config), []
    for start, end in zip((0, *CUTS), (*CUTS, len(ids)), strict=True):
        span = the("model.batch.Span")(state, ids[start:end], range(end - start))
        model.forward([span])
        span.commit()
        logits.append(span.logits)
    np.save(out, np.concatenate(logits))


if __name__ == "__main__":
    main()
