"""What is known before an engine is opened: the plan that `lilliput plan` shows, and whether a prompt can be held at all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lilliput.engine.source import Source
from lilliput.errors import DoesNotFitError
from lilliput.machine import footprint
from lilliput.machine.costs import Rates
from lilliput.machine.demand import Demand, demand_of
from lilliput.machine.free import own_memory, settle
from lilliput.machine.memory import Free, format_size, tightest
from lilliput.machine.plan import Budget, Plan, make_plan
from lilliput.machine.rates import known_rates
from lilliput.model.state import BLOCK
from lilliput.weights.disk import Disk
from lilliput.weights.experts import slot_bytes
from lilliput.weights.packed import find_tape


class Prospect:
    """A checkpoint as the plan sees it: its tape as it would be read (packed where a packed one is found or given), and the process."""

    def __init__(self, source: Source, *, threads: int, trunk: Path | None = None) -> None:
        self.source, self.threads = source, threads
        self.tape = find_tape(source.directory, source.checkpoint, source.config_hash, source.layout, trunk)
        self.trunk = self.tape.packed

    def rates(self) -> Rates | None:
        """Of this machine, where they were measured lately."""
        return known_rates(self.tape.paths, self.tape.kind)

    def demand(self, own: int) -> Demand:
        """`own`: memory of the process so far; the vectors that an engine would load come on top."""
        source = self.source
        base = own + footprint.resident_bytes(source.layout)
        slot = slot_bytes(source.layout.experts) if source.layout.experts else 0
        return demand_of(source.config, self.tape.pieces, slot=slot, base_bytes=base, threads=self.threads, reads=self._reads())

    def _reads(self) -> list[int]:
        """Bytes that reading each piece takes, by the alignment of the file it lies in."""
        disk = Disk(threads=1)
        try:
            return disk.reads(self.tape.files, self.tape.pieces)
        finally:
            disk.close()


def plan_model(
    prospect: Prospect, budget: Budget, free: Free, own: int, *, batch: int, context: int, prompt: int | None, rates: Rates
) -> Plan:
    """The plan for a budget; what is free by the tightest authority, less headroom, where it names no total."""
    return make_plan(prospect.demand(own), settle(budget, free, own), batch=batch, context=context, prompt=prompt, rates=rates)


def ids_of_prompt(source: Source, prompt: str | Sequence[int], budget: Budget) -> list[int]:
    """A prompt as ids. Raises DoesNotFitError for a text as soon as it has more tokens than the whole budget has room for latents:
    the memory and the minutes that the rest of it would take come before any plan."""
    if not isinstance(prompt, str):
        return source.check_ids(prompt)
    whole = settle(budget, tightest(), own_memory())
    assert whole.total is not None
    each = footprint.latent_bytes(source.config, BLOCK)
    try:
        return source.check_ids(source.encode(prompt, most=whole.total // each * BLOCK if each else None))
    except DoesNotFitError as error:
        raise DoesNotFitError(
            f"the prompt: {error}: the latents of more take all of {whole.source} {format_size(whole.total)}; give a larger budget, or a "
            "shorter prompt"
        ) from None
