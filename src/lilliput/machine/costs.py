"""What a pass costs: bytes from disk and seconds, as a function of what is kept in memory. Estimates, each with its source.

The disk and the processor work at the same time, with one exception: while a layer's experts are on their way from disk, nothing else
can be computed, and until its router has decided they cannot be asked for. So with U bytes of trunk and X bytes of experts to read,

    seconds = max((U + X) / disk, trunk arithmetic + max(X / disk, expert arithmetic))

The first is a disk that never rests. The second is what is left when (nearly) all of the trunk is pinned: the disk has nothing to do
while the trunk's arithmetic runs. A time-step simulation over 93 layers found the same 1.2 to 1.4 at 3 GB/s with everything pinned.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

# Hit rate of the default policy against the size of the cache, as a share of what one token asks for (docs/expert-cache.md: means of nine
# synthetic traces of 120 tokens; the released trace of twelve tokens lies within 3 points below a share of 1, where first uses do not
# limit it yet). The last point is every expert: at the share num_experts / top_k all requests hit.
HITS = ((0.0, 0.0), (0.1, 0.055), (0.3, 0.139), (0.62, 0.235), (0.93, 0.301), (1.25, 0.345), (2.5, 0.431))


@dataclass(frozen=True, slots=True)
class Rates:
    """Bytes per second: of the disk, and of the products with tape pieces and experts for one token, all threads.

    `more_tokens` is what each further token of a pass adds to a product's time, as a share of the first's. `source` says where it is from.
    """

    disk_bytes_per_s: float
    trunk_bytes_per_s: float
    expert_bytes_per_s: float
    more_tokens: float = 0.15
    source: str = "given"


# Two cores of a server with AVX-512 and a virtual disk; kernels.md sections 1 to 4.
ASSUMED = Rates(2.5e9, 30e9, 15e9, source="assumed: two cores and a disk of 2.5 GB/s")


@dataclass(frozen=True, slots=True)
class ExpertUse:
    """How the experts of a model are used: `layers` of `experts`, `top_k` of them per token.

    The slope of the hit curve is the chance that one token uses the least valuable cached expert, so tokens that choose by
    themselves use it with 1 - (1 - slope)^tokens, and a pass reads it once. Tokens that follow each other share more: this errs upwards.
    """

    layers: int
    experts: int
    top_k: int

    @property
    def all(self) -> int:
        return self.layers * self.experts

    def requests(self, tokens: int) -> float:
        """Different experts that a pass of `tokens` tokens needs, all layers; expected."""
        return self.hits(self.all, tokens)

    def hits(self, cached: float, tokens: int) -> float:
        """How many of a pass's experts a cache of `cached` holds; concave in `cached`."""
        return sum(min(max(cached - begin, 0.0), end - begin) * _any(chance, tokens) for begin, end, chance in self._bands())

    def misses(self, cached: float, tokens: int) -> float:
        return max(self.requests(tokens) - self.hits(cached, tokens), 0.0)

    def least_cached(self, misses: float, tokens: int) -> int:
        """The smallest cache with at most so many misses per pass."""
        wanted = self.requests(tokens) - misses
        cached, have = 0.0, 0.0
        for begin, end, chance in self._bands():
            gain = (end - begin) * _any(chance, tokens)
            if have + gain >= wanted:
                return min(self.all, max(0, -int(-(cached + (wanted - have) / _any(chance, tokens)) // 1)))
            cached, have = end, have + gain
        return self.all

    def _bands(self) -> list[tuple[float, float, float]]:
        """(first slot, end, chance that a token uses each) of the cache's slots, the most valuable first."""
        token = self.layers * self.top_k
        most = self.experts / self.top_k
        points = [(share, hits) for share, hits in HITS if share < most]
        last = points[-1]
        # A model with few experts per token: the curve must not cross what filling the cache blindly would give.
        while len(points) > 1 and (1 - last[1]) / (most - last[0]) > (last[1] - points[-2][1]) / (last[0] - points[-2][0]):
            points.pop()
            last = points[-1]
        points.append((most, 1.0))
        return [(a * token, b * token, min(1.0, (h - g) / (b - a))) for (a, g), (b, h) in pairwise(points)]


def _any(chance: float, tokens: int) -> float:
    return float(1 - (1 - chance) ** tokens)


@dataclass(frozen=True, slots=True)
class PassCost:
    """One pass of `tokens` tokens over a tape of `tape_bytes`, with experts of `slot_bytes` (0: none)."""

    rates: Rates
    tape_bytes: int
    slot_bytes: int
    use: ExpertUse
    tokens: int

    @property
    def trunk_seconds(self) -> float:
        """Arithmetic of the trunk."""
        return self.tape_bytes / self.rates.trunk_bytes_per_s * (1 + (self.tokens - 1) * self.rates.more_tokens)

    @property
    def expert_seconds(self) -> float:
        """Arithmetic of the experts: each is gone through once, for all tokens that chose it."""
        if not self.slot_bytes:
            return 0.0
        used = self.use.requests(self.tokens)
        each = max(self.tokens * self.use.layers * self.use.top_k / used, 1.0)
        return used * self.slot_bytes / self.rates.expert_bytes_per_s * (1 + (each - 1) * self.rates.more_tokens)

    @property
    def hidden_bytes(self) -> float:
        """Trunk bytes that the disk delivers while the trunk's arithmetic runs: pinning these too gains nothing, for experts cannot be
        asked for before their layer's router has decided."""
        return self.trunk_seconds * self.rates.disk_bytes_per_s

    def expert_bytes(self, cached: float) -> float:
        """Read per pass with `cached` experts in memory; expected."""
        return self.use.misses(cached, self.tokens) * self.slot_bytes

    def seconds(self, unpinned: float, cached: float) -> float:
        experts = self.expert_bytes(cached) / self.rates.disk_bytes_per_s
        return max(unpinned / self.rates.disk_bytes_per_s + experts, self.trunk_seconds + max(experts, self.expert_seconds))
