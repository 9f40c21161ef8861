"""The type stub of the extension names exactly what the extension has, with the same argument names."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import lilliput
from lilliput import _core

STUB = Path(lilliput.__file__).parent / "_core.pyi"


def test_the_stub_and_the_extension_agree() -> None:
    functions = {n.name: [a.arg for a in n.args.args] for n in ast.parse(STUB.read_text()).body if isinstance(n, ast.FunctionDef)}
    assert set(functions) == {name for name in dir(_core) if not name.startswith("_")}
    for name, arguments in functions.items():
        signature = getattr(_core, name).__doc__.splitlines()[0]
        assert re.findall(r"(\w+): ", signature) == arguments, signature
