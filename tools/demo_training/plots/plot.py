"""What a plot is. Every beat is a choice of wordings; any choice goes with any other.

Placeholders: {A} and {B} are the names of hero and friend; {he} {him} {his} {himself} speak of the hero, {he2} {him2} {his2} {himself2} of
the friend, who never share a pronoun; {kind} and {kind2} are the nouns, {hero} and {friend} the nouns with their adjectives, {a_hero} and
{a_friend} the same with an article; {thing}, {full} and {a_thing} do this for the thing; {day} is "one day" or the like; {intro} introduces
the thing. A capital first letter in the placeholder gives one in the text, and every beat begins with one by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from demo_training.cast import FRIEND_ADJECTIVES

INTRO_PLACE = (
    "Near {his} home there was {a_thing}.",
    "Not far away there was {a_thing}.",
    "Every day {he} walked past {a_thing}.",
    "From {his} window {he} could see {a_thing}.",
    "Close to {his} home there was {a_thing}.",
)
INTRO_OWNED = (
    "{He} had {a_thing} and loved it very much.",
    "{A} had {a_thing}, and nothing was dearer to {him}.",
    "{His} dearest treasure was {a_thing}.",
    "{A} never went anywhere without {his} {full}.",
    "{His} mother had given {him} {a_thing}.",
)

Wordings = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plot:
    """Beats in order, and what they need.

    `picks` are further placeholders: the key names one, or several joined with "|", the values are what they may become together. A beat
    whose first wording is empty may be left out. Kinds with a flag in `hero_not` or `friend_not` are never cast; `friend` are the
    adjectives of the friend.
    """

    name: str
    things: tuple[str, ...]
    beats: tuple[Wordings, ...]
    picks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    hero_not: frozenset[str] = frozenset()
    friend_not: frozenset[str] = frozenset()
    friend: Wordings = FRIEND_ADJECTIVES
