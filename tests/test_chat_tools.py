"""Calls and their results, rendered: one page for every rule of the specification's section 11.4, written by hand."""

from __future__ import annotations

from typing import Any

import pytest
from chat_pages import HELLO, assistant_page, body, call, calling


def tools_section(*messages: dict[str, Any]) -> str:
    whole = body(*messages)
    begin, end = whole.index("{open}tools{sep}"), whole.index("{close}tools{sep}")
    return whole[begin + len("{open}tools{sep}") : end]


def test_calls_follow_the_response_and_are_numbered() -> None:
    message = calling(call("weather", {"city": "Paris"}), call("clock", {}, "c2"), reasoning="Two.", content=None)
    assert body(message) == (
        '{open}message role="assistant"{sep}{open}think{sep}Two.{close}think{sep}{open}response{sep}{close}response{sep}'
        "{open}tools{sep}"
        '{open}call tool="weather" index="1"{sep}{open}argument key="city" type="string"{sep}Paris{close}argument{sep}{close}call{sep}'
        '{open}call tool="clock" index="2"{sep}{close}call{sep}'
        "{close}tools{sep}{close}message{sep}{end}"
    )


@pytest.mark.parametrize("none", [None, []])
def test_no_calls_no_tools_section(none: Any) -> None:
    assert body({"role": "assistant", "content": "Hi", "tool_calls": none}) == assistant_page("", "Hi")


ARGUMENTS = [
    ({"s": 'say "hi" & go\n'}, 's" type="string"{sep}say "hi" & go\n'),
    ({"s": ""}, 's" type="string"{sep}'),
    ({"s": "5"}, 's" type="string"{sep}5'),
    ({"n": 5}, 'n" type="number"{sep}5'),
    ({"n": -0.5}, 'n" type="number"{sep}-0.5'),
    ({"b": True}, 'b" type="boolean"{sep}true'),
    ({"b": False}, 'b" type="boolean"{sep}false'),
    ({"x": None}, 'x" type="null"{sep}null'),
    ({"o": {"z": 1, "a": ["é", "\n", None]}}, 'o" type="object"{sep}{"z": 1, "a": ["é", "\\n", null]}'),
    ({"o": {}}, 'o" type="object"{sep}{}'),
    ({"a": [1, 2.5, "x", {"k": False}]}, 'a" type="array"{sep}[1, 2.5, "x", {"k": false}]'),
    ({"a": []}, 'a" type="array"{sep}[]'),
    ({"o": {"é": {"ü": 1}}}, 'o" type="object"{sep}{"é": {"ü": 1}}'),
    ({"天": 1}, '天" type="number"{sep}1'),
    ({'k"&': 1}, 'k&quot;&amp;" type="number"{sep}1'),
]


@pytest.mark.parametrize(("arguments", "element"), ARGUMENTS)
def test_arguments_by_type(arguments: dict[str, Any], element: str) -> None:
    expected = '{open}call tool="f" index="1"{sep}{open}argument key="' + element + "{close}argument{sep}{close}call{sep}"
    assert tools_section(calling(call("f", arguments))) == expected


# Text of arguments → the values as the prompt has them. Believed: a number keeps the spelling it came in.
SPELLINGS = [
    ('{"n": 1e2}', 'n" type="number"{sep}1e2'),
    ('{"n": 100.0}', 'n" type="number"{sep}100.0'),
    ('{"n":-0}', 'n" type="number"{sep}-0'),
    ('{"n":1E+05}', 'n" type="number"{sep}1E+05'),
    ('{"n":12345678901234567890123}', 'n" type="number"{sep}12345678901234567890123'),
    ('{"n":0.1000}', 'n" type="number"{sep}0.1000'),
    ('{"n":1e999}', 'n" type="number"{sep}1e999'),
    ('{"a":[1e2,{"b":1.50}]}', 'a" type="array"{sep}[1e2, {"b": 1.50}]'),
    ('{"o":{"z":1,"a":"\\u00e9"}}', 'o" type="object"{sep}{"z": 1, "a": "é"}'),
    ('{"s":"1e2 \\u00e9\\n"}', 's" type="string"{sep}1e2 é\n'),
    (' {"b" : true } ', 'b" type="boolean"{sep}true'),
]


