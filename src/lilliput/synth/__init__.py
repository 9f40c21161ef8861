"""Synthetic checkpoints in the released layout: for tests, benchmarks and machines without the 1.56 TB."""

from __future__ import annotations

from lilliput.synth.shapes import SHAPES, Shape
from lilliput.synth.writer import SIDE_FILE, write_synthetic

__all__ = ["SHAPES", "SIDE_FILE", "Shape", "write_synthetic"]
