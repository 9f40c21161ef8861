"""Requests that cannot be rendered: every complaint at once, each naming its field, and never another kind of error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from chat_pages import HELLO, conversations, options
from hypothesis import example, given
from hypothesis import strategies as st

from lilliput.errors import InputError
from lilliput.text.chat import render
from lilliput.text.wellformed import check_conversation


def complaints(messages: Any, **given_: Any) -> list[tuple[str, str]]:
    """Place and rest of each complaint."""
    with pytest.raises(InputError) as caught:
        render(messages, **given_)
    return [(problem.what, f"needed {problem.needed}, found {problem.found}") for problem in caught.value.problems]


def calls(*given_: Any) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": "", "tool_calls": list(given_)}]


def arguments(given_: Any) -> list[dict[str, Any]]:
    return calls({"id": "1", "function": {"name": "f", "arguments": given_}})


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


HUGE = 10**4000  # Python spells integers of up to 4,300 digits
CALL = "messages[0].tool_calls[0]"
HERE = f"{CALL}.function.arguments"

MESSAGES: list[tuple[Any, str, str]] = [
    (None, "messages", "needed a list of messages, found null"),
    ("Hello", "messages", "needed a list of messages, found 'Hello'"),
    (HELLO, "messages", "needed a list of messages, found an object"),
    ([], "messages", "needed at least one message, found none"),
    (["Hello"], "messages[0]", "needed an object with role and content, found 'Hello'"),
    ([HELLO, None], "messages[1]", "needed an object with role and content, found null"),
    ([{"content": "x"}], "messages[0].role", "needed one of system, user, assistant, tool, found nothing"),
    ([{"role": "developer", "content": "x"}], "messages[0].role", "found 'developer'"),
    ([{"role": ["user"], "content": "x"}], "messages[0].role", "found a list"),
    ([{"role": np.array(["user", "x"]), "content": "x"}], "messages[0].role", "found a value of type ndarray"),
    ([{"role": "user"}], "messages[0].content", "needed text or a list of text parts, found nothing"),
    ([{"role": "user", "content": None}], "messages[0].content", "found null"),
    ([{"role": "user", "content": 5}], "messages[0].content", "found a number"),
    ([{"role": "user", "content": b"x"}], "messages[0].content", "found a value of type bytes"),
    ([{"role": "system", "content": {"type": "text", "text": "x"}}], "messages[0].content", "found an object"),
    ([{"role": "assistant"}], "messages[0].content", "found nothing"),
    ([{"role": "assistant", "content": None, "reasoning": " "}], "messages[0].content", "found null"),
    ([{"role": "tool", "content": None, "name": "f"}], "messages[0].content", "found null"),
    (
        [{"role": "user", "content": "a\ud83d"}],
        "messages[0].content",
        "needed valid Unicode, found half of a surrogate pair, U+D83D, at character 2",
    ),
    ([{"role": "user", "content": ["x"]}], "messages[0].content[0]", "found 'x'"),
    ([{"role": "user", "content": [{"text": "x"}]}], "messages[0].content[0].type", "found nothing"),
    ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text", "needed text, found nothing"),
    ([{"role": "user", "content": [{"type": "text", "text": None}]}], "messages[0].content[0].text", "needed text, found null"),
    (
        [{"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "data:"}}]}],
        "messages[0].content[1].type",
        "this engine reads text only: no images, no other media), found 'image_url'",
    ),
    ([{"role": "user", "content": "x", "name": 5}], "messages[0].name", "needed text, found a number"),
    (
        [{"role": "user", "content": "x", "tool_calls": [{}]}],
        "messages[0].tool_calls",
        "needed no such field in a message of role user, found a list",
    ),
    ([{"role": "assistant", "content": "x", "function_call": {"name": "f"}}], "messages[0].function_call", "found an object"),
    ([{"role": "assistant", "content": "x", "tools": [{}]}], "messages[0].tools", "role assistant"),
    ([{"role": "tool", "content": "x", "name": "f", "reasoning": "r"}], "messages[0].reasoning", "role tool"),
    (
        [{"role": "system", "content": "x", "tools": [{"name": "f"}]}],
        "messages[0].content",
        "a message that adds tools has no place for it, found 'x'",
    ),
    (
        [{"role": "system", "name": "x", "tools": [{"name": "f"}]}],
        "messages[0].name",
        "a message that adds tools has no place for it, found 'x'",
    ),
    ([{"role": "system", "tools": {"name": "f"}}], "messages[0].tools", "needed a list of tools, found an object"),
    ([{"role": "assistant", "content": "x", "reasoning_content": 1}], "messages[0].reasoning_content", "needed text, found a number"),
    ([{"role": "assistant", "content": "x", "tool_calls": {}}], "messages[0].tool_calls", "needed a list of calls, found an object"),
    (calls("f"), CALL, "needed an object with a function, found 'f'"),
    (calls({"name": "f", "arguments": "{}"}), f"{CALL}.function", "needed an object with name and arguments, found nothing"),
    (calls({"type": "custom", "function": {"name": "f", "arguments": "{}"}}), f"{CALL}.type", "needed \"function\", found 'custom'"),
    (calls({"function": {"arguments": "{}"}}), f"{CALL}.function.name", "needed the function's name, found nothing"),
    (calls({"function": {"name": "", "arguments": "{}"}}), f"{CALL}.function.name", "needed the function's name, found ''"),
    (calls({"id": 7, "function": {"name": "f", "arguments": "{}"}}), f"{CALL}.id", "needed text, found a number"),
    (
        calls(*({"id": "same", "function": {"name": "f", "arguments": "{}"}} for _ in range(2))),
        "messages[0].tool_calls[1].id",
        "needed an id of its own, found 'same', the id of call 0",
    ),
    (calls({"function": {"name": "f"}}), HERE, "needed a JSON object, or its text, found nothing"),
    (arguments(None), HERE, "found null"),
    (arguments([1]), HERE, "found a list"),
    (arguments("[1]"), HERE, "needed a JSON object, or its text, found the text of a JSON array"),
    (arguments('"x"'), HERE, "found the text of a JSON string"),
    (arguments("null"), HERE, "found the text of a JSON null"),
    (arguments("1e2"), HERE, "found the text of a JSON number"),
    (arguments('{"a": 1, "b": {"c": 1, "d": 2, "c": 3}}'), HERE, "needed every key once in its object, found 'c' twice or more"),
    (arguments('{"a": "\\ud83d"}'), f"{HERE}.a", "needed valid Unicode, found half of a surrogate pair, U+D83D, at character 1"),
    (arguments('{"a": ["\\ud83d"]}'), f"{HERE}.a", "needed valid Unicode"),
    (arguments('{"\\ud83d": 1}'), f"{HERE}.\\ud83d (the key)", "needed valid Unicode"),
    (arguments({1: 2}), HERE, "needed strings as keys, found one of type int"),
    (arguments({"a": {1: 2}}), f"{HERE}.a", "needed strings as keys, found one of type int"),
    (arguments({"a": {"b": [0, {3}]}}), f"{HERE}.a.b[1]", "needed a JSON value, found set"),
    (arguments({"a": float("nan")}), f"{HERE}.a", "needed a finite number, found nan"),
    (arguments({"a": [float("inf")]}), f"{HERE}.a[0]", "needed a finite number, found inf"),
    (arguments({"a": HUGE}), f"{HERE}.a", "needed an integer of at most 10000 bits, found one of 13288"),
    (
        arguments({"a": nested(258)}),
        f"{HERE}.a" + "[0]" * 20 + "...",
        "needed at most 256 lists and objects inside each other, found more",
    ),
    (arguments('{"a": ' + "[" * 300 + "]" * 300 + "}"), HERE, "needed at most 256 lists and objects inside each other, found more"),
    (arguments('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}"), HERE, "needed at most 256 lists and objects inside each other, found more"),
    ([HELLO, {"role": "tool", "content": "x"}], "messages[1].tool_call_id", "found nothing"),
    ([HELLO, {"role": "tool", "content": "x", "tool_call_id": "9"}], "messages[1].tool_call_id", "found '9'"),
    (
        [
            *calls({"id": "1", "function": {"name": "f", "arguments": {}}}),
            *({"role": "tool", "content": "x", "tool_call_id": id_} for id_ in "19"),
        ],
        "messages[2].tool_call_id",
        "needed the id of a call in the last assistant message, or the tool's name as `tool` or `name`, found '9'",
    ),
    ([{"role": "tool", "content": "x", "tool": 3}], "messages[0].tool", "needed text, found a number"),
]


@pytest.mark.parametrize(("messages", "what", "rest"), MESSAGES)
def test_a_bad_message_gives_one_complaint_that_names_its_field(messages: Any, what: str, rest: str) -> None:
    [(place, text)] = complaints(messages)
    assert place == what
    assert rest in text


OPTIONS: list[tuple[dict[str, Any], str, str]] = [
    ({"effort": "minimal"}, "effort", "needed one of low, medium, high, max, or null, found 'minimal'"),
    ({"effort": ["max"]}, "effort", "found a list"),
    ({"effort": "minimal", "thinking": False}, "effort", "found 'minimal'"),
    ({"thinking": None}, "thinking", "needed true or false, found null"),
    ({"thinking": 1}, "thinking", "found a number"),
    ({"generation_prompt": "yes"}, "generation_prompt", "needed true or false, found 'yes'"),
    ({"tool_choice": "any"}, "tool_choice", "needed one of auto, none, required, or null, found 'any'"),
    ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice", "found an object"),
    ({"tools": {"name": "f"}}, "tools", "needed a list of tools, found an object"),
    ({"tools": ["f"]}, "tools[0]", "needed an object that describes a tool, found 'f'"),
    ({"tools": [{"type": "function"}]}, "tools[0].function", "needed an object with the function's name, found nothing"),
    ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name", "needed the function's name, found nothing"),
    ({"tools": [{"a": {2}}]}, "tools[0].a", "needed a JSON value, found set"),
    ({"tools": [{"a": "\udc80"}]}, "tools", "needed valid Unicode"),
    ({"response_format": "json_object"}, "response_format", 'needed an object like {"type": "json_object"}, found \'json_object\''),
    ({"response_format": {}}, "response_format.type", "needed one of text, json_object, json_schema, found nothing"),
    ({"response_format": {"type": "grammar"}}, "response_format.type", "found 'grammar'"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema", "needed an object, the schema, found nothing"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": []}}}, "response_format.json_schema.schema", "found a list"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"a": float("nan")}}}},
        "response_format.json_schema.schema.a",
        "needed a finite number, found nan",
    ),
]


@pytest.mark.parametrize(("given_", "what", "rest"), OPTIONS)
def test_a_bad_option_gives_one_complaint_that_names_it(given_: dict[str, Any], what: str, rest: str) -> None:
    [(place, text)] = complaints([HELLO], **given_)
    assert place == what
    assert rest in text


def test_all_complaints_come_at_once() -> None:
    messages = [{"role": "x"}, {"role": "user"}, {"role": "assistant", "content": 1, "tool_calls": [{"function": {"arguments": "[]"}}]}]
    found = complaints(messages, effort=1, thinking=2, tool_choice=3, tools=4, response_format=5, generation_prompt=6)
    assert [what for what, _ in found] == [
        "messages[0].role",
        "messages[1].content",
        "messages[2].tool_calls[0].function.name",
        "messages[2].tool_calls[0].function.arguments",
        "messages[2].content",
        *("thinking", "generation_prompt", "response_format", "tools", "effort", "tool_choice"),
    ]


def test_the_message_says_where_what_and_what_was_found() -> None:
    with pytest.raises(InputError) as caught:
        render([HELLO, {"role": "user", "content": 5}])
    assert str(caught.value) == "chat request: messages[1].content: needed text or a list of text parts, found a number"


def test_a_result_is_not_blamed_for_what_an_unreadable_message_may_have_called() -> None:
    bad = {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "[]"}}, "?"]}
    answer = {"role": "tool", "content": "x", "tool_call_id": "2"}
    assert [what for what, _ in complaints([bad, answer, answer, answer])] == [HERE, "messages[0].tool_calls[1]"]
    assert [what for what, _ in complaints([HELLO, None, answer])] == ["messages[1]"]


def test_a_value_from_a_caller_is_shown_short_and_harmless() -> None:
    [(_, text)] = complaints([{"role": "\x1b[31m" + "x" * 10_000, "content": ""}])
    assert "\x1b" not in text
    assert len(text) < 200


def test_what_nests_as_deep_as_allowed_is_rendered() -> None:
    assert render(arguments({"a": nested(256)}))
    assert render(arguments('{"a": ' + "[" * 255 + "1" + "]" * 255 + "}"))


def test_a_large_argument_is_no_trouble() -> None:
    text = '"\\' * 50_000
    assert any(segment.text == text for segment in render(arguments({"file": text})))


# Anything at all, made of the words that requests are made of.
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=5)
WORDS = st.sampled_from(
    ("user", "assistant", "system", "tool", "text", "function", "f", "{}", '{"a": 1}', "[1]", "{", "json_schema", "max")
)
FIELDS = st.sampled_from(
    (
        *("role", "content", "name", "tool", "tools", "tool_calls", "tool_call_id", "reasoning_content", "reasoning", "type", "text"),
        *("id", "function", "arguments", "json_schema", "schema", "function_call"),
    )
)
ODD = st.sampled_from((b"x", {1}, object(), np.zeros(3), np.float32(1), 1j, range(3), float("nan"), HUGE))
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT | WORDS | ODD,
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner) | st.dictionaries(FIELDS | ANY_TEXT | st.integers(), inner, max_size=6),
    max_leaves=12,
)
almost = st.lists(
    st.fixed_dictionaries({"role": WORDS}, optional={"content": anything, "tool_calls": anything, "tools": anything}) | anything
)


def bounded(messages: Any, given_: dict[str, Any]) -> None:
    """Rendering must give something well formed, or reasons."""
    refusal = None
    try:
        segments = render(messages, **given_)
    except InputError as error:
        refusal = error
    if refusal is None:
        prompt = given_.get("generation_prompt", True)
        assert check_conversation(segments, thinking=given_.get("thinking", True), generation_prompt=prompt) == []
    else:
        assert refusal.problems
        assert all(problem.what and problem.needed and problem.found for problem in refusal.problems)


@given(almost | anything, st.dictionaries(st.sampled_from(("tools", "thinking", "effort", "tool_choice", "response_format")), anything))
@example([{"role": "user", "content": "x", "name": np.zeros(3)}], {"tools": [{"type": np.zeros(3)}]})
def test_whatever_comes_is_rendered_well_formed_or_refused_with_reasons(messages: Any, given_: dict[str, Any]) -> None:
    bounded(messages, given_)


@st.composite
def damaged(draw: st.DrawFn) -> dict[str, Any]:
    """A good request in which a field or two are gone or hold something else."""
    request = {"messages": draw(conversations()), **draw(options)}
    for _ in range(draw(st.integers(1, 2))):
        holder: Any = request
        while True:
            place = draw(st.sampled_from(sorted(holder, key=repr) if isinstance(holder, dict) else range(len(holder))))
            if not isinstance(holder[place], (dict, list)) or not holder[place] or draw(st.integers(0, 3)) == 0:
                break
            holder = holder[place]
        if draw(st.booleans()):
            del holder[place]
        else:
            holder[place] = draw(anything)
        if not request:
            break
    return request


@given(damaged())
def test_a_damaged_request_is_rendered_well_formed_or_refused_with_reasons(request: dict[str, Any]) -> None:
    bounded(request.pop("messages", []), request)
