"""The type stub of the extension names what the extension has: same functions, same arguments."""

from __future__ import annotations

import ast
import re

from conftest import ROOT

from lilliput import _core


def test_the_stub_matches_the_extension() -> None:
    tree = ast.parse((ROOT / "src/lilliput/_core.pyi").read_text())
    stub = {f.name: [a.arg for a in f.args.args] for f in tree.body if isinstance(f, ast.FunctionDef)}
    built = {}
    for name in dir(_core):
        if not name.startswith("__"):
            signature = getattr(_core, name).__doc__.splitlines()[0]
            built[name] = re.findall(r"[(,] ?(\w+):", re.sub(r"\[[^\[\]]*\]", "", signature))
    assert built == stub
