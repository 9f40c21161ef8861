"""Wrong types from Python, everywhere: the chat functions refuse them by name, and never with another kind of error."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

from lilliput.engine.models import open_tokenizer
from lilliput.errors import InputError
from lilliput.text.chat import Segment, encode, render
from lilliput.text.tokenizer import Tokenizer
from lilliput.text.wellformed import check_completion, check_conversation


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return open_tokenizer("demo")


OTHERS: list[Any] = [None, True, 0, 1.5, float("nan"), 10**5000, "", "x", "\ud800", b"x", [], [1], ["x"], [None], [[]], [{}], {}, {"a": 1}]
OTHERS += [{1: 2}, (), {1}, object(), range(3), np.array(5)]
WHOLE: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": "s", "name": "n", "tools": None},
        {"role": "system", "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]},
        {"role": "user", "content": [{"type": "text", "text": "x"}], "name": "n"},
        {
            "role": "assistant",
            "content": "c",
            "reasoning_content": "r",
            "reasoning": "q",
            "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}},
                {"id": "2", "type": "function", "function": {"name": "f", "arguments": {"a": [1, {"b": 2}]}}},
            ],
        },
        {"role": "tool", "content": "o", "tool_call_id": "1", "name": "f", "tool": "f"},
    ],
    "tools": [{"type": "function", "function": {"name": "g", "parameters": {"type": "object"}}}],
    "thinking": True,
    "effort": "max",
    "tool_choice": "auto",
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"a": 1}}},
    "generation_prompt": True,
}


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every field inside `value`."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inside:
        yield (*above, key)
        yield from places(item, (*above, key))


@pytest.mark.parametrize("place", list(places(WHOLE)), ids=lambda place: ".".join(map(str, place)))
def test_every_field_of_every_type_is_rendered_or_refused_by_name(place: tuple[Any, ...]) -> None:
    for other in OTHERS:
        request = deepcopy(WHOLE)
        holder = request
        for key in place[:-1]:
            holder = holder[key]
        holder[place[-1]] = other
        complained: list[str] = []
        try:
            segments = render(**request)
        except InputError as error:
            complained = [problem.what for problem in error.problems]
        else:
            thinking, prompt = request["thinking"], request["generation_prompt"]
            assert check_conversation(segments, thinking=thinking, generation_prompt=prompt) == []
        assert all(what.startswith(place[0]) for what in complained), (other, complained)


@pytest.mark.parametrize("other", [o for o in OTHERS if not isinstance(o, list)], ids=lambda o: type(o).__name__)
def test_what_is_no_list_of_segments_is_refused(tokenizer: Tokenizer, other: Any) -> None:
    checks = [lambda: encode(tokenizer, other)] if not isinstance(other, (tuple, range)) else []
    if not isinstance(other, (str, tuple, range)):  # a text, and any list of ids, can be checked
        checks += [lambda: check_completion(other, tokenizer), lambda: check_conversation(other, tokenizer)]
    for check in checks:
        with pytest.raises(InputError, match=r"(segments|emitted): needed .*, found ") as caught:
            check()
        assert len(caught.value.problems) == 1


@pytest.mark.parametrize(
    ("item", "what", "found"),
    [
        (None, "", "null"),
        ("x", "", "'x'"),
        (1.5, "", "a number"),
        (True, "", "true"),
        ([], "", "a list"),
        ({}, "", "an object"),
        (("x", True), "", "a list"),
        (Segment(5, False), ".text", "a number"),  # type: ignore[arg-type]
        (Segment("x", 1), ".special", "a number"),  # type: ignore[arg-type]
    ],
)
def test_an_item_that_is_no_segment_is_named(tokenizer: Tokenizer, item: Any, what: str, found: str) -> None:
    given_ = [Segment("x", False), item, item]
    for name, check in (
        ("segments", encode),
        ("emitted", lambda t, e: check_completion(e, t)),
        ("emitted", lambda t, e: check_conversation(e, t)),
    ):
        with pytest.raises(InputError) as caught:
            check(tokenizer, given_)
        assert [problem.what for problem in caught.value.problems] == [f"{name}[1]{what}", f"{name}[2]{what}"]
        assert caught.value.found == found


@pytest.mark.parametrize("other", [o for o in OTHERS if o is not None], ids=lambda o: type(o).__name__)
def test_what_is_no_tokenizer_is_refused(other: Any) -> None:
    for check in (
        lambda: encode(other, [Segment("x", False)]),
        lambda: check_completion([1], other),
        lambda: check_conversation([1], other),
    ):
        with pytest.raises(InputError, match="tokenizer: needed a Tokenizer") as caught:
            check()
        assert len(caught.value.problems) == 1
    with pytest.raises(InputError, match="chat prompt: tokenizer: needed a Tokenizer, found null"):
        encode(None, [])  # type: ignore[arg-type]


def test_flags_of_the_checks_are_true_or_false() -> None:
    with pytest.raises(InputError, match="thinking: needed true or false, found 'no'"):
        check_completion("x", thinking="no")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="generation_prompt: needed true or false, found null"):
        check_conversation("x", generation_prompt=None)  # type: ignore[arg-type]


def test_ids_may_come_as_a_vector(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("Hm<|close|>", allow_special=True)
    assert check_completion(np.array(ids), tokenizer) == check_completion(ids, tokenizer) != []
