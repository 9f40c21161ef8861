"""The strict check: it accepts whatever is rendered, and notices every deviation where it is."""

from __future__ import annotations

from typing import Any

import pytest
from chat_pages import answers, conversations, options, page, spelled
from hypothesis import given
from hypothesis import strategies as st

from lilliput.errors import UsageError
from lilliput.text.bytelevel import byte_level_files
from lilliput.text.chat import Segment, encode, render
from lilliput.text.tokenizer import Tokenizer
from lilliput.text.wellformed import check_completion, check_conversation
from lilliput.text.xtml import parse_header

END = "{close}message{sep}{end}"
CALLS = (
    '{open}tools{sep}{open}call tool="f" index="1"{sep}{open}argument key="a" type="number"{sep}1{close}argument{sep}{close}call{sep}'
    '{open}call tool="g&quot;" index="2"{sep}{open}argument key="a" type="string"{sep}{"{close}argument{sep}'
    '{open}argument key="b" type="object"{sep}{"x": [1e2]}{close}argument{sep}{close}call{sep}{close}tools{sep}'
)
ANSWER = "Well.{close}think{sep}{open}response{sep}Yes.{close}response{sep}"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """Ids below 256 are bytes; 256 is [BOS], 257 [EOS], 258 to 261 the markers."""
    directory = tmp_path_factory.mktemp("bytes")
    for name, content in byte_level_files(512).items():
        (directory / name).write_bytes(content)
    opened = Tokenizer.open(directory, 512)
    assert opened is not None
    return opened


@pytest.mark.parametrize(
    ("completion", "thinking"),
    [
        (ANSWER + END, True),
        ("{close}think{sep}{open}response{sep}{close}response{sep}" + END, True),
        ("Yes.{close}response{sep}" + END, False),
        (ANSWER + CALLS + END, True),
        (ANSWER + '{open}tools{sep}{open}call tool="f" index="1"{sep}{close}call{sep}{close}tools{sep}' + END, True),
        (
            ANSWER
            + '{open}tools{sep}{open}call tool="f" index="1"{sep}{open}json type="object"{sep}{"a": 1}{close}json{sep}{close}call{sep}'
            "{close}tools{sep}" + END,
            True,
        ),
    ],
)
def test_well_formed_completions(tokenizer: Tokenizer, completion: str, thinking: bool) -> None:
    text = spelled(completion)
    assert check_completion(text, thinking=thinking) == []
    assert check_completion(tokenizer.encode(text, allow_special=True), tokenizer, thinking=thinking) == []


FIRST = '{open}call tool="f" index="1"{sep}'
NOTHING = '{open}argument key="a" type="null"{sep}null{close}argument{sep}'


def with_call(inside: str, head: str) -> str:
    return ANSWER + "{open}tools{sep}" + head + inside + "{close}call{sep}{close}tools{sep}" + END


def with_argument(head: str, value: str) -> str:
    return with_call("{open}argument " + head + "{sep}" + value + "{close}argument{sep}", FIRST)


