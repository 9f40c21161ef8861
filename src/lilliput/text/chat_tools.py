"""Tools of a chat request: their declarations, the calls of assistant messages, and which call a tool message answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lilliput.text import chat_json
from lilliput.text.chat_fields import Fields, described, found, is_empty, is_word, shown
from lilliput.text.chat_json import NotJsonError


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a call: its JSON type, and its text as the prompt has it."""

    key: str
    type: str
    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call. `raw` is the text of arguments that are no JSON, None where `arguments` holds them all."""

    id: str
    name: str
    arguments: tuple[Argument, ...] = ()
    raw: str | None = None


def read_tools(fields: Fields, what: str, value: Any) -> str:
    """The compact JSON of a list of tools; empty where there are none."""
    if value is None:
        return ""
    if not isinstance(value, (list, tuple)):
        fields.complain(what, "a list of tools", described(value))
        return ""
    for place, tool in enumerate(value):
        if not isinstance(tool, Mapping):
            fields.complain(f"{what}[{place}]", "an object that describes a tool", described(tool))
        elif is_word(tool.get("type"), "function"):
            function = tool.get("function")
            if isinstance(function, Mapping):
                fields.name(f"{what}[{place}].function", function)
            else:
                fields.complain(f"{what}[{place}].function", "an object with the function's name", found(tool, "function"))
    return fields.json(what, value, compact=True) if value else ""


def read_calls(fields: Fields, where: str, value: Any) -> tuple[Call, ...]:
    """The `tool_calls` of an assistant message; `where` is that field's place."""
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)):
        fields.complain(where, "a list of calls", described(value))
        return ()
    calls = tuple(_call(fields, f"{where}[{place}]", call) for place, call in enumerate(value))
    first: dict[str, int] = {}
    for place, call in enumerate(calls):
        if call.id and first.setdefault(call.id, place) != place:
            fields.complain(f"{where}[{place}].id", "an id of its own", f"{described(call.id)}, the id of call {first[call.id]}")
    return calls


def _call(fields: Fields, where: str, value: Any) -> Call:
    if not isinstance(value, Mapping):
        fields.complain(where, "an object with a function", described(value))
        return Call("", "")
    if not is_empty(value.get("type")) and not is_word(value["type"], "function"):
        fields.complain(f"{where}.type", '"function"', found(value, "type"))
    function = value.get("function")
    if not isinstance(function, Mapping):
        fields.complain(f"{where}.function", "an object with name and arguments", found(value, "function"))
        return Call("", "")
    identity = fields.optional(where, value, "id")
    name = fields.name(f"{where}.function", function)
    place = f"{where}.function.arguments"
    given = function.get("arguments")
    if isinstance(given, str):
        text = fields.text(place, given)
        if not text.strip():
            return Call(identity, name)
        try:
            arguments = chat_json.parse(text)
        except NotJsonError as error:
            fields.complain(place, error.needed, error.found)
            return Call(identity, name)
        except ValueError:
            return Call(identity, name, raw=text)
        given_as = f"the text of a JSON {chat_json.kind(arguments)}"
    else:
        arguments, given_as = given, found(function, "arguments")
    if not isinstance(arguments, Mapping):
        fields.complain(place, "a JSON object, or its text", given_as)
        return Call(identity, name)
    return Call(identity, name, tuple(_arguments(fields, place, arguments)))


def _arguments(fields: Fields, where: str, value: Mapping[Any, Any]) -> list[Argument]:
    arguments = []
    for key, item in value.items():
        if not isinstance(key, str):
            fields.complain(where, "strings as keys", f"one of type {type(key).__name__}")
            continue
        place = f"{where}.{shown(key)}"
        # A string stands bare; everything else as JSON.
        text = fields.text(place, item) if isinstance(item, str) else fields.json(place, item, compact=False)
        arguments.append(Argument(fields.text(f"{place} (the key)", key), chat_json.kind(item), text))
    return arguments
