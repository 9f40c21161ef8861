"""`lilliput generate`: continue a prompt."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np

from lilliput.cli import options
from lilliput.cli.console import Terminal, write_json, write_npy
from lilliput.cli.ending import ending
from lilliput.engine.engine import Engine, Token
from lilliput.engine.models import usual_sampling
from lilliput.engine.planning import ids_of_prompt
from lilliput.engine.report import Cost, Meter, closing_lines, facts, in_short
from lilliput.engine.sampling import Sampling
from lilliput.engine.session import Session
from lilliput.engine.source import Source, check_max_tokens
from lilliput.errors import UsageError
from lilliput.trace import TraceWriter

COST_BYTES = 1100  # of a token's entries in the report: measured


@click.command(cls=options.Verb)
@click.argument("model")
@options.prompt_source
@click.option("-n", "--max-tokens", type=int, default=256, show_default=True, metavar="N", help="Generate at most N tokens.")
@click.option("--temp", type=float, metavar="T", help="Temperature; 0 is greedy.")
@click.option("--top-p", type=float, metavar="P", help="Keep the likeliest tokens whose probabilities reach P.")
@click.option("--top-k", type=int, metavar="K", help="Keep the K likeliest tokens.")
@click.option("--min-p", type=float, metavar="P", help="Keep tokens at least P times as likely as the likeliest.")
@click.option("--seed", type=int, metavar="N", help="Seed of the sampling; drawn and reported when absent.")
@click.option(
    "--greedy",
    is_flag=True,
    help="Always the likeliest token: the default without sampling options, except for the demo (0.7, top-k 40).",
)
@click.option("--stop", multiple=True, metavar="TEXT", help="End before this text; may be repeated.")
@click.option("--logits", "logits_file", type=options.Output(), metavar="FILE.npy", help="Save the logits each token was chosen from.")
@click.option(
    "--session",
    "session_file",
    type=options.Output(),
    metavar="FILE",
    help="Continue the session saved in FILE if it exists, and save it there at the end.",
)
@click.option("--trace-experts", "trace_file", type=options.Output(), metavar="FILE", help="Record which experts every layer asks for.")
@options.memory
@options.machine
@options.reporting
def generate(
    model: str,
    prompt: str | None,
    prompt_file: str | None,
    ids: list[int] | None,
    max_tokens: int,
    temp: float | None,
    top_p: float | None,
    top_k: int | None,
    min_p: float | None,
    seed: int | None,
    greedy: bool,
    stop: tuple[str, ...],
    logits_file: str | None,
    session_file: str | None,
    trace_file: str | None,
    memory: options.Memory,
    threads: int | None,
    isa: str | None,
    layers: int | None,
    json_file: str | None,
    quiet: bool,
    verbose: bool,
) -> int:
    """Continue PROMPT; the text streams to stdout as it comes.

    Without tiktoken.model in the checkpoint give --ids; stdout is then the new ids on one line.
    """
    terminal = Terminal(quiet=quiet, verbose=verbose)
    check_max_tokens(max_tokens)
    before = options.read_stamp(session_file)
    source = options.read_prompt(prompt, prompt_file, ids, optional=before is not None)
    sampling = options.read_sampling(greedy, usual_sampling(model), temp=temp, top_p=top_p, top_k=top_k, min_p=min_p, seed=seed)
    began = time.monotonic()
    checked = Source(model, layers=layers)
    if trace_file is not None and checked.layout.experts is None:
        raise UsageError(f"--trace-experts: needed a layer with experts, found none in the first {checked.config.num_layers}")
    prompt_ids = ids_of_prompt(checked, source, memory.budget)
    saved = Session.positions(session_file) if session_file is not None and before is not None else 0
    with Engine(
        checked,
        budget=memory.budget,
        context=saved + len(prompt_ids) + max_tokens,
        prompt=len(prompt_ids),
        trunk=memory.trunk,
        every_read=memory.every_read,
        reserve=max_tokens * kept_bytes(checked, logits=logits_file is not None),
        threads=threads,
        isa=isa,
    ) as engine:
        opened = time.monotonic()
        session = Session.load(engine, Path(session_file)) if session_file is not None and before is not None else engine.session()
        session.append(prompt_ids)
        run = Run(engine, session, terminal, to_stdout=json_file != "-", keep_logits=logits_file is not None)
        committed = session.state.position
        with recording(engine, trace_file) as trace, ending() as end:
            end.attempt(lambda: run.collect(max_tokens, sampling, tuple(map(options.as_utf8, stop))))
            engine.check_content()  # before a session is saved that nobody should continue
            if session_file is not None and (session.state.position > committed or not end.failed):
                end.attempt(lambda: session.save(Path(session_file), was=before), whole=True)
            end.attempt(lambda: run.end_text(end.causes))
            if logits_file is not None and run.logits:  # an end before the first token leaves none
                rows, shape = [row[None] for row in run.logits], (len(run.logits), engine.config.vocab_size)
                end.attempt(lambda: write_npy(Path(logits_file), shape, rows))
            if run.tokens or not end.failed:
                end.attempt(lambda: write_json(json_file, run.report(model, prompt_ids, sampling, opened - began)))
            if trace is not None:
                end.attempt(trace.close)
            if not end.failed:
                run.closing_lines(len(prompt_ids), sampling, interrupted=bool(end.causes))
    return end.exit_code()


def kept_bytes(source: Source, *, logits: bool) -> int:
    """What a run keeps of every token until the end: its cost, and its logits where they are asked for."""
    return COST_BYTES + 4 * source.config.vocab_size * logits


@contextmanager
def recording(engine: Engine, file: str | None) -> Iterator[TraceWriter | None]:
    """While the block runs, every request for experts goes to a trace in FILE; the model must have some."""
    if file is None:
        yield None
        return
    experts = engine.weights.experts
    assert experts is not None
    with TraceWriter(Path(file), top_k=engine.config.moe.top_k, expert_bytes=experts.slot_bytes) as trace:
        engine.weights.watch.on_route.append(trace.routed)
        try:
            yield trace
        finally:
            engine.weights.watch.on_route.remove(trace.routed)


class Run:
    """One generation as the command line sees it: prints, keeps and times the tokens."""

    def __init__(self, engine: Engine, session: Session, terminal: Terminal, *, to_stdout: bool, keep_logits: bool) -> None:
        self.engine, self.session, self.terminal = engine, session, terminal
        self._to_stdout, self._keep_logits = to_stdout, keep_logits
        self.tokens: list[Token] = []
        self.logits: list[np.ndarray[Any, np.dtype[np.float32]]] = []
        self._began = time.monotonic()
        self._meter = Meter(engine)
        self.costs: list[Cost] = []
        self.times: list[float] = []  # seconds since the start at which each token was there

    def collect(self, max_tokens: int, sampling: Sampling, stop: tuple[str, ...]) -> None:
        """Generate until the end, or until something goes wrong, which is raised: what is complete by then is kept."""
        with self.terminal.pass_progress(self.engine):
            for token in self.engine.generate(self.session, max_tokens=max_tokens, sampling=sampling, stop=stop, on_logits=self._see):
                self.tokens.append(token)
                self.times.append(time.monotonic() - self._began)
                self._print(token)
                self.costs.append(self._meter.measure())
                self.terminal.detail(f"{len(self.tokens)}: {self.costs[-1]}")

    def end_text(self, causes: Sequence[BaseException]) -> None:
        """The line of the text ends, whatever ended the run: stdout, too, may be what did."""
        if not self._to_stdout or not (self.tokens or self.engine.tokenizer is None):
            return
        with suppress(OSError) if causes else nullcontext():
            self.terminal.end_text()

    def _see(self, logits: np.ndarray[Any, np.dtype[np.float32]]) -> None:
        if self._keep_logits:
            self.logits.append(logits)

    def _print(self, token: Token) -> None:
        if not self._to_stdout:
            return
        if self.engine.tokenizer is None:
            self.terminal.text(("," if len(self.tokens) > 1 else "") + str(token.id))
        else:
            self.terminal.text(token.text)

    def report(self, model: str, prompt_ids: list[int], sampling: Sampling, open_seconds: float) -> dict[str, Any]:
        return {
            "command": "generate",
            "model": model,
            "prompt_ids": prompt_ids,
            "ids": [token.id for token in self.tokens],
            "text": "".join(token.text for token in self.tokens) if self.engine.tokenizer is not None else None,
            "finish_reason": self.tokens[-1].finish if self.tokens else None,
            "sampling": asdict(sampling),
            "timings": {"open_s": open_seconds, "first_token_s": self.times[0] if self.times else None, "token_s": self.times},
            "tokens": [asdict(cost) for cost in self.costs],  # the first includes the prompt
            **facts(self.engine),
        }

    def closing_lines(self, prompt: int, sampling: Sampling, *, interrupted: bool) -> None:
        total = time.monotonic() - self._began
        parts = [f"{len(self.tokens)} token{'s' if len(self.tokens) != 1 else ''} in {total:.2f} s"]
        if self.times and prompt:
            parts.append(f"prompt of {prompt} at {prompt / self.times[0]:.3g} tokens/s")
        if len(self.times) > 1:
            parts.append(f"then {(len(self.times) - 1) / (self.times[-1] - self.times[0]):.3g} tokens/s")
        if not sampling.greedy:
            parts.append(f"seed {sampling.seed}")
        if interrupted:
            parts.append("interrupted")
        self.terminal.note("; ".join(parts))
        for line in closing_lines(self.engine, total):
            self.terminal.note(line)
        self.terminal.detail(in_short(self.engine))