# One deviation each; `¦` stands where it must be noticed.
MALFORMED = {
    "nothing": ("¦", "<|close|>"),
    "cut while thinking": ("Well¦", "<|close|>"),
    "cut in the response": ("Well.{close}think{sep}{open}response{sep}Yes¦", "<|close|>"),
    "no end of the message": (ANSWER + "{close}message{sep}¦", "<|end_of_msg|>"),
    "more after the end": (ANSWER + END + "¦x", "nothing more"),
    "a second message": (ANSWER + END + '¦{open}message role="user"{sep}' + END, "nothing more"),
    "think not closed before the response": ("Well.¦{open}response{sep}Yes.{close}response{sep}" + END, "<|close|>"),
    "tools straight from think": ("Well.¦" + CALLS + END, "<|close|>"),
    "no response": ("Well.{close}think{sep}¦" + END, "<|open|>"),
    "tools without a response": ("Well.{close}think{sep}{open}¦" + CALLS.removeprefix("{open}") + END, "response"),
    "response not closed": ("Well.{close}think{sep}{open}response{sep}Yes.{close}¦message{sep}{end}", "response, which is open"),
    "the end at once": ("Well.¦{end}", "<|close|>"),
    "response twice": (ANSWER + "{open}¦response{sep}Yes.{close}response{sep}" + END, "tools"),
    "text between sections": ("Well.{close}think{sep}¦\n{open}response{sep}Yes.{close}response{sep}" + END, "<|open|>"),
    "text after the response": (ANSWER + "¦\n" + END, "<|close|>"),
    "text before the end": (ANSWER + "{close}message{sep}¦\n{end}", "<|end_of_msg|>"),
    "another tag closed": ("Well.{close}¦response{sep}", "think, which is open"),
    "a close with more than its tag": ("Well.{close}¦think {sep}{open}response{sep}Yes.{close}response{sep}" + END, "think, which is open"),
    "a close without its sep": ("Well.{close}think¦{open}response{sep}Yes.{close}response{sep}" + END, "<|sep|>"),
    "an attribute on the response": (
        'Well.{close}think{sep}¦{open}response x="1"{sep}Yes.{close}response{sep}' + END,
        "response without attributes",
    ),
    "empty tools": (ANSWER + "{open}tools{sep}¦{close}tools{sep}" + END, "<|open|>"),
    "an argument outside a call": (ANSWER + '{open}tools{sep}{open}¦argument key="a" type="null"{sep}null{close}argument{sep}', "call"),
    "text in tools": (ANSWER + "{open}tools{sep}¦\n", "<|open|>"),
    "text in a call": (with_call("¦\n", FIRST), "<|close|>"),
    "a call from zero": (with_call("", '¦{open}call tool="f" index="0"{sep}'), 'index="1"'),
    "a call with a padded index": (with_call("", '¦{open}call tool="f" index="01"{sep}'), 'index="1"'),
    "a call without a name": (with_call("", '¦{open}call tool="" index="1"{sep}'), 'tool="NAME"'),
    "a call, well written turned": (with_call("", '¦{open}call index="1" tool="f"{sep}'), 'tool="NAME" index="1"'),
    "a call without an index": (with_call("", '¦{open}call tool="f"{sep}'), 'index="1"'),
    "a second call that is first again": (
        ANSWER + CALLS.replace('{open}call tool="g&quot;" index="2"', '¦{open}call tool="g" index="1"') + END,
        'index="2"',
    ),
    "a quote in an attribute": (with_call("", '{open}¦call tool="f"" index="1"{sep}'), "call, well written"),
    "a bare ampersand in an attribute": (with_call("", '{open}¦call tool="f&g" index="1"{sep}'), "call, well written"),
    "two spaces in a header": (with_call("", '{open}¦call  tool="f" index="1"{sep}'), "call, well written"),
    "an argument without a type": (
        with_call('¦{open}argument key="a"{sep}x{close}argument{sep}', FIRST),
        'type="string|',
    ),
    "an argument of an unknown type": (
        with_call('¦{open}argument key="a" type="integer"{sep}1{close}argument{sep}', FIRST),
        'type="string|number|boolean|null|object|array"',
    ),
    "an argument twice": (
        with_call(f"{NOTHING}¦{NOTHING}", FIRST),
        "every key once in a call",
    ),
    "a number that is none": (with_argument('key="a" type="number"', "¦five"), "JSON of type number"),
    "a number with a plus": (with_argument('key="a" type="number"', "¦+5"), "JSON of type number"),
    "no number": (with_argument('key="a" type="number"', "¦"), "JSON of type number"),
    "not a number": (with_argument('key="a" type="number"', "¦NaN"), "JSON of type number"),
    "a boolean as Python spells it": (with_argument('key="a" type="boolean"', "¦True"), "JSON of type boolean"),
    "a number for a boolean": (with_argument('key="a" type="boolean"', "¦1"), "JSON of type boolean"),
    "a boolean for a number": (with_argument('key="a" type="number"', "¦true"), "JSON of type number"),
    "something for null": (with_argument('key="a" type="null"', "¦0"), "JSON of type null"),
    "an array for an object": (with_argument('key="a" type="object"', "¦[]"), "JSON of type object"),
    "an object for an array": (with_argument('key="a" type="array"', "¦{}"), "JSON of type array"),
    "an object that is cut": (with_argument('key="a" type="object"', '¦{"x": 1'), "JSON of type object"),
    "an object with a key twice": (with_argument('key="a" type="object"', '¦{"x": 1, "x": 2}'), "every key once in its object"),
    "an array that is too deep": (with_argument('key="a" type="array"', "¦" + "[" * 3000 + "]" * 3000), "at most 256"),
    "raw arguments that are no JSON": (
        with_call('{open}json type="object"{sep}¦{"a": {close}json{sep}', FIRST),
        "JSON of type object",
    ),
    "raw arguments of another type": (
        with_call('¦{open}json type="array"{sep}{}{close}json{sep}', FIRST),
        'json with type="object"',
    ),
    "raw arguments beside others": (
        with_call(
            NOTHING + '¦{open}json type="object"{sep}{}{close}json{sep}',
            FIRST,
        ),
        "either arguments or json",
    ),
    "raw arguments twice": (
        with_call(
            '{open}json type="object"{sep}{}{close}json{sep}¦{open}json type="object"{sep}{}{close}json{sep}',
            FIRST,
        ),
        "<|close|>",
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_completion_is_noticed_where_it_is(tokenizer: Tokenizer, name: str) -> None:
    written, needed = MALFORMED[name]
    at = spelled(written.split("¦")[0])
    text = spelled(written.replace("¦", ""))
    faults = check_completion(text)
    assert faults[0].position == len(at)
    assert needed in faults[0].needed
    # The same for ids, at the same place.
    ids = tokenizer.encode(text, allow_special=True)
    [*same] = check_completion(ids, tokenizer)
    assert [fault.needed for fault in same] == [fault.needed for fault in faults]
    assert same[0].position == len(tokenizer.encode(at, allow_special=True))


def test_without_thinking_a_think_section_is_too_much() -> None:
    assert check_completion(spelled(ANSWER + END), thinking=False)[0].needed == "response, which is open"


def test_faults_of_values_are_all_told() -> None:
    calls = CALLS.replace('index="1"', 'index="7"').replace("{sep}1{", "{sep}one{").replace("[1e2]", "[1e]")
    assert [fault.needed for fault in check_completion(spelled(ANSWER + calls + END))] == [
        'a call with tool="NAME" index="1"',
        "JSON of type number",
        "JSON of type object",
    ]


def test_a_fault_reads_as_a_sentence() -> None:
    [fault] = check_completion(spelled("Hm{close}response{sep}"))
    assert str(fault) == "at 11: needed think, which is open, found 'response'"


# Every structural token of a rich completion matters.


TEXTS = ("Yes.", "Well.", "x")
KEYS = ("a", "b", "c")  # an argument may have an empty key


def rich() -> list[Segment]:
    call = {"function": {"name": "f", "arguments": {"a": 1, "b": "x", "c": [None]}}}
    answer = {"role": "assistant", "content": "Yes.", "reasoning": "Well.", "tool_calls": [call, call]}
    prompt = render([{"role": "user", "content": "?"}])
    return render([{"role": "user", "content": "?"}, answer], generation_prompt=False)[len(prompt) :]


def test_the_rich_completion_is_well_formed() -> None:
    assert check_completion(rich()) == []


@pytest.mark.parametrize("at", [at for at, segment in enumerate(rich()) if segment.text not in TEXTS])
def test_every_structural_token_matters(at: int) -> None:
    segments = rich()
    without = segments[:at] + segments[at + 1 :]
    spelled_out = [*segments[:at], Segment(segments[at].text, not segments[at].special), *segments[at + 1 :]]
    assert check_completion(without) or segments[at].text in KEYS
    assert check_completion(spelled_out)
    assert check_completion(segments[:at])
    if segments[at].special:
        assert check_completion(segments[:at] + [segments[at]] * 2 + segments[at + 1 :])


# Ids.


def test_spelled_markers_are_text_and_no_structure(tokenizer: Tokenizer) -> None:
    assert check_completion(tokenizer.encode(spelled(ANSWER + END)), tokenizer)[0].needed == "<|close|>"
    answered = rich()[: rich().index(Segment("tools", False)) - 1]
    [fault] = check_completion([*answered, Segment("<|open|>", False), Segment("tools", False)])
    assert (fault.position, fault.needed, fault.found) == (len(answered), "<|close|>", "'<|open|>tools'")
    [fault] = check_completion([*answered, Segment("<|open|>", False)])
    assert (fault.position, fault.needed, fault.found) == (len(answered), "<|close|>", "'<|open|>'")
    talk = [Segment("<|close|>think<|sep|>", False), *rich()]
    assert check_completion(talk) == []
    assert check_completion(encode(tokenizer, talk), tokenizer) == []


@pytest.mark.parametrize(
    ("token", "shown"), [(257, "[EOS]"), (256, "[BOS]"), (300, "<|reserved_token_300|>"), (512, "id 512"), (-1, "id -1")]
)
def test_other_added_tokens_have_no_place(tokenizer: Tokenizer, token: int, shown: str) -> None:
    ids = tokenizer.encode(spelled(ANSWER + END), allow_special=True)
    [fault] = check_completion([*ids[:2], token, *ids[2:]], tokenizer)
    assert (fault.position, fault.needed) == (2, "<|close|>")
    assert shown in fault.found


def test_characters_may_be_spread_over_tokens_but_must_be_whole(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(spelled(ANSWER + END), allow_special=True)
    assert check_completion([*"é漢🦊".encode(), *ids], tokenizer) == []
    [fault] = check_completion([*"aé".encode()[:2], *ids], tokenizer)
    assert (fault.position, fault.needed, fault.found) == (1, "text in UTF-8", "the byte 0xC3")


def test_faults_come_in_their_order(tokenizer: Tokenizer) -> None:
    written = with_call('{open}argument key="a" type="string"{sep}BROKEN{close}argument{sep}', '{open}call tool="f" index="7"{sep}')
    ids = tokenizer.encode(spelled(written), allow_special=True)
    at = bytes(min(token, 255) for token in ids).index(b"BROKEN")
    faults = check_completion([*ids[:at], 0xC3, *ids[at + 6 :]], tokenizer)
    assert [fault.needed for fault in faults] == ['a call with tool="NAME" index="1"', "text in UTF-8"]


def test_ids_need_their_tokenizer() -> None:
    with pytest.raises(UsageError, match="their tokenizer"):
        check_completion([1, 2])


@given(st.lists(st.integers(-1, 600) | st.integers(257, 261), max_size=40), st.booleans())
def test_no_ids_crash_the_check(tokenizer: Tokenizer, ids: list[int], thinking: bool) -> None:
    assert all(0 <= fault.position <= len(ids) for fault in check_completion(ids, tokenizer, thinking=thinking))
    assert all(0 <= fault.position <= len(ids) for fault in check_conversation(ids, tokenizer, thinking=thinking))


# Whole conversations.


@given(conversations(), options)
def test_whatever_is_rendered_is_well_formed(tokenizer: Tokenizer, messages: Any, given_: dict[str, Any]) -> None:
    before = repr((messages, given_))
    segments = render(messages, **given_)
    assert repr((messages, given_)) == before
    expected = {name: given_.get(name, True) for name in ("thinking", "generation_prompt")}
    assert check_conversation(segments, **expected) == []
    assert check_conversation(encode(tokenizer, segments), tokenizer, **expected) == []
    assert check_conversation(segments, thinking=expected["thinking"], generation_prompt=not expected["generation_prompt"])


@given(conversations(), answers(raw=False), st.booleans())
def test_an_answer_in_the_history_is_the_prompt_and_a_well_formed_completion(messages: Any, answer: Any, thinking: bool) -> None:
    prompt = render(messages, thinking=thinking)
    whole = render([*messages, answer], thinking=thinking, generation_prompt=False)
    assert whole[: len(prompt)] == prompt
    assert check_completion(whole[len(prompt) :], thinking=thinking) == []


def test_a_generation_prompt_is_there_if_and_only_if_it_is_asked_for() -> None:
    said = '{open}message role="user"{sep}x' + END
    prompt = '{open}message role="assistant"{sep}{open}think{sep}'
    assert check_conversation(spelled(said), generation_prompt=False) == []
    assert check_conversation(spelled(said + prompt)) == []
    assert check_conversation(spelled(said))[0].needed == "<|open|>"
    assert check_conversation(spelled(said + prompt), generation_prompt=False)[0].needed == "<|close|>"
    assert check_conversation(spelled(said + prompt), thinking=False)[0].needed.startswith("response")


def test_raw_arguments_of_a_history_need_not_be_json() -> None:
    call = with_call('{open}json type="object"{sep}{"a": {close}json{sep}', FIRST)
    assert check_conversation(spelled('{open}message role="assistant"{sep}{open}think{sep}' + call), generation_prompt=False) == []


MESSAGE_FAULTS = [
    '¦{open}message role="boss"{sep}x' + END,
    "¦{open}message{sep}x" + END,
    '¦{open}message role="user" name=""{sep}x' + END,
    '¦{open}message role="user" type="tool-choice"{sep}x' + END,
    '¦{open}message role="system" type="secret"{sep}x' + END,
    '¦{open}message role="tool" tool="f"{sep}x' + END,
    '¦{open}message role="tool" tool="f" index="2"{sep}x' + END,
    '{open}message role="tool" tool="f" index="1"{sep}x' + END + '¦{open}message role="tool" tool="f" index="1"{sep}x' + END,
    '¦{open}message role="assistant" name="x"{sep}' + END,
    '{open}message role="user"{sep}x¦{open}think{sep}',
    '{open}message role="assistant"{sep}¦x' + END,
    '{open}message role="assistant"{sep}{open}¦response{sep}x{close}response{sep}' + END,
    '{open}message role="user"{sep}x' + END + "¦\n",
    '{open}message role="user"{sep}x{close}message{sep}¦',
]


@pytest.mark.parametrize("written", MESSAGE_FAULTS)
def test_a_malformed_message_is_noticed_where_it_is(written: str) -> None:
    faults = check_conversation(spelled(written.replace("¦", "")), generation_prompt=False)
    assert faults[0].position == len(spelled(written.split("¦")[0]))


def test_results_are_counted_since_the_last_assistant_message() -> None:
    tool = '{open}message role="tool" tool="f" index="1"{sep}x' + END
    answer = '{open}message role="assistant"{sep}{open}think{sep}' + ANSWER + END
    assert check_conversation(spelled(answer + tool + answer + tool), generation_prompt=False) == []


# Headers.


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("think", ("think", ())),
        ('call tool="f" index="1"', ("call", (("tool", "f"), ("index", "1")))),
        ('argument key="a&amp;quot;&quot;\n=" type=""', ("argument", (("key", 'a&quot;"\n='), ("type", "")))),
        ("", None),
        ("think ", None),
        (" think", None),
        ('call tool="f"index="1"', None),
        ('call tool="&lt;"', None),
        ("call tool=f", None),
        ("call tool", None),
        ('call="f"', None),
    ],
)
def test_headers_are_read_exactly_as_they_are_written(text: str, header: Any) -> None:
    assert parse_header(text) == header


@given(st.text(), st.text())
def test_attributes_survive_a_page(name: str, key: str) -> None:
    answer = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": name or "f", "arguments": {key: 1}}}]}
    heads = page(render([answer])).split("{open}")
    [call] = [parse_header(head.split("{sep}")[0]) for head in heads if head.startswith("call ")]
    [argument] = [parse_header(head.split("{sep}")[0]) for head in heads if head.startswith("argument ")]
    assert call == ("call", (("tool", name or "f"), ("index", "1")))
    assert argument == ("argument", (("key", key), ("type", "number")))
