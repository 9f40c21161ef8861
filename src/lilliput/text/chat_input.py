"""Reading a chat request: every field checked, all complaints collected, then raised once.

What comes out is what the page needs and nothing else: texts, calls with their arguments spelled out, and tool messages in their order
with their names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lilliput.errors import InputError, Problem
from lilliput.text import chat_json
from lilliput.text.chat_json import NotJsonError
from lilliput.text.xtml import EFFORTS, ROLES

SOURCE = "chat request"  # the `file` of the complaints; `what` is the field
MOST_QUOTED = 60

# Fields that say something, by the role that can say it; elsewhere they would vanish from the prompt unseen.
FIELDS = {
    "system": {"name", "tools"},
    "user": {"name"},
    "assistant": {"name", "reasoning_content", "reasoning", "tool_calls"},
    "tool": {"name", "tool", "tool_call_id"},
}
TELLING = sorted(set().union(*FIELDS.values()) | {"function_call"})


@dataclass(frozen=True, slots=True)
class Argument:
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


@dataclass(frozen=True, slots=True)
class Message:
    """One message, read. `position` is its place in the request; absent texts are empty.

    `name` of a tool message is the tool's, `index` its number since the last assistant message. `tools` is the compact JSON of the tools
    that a system message adds.
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
    """A whole request, read. `effort`, `tool_choice`: None where nothing is to be written. JSON texts are compact."""

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
    reader = _Reader()
    for name, value in (("thinking", thinking), ("generation_prompt", generation_prompt)):
        if not isinstance(value, bool):
            reader.complain(name, "true or false", described(value))
    read = arrange(reader.messages(messages), reader)
    response, schema = reader.response_format(response_format)
    request = Request(
        tuple(read),
        reader.tools("tools", tools),
        reader.one_of("effort", effort, EFFORTS),
        reader.one_of("tool_choice", tool_choice, ("auto", "none", "required")),
        response,
        schema,
    )
    if reader.problems:
        raise InputError(reader.problems)
    return request


def arrange(messages: list[Message], reader: _Reader) -> list[Message]:
    """Tool messages in the order of the calls they answer, named and numbered.

    A run of them is reordered only if each one's `tool_call_id` is that of a call of the last assistant message.
    """
    arranged: list[Message] = []
    calls: tuple[Call, ...] = ()
    known = True  # whether `calls` are all the calls there were
    count = 0
    at = 0
    while at < len(messages):
        message = messages[at]
        if message.role != "tool":
            if message.role == "assistant":
                calls, count = message.calls, 0
            # A message that could not be read might have been an assistant's.
            known = message.sound if message.role == "assistant" else known and message.role in ROLES
            arranged.append(message)
            at += 1
            continue
        end = at
        while end < len(messages) and messages[end].role == "tool":
            end += 1
        run = messages[at:end]
        places = {call.id: place for place, call in enumerate(calls) if call.id}
        if all(answer.call_id in places for answer in run):
            run.sort(key=lambda answer: places[answer.call_id])
        for answer in run:
            count += 1
            name = answer.name
            if answer.call_id in places:
                name = calls[places[answer.call_id]].name
            elif not name and count <= len(calls):
                name = calls[count - 1].name
            if not name and known and answer.sound:
                needed = "the name of the tool, as no call of an assistant message before it has this id or this place"
                reader.complain(
                    f"messages[{answer.position}].tool_call_id", needed, described(answer.call_id) if answer.call_id else "nothing"
                )
            arranged.append(replace(answer, name=name, index=count))
        at = end
    return arranged


