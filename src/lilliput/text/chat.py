"""Messages to prompt: K3's message format as the release's own code renders it.

The release has no template; this is its code in our words. Three things to know. A prompt is a list of segments, and each is encoded on
its own: structure as added tokens, everything else as ordinary text, so a marker spelled inside a message stays text. History needs the
reasoning of earlier turns. The prompt ends inside the section that the model is to write: `think`, or `response` with thinking off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lilliput.errors import Problem, TokenizerError
from lilliput.text.chat_given import read_segments
from lilliput.text.chat_input import Message, read_request
from lilliput.text.chat_tools import Call
from lilliput.text.vocabulary import NAMES_FILE
from lilliput.text.xtml import (
    ARGUMENT,
    CALL,
    CLOSE,
    END_OF_MSG,
    MESSAGE,
    OPEN,
    RAW_JSON,
    RESPONSE,
    RESPONSE_FORMAT,
    SEP,
    THINK,
    THINKING_EFFORT,
    TOOL_CHOICE,
    TOOL_DECLARE,
    TOOLS,
    Segment,
    escape,
)

if TYPE_CHECKING:
    from lilliput.text.tokenizer import Tokenizer

__all__ = ["Segment", "encode", "render"]

TOOLS_TEXT = "# Tools\nHere are the available tools, described in JSONSchema.\n\n{}"
MORE_TOOLS_TEXT = (
    "## New Tools Available\n"
    "The system dynamically extends the toolset via lazy-loading.\n"
    "You have access to all existing and extended tools.\n"
    "Here are the specs for the extended tools.\n\n{}"
)
EFFORT_TEXT = (
    "`thinking_effort` guides on how much to think in your thinking channel (not including the response channel), "
    "supported values include `low`, `medium`, `high`, and `max`.\n"
    "Now the system is invoked with `thinking_effort={}`."
)
CHOICE_TEXTS = {
    "required": "The system is invoked with `tool_choice=required`.\nYou MUST call tools in the next message.",
    "none": "The system is invoked with `tool_choice=none`.\nYou MUST NOT call any tools in the next message.",
}
FORMAT_TEXT = (
    "The system is invoked with `response_format={}`.\n"
    "Your response must be raw JSON data without markdown code blocks (```json) or any additional formatting."
)
SCHEMA_TEXT = "\nThe JSON data must match the following schema:\n{}"


def render(
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    thinking: bool = True,
    effort: str | None = "max",
    tool_choice: str | None = None,
    response_format: Mapping[str, Any] | None = None,
    generation_prompt: bool = True,
) -> list[Segment]:
    """The prompt of a conversation, as segments for `encode`.

    `messages`, `tools`, `tool_choice` (auto, none, required) and `response_format` have the shapes of the OpenAI API. An assistant
    message may carry `reasoning_content` or `reasoning`; arguments of its calls are JSON text or a mapping, numbers of a text keep their
    spelling, and text that is no JSON is shown to the model as it is. `effort` is low, medium, high, max or None for no word about it.
    Without `thinking` there is neither an effort nor a think section. `generation_prompt` adds the beginning of the answer.

    Raises InputError with every complaint about the request; `what` of each names the field, like `messages[2].content`.
    """
    request = read_request(
        messages,
        tools=tools,
        thinking=thinking,
        effort=effort,
        tool_choice=tool_choice,
        response_format=response_format,
        generation_prompt=generation_prompt,
    )
    page = _Page(thinking)
    if request.tools:
        page.system(TOOL_DECLARE, TOOLS_TEXT.format(_fence(request.tools)))
    if thinking and request.effort:
        page.system(THINKING_EFFORT, EFFORT_TEXT.format(request.effort))
    for message in request.messages:
        page.message(message)
    if request.tool_choice in CHOICE_TEXTS:
        page.system(TOOL_CHOICE, CHOICE_TEXTS[request.tool_choice])
    if request.response_format:
        schema = SCHEMA_TEXT.format(_fence(request.schema)) if request.schema else ""
        page.system(RESPONSE_FORMAT, FORMAT_TEXT.format(request.response_format) + schema)
    if generation_prompt:
        page.open(MESSAGE, ("role", "assistant"))
        page.open(THINK if thinking else RESPONSE)
    return page.segments


def encode(tokenizer: Tokenizer, segments: Iterable[Segment]) -> list[int]:
    """Ids of all segments, each encoded on its own.

    Raises InputError for arguments that are something else, TokenizerError if the tokenizer lacks an added token that a segment names,
    UsageError for text that is not valid Unicode.
    """
    segments = read_segments(tokenizer, segments)
    missing = sorted({segment.text for segment in segments if segment.special} - tokenizer.special.keys())
    if missing:
        needed = f"the added tokens of the message format: {', '.join(missing)}"
        raise TokenizerError([Problem(NAMES_FILE, "added_tokens_decoder", needed, "none of these names")])
    ids: list[int] = []
    for segment in segments:
        if segment.special:
            ids.append(tokenizer.special[segment.text])
        else:
            ids += tokenizer.encode(segment.text)
    return ids


class _Page:
    """Writes segments. An attribute is four of them, a body is one; empty ones are left out."""

    def __init__(self, thinking: bool) -> None:
        self.segments: list[Segment] = []
        self.thinking = thinking

    def open(self, tag: str, *attributes: tuple[str, str]) -> None:
        self._marker(OPEN)
        self._text(tag)
        for name, value in attributes:
            self._text(f" {name}")
            self._text('="')
            self._text(escape(value))
            self._text('"')
        self._marker(SEP)

    def close(self, tag: str) -> None:
        self._marker(CLOSE)
        self._text(tag)
        self._marker(SEP)

    def element(self, tag: str, body: str, *attributes: tuple[str, str]) -> None:
        self.open(tag, *attributes)
        self._text(body)
        self.close(tag)

    def whole(self, body: str, *attributes: tuple[str, str]) -> None:
        """A message that holds nothing but text."""
        self.element(MESSAGE, body, *attributes)
        self._marker(END_OF_MSG)

    def system(self, type_: str, body: str) -> None:
        self.whole(body, ("role", "system"), ("type", type_))

    def message(self, message: Message) -> None:
        if message.tools:
            self.system(TOOL_DECLARE, MORE_TOOLS_TEXT.format(_fence(message.tools)))
        elif message.role == "assistant":
            self.assistant(message)
        elif message.role == "tool":
            self.whole(message.content, ("role", "tool"), ("tool", message.name), ("index", str(message.index)))
        else:
            name = (("name", message.name),) if message.name else ()
            self.whole(message.content, ("role", message.role), *name)

    def assistant(self, message: Message) -> None:
        self.open(MESSAGE, ("role", "assistant"))
        if self.thinking:
            self.element(THINK, message.reasoning)
        self.element(RESPONSE, message.content)
        if message.calls:
            self.open(TOOLS)
            for index, call in enumerate(message.calls, 1):
                self.call(call, index)
            self.close(TOOLS)
        self.close(MESSAGE)
        self._marker(END_OF_MSG)

    def call(self, call: Call, index: int) -> None:
        self.open(CALL, ("tool", call.name), ("index", str(index)))
        if call.raw is not None:
            self.element(RAW_JSON, call.raw, ("type", "object"))
        for argument in call.arguments:
            self.element(ARGUMENT, argument.text, ("key", argument.key), ("type", argument.type))
        self.close(CALL)

    def _marker(self, name: str) -> None:
        self.segments.append(Segment(name, True))

    def _text(self, text: str) -> None:
        if text:
            self.segments.append(Segment(text, False))


def _fence(json: str) -> str:
    return f"```json\n{json}\n```"
