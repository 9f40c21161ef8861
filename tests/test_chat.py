"""Rendering against section 11 of the model's specification: one page for every rule, written by hand."""

from __future__ import annotations

from typing import Any

import pytest
from chat_pages import EFFORT, HELLO, PROMPT, assistant_page, body, page

from lilliput.text.chat import Segment, render

HELLO_PAGE = '{open}message role="user"{sep}Hello{close}message{sep}{end}'
WEATHER = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}


# The order of the prompt, and what its own messages say.


def test_one_message_with_the_defaults() -> None:
    assert page(render([HELLO])) == EFFORT + HELLO_PAGE + PROMPT


def test_tools_come_first_as_compact_sorted_json_with_other_scripts_kept() -> None:
    tool = {
        "type": "function",
        "function": {"name": "wetter", "description": "Wie wird das Wetter in Zürich? 天気", "a": [1, {"z": 1.5, "b": None}]},
    }
    expected = (
        '{open}message role="system" type="tool-declare"{sep}'
        "# Tools\nHere are the available tools, described in JSONSchema.\n\n"
        '```json\n[{"function":{"a":[1,{"b":null,"z":1.5}],"description":"Wie wird das Wetter in Zürich? 天気","name":"wetter"},'
        '"type":"function"}]\n```'
        "{close}message{sep}{end}"
    )
    assert page(render([HELLO], tools=[tool])) == expected + EFFORT + HELLO_PAGE + PROMPT
    assert page(render([HELLO], tools=[])) == EFFORT + HELLO_PAGE + PROMPT


def test_keys_of_tools_are_sorted_by_code_point_and_kept_in_their_script() -> None:
    assert '[{"B":1,"a":2,"é":3,"天":4}]' in page(render([HELLO], tools=[{"天": 4, "é": 3, "a": 2, "B": 1}]))


def test_the_tools_keep_their_order() -> None:
    assert '[{"name":"b"},{"name":"a"}]' in page(render([HELLO], tools=[{"name": "b"}, {"name": "a"}]))


@pytest.mark.parametrize("effort", ["low", "medium", "high", "max"])
def test_each_effort(effort: str) -> None:
    assert page(render([HELLO], effort=effort)) == EFFORT.replace("effort=max", f"effort={effort}") + HELLO_PAGE + PROMPT


def test_no_effort_no_word_about_it() -> None:
    assert page(render([HELLO], effort=None)) == HELLO_PAGE + PROMPT


def test_without_thinking_neither_effort_nor_any_think_section() -> None:
    answer = {"role": "assistant", "content": "Hi", "reasoning_content": "They greet."}
    expected = (
        HELLO_PAGE + '{open}message role="assistant"{sep}{open}response{sep}Hi{close}response{sep}{close}message{sep}{end}' + HELLO_PAGE
    )
    prompt = '{open}message role="assistant"{sep}{open}response{sep}'
    assert page(render([HELLO, answer, HELLO], thinking=False, effort="high")) == expected + prompt


@pytest.mark.parametrize("choice", [None, "auto"])
def test_a_free_choice_of_tools_is_not_mentioned(choice: str | None) -> None:
    assert page(render([HELLO], tool_choice=choice)) == EFFORT + HELLO_PAGE + PROMPT


@pytest.mark.parametrize(
    ("choice", "text"),
    [
        ("required", "The system is invoked with `tool_choice=required`.\nYou MUST call tools in the next message."),
        ("none", "The system is invoked with `tool_choice=none`.\nYou MUST NOT call any tools in the next message."),
    ],
)
def test_tool_choice_follows_the_messages(choice: str, text: str) -> None:
    message = '{open}message role="system" type="tool-choice"{sep}' + text + "{close}message{sep}{end}"
    assert page(render([HELLO], tool_choice=choice)) == EFFORT + HELLO_PAGE + message + PROMPT


def test_json_object_as_response_format() -> None:
    message = (
        '{open}message role="system" type="response-format"{sep}The system is invoked with `response_format=json_object`.\n'
        "Your response must be raw JSON data without markdown code blocks (```json) or any additional formatting.{close}message{sep}{end}"
    )
    assert page(render([HELLO], response_format={"type": "json_object"})) == EFFORT + HELLO_PAGE + message + PROMPT


