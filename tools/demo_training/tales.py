"""Tales by the thousand: a story grammar of some twenty plots, each a row of beats in several wordings.

What holds a tale together is decided before a word is written: who the hero and the friend are, their names, their pronouns (never the same
two, so that "he" and "she" always tell who is meant), the thing it turns on, and the choices that later beats refer back to.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from demo_training.cast import FEMALE_NAMES, HE, HERO_ADJECTIVES, HOMES, KINDS, MALE_NAMES, SHE, THINGS, Kind, suits
from demo_training.plots import INTRO_OWNED, INTRO_PLACE, PLOTS, Plot

OPENINGS = (
    "once upon a time there was {a_hero} named {A} who lived {home}.",
    "once upon a time there was {a_hero} named {A} who lived {home}.",
    "once upon a time there lived {a_hero} named {A} {home}.",
    "once upon a time, {home}, there lived {a_hero} named {A}.",
    "once upon a time {a_hero} named {A} lived {home}.",
    "long ago there was {a_hero} named {A} who lived {home}.",
    "long ago, {home}, there lived {a_hero} named {A}.",
    "{home} there lived {a_hero} named {A}.",
    "there once was {a_hero} named {A} who lived {home}.",
)
MORNINGS = (
    "one morning {a_hero} named {A} woke up early {home}.",
    "early one morning {a_hero} named {A} went for a walk. The sun was warm, and the birds sang.",
)
DAYS = ("one day", "one morning", "one afternoon", "one evening", "one fine day")
CLOSINGS = (
    "And they lived happily ever after.",
    "And if they have not moved away, they live there still.",
    "And that is the end of the tale.",
)
# In words and marks, each of which is a token or a little more: 90 to 140 tokens, so that a tale ends within 150.
FEWEST, MOST, LONGEST = 92, 122, 137
TRIES = 6
WORD_OR_MARK = re.compile(r"\w+|[^\w\s]+")
PLACEHOLDER = re.compile(r"\{(\w+)\}")


class Tale(NamedTuple):
    """`hero` and `friend` are kinds, `thing` is what the tale turns on, `names` are those of hero and friend."""

    text: str
    hero: str
    friend: str
    thing: str
    names: tuple[str, str]


def fitting(hero: str, thing: str) -> list[Plot]:
    """The plots that can tell about this kind of hero and this thing. Raises ValueError for words that no tale knows."""
    for word, known in ((hero, KINDS), (thing, THINGS)):
        if word not in known:
            raise ValueError(f"no tale is about {word!r}: needed one of {', '.join(known)}")
    return [plot for plot in PLOTS if thing in plot.things and not plot.hero_not & KINDS[hero].flags]


def tale(rng: random.Random, *, hero: str | None = None, thing: str | None = None, name: str | None = None) -> Tale:
    """A whole tale about a hero of the given kind and name and the given thing; what is not given is drawn.

    Raises ValueError for words no tale knows, a pair that no plot fits (there is none today), or a name that is not of the hero's sex.
    """
    chosen_hero = rng.choice(list(KINDS)) if hero is None else hero
    if thing is None:
        plot = rng.choice([plot for plot in PLOTS if not plot.hero_not & KINDS[chosen_hero].flags])
        thing = rng.choice(plot.things)
    else:
        plots = fitting(chosen_hero, thing)
        if not plots:
            raise ValueError(f"no plot tells of a {chosen_hero} and a {thing}")
        plot = rng.choice(plots)
    return told(rng, plot, KINDS[chosen_hero], thing, name)


def names_of(hero: str) -> tuple[str, ...]:
    """The names a hero of this kind may have."""
    return {"m": MALE_NAMES, "f": FEMALE_NAMES, "": MALE_NAMES + FEMALE_NAMES}[KINDS[hero].sex]


def told(rng: random.Random, plot: Plot, hero: Kind, thing: str, name: str | None = None) -> Tale:
    """A tale of this very plot."""
    name = rng.choice(names_of(hero.word)) if name is None else name
    if name not in names_of(hero.word):
        raise ValueError(f"no {hero.word} is called {name!r}: needed one of {', '.join(names_of(hero.word))}")
    words = _cast(rng, plot, hero, name) | _thing_words(rng, thing)
    words["intro"] = rng.choice(INTRO_PLACE if THINGS[thing].place else INTRO_OWNED)
    words["home"] = rng.choice([home for home in HOMES[hero.home] if thing not in home])
    words |= _picked(rng, plot, words)
    morning = all("{Day}" in wording for wording in plot.beats[0]) and rng.random() < 0.25
    words["day"] = "that day" if morning else rng.choice(DAYS)
    beats = ((rng.choice(MORNINGS if morning else OPENINGS),), *plot.beats, ("", *CLOSINGS))
    text = _composed(rng, beats, words)
    return Tale(text, hero.word, words["kind2"], thing, (words["A"], words["B"]))


def _composed(rng: random.Random, beats: Sequence[Sequence[str]], words: Mapping[str, str]) -> str:
    """One wording of every beat, as many of the beats that may be left out as fit a length drawn at random.

    Long wordings of the other beats may still be too much; then others are drawn, and the shortest outcome counts.
    """
    optional = [index for index, wordings in enumerate(beats) if not wordings[0]]
    most = rng.randint(FEWEST, MOST)
    shortest, outcome = sys.maxsize, ""
    for _ in range(TRIES):
        told = [_capital(_filled(rng.choice([wording for wording in wordings if wording]), words)) for wordings in beats]
        length = sum(len(WORD_OR_MARK.findall(beat)) for beat in told)
        for index in rng.sample(optional, len(optional)):
            if length > most:
                length -= len(WORD_OR_MARK.findall(told[index]))
                told[index] = ""
        if length < shortest:
            shortest, outcome = length, " ".join(filter(None, told))
        if length <= LONGEST:
            break
    return outcome


def _cast(rng: random.Random, plot: Plot, hero: Kind, name: str) -> dict[str, str]:
    """Names, kinds and pronouns of hero and friend: of different kinds, and told apart by their pronouns."""
    male = name in MALE_NAMES
    friends = [
        kind
        for kind in KINDS.values()
        if kind.word != hero.word and kind.sex != ("m" if male else "f") and not plot.friend_not & kind.flags
    ]
    friend = rng.choice(friends)
    words = {"A": name, "B": rng.choice(FEMALE_NAMES if male else MALE_NAMES), "kind": hero.word, "kind2": friend.word}
    words["hero"] = _described(rng, HERO_ADJECTIVES, hero)
    words["friend"] = _described(rng, plot.friend, friend)
    words["a_hero"], words["a_friend"] = with_article(words["hero"]), with_article(words["friend"])
    words |= HE if male else SHE
    words |= {f"{key}2": word for key, word in (SHE if male else HE).items()}
    return words


def _described(rng: random.Random, adjectives: Sequence[str], kind: Kind) -> str:
    return f"{rng.choice([adjective for adjective in adjectives if suits(adjective, kind)])} {kind.word}".strip()


def _thing_words(rng: random.Random, thing: str) -> dict[str, str]:
    full = f"{rng.choice(THINGS[thing].adjectives)} {thing}"
    return {"thing": thing, "full": full, "a_thing": with_article(full)}


def _picked(rng: random.Random, plot: Plot, words: Mapping[str, str]) -> dict[str, str]:
    """One value for each pick of the plot, none that speaks of another rabbit than the hero, or of a second cake."""
    taken = re.compile(rf"\b({words['kind']}|{words['kind2']}|{words['thing']})\b")
    picked: dict[str, str] = {}
    for keys, values in plot.picks.items():
        value = rng.choice([value for value in values if not taken.search(value)] or list(values))
        picked |= zip(keys.split("|"), value.split("|"), strict=True)
    return picked


def _filled(beat: str, words: Mapping[str, str]) -> str:
    """The beat with its placeholders replaced, those inside replacements too; {He} is {he} with a capital."""

    def replaced(match: re.Match[str]) -> str:
        key = match.group(1)
        if key in words:
            return _filled(words[key], words)
        return _capital(_filled(words[key[0].lower() + key[1:]], words))

    return PLACEHOLDER.sub(replaced, beat)


def _capital(text: str) -> str:
    """With its first letter large, also behind an opening quotation mark."""
    start = 1 if text.startswith('"') else 0
    return text[:start] + text[start : start + 1].upper() + text[start + 1 :]


def with_article(noun: str) -> str:
    """The noun behind "a" or "an". All words of the tales follow the spelling, none begins like "hour" or "unit"."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"
