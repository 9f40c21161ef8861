"""`Engine`: a checkpoint opened for running. One per process: threads and instruction set belong to the process."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from lilliput import _core
from lilliput.engine import scheduler
from lilliput.engine.models import find_model, usable_ids
from lilliput.engine.sampling import Sampling
from lilliput.engine.session import EMPTY_PROMPT, Session
from lilliput.engine.stopping import StopText
from lilliput.errors import ContentError, UsageError
from lilliput.machine.memory import available_memory
from lilliput.machine.threads import default_threads
from lilliput.model.config import Config, eos_ids, read_config
from lilliput.model.layout import layout
from lilliput.model.model import Model
from lilliput.model.state import State
from lilliput.text.tokenizer import Tokenizer
from lilliput.weights.checkpoint import Checkpoint
from lilliput.weights.layout import Layout
from lilliput.weights.weights import Weights

Array = npt.NDArray[np.float32]

MOST_THREADS = 1024  # more is a slip of the hand, and could not be started
RESIDENT_SHARE = 0.5  # weights stay in memory when they take at most this share of what is available; else they stream


@dataclass(frozen=True, slots=True)
class Token:
    """One generated token. `text` is what became certain with it (a character may need several tokens, a stop string none).

    `finish` is None until the last one: "stop" (an eos id or a stop string) or "length".
    """

    id: int
    text: str
    finish: str | None


class Engine:
    """Open with `lilliput.open`. Also a context manager; `close` releases the files."""

    def __init__(self, directory: Path, config: Config, full: Layout, checkpoint: Checkpoint, model: Model) -> None:
        self.directory, self.config, self.layout, self.checkpoint, self.model = directory, config, full, checkpoint, model
        self.tokenizer = Tokenizer.open(directory, config.vocab_size)
        self.eos_ids = frozenset(eos_ids(directory, config))
        self.config_hash = hashlib.sha256((directory / "config.json").read_bytes()).hexdigest()
        self.identity = hashlib.sha256(f"{self.config_hash} {checkpoint.identity} {config.num_layers}".encode()).hexdigest()
        self.chunk = scheduler.CHUNK
        self._closed = False

    @classmethod
    def open(
        cls, model: str | os.PathLike[str], *, threads: int | None = None, isa: str | None = None, layers: int | None = None
    ) -> Engine:
        """Open a checkpoint directory, or the word `demo`.

        threads: default is what affinity, container quota and physical cores allow. isa: force an instruction set. layers: run only
        the first so many layers. Raises InputError for a checkpoint that cannot be run exactly, UsageError for an option.
        """
        machine = choose_machine(threads, isa)
        directory = find_model(model)
        whole = read_config(directory)
        checkpoint = Checkpoint.open(directory, layout(whole))
        config = first_layers(whole, layers)
        wanted = layout(config)
        usable = usable_ids(directory, whole.vocab_size)
        weights = Weights(checkpoint, wanted, resident=_fits_in_memory(wanted), usable_ids=usable)
        try:
            engine = cls(directory, config, wanted, checkpoint, Model(config, weights))
        except BaseException:
            weights.close()
            raise
        use_machine(*machine)  # last: what cannot be opened changes nothing for engines that are open already
        return engine

    @property
    def weights(self) -> Weights:
        return self.model.weights

    def session(self) -> Session:
        """A new, empty sequence."""
        return Session(self)

    def encode(self, text: str, *, allow_special: bool = False) -> list[int]:
        """Text → ids; without `tiktoken.model` a UsageError."""
        if self.tokenizer is None:
            raise UsageError(f"{self.directory} has no tiktoken.model, so text cannot be read: give token ids (`--ids 1,2,3`)")
        return self.tokenizer.encode(text, allow_special=allow_special)

    def check_ids(self, ids: Iterable[int]) -> list[int]:
        """Ids (a numpy vector, too) as plain integers. Raises UsageError for what is none, or one the text model has no row for."""
        if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
            raise UsageError(f"needed token ids, found {type(ids).__name__}")
        listed = list(ids)
        for i in listed:
            if not isinstance(i, Integral) or isinstance(i, bool):
                raise UsageError(f"token id {i!r}: needed a whole number, found {type(i).__name__}")
            if not 0 <= i < self.config.vocab_size:
                raise UsageError(f"token id {i}: needed 0 to {self.config.vocab_size - 1}, because the vocabulary ends there")
            if i in self.config.media_ids:
                raise UsageError(f"token id {i} stands for an image, and this engine runs text only: leave it out")
        return [int(i) for i in listed]

    def generate(
        self,
        prompt: str | Iterable[int] | Session,
        *,
        max_tokens: int = 256,
        sampling: Sampling | None = None,
        stop: str | Sequence[str] = (),
        on_logits: Callable[[Array], None] | None = None,
    ) -> Iterator[Token]:
        """Continue a text, ids, or a session (which then holds the new ids); greedy unless `sampling` says otherwise.

        The ids include the eos id that ended it. Raises UsageError for a bad prompt or option, ContentError at the end
        when an expert held a NaN scale. `on_logits` sees the logits [V] each token is chosen from.
        """
        self.check_open()
        _check_whole("--max-tokens", max_tokens, 1)
        if stop and self.tokenizer is None:
            raise UsageError("--stop needs tiktoken.model in the checkpoint, because without it there is no text")
        session = prompt if isinstance(prompt, Session) else self.session()
        if session.engine is not self:
            raise UsageError("this session belongs to another engine: continue it there, or save it and load it here")
        if not isinstance(prompt, Session):
            session.append(self.encode(prompt) if isinstance(prompt, str) else prompt)
        return self._generate(session, max_tokens, sampling or Sampling(temp=0), StopText(stop or ()), on_logits)

    def _generate(
        self, session: Session, max_tokens: int, sampling: Sampling, stop: StopText, on_logits: Callable[[Array], None] | None
    ) -> Iterator[Token]:
        stream = self.tokenizer.stream() if self.tokenizer is not None else None
        for n in range(1, max_tokens + 1):
            logits = session.logits()
            if on_logits is not None:
                on_logits(logits)
            new = sampling.choose(logits, position=len(session.ids))
            session.extend([new])
            at_eos = new in self.eos_ids
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
        ids = self.check_ids(ids)
        if not ids:
            raise UsageError(EMPTY_PROMPT)
        self.check_open()
        return self._logits(ids)

    def _logits(self, ids: list[int]) -> Iterator[Array]:
        work = scheduler.Work(State(self.config), ids, range(len(ids)))
        for parts in scheduler.run(self.model, [work], self.chunk):
            yield parts[0].span.logits
        self.check_content()

    def check_content(self) -> None:
        """Raises ContentError when a weight that was used is one no sane checkpoint holds."""
        bad = self.weights.experts.nan_scales
        if bad:
            raise ContentError(
                f"{self.directory}: {bad} MXFP4 groups had the scale byte 255 (NaN) and were taken as zero: do not use this output; "
                "the experts are damaged (`lilliput verify` finds the shard)"
            )

    def check_open(self) -> None:
        if self._closed:
            raise UsageError(f"the engine of {self.directory} was closed: open the checkpoint again")

    def close(self) -> None:
        self._closed = True
        self.weights.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def choose_machine(threads: int | None, isa: str | None) -> tuple[int, str]:
    """Threads and instruction set by `--threads`, `--isa`, `LILLIPUT_ISA` and what is here. Raises UsageError."""
    if threads is not None:
        _check_whole("--threads", threads, 1, MOST_THREADS)
    asked, source = (isa, "--isa") if isa is not None else (os.environ.get("LILLIPUT_ISA"), "LILLIPUT_ISA")
    have = _core.isas()
    if asked and asked not in have:
        raise UsageError(f"{source}: needed one of {', '.join(have)} (what this machine has), found {asked}")
    return threads or default_threads(), asked or have[-1]


def use_machine(threads: int, isa: str) -> None:
    """They belong to the process: every engine in it computes with what the last one that was opened chose, to the same bits."""
    _core.use_isa(isa)
    _core.set_threads(threads)


def _check_whole(option: str, value: object, least: int, most: int | None = None) -> None:
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or not least <= int(value) <= (int(value) if most is None else most):  # type: ignore[call-overload]
        needed = f"at least {least}" if most is None else f"{least} to {most}"
        raise UsageError(f"{option}: needed {needed}, found {value!r}")


def first_layers(config: Config, layers: int | None) -> Config:
    """The same model cut after its first `layers` layers."""
    if layers is None:
        return config
    _check_whole("--layers", layers, 1, config.num_layers)
    return replace(config, num_layers=layers, is_kda=config.is_kda[:layers])


def _fits_in_memory(wanted: Layout) -> bool:
    experts = wanted.experts
    total = sum(spec.nbytes for spec in wanted.tape()) + (experts.count * experts.nbytes if experts else 0)
    return total <= RESIDENT_SHARE * available_memory()
