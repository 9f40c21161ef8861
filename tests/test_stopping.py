"""Stop strings against the plain definition: read letter by letter, the text before the first one that is complete."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lilliput.engine.stopping import StopText
from lilliput.errors import UsageError


def cut(pieces: list[str], stops: list[str]) -> tuple[str, bool]:
    stop = StopText(stops)
    out = []
    for piece in pieces:
        out.append(stop.push(piece))
        if stop.hit:
            break
    return "".join(out) + stop.finish(), stop.hit


texts = st.lists(st.text("ab", max_size=4), max_size=12)


@given(texts, st.lists(st.text("ab", min_size=1, max_size=4), max_size=4))
@example(["aba", "a"], ["b", "abaa"])
@example(["abaa"], ["b", "abaa"])
@example(["ab"], ["b", "ab"])
def test_any_cutting_gives_the_text_before_the_first_complete_stop(pieces: list[str], stops: list[str]) -> None:
    text = "".join(pieces)
    for n in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:n].endswith(stop)]
        if complete:
            assert cut(pieces, stops) == (text[: n - max(map(len, complete))], True)
            return
    assert cut(pieces, stops) == (text, False)


def test_what_cannot_become_a_stop_is_given_out_at_once() -> None:
    stop = StopText(["beta"])
    assert [stop.push(piece) for piece in ("alpha b", "et", "ter ", "be")] == ["alpha ", "", "better ", ""]
    assert stop.finish() == "be"


def test_a_stop_across_tokens_and_inside_a_longer_one() -> None:
    assert cut(["alpha be", "ta gam", "ma delta"], ["beta gamma"]) == ("alpha ", True)
    assert cut(["x 漢", "字y"], ["漢字"]) == ("x ", True)
    assert cut(["ab"], ["abc"]) == ("ab", False)


def test_an_empty_stop_is_refused() -> None:
    with pytest.raises(UsageError, match="--stop"):
        StopText(["a", ""])
