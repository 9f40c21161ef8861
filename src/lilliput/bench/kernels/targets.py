"""What `bench kernels` and `bench prefill` should reach (the arithmetic contract's limits on Zen 4), next to what was measured."""

from __future__ import annotations

from dataclasses import dataclass

from lilliput.bench.kernels.contest import Spread


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on one ratio. `tokens`: from .. to. `isa` None: on AVX2 and AVX-512. `threads`: "one", "all" (more than one), "any"."""

    kernel: str
    ratio: str
    tokens: tuple[int, int]
    isa: str | None
    threads: str
    bound: float
    at_most: bool = False

    def applies(self, kernel: str, ratio: str, tokens: int, isa: str | None, threads: int, most: int) -> bool:
        """Of a ratio measured with `threads`, when `most` is the largest number of threads measured."""
        where = {"one": threads == 1, "all": threads == most > 1, "any": True}[self.threads]
        isas = (self.isa,) if self.isa is not None else ("avx2", "avx512")
        return (kernel, ratio) == (self.kernel, self.ratio) and self.tokens[0] <= tokens <= self.tokens[1] and isa in isas and where

    def met(self, value: float) -> bool:
        return value <= self.bound if self.at_most else value >= self.bound

    def __str__(self) -> str:
        return f"{'at most' if self.at_most else 'at least'} {self.bound:g}"

    def as_dict(self, found: Spread) -> dict[str, object]:
        return {"at_most" if self.at_most else "at_least": self.bound, "met": self.met(found.median)}


ONE, FOUR, MANY = (1, 1), (4, 4), (64, 1 << 30)

TARGETS = (
    Target("k12", "read", ONE, None, "one", 0.70),
    Target("k12", "read", ONE, None, "all", 0.75),
    Target("k12", "doubles", ONE, None, "any", 3.0),
    Target("bf16", "read", ONE, None, "any", 0.63),
    Target("mxfp4", "read", ONE, "avx512", "one", 0.34),
    Target("mxfp4", "read", ONE, "avx2", "one", 0.26),
    Target("mxfp4", "doubles", ONE, "avx512", "any", 18.0),
    Target("mxfp4", "doubles", ONE, "avx2", "any", 15.0),
    Target("k12", "one token", FOUR, "avx512", "all", 1.6, at_most=True),
    Target("bf16", "one token", FOUR, "avx512", "all", 1.15, at_most=True),
    *(Target(kernel, "peak", MANY, "avx512", "any", 0.75) for kernel in ("bf16", "k12")),
    *(Target(kernel, "peak", MANY, "avx2", "any", 0.60) for kernel in ("bf16", "k12")),
    Target("mxfp4", "peak", MANY, "avx512", "any", 0.65),
    Target("mxfp4", "peak", MANY, "avx2", "any", 0.50),
    Target("kda", "copy", ONE, None, "any", 0.8),
    Target("attention", "peak", ONE, None, "any", 0.5),
)

OTHER_SHARE = 0.02  # of a decode pass, at most: norms, mixing, convolution, router, SiTU, gates together
REST_SHARE = 0.03  # of a pass, at most: Python, and waking and waiting for threads
REST_WIDTH = 7168  # hidden size (K3's) from which on that is a target: the arithmetic of a small model takes no longer than its calls
DECODE_SECONDS = 5.0  # per token of the full-size model on two cores, everything pinned


def target_of(kernel: str, ratio: str, tokens: int, isa: str | None, threads: int, most: int) -> Target | None:
    """The bound on this ratio, if there is one."""
    return next((t for t in TARGETS if t.applies(kernel, ratio, tokens, isa, threads, most)), None)
