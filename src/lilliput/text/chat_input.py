"""Reading a chat request: every field checked, all complaints collected, then raised once.

What comes out is what the page needs and nothing else: texts, calls with their arguments spelled out, and tool messages in their order
with their names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from lilliput.errors import InputError
from lilliput.text.chat_fields import Fields, described, found, is_empty, is_word
from lilliput.text.chat_tools import Call, read_calls, read_tools
from lilliput.text.xtml import EFFORTS, ROLES

# Fields that say something, by the role that can say it; elsewhere they would vanish from the prompt unseen.
FIELDS = {
    "system": {"name", "tools"},
    "user": {"name"},
    "assistant": {"name", "reasoning_content", "reasoning", "tool_calls"},
    "tool": {"name", "tool", "tool_call_id"},
}
TELLING = sorted(set().union(*FIELDS.values()) | {"function_call"})


@dataclass(frozen=True, slots=True)
class Message:
    """One message, read. `position` is its place in the request; absent texts are empty.

    `name` of a tool message is the tool's, `index` its number since the last assistant message. `tools` is the compact JSON of the tools
    that a system message adds. `sound` is whether nothing in it was complained about.
    """

    position: int
    role: str
    content: str = ""
    name: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    tools: str = ""
    call_id: str = ""
    index: int = 0
    sound: bool = True


@dataclass(frozen=True, slots=True)
class Request:
    """A whole request, read. None or an empty text where nothing is to be written; JSON texts are compact."""

    messages: tuple[Message, ...]
    tools: str
    effort: str | None
    tool_choice: str | None
    response_format: str | None
    schema: str


def read_request(
    messages: Any, *, tools: Any, thinking: Any, effort: Any, tool_choice: Any, response_format: Any, generation_prompt: Any
) -> Request:
    """Check everything a caller gave. Raises InputError with every complaint; `what` of each is like `messages[2].content`."""
    fields = Fields()
    read = arrange(fields, _messages(fields, messages))
    fields.flag("thinking", thinking)
    fields.flag("generation_prompt", generation_prompt)
    kind, schema = _response_format(fields, response_format)
    request = Request(
        tuple(read),
        read_tools(fields, "tools", tools),
        fields.one_of("effort", effort, EFFORTS),
        fields.one_of("tool_choice", tool_choice, ("auto", "none", "required")),
        kind,
        schema,
    )
    if fields.problems:
        raise InputError(fields.problems)
    return request


def arrange(fields: Fields, messages: list[Message]) -> list[Message]:
    """Tool messages in the order of the calls they answer, named and numbered.

    A run of them is reordered only if each one's `tool_call_id` is that of a call of the last assistant message. A name comes from the
    call with that id, else from the message itself, else from the call in its place.
    """
    arranged: list[Message] = []
    calls: tuple[Call, ...] = ()
    places: dict[str, int] = {}
    known = True  # whether `calls` are all there were: a message that could not be read might have been an assistant's
    count = 0
    for is_tool, group in groupby(messages, key=lambda message: message.role == "tool"):
        run = list(group)
        if not is_tool:
            arranged += run
            for message in run:
                if message.role == "assistant":
                    calls, known, count = message.calls, message.sound, 0
                    places = {call.id: place for place, call in enumerate(calls) if call.id}
                else:
                    known = known and message.role in ROLES
            continue
        if all(answer.call_id in places for answer in run):
            run.sort(key=lambda answer: places[answer.call_id])
        for answer in run:
            place = places.get(answer.call_id, count)
            count += 1
            called = calls[place].name if place < len(calls) else ""
            name = called if answer.call_id in places else answer.name or called
            if not name and known and answer.sound:
                needed = "the id of a call in the last assistant message, or the tool's name as `tool` or `name`"
                id_ = described(answer.call_id) if answer.call_id else "nothing"
                fields.complain(f"messages[{answer.position}].tool_call_id", needed, id_)
            arranged.append(replace(answer, name=name, index=count))
    return arranged


def _messages(fields: Fields, value: Any) -> list[Message]:
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes, bytearray)):
        fields.complain("messages", "a list of messages", described(value))
        return []
    if not value:
        fields.complain("messages", "at least one message", "none")
    return [_message(fields, position, message) for position, message in enumerate(value)]


def _message(fields: Fields, position: int, value: Any) -> Message:
    before = len(fields.problems)
    where = f"messages[{position}]"
    if not isinstance(value, Mapping):
        fields.complain(where, "an object with role and content", described(value))
        return Message(position, "", sound=False)
    role = value.get("role")
    if not is_word(role, *ROLES):
        fields.complain(f"{where}.role", f"one of {', '.join(ROLES)}", found(value, "role"))
        return Message(position, "", sound=False)
    for name in TELLING:
        if name not in FIELDS[role] and not is_empty(value.get(name)):
            fields.complain(f"{where}.{name}", f"no such field in a message of role {role}", found(value, name))
    read = {"system": _system, "user": _user, "assistant": _assistant, "tool": _tool}[role]
    message = read(fields, position, where, value)
    return replace(message, sound=len(fields.problems) == before)


def _system(fields: Fields, position: int, where: str, value: Mapping[Any, Any]) -> Message:
    tools = read_tools(fields, f"{where}.tools", value.get("tools"))
    adds = not is_empty(value.get("tools"))
    content = _content(fields, where, value, optional=adds)
    name = fields.optional(where, value, "name")
    for field, text in (("content", content), ("name", name)):
        if adds and text:
            fields.complain(f"{where}.{field}", "nothing: a message that adds tools has no place for it", described(text))
    return Message(position, "system", content, name, tools=tools)


def _user(fields: Fields, position: int, where: str, value: Mapping[Any, Any]) -> Message:
    return Message(position, "user", _content(fields, where, value), fields.optional(where, value, "name"))


def _assistant(fields: Fields, position: int, where: str, value: Mapping[Any, Any]) -> Message:
    thoughts = [fields.optional(where, value, name) for name in ("reasoning_content", "reasoning")]
    reasoning = next((text for text in thoughts if text.strip()), "")
    calls = read_calls(fields, f"{where}.tool_calls", value.get("tool_calls"))
    # An answer that was cut while thinking has no content, and one that only calls tools needs none.
    content = _content(fields, where, value, optional=bool(reasoning) or not is_empty(value.get("tool_calls")))
    return Message(position, "assistant", content, reasoning=reasoning, calls=calls)


def _tool(fields: Fields, position: int, where: str, value: Mapping[Any, Any]) -> Message:
    named, alias, id_ = (fields.optional(where, value, name) for name in ("tool", "name", "tool_call_id"))
    return Message(position, "tool", _content(fields, where, value), named or alias, call_id=id_)


def _content(fields: Fields, where: str, value: Mapping[Any, Any], *, optional: bool = False) -> str:
    given = value.get("content")
    if given is None and optional:
        return ""
    if isinstance(given, str):
        return fields.text(f"{where}.content", given)
    if not isinstance(given, (list, tuple)):
        fields.complain(f"{where}.content", "text or a list of text parts", found(value, "content"))
        return ""
    return "".join([_part(fields, f"{where}.content[{place}]", part) for place, part in enumerate(given)])


def _part(fields: Fields, where: str, value: Any) -> str:
    if not isinstance(value, Mapping):
        fields.complain(where, 'an object like {"type": "text", "text": "..."}', described(value))
    elif not is_word(value.get("type"), "text"):
        fields.complain(f"{where}.type", '"text" (this engine reads text only: no images, no other media)', found(value, "type"))
    elif "text" not in value:
        fields.complain(f"{where}.text", "text", "nothing")
    else:
        return fields.text(f"{where}.text", value["text"])
    return ""


def _response_format(fields: Fields, value: Any) -> tuple[str | None, str]:
    """The format to announce, None for plain text, and the JSON of its schema."""
    if value is None:
        return None, ""
    if not isinstance(value, Mapping):
        fields.complain("response_format", 'an object like {"type": "json_object"}', described(value))
        return None, ""
    kind = value.get("type")
    if not is_word(kind, "text", "json_object", "json_schema"):
        fields.complain("response_format.type", "one of text, json_object, json_schema", found(value, "type"))
        return None, ""
    if kind != "json_schema":
        return (None if kind == "text" else kind), ""
    holder = value.get("json_schema")
    if not isinstance(holder, Mapping) or not isinstance(holder.get("schema"), Mapping):
        given = found(holder, "schema") if isinstance(holder, Mapping) else "nothing"
        fields.complain("response_format.json_schema.schema", "an object, the schema", given)
        return None, ""
    return kind, fields.json("response_format.json_schema.schema", holder["schema"], compact=True)