@pytest.mark.parametrize(("arguments", "element"), SPELLINGS)
def test_arguments_as_text_keep_the_spelling_of_numbers(arguments: str, element: str) -> None:
    expected = '{open}call tool="f" index="1"{sep}{open}argument key="' + element + "{close}argument{sep}{close}call{sep}"
    assert tools_section(calling(call("f", arguments))) == expected


def test_arguments_keep_their_order() -> None:
    section = tools_section(calling(call("f", '{"z": 1, "a": 2, "m": 3}')))
    assert [section.index(f'key="{key}"') for key in "zam"] == sorted(section.index(f'key="{key}"') for key in "zam")


@pytest.mark.parametrize("arguments", [{}, "{}", " { } ", "", "  \n"])
def test_empty_arguments_have_no_children(arguments: Any) -> None:
    assert tools_section(calling(call("f", arguments))) == '{open}call tool="f" index="1"{sep}{close}call{sep}'


@pytest.mark.parametrize("text", ['{"a": 1', "not json & <b>", '{"a": NaN}', "{'a': 1}", ' {"a": 1} x ', '{"a": {"b": 1, "b": 2}'])
def test_arguments_that_are_no_json_are_shown_as_they_are(text: str) -> None:
    expected = '{open}call tool="f" index="1"{sep}{open}json type="object"{sep}' + text + "{close}json{sep}{close}call{sep}"
    assert tools_section(calling(call("f", text))) == expected


@pytest.mark.parametrize("id_", ["", None])
def test_calls_need_no_ids(id_: Any) -> None:
    calls = [{"id": id_, "function": {"name": name, "arguments": {}}} for name in "fg"]
    assert results(calling(*calls), result("F", id_), result("G", id_)) == [("f", "1", "F"), ("g", "2", "G")]


def test_a_tool_name_is_escaped() -> None:
    assert tools_section(calling(call('a.b-c"&', {}))) == '{open}call tool="a.b-c&quot;&amp;" index="1"{sep}{close}call{sep}'


# Tool messages.


def results(*messages: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Name, index and content of the tool messages on a page."""
    found = []
    for part in body(*messages).split('{open}message role="tool" ')[1:]:
        head, rest = part.split("{sep}", 1)
        name, index = head.removeprefix('tool="').removesuffix('"').split('" index="')
        found.append((name, index, rest.split("{close}message{sep}{end}")[0]))
    return found


def result(content: str, id_: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"role": "tool", "content": content, "tool_call_id": id_, **fields}


TWO = calling(call("f", {}, "1"), call("g", {}, "2"))


def test_a_tool_message() -> None:
    assert body(TWO, result(" 15 °C\n", "1")).endswith(
        '{end}{open}message role="tool" tool="f" index="1"{sep} 15 °C\n{close}message{sep}{end}'
    )


def test_results_come_in_the_order_of_the_calls() -> None:
    assert results(TWO, result("G", "2"), result("F", "1")) == [("f", "1", "F"), ("g", "2", "G")]


def test_results_are_reordered_only_if_all_of_the_run_match() -> None:
    assert results(TWO, result("G", "2"), result("?", "9", name="h"), result("F", "1")) == [
        ("g", "1", "G"),
        ("h", "2", "?"),
        ("f", "3", "F"),
    ]


def test_the_matched_call_names_the_tool_before_the_message_does() -> None:
    assert results(TWO, result("G", "2", tool="x", name="y")) == [("g", "1", "G")]


def test_an_unmatched_result_is_named_by_itself_then_by_its_place() -> None:
    assert results(TWO, result("A", "9", tool="x", name="y"), result("B", name="y"), HELLO) == [("x", "1", "A"), ("y", "2", "B")]
    assert results(TWO, result("A"), result("B", "9")) == [("f", "1", "A"), ("g", "2", "B")]


def test_results_are_counted_and_sorted_within_their_runs_since_the_last_assistant_message() -> None:
    three = calling(call("f", {}, "1"), call("g", {}, "2"), call("h", {}, "3"))
    messages = [three, result("H", "3"), HELLO, result("G", "2"), result("F", "1"), TWO, result("G", "2")]
    assert results(*messages) == [("h", "1", "H"), ("f", "2", "F"), ("g", "3", "G"), ("g", "1", "G")]


def test_ids_belong_to_the_last_assistant_message() -> None:
    assert results(TWO, calling(call("k", {}, "7")), result("?", "2", name="own")) == [("own", "1", "?")]


def test_a_result_without_any_call_needs_only_its_name() -> None:
    assert results(HELLO, result("A", name="x")) == [("x", "1", "A")]
