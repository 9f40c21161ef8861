"""Options that several verbs share, and how their values are read."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from lilliput.engine.models import DEMO, is_demo
from lilliput.engine.sampling import Sampling
from lilliput.errors import DoesNotFitError, UsageError
from lilliput.machine.memory import chosen_budget, parse_size
from lilliput.machine.output import Stamp, is_direct, output_path, stamp
from lilliput.machine.places import expand, packed_directory
from lilliput.machine.plan import Budget

Command = TypeVar("Command", bound=Callable[..., Any])
MOST_QUOTED = 40
MOST_TEXT = 16 * 1024 * 1024  # bytes: three million tokens and more
LONGEST_ID = 1000  # digits; Python refuses to convert many more


class Output(click.ParamType[str]):
    """A file to write, refused before the work where that is not possible. `dash`: `-` stands for stdout; else it is refused."""

    name = "file"

    def __init__(self, *, dash: bool = False) -> None:
        self.dash = dash

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        what = param.opts[-1] if param is not None else "output"
        if value == "-" and not self.dash:
            raise UsageError(f"{what}: needed a file, found -: it cannot go to stdout; for a file of that name say ./-")
        return str(value) if value == "-" else str(output_path(value, what))


class Input(click.ParamType[Path]):
    """A file or directory to read, with `~` resolved."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        return value if isinstance(value, Path) else expand(value, param.human_readable_name if param is not None else "path")


class Verb(click.Command):
    """A command whose outputs are refused before the work where one would overwrite an input, another output, or a part of the model."""

    def invoke(self, ctx: click.Context) -> Any:
        inputs, outputs, models = dict[str, Path](), dict[str, Path](), list[str]()
        for param in self.params:
            given, name = ctx.params.get(param.name or ""), param.opts[-1]
            if given is None or given == "-":
                continue
            if isinstance(param.type, Output):
                outputs[name] = Path(given)
            elif isinstance(param.type, Input) or param.name in ("prompt_file", "path"):
                shown = name if isinstance(param, click.Option) else param.human_readable_name
                inputs[shown] = expand(given, shown)
            if param.name in ("model", "packed", "trunk") or (param.name == "output" and isinstance(param.type, Input)):
                models.append(str(given))
        check_outputs(inputs, outputs, models)
        return super().invoke(ctx)


class Ids(click.ParamType[list[int]]):
    """Token ids: whole numbers separated by commas or white space."""

    name = "ids"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        if isinstance(value, list):
            return value
        option, needed = param.opts[-1] if param is not None else "ids", "whole numbers separated by commas (1,2,3)"
        words = [word for entry in entries(str(value), option, needed) for word in entry.split()]
        bad = [word[:MOST_QUOTED] for word in words if not (word.isascii() and word.isdigit() and len(word) <= LONGEST_ID)]
        if bad:
            raise UsageError(f"{option}: needed {needed}, found {bad[0]!r}")
        return [int(word) for word in words]


def entries(text: str, option: str, needed: str) -> list[str]:
    """`a, b,c` → its entries, without the white space around them. Raises UsageError, which says `needed`, where one is empty."""
    found = [entry.strip() for entry in text.split(",")]
    if "" in found:
        where = f" as entry {found.index('') + 1} of {text[:MOST_QUOTED]!r}{'...' * (len(text) > MOST_QUOTED)}" if len(found) > 1 else ""
        raise UsageError(f"{option}: needed {needed}, found nothing{where}")
    return found


def sizes(text: str, option: str) -> list[int]:
    """`8GB,16GB` → bytes, in the order given. Raises UsageError naming `option`."""
    return [parse_size(entry, option) for entry in entries(text, option, "sizes separated by commas (8GB,16GB)")]


def names(text: str | None, option: str) -> list[str]:
    """`a,b` → names, in the order given; nothing for None. Raises UsageError naming `option`."""
    return entries(text, option, "names separated by commas") if text is not None else []


