"""Where every byte of the budget goes, before anything is allocated.

    what must be    interpreter and libraries, recurrent states, latents for the context, logits, scratch, allocator slack
    per pass        activations, and what a pass keeps beside the state until it is committed: depend on `chunk`
    the smallest    ring and expert window
    what is left    ring and window to the size that keeps the disk busy, then pins and expert cache

`chunk` is chosen so that a whole run is quickest. What is left is handed out in the order of what it saves (see `_Room.hand_out`).
Pure: no allocation, no files, no clock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace

from lilliput.errors import DoesNotFitError
from lilliput.machine import footprint
from lilliput.machine.costs import ASSUMED, ExpertUse, PassCost, Rates
from lilliput.machine.demand import Demand
from lilliput.machine.memory import format_size
from lilliput.machine.spread import spread
from lilliput.model.state import BLOCK, JOURNAL_TOKENS

MOST_CHUNK = 512  # prompt tokens per pass: more gain little, for by then every expert is read in every pass
RING_PIECES = 4  # beside the one that is held: one multiplied, the others on their way
RING_ENOUGH, RING_MOST = 40, 120  # pieces of usual size: a prototype with 176 MB kept the disk busy, fast disks get more
WINDOW_LEAST, WINDOW_ENOUGH = 2, 8  # experts in flight or waiting for their turn: two keep going, eight keep a disk's queue full
SLACK_SHARE = 1 / 16  # of what comes and goes with every pass: pages between blocks, blocks freed and not returned
SLACK_LEAST, SLACK_MOST = 8_000_000, 0.025  # bytes; share of the budget
SLACK_ANYWAY = 4_000_000  # bytes: below that share of a small budget, what is imported late shows
MOST_CONTEXT = 10**12  # positions, and
MOST_SEQUENCES = 10**9  # sequences: what is planned with, so that no number leaves the range of the arithmetic
ROUND = 10_000_000  # budgets are recommended in whole multiples


@dataclass(frozen=True, slots=True)
class Budget:
    """`--memory`, `--trunk-memory`, `--expert-memory` in bytes; None: computed. `source` says where `total` comes from."""

    total: int | None
    trunk: int | None = None
    experts: int | None = None
    source: str = "--memory"


@dataclass(frozen=True, slots=True)
class Line:
    """One item of the plan."""

    name: str
    nbytes: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is allocated, and what to expect of it.

    chunk: the most prompt tokens of one sequence in a pass, beside one token of each other sequence. trunk_bytes_per_pass: exact, of a
    pass with logits. expert_bytes_per_token, seconds_per_token: expected, while generating with `batch` sequences.
    """

    budget: int
    lines: tuple[Line, ...]
    ring_bytes: int
    pins: frozenset[int]
    pin_bytes: int
    expert_slots: int
    window_slots: int
    chunk: int
    context: int
    batch: int
    trunk_bytes_per_pass: int
    expert_bytes_per_token: float
    seconds_per_token: float
    rates: Rates
    source: str

    @property
    def total(self) -> int:
        return sum(line.nbytes for line in self.lines)