def test_a_schema_as_response_format_comes_last_compact_and_sorted() -> None:
    schema = {"type": "object", "properties": {"z": {"type": "string", "enum": ["é", "b"]}, "a": {"type": "number", "minimum": 0.5}}}
    message = (
        '{open}message role="system" type="response-format"{sep}The system is invoked with `response_format=json_schema`.\n'
        "Your response must be raw JSON data without markdown code blocks (```json) or any additional formatting.\n"
        "The JSON data must match the following schema:\n"
        '```json\n{"properties":{"a":{"minimum":0.5,"type":"number"},"z":{"enum":["é","b"],"type":"string"}},"type":"object"}\n```'
        "{close}message{sep}{end}"
    )
    choice = (
        '{open}message role="system" type="tool-choice"{sep}'
        "The system is invoked with `tool_choice=none`.\nYou MUST NOT call any tools in the next message.{close}message{sep}{end}"
    )
    given = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}
    assert page(render([HELLO], response_format=given, tool_choice="none")) == EFFORT + HELLO_PAGE + choice + message + PROMPT


def test_plain_text_as_response_format_is_not_mentioned() -> None:
    assert page(render([HELLO], response_format={"type": "text"})) == EFFORT + HELLO_PAGE + PROMPT


# Messages.


def test_content_is_neither_stripped_nor_escaped() -> None:
    assert body({"role": "user", "content": ' \n a "b" & <c> \t\n'}) == (
        '{open}message role="user"{sep} \n a "b" & <c> \t\n{close}message{sep}{end}'
    )
    assert body({"role": "system", "content": ""}) == '{open}message role="system"{sep}{close}message{sep}{end}'


def test_names_are_attributes_and_escape_ampersands_before_quotes() -> None:
    assert body({"role": "user", "content": "x", "name": "Tom"}) == '{open}message role="user" name="Tom"{sep}x{close}message{sep}{end}'
    assert body({"role": "system", "content": "x", "name": "a&quot;\"<b>'"}) == (
        '{open}message role="system" name="a&amp;quot;&quot;<b>\'"{sep}x{close}message{sep}{end}'
    )


@pytest.mark.parametrize("name", [None, ""])
def test_an_empty_name_is_none(name: str | None) -> None:
    assert body({"role": "user", "content": "Hello", "name": name}) == HELLO_PAGE


def test_text_parts_are_joined() -> None:
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": ""}, {"type": "text", "text": "lo"}]
    assert body({"role": "user", "content": parts}) == HELLO_PAGE
    assert Segment("Hello", False) in render([{"role": "user", "content": parts}])


def test_a_system_message_that_adds_tools() -> None:
    expected = (
        '{open}message role="system" type="tool-declare"{sep}'
        "## New Tools Available\nThe system dynamically extends the toolset via lazy-loading.\n"
        "You have access to all existing and extended tools.\nHere are the specs for the extended tools.\n\n"
        '```json\n[{"function":{"name":"weather","parameters":{"properties":{"city":{"type":"string"}},"type":"object"}},'
        '"type":"function"}]\n```'
        "{close}message{sep}{end}"
    )
    assert body(HELLO, {"role": "system", "tools": [WEATHER]}) == HELLO_PAGE + expected
    assert body(HELLO, {"role": "system", "content": "", "tools": [WEATHER]}) == HELLO_PAGE + expected
    assert body({"role": "system", "content": "Hi", "tools": []}) == '{open}message role="system"{sep}Hi{close}message{sep}{end}'


@pytest.mark.parametrize(
    ("fields", "reasoning"),
    [
        ({"reasoning_content": " a\n"}, " a\n"),
        ({"reasoning": "b"}, "b"),
        ({"reasoning_content": "a", "reasoning": "b"}, "a"),
        ({"reasoning_content": "", "reasoning": "b"}, "b"),
        ({"reasoning_content": None, "reasoning": "b"}, "b"),
        ({"reasoning_content": " \n\t"}, ""),
        ({"reasoning": "  "}, ""),
        ({}, ""),
    ],
)
def test_the_think_section_holds_the_reasoning_and_is_there_without(fields: dict[str, Any], reasoning: str) -> None:
    assert body({"role": "assistant", "content": " Hi ", **fields}) == assistant_page(reasoning, " Hi ")


def test_an_answer_cut_while_thinking_has_no_content() -> None:
    assert body({"role": "assistant", "content": None, "reasoning_content": "Well"}) == assistant_page("Well", "")