def whole_numbers(text: str | None, option: str) -> list[int]:
    """`1,2,8` → numbers above zero, each once and in order; nothing for None. Raises UsageError naming `option`."""
    needed = "whole numbers above zero, separated by commas"
    words = [word for entry in entries(text, option, needed) for word in entry.split()] if text is not None else []
    bad = [word[:MOST_QUOTED] for word in words if not (word.isascii() and word.isdigit() and len(word) < 10 and int(word) > 0)]
    if bad:
        raise UsageError(f"{option}: needed {needed}, found {bad[0]!r}")
    return sorted({int(word) for word in words})


def machine(command: Command) -> Command:
    """--threads, --isa, --layers, --verbose: for every verb that runs the model."""
    for option in (
        click.option("-v", "--verbose", is_flag=True, help="Say more on stderr."),
        click.option("--layers", type=int, metavar="N", help="Run only the first N layers (diagnostic)."),
        click.option("--isa", metavar="NAME", help="Force scalar, avx2, avx512 or neon (diagnostic; default: the widest here)."),
        click.option("-t", "--threads", type=int, metavar="N", help="Threads; default: what affinity, quota and cores allow."),
    ):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class Memory:
    """What the memory options asked for."""

    budget: Budget
    trunk: Path | None  # a packed tape in another place than its own
    every_read: bool  # check packed pieces on every read


def memory(command: Command) -> Command:
    """--memory, --preset, --trunk-memory, --expert-memory, --trunk, --check-every-read; the verb gets one `memory`."""

    @wraps(command)
    def wrapped(
        *arguments: Any,
        memory: str | None,
        preset: str | None,
        trunk_memory: str | None,
        expert_memory: str | None,
        trunk: Path | None,
        check_every_read: bool,
        **others: Any,
    ) -> Any:
        pins = parse_size(trunk_memory, "--trunk-memory") if trunk_memory is not None else None
        experts = parse_size(expert_memory, "--expert-memory") if expert_memory is not None else None
        source = f"--preset {preset}" if preset is not None else "--memory"
        budget = Budget(chosen_budget(memory, preset), pins, experts, source)
        return command(*arguments, memory=Memory(budget, trunk, check_every_read), **others)

    decorated: Any = wrapped
    for option in (
        click.option("--check-every-read", is_flag=True, help="Check packed pieces on every read, not only on the first of a run."),
        click.option("--trunk", type=Input(), metavar="DIR", help="The packed tape to use; default: the one in its place, if any."),
        click.option("--expert-memory", metavar="SIZE", help="Memory for the expert cache, instead of the computed share."),
        click.option("--trunk-memory", metavar="SIZE", help="Memory for pinned pieces of the trunk, instead of the computed share."),
        click.option("--preset", metavar="NAME", help="laptop, desktop, workstation, server or max: 8, 32, 96, 128, 224 GB."),
        click.option("--memory", metavar="SIZE", help="The one budget, e.g. 8GB; never exceeded. Default: what is safely free."),
    ):
        decorated = option(decorated)
    return cast("Command", decorated)


def reporting(command: Command) -> Command:
    """--json, --quiet."""
    for option in (
        click.option("-q", "--quiet", is_flag=True, help="Say nothing on stderr but errors."),
        json_option,
    ):
        command = option(command)
    return command


json_option = click.option(
    "--json", "json_file", type=Output(dash=True), metavar="FILE", help="Write a report as JSON (`-`: to stdout, instead of the text)."
)


def prompt_source(command: Command) -> Command:
    """Exactly one of PROMPT, -f, --ids."""
    for option in (
        click.option("--ids", type=Ids(), metavar="1,2,3", help="The prompt as token ids."),
        click.option("-f", "--prompt-file", metavar="FILE", help="Read the prompt from FILE (`-`: stdin), byte for byte."),
        click.argument("prompt", required=False),
    ):
        command = option(command)
    return command


def read_prompt(prompt: str | None, prompt_file: str | None, ids: list[int] | None, *, optional: bool = False) -> str | list[int]:
    """The one prompt that was given, as text or ids; no ids where it is optional. Raises UsageError for none or several."""
    given = [name for name, value in (("PROMPT", prompt), ("-f", prompt_file), ("--ids", ids)) if value is not None]
    if optional and not given:
        return []
    if len(given) != 1:
        raise UsageError(f"needed exactly one of PROMPT, -f FILE or --ids 1,2,3, found {' and '.join(given) or 'none'}")
    if ids is not None:
        return ids
    if prompt_file is not None:
        return read_text(prompt_file)
    assert prompt is not None
    return as_utf8(prompt)


