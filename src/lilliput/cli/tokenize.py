"""`lilliput tokenize`: text to ids and back."""

from __future__ import annotations

import sys

import click

from lilliput.cli import options
from lilliput.cli.console import write_json
from lilliput.engine.models import open_tokenizer
from lilliput.errors import UsageError


@click.command(cls=options.Verb)
@click.argument("model")
@click.argument("text", required=False)
@click.option("-f", "--prompt-file", metavar="FILE", help="Read the text from FILE (`-`: stdin).")
@click.option("--decode", "decode", type=options.Ids(), metavar="1,2,3", help="Turn ids into text instead.")
@click.option("--special", is_flag=True, help="Let the names of added tokens in TEXT stand for them (otherwise they are ordinary text).")
@options.json_option
def tokenize(model: str, text: str | None, prompt_file: str | None, decode: list[int] | None, special: bool, json_file: str | None) -> None:
    """Print the ids of TEXT, comma-separated (or with --decode the text of ids)."""
    given = [name for name, value in (("TEXT", text), ("-f", prompt_file), ("--decode", decode)) if value is not None]
    if len(given) != 1:
        raise UsageError(f"needed exactly one of TEXT, -f FILE or --decode 1,2,3, found {' and '.join(given) or 'none'}")
    if decode is not None and special:
        raise UsageError("--special goes with a text, not with --decode")
    tokenizer = open_tokenizer(model)
    if decode is not None:
        ids, text = decode, tokenizer.decode(decode)
        result = text
    else:
        text = options.read_text(prompt_file) if prompt_file is not None else options.as_utf8(text or "")
        ids = tokenizer.encode(text, allow_special=special)
        result = ",".join(map(str, ids))
    write_json(json_file, {"command": "tokenize", "text": text, "ids": ids})
    if json_file != "-":
        sys.stdout.write(result + "\n")
