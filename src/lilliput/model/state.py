"""What one sequence carries from token to token, and how a pass changes it: all or nothing, or its first n tokens.

KDA layers keep one matrix per head and the last inputs of their convolutions; their size is fixed. MLA layers keep one
latent row per position, in blocks of 128. A pass never touches what is committed: KDA layers leave a journal (short spans)
or a new matrix (long ones), MLA rows are written behind the last committed position, where nobody looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from lilliput import _core
from lilliput.errors import LilliputError
from lilliput.machine.interrupts import held
from lilliput.model.config import Config

Array = npt.NDArray[np.float32]

BLOCK = 128  # positions; the attention kernel's blocks (contract rule 10)
JOURNAL_TOKENS = 16  # longest span that is journalled; longer ones write a new KDA state beside the old


class KdaState:
    """s [H, K, K], key index first; tails: for q, k, v the last inputs [P, kernel - 1], oldest first."""

    __slots__ = ("s", "tails")

    def __init__(self, config: Config) -> None:
        kda = config.kda
        self.s: Array = np.zeros((kda.num_heads, kda.head_dim, kda.head_dim), np.float32)
        wide = kda.num_heads * kda.head_dim
        self.tails: list[Array] = [np.zeros((wide, kda.conv_kernel - 1), np.float32) for _ in range(3)]

    @staticmethod
    def nbytes(config: Config) -> int:
        kda = config.kda
        return 4 * kda.num_heads * kda.head_dim * (kda.head_dim + 3 * (kda.conv_kernel - 1))

    def copy(self, config: Config) -> KdaState:
        other = KdaState(config)
        other.s[:] = self.s
        for mine, theirs in zip(self.tails, other.tails, strict=True):
            theirs[:] = mine
        return other


class MlaState:
    """Latents and unrotated keys, one row of kv_lora_rank + qk_rope_head_dim per position, in blocks of 128 positions."""

    __slots__ = ("blocks", "width")

    def __init__(self, config: Config) -> None:
        self.width = config.mla.kv_lora_rank + config.mla.qk_rope_head_dim
        self.blocks: list[Array] = []

    def reserve(self, positions: int) -> None:
        """Have room for so many rows; the state grows by whole blocks."""
        while len(self.blocks) * BLOCK < positions:
            self.blocks.append(np.zeros((BLOCK, self.width), np.float32))

    def write(self, position: int, rows: Array) -> None:
        """Put rows [T, width] at `position`."""
        self.reserve(position + len(rows))
        done = 0
        while done < len(rows):
            block, at = divmod(position + done, BLOCK)
            n = min(BLOCK - at, len(rows) - done)
            self.blocks[block][at : at + n] = rows[done : done + n]
            done += n

    def rows(self, positions: int) -> list[Array]:
        """The first `positions` rows as they lie in memory, block by block: [up to 128, width] each."""
        return [block[: positions - first] for block, first in zip(self.blocks, range(0, positions, BLOCK), strict=False)]

    def addresses(self) -> npt.NDArray[np.uint64]:
        """Where the blocks lie in memory, for the attention kernel."""
        return np.array([block.ctypes.data for block in self.blocks], np.uint64)

    def copy(self, config: Config) -> MlaState:
        other = MlaState(config)
        other.blocks = [block.copy() for block in self.blocks]
        return other


class State:
    """Everything one sequence carries: per layer a KdaState or an MlaState, and the ids committed so far."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.layers: list[KdaState | MlaState] = [KdaState(config) if kda else MlaState(config) for kda in config.is_kda]
        self.ids: list[int] = []
        self.open: Change | None = None  # the pass in flight
        self.torn = False  # a commit was broken off: some layers have the new tokens, some have not

    @property
    def position(self) -> int:
        return len(self.ids)

    @staticmethod
    def nbytes(config: Config, positions: int) -> int:
        """Bytes of a state that holds `positions` tokens, known before it is made."""
        mla_row = 4 * (config.mla.kv_lora_rank + config.mla.qk_rope_head_dim)
        blocks = -(-positions // BLOCK)
        return sum(KdaState.nbytes(config) if kda else blocks * BLOCK * mla_row for kda in config.is_kda)

    def copy(self) -> State:
        """An independent state at the same position; a pass in flight stays with the original."""
        other = State.__new__(State)
        self.check_whole()
        other.config, other.ids, other.open, other.torn = self.config, list(self.ids), None, False
        other.layers = [layer.copy(self.config) for layer in self.layers]
        return other

    def begin(self, ids: Sequence[int]) -> Change:
        """A pass over `ids` starts. One pass at a time: an earlier one that was not committed is abandoned by this."""
        self.check_whole()
        self.open = Change(self, tuple(ids))
        return self.open

    def check_whole(self) -> None:
        """Raises LilliputError for a state that an interrupt left half changed (the command line's wait; `KeyboardInterrupt` does not)."""
        if self.torn:
            raise LilliputError("the state was interrupted while it took in new tokens: it cannot go on; start the sequence anew")


@dataclass(slots=True)
class Journal:
    """What a KDA layer did in a short span: enough to replay its first n tokens without weights. Rows are tokens."""

    inputs: list[Array]  # of the convolutions of q, k, v: [T, P]
    k: Array  # [T, H, K]
    v: Array
    alpha: Array
    beta: Array  # [T, H]

    def commit(self, state: KdaState, n: int) -> None:
        k = self.k[:n]
        _core.kda(None, state.s, state.s, k, k, self.v[:n], self.alpha[:n], self.beta[:n])
        state.tails = tails_after(state.tails, self.inputs, n)


@dataclass(slots=True)
class Rewrite:
    """What a KDA layer did in a long span: its state after the last token, without the tokens' own values."""

    s: Array
    tails: list[Array]

    def commit(self, state: KdaState, n: int) -> None:
        state.s, state.tails = self.s, self.tails


def tails_after(tails: list[Array], inputs: list[Array], n: int) -> list[Array]:
    """The convolutions' tails after the first n rows of their inputs."""
    after = [np.empty_like(tail) for tail in tails]
    for new, tail, u in zip(after, tails, inputs, strict=True):
        _core.conv_tail(new, tail, u, n)
    return after


@dataclass(slots=True)
class Change:
    """One pass's effect on one state, not yet part of it. Dropping it costs nothing."""

    state: State
    ids: tuple[int, ...]
    kda: dict[int, Journal | Rewrite] = field(default_factory=dict)

    @property
    def is_journalled(self) -> bool:
        return len(self.ids) <= JOURNAL_TOKENS

    def commit(self, n: int | None = None) -> None:
        """Make the first n tokens (default: all) part of the state. A span of more than 16 tokens: all or none.

        Raises ValueError for another n, or when the state has begun another pass since.
        """
        total = len(self.ids)
        n = total if n is None else n
        if self.state.open is not self:
            raise ValueError("this pass is no longer the state's: it was committed already, or another pass has begun")
        if not 0 <= n <= total:
            raise ValueError(f"commit needs 0 to {total} tokens, found {n}")
        if 0 < n < total and not self.is_journalled:
            raise ValueError(f"a span of {total} tokens commits whole or not at all (up to {JOURNAL_TOKENS} tokens can be cut), found {n}")
        self.state.open = None
        if n == 0:
            return
        with held():
            self.state.torn = True
            for layer, change in self.kda.items():
                target = self.state.layers[layer]
                assert isinstance(target, KdaState)
                change.commit(target, n)
            self.state.ids.extend(self.ids[:n])
            self.state.torn = False
        self.kda.clear()  # whoever keeps the span for its logits must not keep its journals through the next pass
