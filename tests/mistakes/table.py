"""What a row of the tables of mistakes is."""

from __future__ import annotations

from dataclasses import dataclass

MODEL, RESIDUAL, KDA, MLA, MOE = (f"model/{name}.py" for name in ("model", "residual", "kda", "mla", "moe"))
LINEAR, OPS, STATE, EXPERTS = "model/linear.py", "model/ops.py", "model/state.py", "weights/experts.py"


@dataclass(frozen=True)
class Edit:
    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Mistake:
    """`reference` is (old, new) in tools/reference.py; None where the reference has nothing of the kind (states, passes)."""

    name: str
    shows_on: str
    reference: tuple[str, str] | None
    engine: tuple[Edit, ...]


def kernel(file: str, name: str, mistake: str, call: str | None = None) -> tuple[Edit, ...]:
    """The call `_core.name(` of `file` goes to the plain kernel with a mistake; `call` is a longer text where there are several."""
    old = call or f"_core.{name}("
    return (Edit(file, old, old.replace(f"_core.{name}(", f'plain_kernels.wrong("{name}", "{mistake}")(')),)
