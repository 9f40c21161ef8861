"""Hypothesis strategies for configs, checkpoints and token ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from hypothesis import strategies as st
from random_checkpoint import Raw, random_config, text_config

T = TypeVar("T")


class _Drawn:
    """Lets hypothesis make, record and shrink the choices of `random_config`: the first entry of a list is the simplest."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw

    def choice(self, seq: Sequence[T], /) -> T:
        return self.draw(st.sampled_from(seq))


@st.composite
def configs(draw: st.DrawFn, **overrides: Any) -> Raw:
    """Raw configs as `random_config` makes them; `overrides` as there."""
    return random_config(_Drawn(draw), **overrides)


@st.composite
def configs_and_ids(draw: st.DrawFn, *, min_size: int = 1, max_size: int = 24, **overrides: Any) -> tuple[Raw, list[int]]:
    """A raw config and a prompt in its vocabulary."""
    raw = random_config(_Drawn(draw), **overrides)
    ids = st.integers(0, text_config(raw)["vocab_size"] - 1)
    return raw, draw(st.lists(ids, min_size=min_size, max_size=max_size))


def checkpoint_options() -> st.SearchStrategy[dict[str, Any]]:
    """Keyword arguments of `write_checkpoint` that must not change a single bit of any output."""
    return st.fixed_dictionaries(
        {
            "shards": st.integers(1, 3),
            "prefix": st.booleans(),
            "split_layers": st.booleans(),
            "legacy_names": st.booleans(),
            "vision": st.booleans(),
            "a_log_length": st.sampled_from((None, 0, 16)),
        }
    )
