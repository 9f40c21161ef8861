"""A plan for a model that is not going to be run now: what `lilliput plan` shows."""

from __future__ import annotations

from pathlib import Path

from lilliput.engine.source import Source
from lilliput.machine import footprint
from lilliput.machine.costs import Rates
from lilliput.machine.demand import Demand, demand_of
from lilliput.machine.free import settle
from lilliput.machine.memory import Free
from lilliput.machine.plan import Budget, Plan, make_plan
from lilliput.machine.rates import known_rates
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
