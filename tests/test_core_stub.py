"""The type stubs of the extensions name exactly what they have, with the same argument names."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import lilliput
from lilliput import _bench, _core


def functions(body: list[ast.stmt]) -> dict[str, list[ast.FunctionDef]]:
    """By name, the overloads of one in order."""
    found: dict[str, list[ast.FunctionDef]] = {}
    for node in body:
        if isinstance(node, ast.FunctionDef):
            found.setdefault(node.name, []).append(node)
    return found


def compare(stub: dict[str, list[ast.FunctionDef]], owner: Any) -> None:
    """Every function of the stub has the argument names that the extension's own signatures give."""
    for name, overloads in stub.items():
        if any(isinstance(mark, ast.Name) and mark.id == "property" for mark in overloads[0].decorator_list):
            assert isinstance(getattr(owner, name), property)
            continue
        signatures = getattr(owner, name).__doc__.splitlines()[: len(overloads)]
        for signature, function in zip(signatures, overloads, strict=True):
            assert re.findall(r"(\w+): ", signature) == [a.arg for a in function.args.args if a.arg != "self"], signature


@pytest.mark.parametrize("extension", [_core, _bench])
def test_the_stub_and_the_extension_agree(extension: ModuleType) -> None:
    stub_file = Path(lilliput.__file__).parent / f"{extension.__name__.rpartition('.')[2]}.pyi"
    body = ast.parse(stub_file.read_text()).body
    classes = {node.name: functions(node.body) for node in body if isinstance(node, ast.ClassDef)}
    stub = functions(body)
    values = {node.target.id for node in body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    assert set(stub) | set(classes) | values == {name for name in dir(extension) if not name.startswith("_")}
    compare(stub, extension)
    for name, members in classes.items():
        owner = getattr(extension, name)
        assert set(members) == {member for member in dir(owner) if not member.startswith("_")} | {"__init__"}
        compare(members, owner)
