"""Runs a checkpoint through the package that is first on the path and writes its logits: a process of its own for the mutation test.

    python tests/run_logits.py CHECKPOINT 1,2,3 LOGITS.npy

The ids go through as several passes with commits between them (20 tokens, 3, 1, the rest), so that states are carried over both
ways of committing.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from lilliput.weights.checkpoint import Checkpoint

from lilliput.model.batch import Span
from lilliput.model.config import read_config
from lilliput.model.layout import layout
from lilliput.model.model import Model
from lilliput.model.state import State
from lilliput.weights.weights import Weights

CUTS = (20, 23, 24)


def main() -> None:
    directory, ids, out = Path(sys.argv[1]), [int(i) for i in sys.argv[2].split(",")], Path(sys.argv[3])
    config = read_config(directory)
    wanted = layout(config)
    weights = Weights(Checkpoint.open(directory, wanted, cache=False), wanted, resident=True)
    model, state, logits = Model(config, weights), State(config), []
    for start, end in zip((0, *CUTS), (*CUTS, len(ids)), strict=True):
        span = Span(state, ids[start:end], range(end - start))
        model.forward([span])
        span.commit()
        logits.append(span.logits)
    np.save(out, np.concatenate(logits))


if __name__ == "__main__":
    main()
