"""The edge: errors become one message and an exit code here, and nowhere else."""

from __future__ import annotations

import errno
import importlib
import io
import os
import resource
import sys
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches

import click

from lilliput._cpu import explain_old_cpu
from lilliput.cli.signals import Terminated
from lilliput.errors import DoesNotFitError, LilliputError

VERBS = {  # verb → module; imported only when the verb is used, so that `--help` is quick
    "generate": "generate",
    "tokenize": "tokenize",
    "inspect": "inspect",
    "logits": "logits",
    "compare": "logits",
    "synth": "synth",
    "pack": "pack",
    "verify": "pack",
    "plan": "plan",
    "bench": "bench",
    "simulate": "simulate",
}


class Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in VERBS and (near := get_close_matches(args[0], VERBS, n=1)):
            ctx.fail(f"No such command '{args[0]}'. Did you mean '{near[0]}'?")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        module = VERBS.get(name)
        if module is None:
            return None
        with explain_old_cpu():
            command = getattr(importlib.import_module(f"lilliput.cli.{module}"), name)
        assert isinstance(command, click.Command)
        return command


def _version(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from lilliput import __version__

        click.echo(f"lilliput {__version__}")
        ctx.exit()


@click.command(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print the version.")
def lilliput() -> None:
    """Kimi K3 on one ordinary machine, with the same bits everywhere.

    MODEL is a checkpoint directory, or the word `demo`.
    """


def open_streams() -> None:
    """Text leaves as UTF-8 whatever the locale says.

    A stream that was closed (`>&-`) is held open, so that no file we open takes its place: what is written to stdout then fails as
    it should, what is written to stderr is lost.
    """
    for stream, mode in (("stdin", os.O_RDONLY), ("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY)):
        if getattr(sys, stream) is None:
            descriptor = os.open(os.devnull, mode)  # the lowest that is free: this stream's own
            if stream != "stdin":  # left None, so that reading from it can be refused
                setattr(sys, stream, os.fdopen(descriptor, "w"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")  # a path keeps its bytes


def run(arguments: Sequence[str] | None = None) -> int:
    """The exit code of one command. Messages go to stderr."""
    try:
        result = lilliput.main(list(arguments) if arguments is not None else None, prog_name="lilliput", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.Abort:
        return 130
    except click.ClickException as error:
        with suppress(OSError):
            error.show()
        return error.exit_code
    except LilliputError as error:
        return _no_more_files(error) or say(str(error), error.exit_code)
    except KeyboardInterrupt:
        return say("interrupted", 130)
    except Terminated as end:
        return say(str(end), end.exit_code)
    except MemoryError:
        return say("not enough memory: free some, or use a smaller checkpoint", 3)
    except OSError as error:
        return _no_more_files(error) or _os_error(error)


def _no_more_files(error: BaseException | None) -> int | None:
    """Where an error, whatever was made of it, began with too many open files: says so, with what helps. Anything may open a file."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            where = f"{error.filename}: " if error.filename else ""
            advice = f"raise the limit of {limit:,} with `ulimit -n {max(1024, 4 * limit)}`"
            return say(f"{where}cannot be opened, because too many files are open: {advice}, or close some", DoesNotFitError.exit_code)
        error = error.__cause__ or error.__context__
    return None


def _os_error(error: OSError) -> int:
    if isinstance(error, FileNotFoundError) and not error.filename:
        return say("the current directory does not exist any more: change to another", 2)
    if not error.filename:  # stdout: nothing more can be written, and what Python still holds must not fail again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno == errno.EPIPE:  # its reader has gone: not worth a word
            return 1
    where = error.filename or "the result could not be written to stdout"
    return say(f"{where}: {error.strerror or error}", 3 if error.errno == errno.ENOSPC else 1)


def say(message: str, code: int) -> int:
    """A message for stderr; returns the code that goes with it."""
    shown = "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in message)  # names in files can hold anything
    with suppress(OSError):
        print(f"lilliput: {shown}", file=sys.stderr)
    return code


def exit_code_of(error: BaseException | None) -> int:
    """For verbs that report before they end: the code of an interrupt they caught."""
    if error is None:
        return 0
    return error.exit_code if isinstance(error, Terminated) else 130