def make_plan(
    demand: Demand,
    budget: Budget,
    *,
    batch: int = 1,
    context: int = 4096,
    prompt: int | None = None,
    all_logits: bool = False,
    rates: Rates = ASSUMED,
) -> Plan:
    """Split `budget.total` bytes for `batch` sequences of up to `context` tokens each, of which `prompt` (default: half) are given.

    all_logits: the logits of every prompt token are asked for, not only the last one's. Raises DoesNotFitError with the shortfall and
    what would fit.
    """
    if budget.total is None:
        raise ValueError("make_plan needs a total: see machine.free.settle")
    if batch < 1 or context < 1:
        raise ValueError(f"make_plan needs at least one sequence and one token, found batch {batch}, context {context}")
    prompt = max(1, context // 2) if prompt is None else max(1, min(prompt, context))
    task = _Task(demand, budget.total, batch, context, prompt, all_logits, rates)
    rooms = [_Room(task, chunk) for chunk in task.chunks()]
    if rooms[0].short > 0:
        raise _does_not_fit(rooms[0], budget)
    # Long chunks must leave room for a ring that keeps the disk busy: a run of short prompts would pay for it in every pass.
    fitting = [room for room in rooms if (room.short if room.chunk <= JOURNAL_TOKENS else room.short_of_ease) <= 0]
    splits = [(room, room.split(budget)) for room in fitting]
    room, split = min(splits, key=lambda found: found[0].run_seconds(found[1]))
    return room.plan(split, budget)


@dataclass(frozen=True, slots=True)
class _Task:
    demand: Demand
    total: int
    batch: int
    context: int
    prompt: int
    all_logits: bool
    rates: Rates

    def chunks(self) -> Iterator[int]:
        """1, 2, 4, ... and the prompt itself: nothing above it is of use."""
        chunk = 1
        while chunk < min(self.prompt, MOST_CHUNK):
            yield chunk
            chunk *= 2
        yield min(self.prompt, MOST_CHUNK)

    def cost(self, tokens: int) -> PassCost:
        config = self.demand.config
        use = ExpertUse(self.demand.moe_layers if self.demand.slot_bytes else 0, config.moe.num_experts, config.moe.top_k)
        return PassCost(self.rates, self.demand.tape_bytes, self.demand.slot_bytes, use, tokens)

    def fixed(self, chunk: int) -> list[Line]:
        """Everything but ring, window, pins and cache."""
        config, batch = self.demand.config, self.batch
        tokens = chunk + batch - 1
        journal = footprint.journal_bytes(config)
        change = footprint.change_bytes(config, chunk) + (batch - 1) * journal
        states = batch * footprint.kda_state_bytes(config)
        latents = batch * footprint.latent_bytes(config, self.context)
        each_token = footprint.token_bytes(config)
        each = "" if batch == 1 else f"{batch} sequences, "
        kept = "a second state" if change > min(chunk, JOURNAL_TOKENS) * journal + (batch - 1) * journal else "journals"
        in_a_pass = [
            Line("pass in flight", change, f"{kept}, for up to {chunk} prompt tokens" if chunk > 1 else "journals"),
            Line("activations", tokens * each_token, f"{tokens} tokens of {each_token:,} bytes"),
            Line("logits", footprint.result_bytes(config, chunk if self.all_logits else batch), "with sampling"),
        ]
        wanted = SLACK_LEAST + SLACK_SHARE * sum(line.nbytes for line in in_a_pass)
        slack = int(max(SLACK_ANYWAY, min(wanted, SLACK_MOST * self.total)))
        base = Line("process", self.demand.base_bytes, "interpreter, libraries, index, vectors: measured")
        reserve = [Line("reserve", self.demand.reserve, "asked for by this run")] if self.demand.reserve else []
        return [
            base,
            *reserve,
            Line("recurrent states", states, f"{each}{format_size(states // batch)} each" if batch > 1 else "one sequence"),
            Line("latents", latents, f"{each}{self.context:,} positions, in blocks of {BLOCK}"),
            *in_a_pass,
            Line("kernel scratch", footprint.scratch_bytes(config, tokens, self.demand.threads), f"{self.demand.threads} threads"),
            Line("bookkeeping", footprint.bookkeeping_bytes(config, len(self.demand.piece_bytes)), "of tape and experts"),
            Line("allocator slack", slack, "safety margin"),
        ]


class _Room:
    """What is left of the budget when a pass has up to `chunk` prompt tokens."""

    def __init__(self, task: _Task, chunk: int) -> None:
        demand = task.demand
        self.task, self.chunk = task, chunk
        self.lines = task.fixed(chunk)
        self.least_ring = min(demand.held_bytes + RING_PIECES * demand.largest, demand.tape_bytes)
        self.all_experts = demand.moe_layers * demand.config.moe.num_experts if demand.slot_bytes else 0
        self.least_window = min(WINDOW_LEAST, self.all_experts)
        self.least = sum(line.nbytes for line in self.lines) + self.least_ring + self.least_window * demand.slot_bytes
        self.short = self.least - task.total
        self.cost = task.cost(task.batch)
        # A layer's arithmetic long at the disk's speed: while its experts are computed the disk fills the ring.
        seconds = (self.cost.trunk_seconds + self.cost.expert_seconds) / demand.config.num_layers
        usual = demand.tape_bytes // max(len(demand.piece_bytes), 1)
        ahead = min(max(int(seconds * task.rates.disk_bytes_per_s), RING_ENOUGH * usual), RING_MOST * usual)
        self.enough_ring = min(max(self.least_ring, demand.held_bytes + ahead), demand.tape_bytes)
        self.wider = min(WINDOW_ENOUGH, self.all_experts) - self.least_window
        self.short_of_ease = self.short + self.enough_ring - self.least_ring + self.wider * demand.slot_bytes

    def plan(self, split: _Split, budget: Budget) -> Plan:
        task, demand = self.task, self.task.demand
        pins = spread(demand.piece_bytes, split.pins)
        pin_bytes = sum(demand.piece_bytes[i] for i in pins)
        ring = split.ring
        cost = self.cost
        unpinned = sum(nbytes for i, nbytes in enumerate(demand.reads) if i not in pins)
        lines = [*self.lines, Line("ring", ring, f"of which {format_size(demand.held_bytes)} for one kv_b" if ring else "all is pinned")]
        if demand.slot_bytes:
            lines.append(Line("expert window", split.window * demand.slot_bytes, f"{split.window} experts in flight"))
        share = f", {100 * pin_bytes / demand.tape_bytes:.1f} %" if demand.tape_bytes else ""
        lines.append(Line("pins", pin_bytes, f"{len(pins):,} of {len(demand.piece_bytes):,} pieces{share}"))
        if demand.slot_bytes:
            lines.append(Line("expert cache", split.slots * demand.slot_bytes, f"{split.slots:,} of {self.all_experts:,} experts"))
        return Plan(
            budget=task.total,
            lines=tuple(lines),
            ring_bytes=ring,
            pins=pins,
            pin_bytes=pin_bytes,
            expert_slots=split.slots,
            window_slots=split.window,
            chunk=self.chunk,
            context=task.context,
            batch=task.batch,
            trunk_bytes_per_pass=unpinned,
            expert_bytes_per_token=cost.expert_bytes(split.slots) / task.batch,
            seconds_per_token=cost.seconds(unpinned, split.slots) / task.batch,
            rates=task.rates,
            source=budget.source,
        )

    def run_seconds(self, split: _Split) -> float:
        """Of a run of all sequences from the first token to the last; expected."""
        task = self.task
        unpinned = task.demand.tape_bytes - split.pins
        prompts = task.batch * -(-task.prompt // self.chunk) * task.cost(self.chunk).seconds(unpinned, split.slots)
        return prompts + (task.context - task.prompt) * self.cost.seconds(unpinned, split.slots)

    def split(self, budget: Budget) -> _Split:
        """Ring, window, pins and cache, with what the user has laid down."""
        demand = self.task.demand
        left = self.task.total - sum(line.nbytes for line in self.lines)
        given = [
            ("--trunk-memory", budget.trunk, self.least_ring),
            ("--expert-memory", budget.experts, self.least_window * demand.slot_bytes),
        ]
        for option, nbytes, least in given:
            if nbytes is not None and nbytes < least:
                raise DoesNotFitError(
                    f"{option} {format_size(nbytes)}: needed at least {_up(least, 1000)}, because less cannot hold what is in use"
                )
        trunk, experts = budget.trunk, budget.experts
        if not demand.slot_bytes and experts is not None:
            raise DoesNotFitError(f"--expert-memory {format_size(experts)}: this model has no experts, so leave it out")
        least_trunk, least_experts = trunk or self.least_ring, experts or self.least_window * demand.slot_bytes
        if least_trunk + least_experts > left:
            rest = self.task.total - left
            needed = rest + least_trunk + least_experts
            asked = [f"{option} {format_size(n)}" for option, n, _ in given if n is not None]
            raise DoesNotFitError(
                f"{' and '.join(asked)} with {budget.source} {format_size(self.task.total)}: short by "
                f"{_up(needed - self.task.total, 1000)}, for the rest needs {_up(rest, 1000)}; what would fit: --memory {_up(needed)}, "
                f"or {_up(max(left, 0), 1000)} for both together"
            )
        if trunk is not None and experts is not None:
            return _Split.of(self, trunk, experts)
        free = self.hand_out(left)
        if trunk is not None:
            return _Split.of(self, trunk, left - min(trunk, demand.tape_bytes))
        if experts is not None:
            return _Split.of(self, left - min(experts, (self.all_experts + WINDOW_ENOUGH) * demand.slot_bytes), experts)
        return free

    def hand_out(self, left: int) -> _Split:
        """What is left, in the order of what a byte of it saves per pass.

        A pinned byte saves one byte of reading, a byte of the expert cache at most one: the chance that the pass uses that expert. So

        1. the ring, then the window, until the disk never waits for them;
        2. pins, until what streams is no more than the disk delivers during the trunk's own arithmetic (then pins save no time);
        3. experts, until their reading takes no longer than their arithmetic (then they save no time either), or all are there;
        4. pins, until everything is pinned and the ring is not needed; 5. experts.

        Every step only adds to what a smaller budget had, so more memory never reads more.
        """
        demand, slot = self.task.demand, self.task.demand.slot_bytes
        cost, wider, tape = self.cost, self.wider, demand.tape_bytes
        window = self.least_window
        left -= window * slot
        enough = 0
        if slot:
            misses = cost.expert_seconds * self.task.rates.disk_bytes_per_s / slot
            enough = min(cost.use.least_cached(misses, self.task.batch), self.all_experts)
        if left >= tape + (wider + enough) * slot:
            slots = min((left - tape) // slot - wider, self.all_experts) if slot else 0
            return _Split(0, tape, window + wider, slots)
        ring = min(self.enough_ring, left)
        left -= ring
        more = min(wider, left // slot) if slot else 0
        window, left = window + more, left - more * slot
        if more < wider:  # no pins yet: they would have to go again for the next expert in flight
            return _Split(min(ring + left, tape), 0, window, 0)
        pins = min(left, max(tape - int(cost.hidden_bytes), 0))
        slots = min((left - pins) // slot, enough) if slot else 0
        if slots == enough:
            pins = min(left - slots * slot, tape)
        return _Split(ring, pins, window, slots)


@dataclass(frozen=True, slots=True)
class _Split:
    """Bytes of the ring and of pins, experts in flight and cached."""

    ring: int
    pins: int
    window: int
    slots: int

    @staticmethod
    def of(room: _Room, trunk: int, experts: int) -> _Split:
        """`trunk` bytes for ring and pins, `experts` bytes for window and cache."""
        demand = room.task.demand
        ring = 0 if trunk >= demand.tape_bytes else min(room.enough_ring, trunk)
        count = experts // demand.slot_bytes if demand.slot_bytes else 0
        window = min(WINDOW_ENOUGH, room.all_experts, count)
        return _Split(ring, min(trunk - ring, demand.tape_bytes), window, min(count - window, room.all_experts))


def _does_not_fit(room: _Room, budget: Budget) -> DoesNotFitError:
    task = room.task
    # The slack grows with the budget: what is recommended must fit with the slack it brings.
    least = _Room(replace(task, total=task.total + room.short), room.chunk).least
    least = _Room(replace(task, total=least), room.chunk).least
    advice = [f"--memory {_up(least)}"]
    if task.batch > 1 and _Room(replace(task, batch=1), 1).short <= 0:
        advice.append("fewer sequences at a time")
    blocks = range(1, -(-task.context // BLOCK))
    fitting = bisect_right(blocks, 0, key=lambda n: _Room(replace(task, context=n * BLOCK), 1).short)
    if fitting:
        advice.append(f"a context of {fitting * BLOCK:,} tokens")
    sequences = f"{task.batch} sequences of {task.context:,} tokens" if task.batch > 1 else f"a context of {task.context:,} tokens"
    return DoesNotFitError(
        f"{budget.source} {format_size(task.total)} is not enough for {sequences}: needed at least {_up(least, 1000)}, "
        f"short by {_up(least - task.total, 1000)}; what would fit: {', or '.join(advice)}"
    )


def _up(nbytes: int, multiple: int = ROUND) -> str:
    """A size rounded up to a multiple, as people write it."""
    return format_size(-(-nbytes // multiple) * multiple)
