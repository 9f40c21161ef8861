"""Conversations in K3's message format: mostly somebody who asks for a tale, and now and then a greeting, a question, or a tool.

A conversation is what the release would render: a list of messages with the reasoning of every answer, and how it was asked for (effort,
thinking, tools). Training text and the requests to measure with come out of the same dialogues.
"""

from __future__ import annotations

import json
import random
from typing import Any, NamedTuple

from demo_training import phrases, tooling
from demo_training.cast import KINDS, THINGS
from demo_training.tales import Tale, names_of, tale, with_article
from lilliput.text.chat import Segment, render

Message = dict[str, Any]


class Dialogue(NamedTuple):
    """Everything that `lilliput.text.chat.render` needs; the last message is the assistant's."""

    messages: list[Message]
    tools: list[dict[str, Any]] | None
    thinking: bool
    effort: str | None


class Request(NamedTuple):
    """What a client would send: messages, the last one the user's, and the tools declared with them."""

    messages: list[Message]
    tools: list[dict[str, Any]] | None


def conversation(rng: random.Random) -> list[Segment]:
    """A whole conversation, rendered."""
    messages, tools, thinking, effort = dialogue(rng)
    return render(messages, tools=tools, thinking=thinking, effort=effort, generation_prompt=False)


def requests(rng: random.Random, number: int) -> list[Request]:
    """Fresh requests, as the dialogues begin them: everything up to the first answer."""
    made = []
    for _ in range(number):
        messages, tools, _, _ = dialogue(rng)
        first = next(place for place, message in enumerate(messages) if message["role"] == "assistant")
        made.append(Request(messages[:first], tools))
    return made


def dialogue(rng: random.Random) -> Dialogue:
    """A conversation of one or two turns."""
    thinking = rng.random() >= 0.15
    effort = rng.choices(("max", "high", "medium", "low", None), (80, 5, 5, 7, 3))[0]
    kinds = {_tale_turn: 52, _unknown_turn: 4, _two_tales: 3, _tale_and_question: 10, _talk: 15, _talk_and_tale: 6, _tool: 10}
    turns = rng.choices(list(kinds), list(kinds.values()))[0]
    messages, tools = turns(rng, effort)
    if tools is None and turns in (_tale_turn, _talk) and rng.random() < 0.06:
        tools = [tooling.TOOLS[rng.choice(list(tooling.TOOLS))]]
    if rng.random() < 0.08:
        messages.insert(0, {"role": "system", "content": rng.choice(phrases.SYSTEM)})
    if not thinking:
        for message in messages:
            message.pop("reasoning_content", None)
    return Dialogue(messages, tools, thinking, effort)


Turns = tuple[list[Message], list[dict[str, Any]] | None]


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def _assistant(thought: str, said: str) -> Message:
    return {"role": "assistant", "content": said, "reasoning_content": thought}


def _tale_turn(rng: random.Random, effort: str | None) -> Turns:
    """The user names hero and thing, or one of them, or neither; the tale is about what was named."""
    hero, thing = rng.choice(list(KINDS)), rng.choice(list(THINGS))
    name = rng.choice(names_of(hero))
    known = rng.choices(("both", "named", "hero", "thing", "any"), (72, 10, 7, 4, 7))[0]
    asked = {
        "both": phrases.ASK_BOTH,
        "named": phrases.ASK_NAMED,
        "hero": phrases.ASK_HERO,
        "thing": phrases.ASK_THING,
        "any": phrases.ASK_ANY,
    }[known]
    told = tale(rng, hero=hero, thing=thing, name=name)
    thoughts = phrases.THINK_BOTH if known in ("both", "named") else phrases.THINK_LESS
    return [_user(_about(rng.choice(asked), told)), _telling(rng, told, thoughts, effort)], None


def _telling(rng: random.Random, told: Tale, thoughts: tuple[str, ...], effort: str | None) -> Message:
    return _assistant(_about(rng.choice(phrases.THINK_SHORT if effort == "low" else thoughts), told), told.text)


def _unknown_turn(rng: random.Random, effort: str | None) -> Turns:
    """The user wants a hero that no tale has."""
    del effort
    told, unknown = tale(rng), rng.choice(phrases.UNKNOWN)
    others = {"a_unknown": with_article(unknown), "unknown": unknown}
    asked = rng.choice((*phrases.ASK_HERO, *phrases.ASK_BOTH)).replace("{hero}", unknown).replace("{a_hero}", with_article(unknown))
    thought = _about(rng.choice(phrases.THINK_UNKNOWN), told, **others)
    return [_user(_about(asked, told)), _assistant(thought, _about(rng.choice(phrases.SAY_UNKNOWN), told, **others) + told.text)], None


def _two_tales(rng: random.Random, effort: str | None) -> Turns:
    messages, _ = _tale_turn(rng, effort)
    told = tale(rng)
    messages += [_user(_about(rng.choice(phrases.ASK_AGAIN), told)), _telling(rng, told, phrases.THINK_BOTH, effort)]
    return messages, None


def _tale_and_question(rng: random.Random, effort: str | None) -> Turns:
    del effort
    told = tale(rng)
    questions, thought, answer = rng.choice(phrases.ABOUT_TALE)
    asked = _about(rng.choice(phrases.ASK_BOTH), told)
    messages = [_user(asked), _telling(rng, told, phrases.THINK_BOTH, "max")]
    messages += [_user(_about(rng.choice(questions), told)), _assistant(_about(thought, told), _about(answer, told))]
    return messages, None


def _talk(rng: random.Random, effort: str | None) -> Turns:
    """A greeting or the like, or a question that is too hard."""
    del effort
    if rng.random() < 0.3:
        answer = _about(rng.choice(phrases.SAY_BEYOND), tale(rng))
        return [_user(rng.choice(phrases.BEYOND)), _assistant(rng.choice(phrases.THINK_BEYOND), answer)], None
    said, thoughts, answers = rng.choice(phrases.SMALL_TALK)
    return [_user(rng.choice(said)), _assistant(rng.choice(thoughts), rng.choice(answers))], None


def _talk_and_tale(rng: random.Random, effort: str | None) -> Turns:
    messages, _ = _talk(rng, effort)
    told = tale(rng)
    messages += [_user(_about(rng.choice(phrases.ASK_AGAIN), told)), _telling(rng, told, phrases.THINK_BOTH, effort)]
    return messages, None


def _tool(rng: random.Random, effort: str | None) -> Turns:
    """One or two tools declared, one of them called, its result told."""
    del effort
    name, other = rng.sample(list(tooling.TOOLS), 2)
    used = tooling.use(rng, name)
    declared = [tooling.TOOLS[name]] if rng.random() < 0.6 else [tooling.TOOLS[tool] for tool in tooling.TOOLS if tool in (name, other)]
    call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": json.dumps(used.arguments)}}
    messages = [
        _user(used.asked),
        {**_assistant(used.thought, ""), "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": used.result},
        _assistant(used.second_thought, used.answer),
    ]
    return messages, declared


def _about(text: str, told: Tale, **others: str) -> str:
    """The text with the tale's words for its placeholders."""
    words = {
        "hero": told.hero,
        "a_hero": with_article(told.hero),
        "A_hero": with_article(told.hero).capitalize(),
        "friend": told.friend,
        "a_friend": with_article(told.friend),
        "thing": told.thing,
        "a_thing": with_article(told.thing),
        "name": told.names[0],
        "name2": told.names[1],
    }
    return text.format(**words, **others)
