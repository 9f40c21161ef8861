"""The edge: errors become one message and an exit code here, and nowhere else."""

from __future__ import annotations

import errno
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

import click

from lilliput.errors import LilliputError

VERBS = {  # verb → module; imported only when the verb is used, so that `--help` is quick
    "generate": "generate",
    "tokenize": "tokenize",
    "inspect": "inspect",
    "logits": "logits",
    "compare": "logits",
    "synth": "synth",
    "pack": "pack",
    "verify": "pack",
    "bench": "bench",
    "simulate": "simulate",
}

SIGTERM_EXIT = 128 + signal.SIGTERM


class Terminated(BaseException):
    """SIGTERM arrived."""


class Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        module = VERBS.get(name)
        if module is None:
            return None
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


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit: 0 done, 1 failed, 2 usage or input, 3 does not fit, 4 bad content, 130 / 143 on signals."""
    _catch_signals()
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """The exit code of one command. Messages go to stderr."""
    try:
        result = lilliput.main(list(arguments) if arguments is not None else None, prog_name="lilliput", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.Abort:
        return 130
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except LilliputError as error:
        return _say(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _say("interrupted", 130)
    except Terminated:
        return _say("terminated", SIGTERM_EXIT)
    except MemoryError:
        return _say("not enough memory: free some, or use a smaller checkpoint", 3)
    except OSError as error:
        return _os_error(error)


def _os_error(error: OSError) -> int:
    if error.errno == errno.EPIPE:  # the reader of our output has gone: not worth a word, and nothing more can be written
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    where = f"{error.filename}: " if error.filename else ""
    return _say(f"{where}{error.strerror or error}", 3 if error.errno == errno.ENOSPC else 1)


def _say(message: str, code: int) -> int:
    print(f"lilliput: {message}", file=sys.stderr)
    return code


def _catch_signals() -> None:
    """Ctrl-C once abandons the pass in flight and ends cleanly; a second one stops at once. SIGTERM ends like the first."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        raise KeyboardInterrupt

    def terminate(_signal: int, _frame: FrameType | None) -> None:
        raise Terminated

    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, terminate)


def exit_code_of(error: BaseException | None) -> int:
    """For verbs that report before they end: the code of an interrupt they caught."""
    if error is None:
        return 0
    return SIGTERM_EXIT if isinstance(error, Terminated) else 130
