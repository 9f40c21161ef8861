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


def functions(body: list[ast.stmt]) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in body if isinstance(node, ast.FunctionDef)}


def compare(stub: dict[str, ast.FunctionDef], owner: Any) -> None:
    """Every function of the stub has the argument names that the extension's own signature gives."""
    for name, function in stub.items():
        if any(isinstance(mark, ast.Name) and mark.id == "property" for mark in function.decorator_list):
            assert isinstance(getattr(owner, name), property)
            continue
        signature = getattr(owner, name).__doc__.splitlines()[0]
        assert re.findall(r"(\w+): ", signature) == [a.arg for a in function.args.args if a.arg != "self"], signature


@pytest.mark.parametrize("extension", [_core, _bench])
def test_the_stub_and_the_extension_agree(extension: ModuleType) -> None:
    stub_file = Path(lilliput.__file__).parent / f"{extension.__name__.rpartition('.')[2]}.pyi"
    body = ast.parse(stub_file.read_text()).body
    classes = {node.name: functions(node.body) for node in body if isinstance(node, ast.ClassDef)}
    stub = functions(body)
    assert set(stub) | set(classes) == {name for name in dir(extension) if not name.startswith("_")}
    compare(stub, extension)
    for name, members in classes.items():
        owner = getattr(extension, name)
        assert set(members) == {member for member in dir(owner) if not member.startswith("_")} | {"__init__"}
        compare(members, owner)
