"""`lilliput pack` and `lilliput verify`: the packed tape."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from lilliput.cli import options
from lilliput.cli.console import Terminal, write_json