@dataclass(slots=True)
class _Reader:
    problems: list[Problem] = field(default_factory=list)

    def complain(self, what: str, needed: str, found: str) -> None:
        self.problems.append(Problem(SOURCE, what, needed, found))

    def messages(self, value: Any) -> list[Message]:
        if not isinstance(value, Sequence) or isinstance(value, (str, bytes, bytearray)):
            self.complain("messages", "a list of messages", described(value))
            return []
        if not value:
            self.complain("messages", "at least one message", "none")
        return [self.message(position, message) for position, message in enumerate(value)]

    def message(self, position: int, value: Any) -> Message:
        before = len(self.problems)
        where = f"messages[{position}]"
        if not isinstance(value, Mapping):
            self.complain(where, "an object with role and content", described(value))
            return Message(position, "", sound=False)
        role = value.get("role")
        if not isinstance(role, str) or role not in ROLES:
            self.complain(f"{where}.role", f"one of {', '.join(ROLES)}", found(value, "role"))
            return Message(position, "", sound=False)
        for name in TELLING:
            if name not in FIELDS[role] and value.get(name) not in (None, "", [], {}):
                self.complain(f"{where}.{name}", f"no such field in a message of role {role}", found(value, name))
        message = getattr(self, role)(position, where, value)
        assert isinstance(message, Message)
        return replace(message, sound=len(self.problems) == before)

    def user(self, position: int, where: str, value: Mapping[Any, Any]) -> Message:
        return Message(position, "user", self.content(where, value), self.optional(where, value, "name"))

    def system(self, position: int, where: str, value: Mapping[Any, Any]) -> Message:
        tools = self.tools(f"{where}.tools", value.get("tools"))
        content = self.content(where, value, optional=bool(tools))
        name = self.optional(where, value, "name")
        if tools and content:
            self.complain(f"{where}.content", "no text in a message that adds tools: it has no place there", described(content))
        if tools and name:
            self.complain(f"{where}.name", "no name on a message that adds tools: it has no place there", described(name))
        return Message(position, "system", content, name, tools=tools)

    def assistant(self, position: int, where: str, value: Mapping[Any, Any]) -> Message:
        reasoning = [self.optional(where, value, name) for name in ("reasoning_content", "reasoning")]
        thought = next((text for text in reasoning if text.strip()), "")
        calls = self.calls(where, value.get("tool_calls"))
        # What was cut while thinking has no content yet, and a message of calls alone needs none.
        content = self.content(where, value, optional=bool(thought or value.get("tool_calls")))
        return Message(position, "assistant", content, reasoning=thought, calls=calls)

    def tool(self, position: int, where: str, value: Mapping[Any, Any]) -> Message:
        name = self.optional(where, value, "tool") or self.optional(where, value, "name")
        return Message(position, "tool", self.content(where, value), name, call_id=self.optional(where, value, "tool_call_id"))

    def text(self, what: str, value: Any, needed: str = "text") -> str:
        if not isinstance(value, str):
            self.complain(what, needed, described(value))
            return ""
        try:
            value.encode()
        except UnicodeEncodeError as error:
            half = f"half of a surrogate pair, U+{ord(value[error.start]):04X}, at character {error.start + 1}"
            self.complain(what, "valid Unicode", half)
            return ""
        return value

    def optional(self, where: str, value: Mapping[Any, Any], name: str) -> str:
        """A text that may be absent, null or empty, which all mean the same."""
        return "" if value.get(name) is None else self.text(f"{where}.{name}", value[name])

    def content(self, where: str, value: Mapping[Any, Any], *, optional: bool = False) -> str:
        given = value.get("content")
        if given is None and optional:
            return ""
        if isinstance(given, str):
            return self.text(f"{where}.content", given)
        if not isinstance(given, (list, tuple)):
            self.complain(f"{where}.content", "text or a list of text parts", found(value, "content"))
            return ""
        return "".join([self.part(f"{where}.content[{place}]", part) for place, part in enumerate(given)])

    def part(self, where: str, value: Any) -> str:
        if not isinstance(value, Mapping):
            self.complain(where, 'a part like {"type": "text", "text": "..."}', described(value))
            return ""
        if value.get("type") != "text":
            self.complain(f"{where}.type", '"text": this engine reads text only, no images or other media', found(value, "type"))
            return ""
        if "text" not in value:
            self.complain(f"{where}.text", "text", "nothing")
            return ""
        return self.text(f"{where}.text", value["text"])

    def calls(self, where: str, value: Any) -> tuple[Call, ...]:
        if value is None:
            return ()
        if not isinstance(value, (list, tuple)):
            self.complain(f"{where}.tool_calls", "a list of calls", described(value))
            return ()
        calls = tuple(self.call(f"{where}.tool_calls[{place}]", call) for place, call in enumerate(value))
        first: dict[str, int] = {}
        for place, call in enumerate(calls):
            if call.id and first.setdefault(call.id, place) != place:
                self.complain(
                    f"{where}.tool_calls[{place}].id", "an id of its own", f"{described(call.id)}, the id of call {first[call.id]}"
                )
        return calls

    def call(self, where: str, value: Any) -> Call:
        function = value.get("function") if isinstance(value, Mapping) else None
        if not isinstance(function, Mapping):
            self.complain(
                where, 'a call like {"id": ..., "type": "function", "function": {"name": ..., "arguments": ...}}', described(value)
            )
            return Call("", "")
        if value.get("type") not in (None, "function"):
            self.complain(f"{where}.type", '"function"', found(value, "type"))
        identity = self.optional(where, value, "id")
        name = self.name(f"{where}.function", function)
        place = f"{where}.function.arguments"
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            text = self.text(place, arguments)
            if not text.strip():
                return Call(identity, name)
            try:
                arguments = chat_json.parse(text)
            except NotJsonError as error:
                self.complain(place, error.needed, error.found)
                return Call(identity, name)
            except ValueError:
                return Call(identity, name, raw=text)
        if not isinstance(arguments, Mapping):
            self.complain(place, "a JSON object, or its text", found(function, "arguments"))
            return Call(identity, name)
        return Call(identity, name, self.arguments(place, arguments))

    def arguments(self, where: str, value: Mapping[Any, Any]) -> tuple[Argument, ...]:
        arguments = []
        for key, item in value.items():
            if not isinstance(key, str):
                self.complain(where, "strings as keys", f"one of type {type(key).__name__}")
                continue
            place = f"{where}.{shown(key)}"
            # A string stands bare; everything else as JSON.
            text = self.text(place, item) if isinstance(item, str) else self.json(place, item, compact=False)
            arguments.append(Argument(self.text(f"{place} (the key)", key), chat_json.kind(item), text))
        return tuple(arguments)

    def name(self, where: str, function: Mapping[Any, Any]) -> str:
        name = self.text(f"{where}.name", function["name"], "the function's name") if "name" in function else ""
        if not name and function.get("name") in (None, ""):
            self.complain(f"{where}.name", "the function's name", found(function, "name"))
        return name

    def tools(self, what: str, value: Any) -> str:
        """The tools' JSON; empty where there are none."""
        if value is None:
            return ""
        if not isinstance(value, (list, tuple)):
            self.complain(what, "a list of tools", described(value))
            return ""
        for place, tool in enumerate(value):
            if not isinstance(tool, Mapping):
                self.complain(f"{what}[{place}]", "an object that describes a tool", described(tool))
            elif tool.get("type") == "function":
                function = tool.get("function")
                if isinstance(function, Mapping):
                    self.name(f"{what}[{place}].function", function)
                else:
                    self.complain(f"{what}[{place}].function", "an object with the function's name", found(tool, "function"))
        return self.json(what, value, compact=True) if value else ""

    def json(self, what: str, value: Any, *, compact: bool) -> str:
        try:
            return self.text(what, chat_json.write(value, compact=compact))
        except NotJsonError as error:
            self.complain(what + shown(error.where), error.needed, error.found)
            return ""

    def one_of(self, what: str, value: Any, values: tuple[str, ...]) -> str | None:
        if value is None or (isinstance(value, str) and value in values):
            return value
        self.complain(what, f"one of {', '.join(values)}, or null", described(value))
        return None

    def response_format(self, value: Any) -> tuple[str | None, str]:
        """The type to announce, None for plain text, and the JSON of its schema."""
        if value is None:
            return None, ""
        if not isinstance(value, Mapping):
            self.complain("response_format", 'an object like {"type": "json_object"}', described(value))
            return None, ""
        match value.get("type"):
            case "text":
                return None, ""
            case "json_object":
                return "json_object", ""
            case "json_schema":
                holder = value.get("json_schema")
                schema = holder.get("schema") if isinstance(holder, Mapping) else None
                if isinstance(schema, Mapping):
                    return "json_schema", self.json("response_format.json_schema.schema", schema, compact=True)
                found_ = found(holder, "schema") if isinstance(holder, Mapping) else found(value, "json_schema")
                self.complain("response_format.json_schema.schema", "an object, the schema", found_)
                return None, ""
        self.complain("response_format.type", "one of text, json_object, json_schema", found(value, "type"))
        return None, ""


def found(value: Mapping[Any, Any], name: str) -> str:
    """What stands in a field, for a complaint."""
    return described(value[name]) if name in value else "nothing"


def described(value: Any) -> str:
    """A value in the words of JSON, short."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return ascii(value) if len(value) <= MOST_QUOTED else f"{value[:MOST_QUOTED]!a}... ({len(value)} characters)"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, Mapping):
        return "an object"
    return "a list" if isinstance(value, (list, tuple)) else type(value).__name__


def shown(path: str) -> str:
    """A path or key with what a terminal should not see escaped, and cut."""
    plain = ascii(path)[1:-1]
    return plain if len(plain) <= MOST_QUOTED else plain[:MOST_QUOTED] + "..."
