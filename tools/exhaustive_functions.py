"""The core's own functions against float64: every one of the 2^32 floats within 2 ulp, the same bits on every instruction set.

    python tools/exhaustive_functions.py [--functions exp,log] [--isa avx2,avx512] [--stride N]

Prints one line per function and exits 1 if any is off. `make ladder` runs it whole; tests/test_math_functions.py uses the same
judge on a sample.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lilliput import _core

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
MOST_ULP = 2.0
CHUNK = 1 << 21


def _sigmoid(x: Doubles) -> Doubles:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1.0) / (1.0 + e)


def _softplus(x: Doubles) -> Doubles:
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


REFERENCE: dict[str, Callable[[Doubles], Doubles]] = {
    "exp": np.exp,
    "log": np.log,
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
    "softplus": _softplus,
}
OWN: dict[str, Callable[[Floats, Floats], None]] = {name: getattr(_core, name + "_") for name in REFERENCE}
NAN_BITS = 0x7FC00000  # the one NaN the functions return


def ulps(got: Floats, exact: Doubles) -> Doubles:
    """Distance in units of the last place of the exact value, subnormal range included; infinite where kind or sign differ.

    An infinity counts as 2^128, the float after the largest, so it is right for every value beyond that.
    """
    with np.errstate(all="ignore"):
        _, exponent = np.frexp(exact)
        unit = np.ldexp(1.0, np.clip(exponent - 24, -149, 104))
        wide = got.astype(np.float64)
        short = np.maximum(2.0**128 - np.abs(exact), 0.0)  # how far an infinity overshoots
        error = np.where(np.isinf(got), short, np.abs(wide - exact)) / unit
        wrong_sign = np.signbit(got) != np.signbit(exact)
    error = np.where(wrong_sign, np.inf, error)
    nan = np.isnan(exact)
    return np.where(nan, np.where(got.view(np.uint32) == NAN_BITS, 0.0, np.inf), np.where(np.isnan(got), np.inf, error))


@dataclass
class Verdict:
    worst: float = 0.0
    at: int = 0  # bits of the argument
    disagreement: list[str] = field(default_factory=list)

    def merge(self, other: Verdict) -> None:
        if other.worst > self.worst:
            self.worst, self.at = other.worst, other.at
        self.disagreement += other.disagreement

    @property
    def good(self) -> bool:
        return self.worst <= MOST_ULP and not self.disagreement


def compute(name: str, bits: NDArray[np.uint32], isa: str) -> Floats:
    _core.use_isa(isa)
    y = np.empty(bits.size, np.float32)
    OWN[name](y, bits.view(np.float32))
    return y


def judge(name: str, bits: NDArray[np.uint32], results: dict[str, Floats]) -> Verdict:
    """The worst error over these arguments, and the instruction sets that disagree with the first."""
    first, *others = results
    with np.errstate(all="ignore"):
        error = ulps(results[first], REFERENCE[name](bits.view(np.float32).astype(np.float64)))
    at = int(np.argmax(error))
    verdict = Verdict(float(error[at]), int(bits[at]))
    for isa in others:
        unequal = np.flatnonzero(results[isa].view(np.uint32) != results[first].view(np.uint32))
        if unequal.size:
            verdict.disagreement.append(f"{isa} differs from {first} at 0x{int(bits[unequal[0]]):08x}")
    return verdict


def run(name: str, isas: list[str], stride: int) -> Verdict:
    """All patterns, or every `stride`-th. The table of kernels is global, so one instruction set computes at a time."""
    verdict = Verdict()
    workers = os.cpu_count() or 1
    span = CHUNK * stride
    _core.set_threads(workers)
    with ThreadPoolExecutor(workers) as pool:
        waiting = []
        for start in range(0, 1 << 32, span):
            bits = np.arange(start, min(start + span, 1 << 32), stride, dtype=np.uint64).astype(np.uint32)
            results = {isa: compute(name, bits, isa) for isa in isas}
            waiting.append(pool.submit(judge, name, bits, results))
            if len(waiting) > 2 * workers:
                verdict.merge(waiting.pop(0).result())
        for task in waiting:
            verdict.merge(task.result())
    return verdict


def main() -> int:
    parser = argparse.ArgumentParser(description="Every float through the core's own functions.")
    parser.add_argument("--functions", default=",".join(REFERENCE), help="comma-separated (default: all)")
    parser.add_argument("--isa", default=",".join(_core.isas()), help="comma-separated (default: all of this machine)")
    parser.add_argument("--stride", type=int, default=1, help="take every N-th float only")
    args = parser.parse_args()
    failed = False
    for name in args.functions.split(","):
        verdict = run(name, args.isa.split(","), args.stride)
        print(f"{name:9s} worst {verdict.worst:.4f} ulp at 0x{verdict.at:08x}  {'ok' if verdict.good else 'FAILED'}", flush=True)
        for line in verdict.disagreement[:3]:
            print(f"          {line}")
        failed |= not verdict.good
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