def check_outputs(inputs: Mapping[str, Path], outputs: Mapping[str, Path], models: Sequence[str]) -> None:
    """Raises UsageError for an output that an input or another output is, or that lies in one of `models`. Devices may be named twice."""
    seen = {os.path.realpath(file): name for name, file in inputs.items()}
    for name, file in outputs.items():
        if is_direct(file):
            continue
        real = os.path.realpath(file)
        if real in seen:
            raise UsageError(f"{seen[real]} and {name}: needed two files, found {file} for both: one would overwrite the other")
        seen[real] = name
        for model in models:
            if belongs_to(model, Path(real)):
                raise UsageError(f"{name}: needed a place outside of {model}, where nothing is changed, found {file}")


def belongs_to(model: str, file: Path) -> bool:
    """Does `file` lie in the directory of a model or of its packed tape, or does a link in there lead to it (as in a hub's snapshot)?"""
    place = DEMO if is_demo(model) else Path(model)
    places = [place]
    with suppress(OSError, RuntimeError, UsageError):
        place = places[0] = place.expanduser()
        places.append(packed_directory(place, []))
    for directory in places:
        if file.is_relative_to(os.path.realpath(directory)):
            return True
        with suppress(OSError):
            if any(os.path.realpath(entry) == str(file) for entry in directory.iterdir()):
                return True
    return False


def read_stamp(session: str | None) -> Stamp | None:
    """What tells whether the file of a session has changed since; None where there is none yet. UsageError for what cannot be one."""
    if session is None:
        return None
    if is_direct(Path(session)):
        raise UsageError(f"--session: {session}: needed a file, found a pipe or a device: a session is read again")
    return stamp(Path(session))


def read_sampling(greedy: bool, usual: Mapping[str, float], **given: float | int | None) -> Sampling:
    """The options given, over the `usual` ones of the model; greedy where there are neither, or `greedy` is asked for: then alone."""
    options = {name: value for name, value in given.items() if value is not None}
    if greedy and options:
        first = next(iter(options)).replace("_", "-")
        raise UsageError(f"--greedy: needed alone, found --{first} as well: greedy takes no sampling option")
    if options.get("temp") == 0 and len(options) > 1:
        other = next(name for name in options if name != "temp").replace("_", "-")
        raise UsageError(
            f"--temp 0: needed alone, found --{other} as well: at temperature 0 the likeliest token is taken, whatever it says"
        )
    chosen = {} if greedy else {**usual, **options}
    return Sampling(**chosen) if chosen else Sampling(temp=0)  # type: ignore[arg-type]


def as_utf8(argument: str) -> str:
    """An argument as the user's shell gave it: where the locale (C) is not UTF-8, Python hands us single bytes instead of text."""
    try:
        return os.fsencode(argument).decode()
    except UnicodeError:
        return argument  # refused, with the place of the byte, by whoever needs text


def read_text(file: str) -> str:
    """A UTF-8 text file, or stdin for `-`, byte for byte (line ends stay as they are). DoesNotFitError beyond `MOST_TEXT` bytes."""
    name = "stdin" if file == "-" else file
    if file == "-" and sys.stdin is None:
        raise UsageError("stdin: cannot be read: it is closed")
    try:
        with nullcontext(sys.stdin.buffer) if file == "-" else expand(file, "-f").open("rb") as opened:
            size = os.fstat(opened.fileno()).st_size if file != "-" else 0
            raw = opened.read(MOST_TEXT + 1)
    except OSError as error:
        raise UsageError(f"{name}: cannot be read: {error.strerror}") from error
    if len(raw) > MOST_TEXT:
        found = f"{size:,}" if size > MOST_TEXT else "more"
        raise DoesNotFitError(
            f"{name}: needed at most {MOST_TEXT:,} bytes of text, more than any context holds, found {found}: give a part of it"
        )
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{name}: needed UTF-8 text, found byte 0x{raw[error.start]:02x} at {error.start}") from error
