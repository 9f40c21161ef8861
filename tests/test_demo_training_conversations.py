"""Conversations are well formed, about what the user asked for, and their tools are used as declared."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections import Counter
from itertools import pairwise

import pytest
from demo_training import conversations, phrases, tooling
from demo_training.cast import KINDS, THINGS
from demo_training.conversations import Dialogue, conversation, dialogue, requests
from demo_training.tales import tale, with_article

from lilliput.text.chat import render
from lilliput.text.wellformed import check_conversation


@pytest.fixture(scope="module")
def dialogues() -> list[Dialogue]:
    rng = random.Random(11)
    return [dialogue(rng) for _ in range(800)]


def test_are_well_formed(dialogues: list[Dialogue]) -> None:
    for messages, tools, thinking, effort in dialogues:
        segments = render(messages, tools=tools, thinking=thinking, effort=effort, generation_prompt=False)
        assert check_conversation(segments, thinking=thinking, generation_prompt=False) == []


def test_conversation_renders_a_dialogue() -> None:
    messages, tools, thinking, effort = dialogue(random.Random(5))
    assert conversation(random.Random(5)) == render(messages, tools=tools, thinking=thinking, effort=effort, generation_prompt=False)


def test_every_kind_occurs_and_the_default_most(dialogues: list[Dialogue]) -> None:
    number = len(dialogues)
    assert sum(one.thinking for one in dialogues) > 0.75 * number
    efforts = Counter(one.effort for one in dialogues)
    assert efforts.keys() == {"max", "high", "medium", "low", None}
    assert efforts["max"] > 0.7 * number
    roles = Counter(message["role"] for one in dialogues for message in one.messages)
    assert min(roles[role] for role in ("system", "user", "assistant", "tool")) > 0.03 * number
    called = sum("tool_calls" in message for one in dialogues for message in one.messages)
    assert 0.04 * number < called < 0.2 * number
    assert sum(one.tools is not None for one in dialogues) > called, "tools are declared and not needed, too"
    assert sum(sum(message["role"] == "user" for message in one.messages) == 2 for one in dialogues) > 0.1 * number


def test_tell_of_what_was_asked_for(dialogues: list[Dialogue]) -> None:
    seen = 0
    heroes, things = "|".join(KINDS), "|".join(THINGS)
    for one in dialogues:
        said = [message for message in one.messages if message["role"] in ("user", "assistant")]
        for asked, answered in pairwise(said):
            found = re.search(rf"\ban? ({heroes})\b.* and an? ({things})\b", asked["content"]) if asked["role"] == "user" else None
            if found:
                seen += 1
                assert f" {found[1]} named " in answered["content"]
                assert re.search(rf"(?i)\b{found[2]}\b", answered["content"])
                if "reasoning_content" in answered:
                    assert re.search(rf"(?i)\b{found[1]}\b.*\b{found[2]}\b|\b{found[2]}\b.*\b{found[1]}\b", answered["reasoning_content"])
    assert seen > 250


def test_names_and_kinds_told_afterwards_are_those_of_the_tale() -> None:
    rng = random.Random(3)
    for _ in range(100):
        messages, _ = conversations._tale_and_question(rng, "max")
        asked, text, answer = (messages[at]["content"] for at in (0, 1, 3))
        name, kind = re.search(r"(?:was )?([A-Z]\w+)(?:, the| was an?) ([a-z ]+)\.", answer).groups()  # type: ignore[union-attr]
        assert re.search(rf"\b{kind} named {name}\b|{name}, an? [\w ]*{kind}|{name}, who was an? [\w ]*{kind}", text), (asked, text, answer)


def test_without_thinking_no_thought_is_left(dialogues: list[Dialogue]) -> None:
    for one in dialogues:
        answers = [message for message in one.messages if message["role"] == "assistant"]
        assert all(("reasoning_content" in message) == one.thinking for message in answers)


def test_calls_are_of_declared_tools_and_answers_tell_the_result(dialogues: list[Dialogue]) -> None:
    names = set()
    for messages, tools, _, _ in dialogues:
        at = next((at for at, message in enumerate(messages) if "tool_calls" in message), None)
        if at is None:
            continue
        (call,) = messages[at]["tool_calls"]
        declared = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools or ()}
        parameters = declared[call["function"]["name"]]
        arguments = json.loads(call["function"]["arguments"])
        assert list(arguments) == parameters["required"] == list(parameters["properties"])
        for key, value in arguments.items():
            assert isinstance(value, {"string": str, "number": int}[parameters["properties"][key]["type"]])
            assert str(value) in messages[at - 1]["content"] or (key, value) == ("sides", 6)
        assert messages[at + 1]["role"] == "tool"
        assert messages[at + 1]["tool_call_id"] == call["id"]
        for word in re.findall(r"[\w:]+", messages[at + 1]["content"]):
            assert word in messages[at + 2]["content"]
        names.add(call["function"]["name"])
    assert names == set(tooling.TOOLS)


def test_heroes_no_tale_has_are_named_as_such() -> None:
    assert not set(phrases.UNKNOWN) & set(KINDS)
    rng = random.Random(4)
    for _ in range(60):
        (asked, answered), _ = conversations._unknown_turn(rng, "max")
        unknown = next(word for word in sorted(phrases.UNKNOWN, key=len, reverse=True) if word in asked["content"])
        assert f"{with_article(unknown)}," in answered["content"] or f"no {unknown} in them" in answered["content"]


def test_requests_end_with_the_user_and_are_fresh() -> None:
    made = requests(random.Random(6), 200)
    assert all(one.messages[-1]["role"] == "user" for one in made)
    assert all(message["role"] in ("system", "user") for one in made for message in one.messages)
    assert len({json.dumps(one) for one in made}) > 150
    assert any(one.tools for one in made)
    assert made == requests(random.Random(6), 200)


def test_every_phrase_can_be_said() -> None:
    told = conversations.tale(random.Random(8))
    others = {"unknown": "robot", "a_unknown": "a robot"}
    for name, group in vars(phrases).items():
        if name.startswith(("ASK_", "THINK_", "SAY_")):
            for phrase in group:
                assert "{" not in conversations._about(phrase, told, **others)


def test_texts_are_those_of_the_shipped_model() -> None:
    """A changed word, or another order of drawing, makes another corpus than the one the model in the package was trained on."""
    rng = random.Random(2026)
    told, talked = hashlib.sha256(), hashlib.sha256()
    for _ in range(300):
        told.update(tale(rng).text.encode())
    for _ in range(300):
        for segment in conversation(rng):
            talked.update(f"{segment.special}{segment.text}".encode())
    assert told.hexdigest() == "4818407fec096cc01675ca94096a8cdac286fc2867fbe39e84822f539bea5633"
    assert talked.hexdigest() == "dbd8115972206135c21c2e2d4b989a0c361f20fecf967f0666147316e81c7daf"
