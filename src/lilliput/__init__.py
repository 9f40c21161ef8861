"""Lilliput: Kimi K3 on one ordinary machine, with the same bits everywhere.

import lilliput
with lilliput.open("demo") as engine:
    for token in engine.generate("Once"):
        print(token.text, end="")
"""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("Lilliput does not run on Windows itself; install it inside WSL2 (`wsl --install`), where it runs as on Linux.")

from lilliput._cpu import explain_old_cpu

with explain_old_cpu():
    import numpy as _numpy  # noqa: F401

from lilliput import errors
from lilliput.engine.engine import Engine, Token
from lilliput.engine.sampling import Sampling
from lilliput.engine.session import Session

__version__ = "0.1.0"
open = Engine.open  # `lilliput.open(...)` reads better than the class

__all__ = ["Engine", "Sampling", "Session", "Token", "__version__", "errors", "open"]
