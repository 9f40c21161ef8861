"""The strict check of messages in K3's format: of what a model wrote after a prompt, and of whole conversations.

Strict means exactly what `chat.render` writes: think, response, tools if there are calls, the end. Nothing is forgiven, so this is a
measure and a test, not the way to read a model's answer. Markers count only as added tokens; spelled with ordinary tokens they are text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from lilliput.text import chat_json
from lilliput.text.chat_fields import described
from lilliput.text.chat_given import read_emitted
from lilliput.text.chat_json import NotJsonError
from lilliput.text.chat_pieces import Emitted, Fault, Piece, pieces_of
from lilliput.text.xtml import (
    ARGUMENT,
    CALL,
    CLOSE,
    END_OF_MSG,
    MESSAGE,
    OPEN,
    RAW_JSON,
    RESPONSE,
    SEP,
    SYSTEM_TYPES,
    THINK,
    TOOLS,
    Header,
    parse_header,
)

if TYPE_CHECKING:
    from lilliput.text.tokenizer import Tokenizer


def check_completion(emitted: Emitted, tokenizer: Tokenizer | None = None, *, thinking: bool = True) -> list[Fault]:
    """Everything wrong with what a model wrote after a generation prompt, `<|end_of_msg|>` included; empty if it is well formed.

    `emitted` is ids (with their `tokenizer`), segments, or a text, in which the names of the four markers are taken for the markers. It
    begins inside the think section, or inside the response without `thinking`. Calls are numbered from 1, no argument comes twice, values
    are of their type, the text is UTF-8. Nothing behind a fault of the structure is looked at. Raises InputError for arguments that are
    something else, UsageError for ids without a tokenizer.
    """
    check = _Check(read_emitted(emitted, tokenizer, thinking=thinking), tokenizer)
    return check.run(lambda: check.completion(thinking))


def check_conversation(
    emitted: Emitted, tokenizer: Tokenizer | None = None, *, thinking: bool = True, generation_prompt: bool = True
) -> list[Fault]:
    """The same for whole messages one after the other, with a generation prompt behind them if there is to be one.

    Here calls may hold arguments that are no JSON, as a history may.
    """
    check = _Check(read_emitted(emitted, tokenizer, thinking=thinking, generation_prompt=generation_prompt), tokenizer)
    return check.run(lambda: check.conversation(thinking, generation_prompt))


class _LostError(Exception):
    """The structure is broken: what follows cannot be judged."""


class _Check:
    """Walks over pieces as the grammar asks for them. Faults of values are noted, those of the structure end the walk."""

    def __init__(self, emitted: Emitted, tokenizer: Tokenizer | None) -> None:
        self.faults: list[Fault] = []
        self.pieces = [*pieces_of(emitted, tokenizer, self.faults), Piece(len(emitted), "the end", "end")]
        self.at = 0

    def run(self, grammar: Callable[[], None]) -> list[Fault]:
        try:
            grammar()
            if self.next.kind != "end":
                self.lose("nothing more")
        except _LostError:
            pass
        return sorted(self.faults)

    # The grammar.

    def completion(self, thinking: bool) -> None:
        self.answer(thinking, history=False)

    def conversation(self, thinking: bool, generation_prompt: bool) -> None:
        results = 0  # tool messages since the last assistant message
        while self.next.kind != "end" or generation_prompt:
            at = self.next.position
            header = self.open(MESSAGE)
            if header.attributes == (("role", "assistant"),):
                results = 0
                self.section(THINK if thinking else RESPONSE)
                if self.next.kind == "end" and generation_prompt:
                    return
                self.answer(thinking, history=True)
                continue
            results += header.attributes[:1] == (("role", "tool"),)
            self.message(at, header, results)
            self.text()
            self.close(MESSAGE)
            self.marker(END_OF_MSG)

    def answer(self, thinking: bool, history: bool) -> None:
        """From inside the first section of an assistant message to its end."""
        if thinking:
            self.text()
            self.close(THINK)
            self.section(RESPONSE)
        self.text()
        self.close(RESPONSE)
        if self.opens:
            self.section(TOOLS)
            index = 1
            self.call(index, history)
            while self.opens:
                index += 1
                self.call(index, history)
            self.close(TOOLS)
        self.close(MESSAGE)
        self.marker(END_OF_MSG)

    def call(self, index: int, history: bool) -> None:
        at = self.next.position
        header = self.open(CALL)
        names, values = _columns(header)
        if names != ["tool", "index"] or not values[0] or values[1] != str(index):
            self.fault(at, f'a call with tool="NAME" index="{index}"', _spelled(header))
        keys: set[str] = set()
        while self.opens:
            at = self.next.position
            header = self.open(ARGUMENT, RAW_JSON)
            names, values = _columns(header)
            body = self.text()
            if header.tag == RAW_JSON:
                if header.attributes != (("type", "object"),):
                    self.fault(at, 'json with type="object"', _spelled(header))
                if keys:
                    self.fault(at, "either arguments or json in a call", "both")
                if not history:
                    self.value(body, "object")
                self.close(RAW_JSON)
                break
            if names != ["key", "type"] or values[1] not in chat_json.KINDS:
                self.fault(at, f'an argument with key="NAME" and type="{"|".join(chat_json.KINDS)}"', _spelled(header))
            else:
                if values[0] in keys:
                    self.fault(at, "every key once in a call", f"{described(values[0])} again")
                keys.add(values[0])
                self.value(body, values[1])
            self.close(ARGUMENT)
        self.close(CALL)

    def value(self, piece: Piece, kind: str) -> None:
        if kind == "string":
            return
        try:
            parsed = chat_json.kind(chat_json.parse(piece.text))
        except NotJsonError as error:
            self.fault(piece.position, error.needed, error.found)
        except ValueError:
            self.fault(piece.position, f"JSON of type {kind}", described(piece.text))
        else:
            if parsed != kind:
                self.fault(piece.position, f"JSON of type {kind}", f"{parsed}, {described(piece.text)}")

    def message(self, at: int, header: Header, results: int) -> None:
        """The attributes of a message that is no assistant's."""
        names, values = _columns(header)
        match values[:1]:
            case ["user"]:
                sound = names in (["role"], ["role", "name"])
            case ["system"]:
                sound = names in (["role"], ["role", "name"]) or (names == ["role", "type"] and values[1] in SYSTEM_TYPES)
            case ["tool"]:
                sound = names == ["role", "tool", "index"] and values[2] == str(results)
            case _:
                sound = False
        if not sound or not all(values):
            needed = f'role="user" or "system" (name="..." or a known type), "tool" (tool="..." index="{results}") or "assistant"'
            self.fault(at, needed, _spelled(header))

    # What the grammar is made of.

    @property
    def next(self) -> Piece:
        return self.pieces[self.at]

    @property
    def opens(self) -> bool:
        return self.next.kind == "marker" and self.next.text == OPEN

    def open(self, *tags: str) -> Header:
        self.marker(OPEN)
        header = parse_header(self.next.text) if self.next.kind == "text" else None
        if header is None or header.tag not in tags:
            self.lose(" or ".join(tags) + ", well written")
        self.at += 1
        self.marker(SEP)
        return header

    def section(self, tag: str) -> None:
        at = self.next.position
        header = self.open(tag)
        if header.attributes:
            self.fault(at, f"{tag} without attributes", _spelled(header))

    def close(self, tag: str) -> None:
        self.marker(CLOSE)
        if self.next.kind != "text" or self.next.text != tag:
            self.lose(f"{tag}, which is open")
        self.at += 1
        self.marker(SEP)

    def marker(self, name: str) -> None:
        if self.next.kind != "marker" or self.next.text != name:
            self.lose(name)
        self.at += 1

    def text(self) -> Piece:
        """The body of an element; an empty piece where there is none."""
        if self.next.kind != "text":
            return Piece(self.next.position, "", "text")
        self.at += 1
        return self.pieces[self.at - 1]

    def fault(self, position: int, needed: str, found: str) -> None:
        self.faults.append(Fault(position, needed, found))

    def lose(self, needed: str) -> NoReturn:
        self.fault(self.next.position, needed, str(self.next))
        raise _LostError


def _columns(header: Header) -> tuple[list[str], list[str]]:
    return [name for name, _ in header.attributes], [value for _, value in header.attributes]


def _spelled(header: Header) -> str:
    return described(" ".join([header.tag, *(f'{name}="{value}"' for name, value in header.attributes)]))
