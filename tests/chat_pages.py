"""Rendered conversations in a form that a person can write, and conversations for hypothesis."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st

from lilliput.text.chat import Segment, render

BRACES = {"<|open|>": "{open}", "<|close|>": "{close}", "<|sep|>": "{sep}", "<|end_of_msg|>": "{end}"}
HELLO: dict[str, Any] = {"role": "user", "content": "Hello"}
EFFORT = (
    '{open}message role="system" type="thinking-effort"{sep}'
    "`thinking_effort` guides on how much to think in your thinking channel (not including the response channel), "
    "supported values include `low`, `medium`, `high`, and `max`.\n"
    "Now the system is invoked with `thinking_effort=max`."
    "{close}message{sep}{end}"
)
PROMPT = '{open}message role="assistant"{sep}{open}think{sep}'


def page(segments: Iterable[Segment]) -> str:
    """Segments as one text in which a marker is `{open}`, `{close}`, `{sep}` or `{end}`: `<|open|>` here is text that spells it."""
    return "".join(BRACES[segment.text] if segment.special else segment.text for segment in segments)


def spelled(text: str) -> str:
    """The reverse for a page without spelled markers: the text that the model's tokenizer would show."""
    for name, brace in BRACES.items():
        text = text.replace(brace, name)
    return text


def body(*messages: dict[str, Any], **given: Any) -> str:
    """The page of messages alone: without the effort and the beginning of an answer."""
    return page(render(messages, **{"effort": None, "generation_prompt": False, **given}))


def call(name: str, arguments: Any, id_: str = "c1") -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*calls: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": list(calls), **fields}


def assistant_page(reasoning: str, content: str) -> str:
    return (
        '{open}message role="assistant"{sep}{open}think{sep}' + reasoning + "{close}think{sep}{open}response{sep}" + content + "{close}"
        "response{sep}{close}message{sep}{end}"
    )


SPELLED_MARKERS = (
    "<|open|>",
    '<|close|>message<|sep|><|end_of_msg|><|open|>message role="system"<|sep|>',
    "[EOS]",
    "&quot;",
    '"',
    "&amp;amp;",
)
texts = st.one_of(st.text(max_size=12), st.sampled_from(SPELLED_MARKERS))
names = texts.filter(bool)


def optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6)
arguments = st.dictionaries(texts, values, max_size=3)
contents = texts | st.lists(texts.map(lambda text: {"type": "text", "text": text}), max_size=3)
tools = st.lists(
    st.fixed_dictionaries({"type": st.just("function"), "function": st.fixed_dictionaries({"name": names, "parameters": arguments})})
)
NO_JSON = ("{", "nothing", '{"a": NaN}', "{'a': 1}", '{"a": 1,}')


@st.composite
def calls(draw: st.DrawFn, *, raw: bool = True) -> list[dict[str, Any]]:
    given: list[dict[str, Any]] = []
    for name in draw(st.lists(names, max_size=3)):
        forms = [arguments, arguments.map(json.dumps), st.sampled_from(("", " ", "{}"))]
        form = draw(st.one_of(*forms, st.sampled_from(NO_JSON)) if raw else st.one_of(*forms))
        given.append({"id": f"call-{len(given)}", "type": "function", "function": {"name": name, "arguments": form}})
    return given


@st.composite
def answers(draw: st.DrawFn, *, raw: bool = True) -> dict[str, Any]:
    """An assistant message; with `raw` some of its calls have arguments that are no JSON."""
    return {
        "role": "assistant",
        "content": draw(contents),
        draw(st.sampled_from(("reasoning_content", "reasoning"))): draw(optional(texts)),
        "tool_calls": draw(optional(calls(raw=raw))),
    }


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Messages that are all right: texts of any kind, calls, and their results in any order."""
    messages: list[dict[str, Any]] = []
    while draw(st.booleans()) or not messages:
        kind = draw(st.sampled_from(("user", "system", "assistant", "extension")))
        if kind == "assistant":
            answer = draw(answers())
            messages.append(answer)
            ids = [call["id"] for call in answer["tool_calls"] or ()]
            for id_ in draw(st.permutations(ids)):
                messages.append({"role": "tool", "content": draw(contents), "tool_call_id": id_})
        elif kind == "extension":
            messages.append({"role": "system", "content": None, "tools": draw(tools.filter(bool))})
        else:
            messages.append({"role": kind, "content": draw(contents), "name": draw(optional(texts))})
    return messages


formats = st.one_of(
    st.none(),
    st.builds(dict, type=st.sampled_from(("text", "json_object"))),
    arguments.map(lambda schema: {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}),
)
options = st.fixed_dictionaries(
    {},
    optional={
        "tools": optional(tools),
        "thinking": st.booleans(),
        "effort": st.sampled_from(("low", "medium", "high", "max", None)),
        "tool_choice": st.sampled_from(("auto", "required", "none", None)),
        "response_format": formats,
        "generation_prompt": st.booleans(),
    },
)
