"""Lilliput: Kimi K3 on one ordinary machine, with the same bits everywhere.

import lilliput
with lilliput.open("demo") as engine:
    for token in engine.generate("Once"):
        print(token.text, end="")
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if sys.platform == "win32":
    raise ImportError("Lilliput does not run on Windows itself; install it inside WSL2 (`wsl --install`), where it runs as on Linux.")

from lilliput import errors
from lilliput._cpu import explain_old_cpu

if TYPE_CHECKING:
    from lilliput.engine.engine import Engine, Token
    from lilliput.engine.sampling import Sampling
    from lilliput.engine.session import Session

    open = Engine.open  # `lilliput.open(...)` reads better than the class

__version__ = "0.1.0"
__all__ = ["Engine", "Sampling", "Session", "Token", "__version__", "errors", "open"]

_HOMES = {"Engine": "engine", "Sampling": "sampling", "Session": "session", "Token": "engine"}


def __getattr__(name: str) -> Any:
    """The public names are loaded when first used: the program wants its signal handlers, and `--help`, before numpy."""
    if name == "open":
        return __getattr__("Engine").open
    if name not in _HOMES:
        raise AttributeError(f"module 'lilliput' has no attribute {name!r}")
    with explain_old_cpu():
        return getattr(importlib.import_module(f"lilliput.engine.{_HOMES[name]}"), name)
