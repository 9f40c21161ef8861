"""`Engine`: a checkpoint opened for running. One per process: threads and instruction set belong to the process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from lilliput import _core
from lilliput.engine import scheduler
from lilliput.engine.sampling import Sampling
from lilliput.engine.session import EMPTY_PROMPT, Session
from lilliput.engine.source import Source, check_max_tokens, check_whole
from lilliput.engine.stopping import StopText
from lilliput.errors import ContentError, UsageError, shown
from lilliput.machine.costs import ASSUMED
from lilliput.machine.demand import demand_of
from lilliput.machine.free import own_memory, refuse_overdraft, settle, step_back
from lilliput.machine.lock import EngineLock, engine_lock
from lilliput.machine.memory import check_size, memory_pressure, parse_size, system_memory, tightest
from lilliput.machine.plan import MOST_CONTEXT, Budget, Plan, make_plan
from lilliput.machine.rates import known_rates
from lilliput.machine.threads import default_threads
from lilliput.model.model import Model
from lilliput.model.state import State
from lilliput.weights.experts import slot_bytes
from lilliput.weights.packed import find_tape
from lilliput.weights.weights import Storage, Weights

Array = npt.NDArray[np.float32]

DEFAULT_CONTEXT = 4096
SHARED_BELOW = 1_000_000_000  # smaller plans run beside each other; a larger one has the machine to itself


@dataclass(frozen=True, slots=True)
class Token:
    """One generated token. `text` is what became certain with it (a character may need several tokens, a stop string none).

    `finish` is None until the last one: "stop" (an eos id or a stop string) or "length".
    """

    id: int
    text: str
    finish: str | None


class Engine:
    """A model with the memory it was given. Open with `lilliput.open`. Also a context manager; `close` releases memory and files.

    `context` is the most positions a session may have, `prompt` how many of them are likely to come at once; `all_logits` says that those
    of every prompt token will be asked for. `trunk` is a packed tape outside its own place, `every_read` checks its pieces on every read.
    `reserve`: bytes the caller will use or keep beside that, which the budget has to hold as well.
    The plan is made, and refused (DoesNotFitError), before anything large is allocated.
    """

    def __init__(
        self,
        source: Source,
        *,
        budget: Budget | None = None,
        context: int = DEFAULT_CONTEXT,
        prompt: int | None = None,
        all_logits: bool = False,
        trunk: Path | None = None,
        every_read: bool = False,
        reserve: int = 0,
        threads: int | None = None,
        isa: str | None = None,
    ) -> None:
        machine = choose_machine(threads, isa)
        check_whole("--context", context, 1, MOST_CONTEXT)
        self.source, self.config, self.tokenizer, self.context = source, source.config, source.tokenizer, context
        self._closed = False
        checkpoint, wanted = source.checkpoint, source.layout
        self.tape = tape = find_tape(source.directory, checkpoint, source.config_hash, wanted, trunk)
        weights = Weights(checkpoint, wanted, usable_ids=source.usable_ids)
        self._lock: EngineLock | None = None
        try:
            own = own_memory()
            slot = slot_bytes(wanted.experts) if wanted.experts else 0
            reads = weights.disk.reads(tape.files, tape.pieces)
            demand = demand_of(source.config, tape.pieces, slot=slot, base_bytes=own, threads=machine[0], reads=reads, reserve=reserve)
            free = tightest()
            given = settle(budget or Budget(None), free, own)
            rates = known_rates(tape.paths, tape.kind, machine) or ASSUMED
            self.plan = make_plan(demand, given, context=context, prompt=prompt, all_logits=all_logits, rates=rates)
            refuse_overdraft(self.plan, free, own)
            if self.plan.total >= SHARED_BELOW:
                self._lock = engine_lock().acquire()
            storage = replace(storage_of(self.plan), verify="every" if every_read else "first")
            weights.allocate(storage, tape.pieces, tape.files)
            self.model = Model(source.config, weights)
            use_machine(*machine)  # last: what cannot be opened changes nothing for engines that are open already
        except BaseException:
            weights.close()
            self._unlock()
            raise
        self.chunk = self.plan.chunk

    @classmethod
    def open(
        cls,
        model: str | os.PathLike[str],
        *,
        memory: str | int | None = None,
        context: int = DEFAULT_CONTEXT,
        threads: int | None = None,
        isa: str | None = None,
        layers: int | None = None,
    ) -> Engine:
        """Open a checkpoint directory, or the word `demo`.

        memory: the budget ("8GB", or bytes); default is what is safely free. context: the most positions of a session. threads: default is
        what affinity, container quota and physical cores allow. isa: force an instruction set. layers: run only the first so many layers.
        Raises InputError for a checkpoint that cannot be run exactly, UsageError for an option, DoesNotFitError for a budget.
        """
        total = parse_size(memory, "memory") if isinstance(memory, str) else None if memory is None else check_size(memory, "memory")
        budget = Budget(total, source="memory")
        return cls(Source(model, layers=layers), budget=budget, context=context, threads=threads, isa=isa)

    @property
    def weights(self) -> Weights:
        return self.model.weights

    def step_back(self) -> None:
        """Between passes: give expert memory back while the machine is short of it, take it again when there is room. Bits stay."""
        experts, planned = self.weights.experts, self.plan.expert_slots
        if experts is None or not planned or self.plan.total < SHARED_BELOW:
            return
        with self.weights.turn():
            want = step_back(experts.kept, planned, experts.slot_bytes, system_memory().nbytes, memory_pressure())
            if want != experts.kept:
                experts.resize(want)

    @property
    def eos_ids(self) -> frozenset[int]:
        """Where generation stops."""
        return self.source.eos_ids

    @property
    def bytes_read(self) -> int:
        """From disk, since the engine was opened."""
        return self.weights.files.bytes_read + int(self.weights.disk.stats()["bytes_read"])

    def session(self) -> Session:
        """A new, empty sequence."""
        return Session(self)

    def encode(self, text: str, *, allow_special: bool = False) -> list[int]:
        """Text → ids; without `tiktoken.model` a UsageError."""
        return self.source.encode(text, allow_special=allow_special)

    def generate(
        self,
        prompt: str | Iterable[int] | Session,
        *,
        max_tokens: int = 256,
        sampling: Sampling | None = None,
        stop: str | Sequence[str] | None = None,
        on_logits: Callable[[Array], None] | None = None,
    ) -> Iterator[Token]:
        """Continue a text, ids, or a session (which then holds the new ids); greedy unless `sampling` says otherwise.

        The ids include the eos id that ended it. Raises UsageError for a bad prompt or option, ContentError at the end when an expert held
        a NaN scale; closed before, the engine says so at the next call, and at every later one. `on_logits` sees the logits [V] each token
        is chosen from, read-only; until it returns the session is busy for other threads. Two generators of one session continue it
        together, a token at a time.
        """
        self.check_open()
        self.check_content()
        check_max_tokens(max_tokens)
        if sampling is not None and not isinstance(sampling, Sampling):
            raise UsageError(f"sampling: needed a lilliput.Sampling, found {shown(sampling)}")
        if on_logits is not None and not callable(on_logits):
            raise UsageError(f"on_logits: needed a function, found {shown(on_logits)}")
        if stop and self.tokenizer is None:
            raise UsageError("--stop needs tiktoken.model in the checkpoint, because without it there is no text")
        session = prompt if isinstance(prompt, Session) else self.session()
        if session.engine is not self:
            raise UsageError("this session belongs to another engine: continue it there, or save it and load it here")
        if not isinstance(prompt, Session):
            session.append(self.encode(prompt) if isinstance(prompt, str) else prompt)
        return self._generate(session, max_tokens, sampling or Sampling(temp=0), StopText(() if stop is None else stop), on_logits)

    def _generate(
        self, session: Session, max_tokens: int, sampling: Sampling, stop: StopText, on_logits: Callable[[Array], None] | None
    ) -> Iterator[Token]:
        stream = self.tokenizer.stream() if self.tokenizer is not None else None
        for n in range(1, max_tokens + 1):
            with session.turn():  # until the choice is part of it; not while this generator waits to be asked for the next
                logits = session.next_logits(n < max_tokens)
                if on_logits is not None:
                    on_logits(logits)
                new = sampling.choose(logits, position=len(session.ids))
                session.extend([new])
            at_eos = new in self.source.eos_ids
            text = stop.push(stream.push(new)) if stream is not None and not at_eos else ""
            finish = "stop" if at_eos or stop.hit else "length" if n == max_tokens else None
            if finish and stream is not None:
                text += stop.push(stream.finish()) + stop.finish()
            yield Token(new, text, finish)
            if finish:
                break
        self.check_content()

    def logits(self, ids: Iterable[int]) -> Iterator[Array]:
        """Teacher forcing: the logits at every position of `ids`, in blocks [n, V] of consecutive positions."""
        ids = self.source.check_ids(ids)
        if not ids:
            raise UsageError(EMPTY_PROMPT)
        self.check_open()
        self.check_content()
        return self._logits(ids)

    def _logits(self, ids: list[int]) -> Iterator[Array]:
        work = scheduler.Work(State(self.config), ids, range(len(ids)))
        for parts in scheduler.run(self.model, [work], self.chunk):
            yield parts[0].span.logits
        self.check_content()

    def check_content(self) -> None:
        """Raises ContentError when a weight that was used, in whatever session, is one no sane checkpoint holds."""
        bad = self.weights.experts.nan_scales if self.weights.experts else 0
        if bad:
            raise ContentError(
                f"{self.source.directory}: {bad} MXFP4 groups had the scale byte 255 (NaN) and were taken as zero: do not use this output; "
                "the experts are damaged; download the shards again"
            )

    def check_open(self) -> None:
        if self._closed:
            raise UsageError(f"the engine of {self.source.directory} was closed: open the checkpoint again")

    def close(self) -> None:
        self._closed = True
        self.weights.close()
        self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def choose_machine(threads: int | None, isa: str | None) -> tuple[int, str]:
    """Threads and instruction set by `--threads`, `--isa`, `LILLIPUT_ISA` and what is here. Raises UsageError."""
    if threads is not None:
        check_whole("--threads", threads, 1, _core.MOST_THREADS)
    asked, source = (isa, "--isa") if isa is not None else (os.environ.get("LILLIPUT_ISA"), "LILLIPUT_ISA")
    have = _core.isas()
    if asked not in have and (asked or isa is not None):  # an empty variable is none
        raise UsageError(f"{source}: needed one of {', '.join(have)} (what this machine has), found {asked or repr(asked)}")
    return threads or default_threads(), asked or have[-1]


def use_machine(threads: int, isa: str) -> None:
    """They belong to the process: every engine in it computes with what the last one that was opened chose, to the same bits.

    Raises DoesNotFitError, and changes nothing, where so many threads cannot be started.
    """
    _core.set_threads(threads)
    _core.use_isa(isa)


def storage_of(plan: Plan) -> Storage:
    """The plan's numbers as the weights take them."""
    return Storage(plan.pins, plan.ring_bytes, plan.expert_slots, plan.window_slots)
