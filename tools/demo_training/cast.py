"""Who and what the tales are about: kinds of heroes with their homes, names, and the things a tale can turn on."""

from __future__ import annotations

from dataclasses import dataclass

HE = {"he": "he", "him": "him", "his": "his", "himself": "himself"}
SHE = {"he": "she", "him": "her", "his": "her", "himself": "herself"}

MALE_NAMES = (
    "Tom", "Ben", "Max", "Finn", "Leo", "Jack", "Oscar", "Hugo", "Emil", "Otto", "Peter", "Felix", "Theo", "Nils", "Pip", "Sam",
)  # fmt: skip
FEMALE_NAMES = (
    "Anna", "Lily", "Rosa", "Mia", "Nora", "Ella", "Lucy", "Daisy", "Ruby", "Ida", "Greta", "Clara", "Alice", "Ivy", "Dora", "Molly",
)  # fmt: skip

HOMES = {
    "forest": (
        "in a quiet forest",
        "in a deep green forest",
        "at the edge of a forest",
        "under an old tree",
        "in the woods near a river",
        "in a warm nest of leaves",
    ),
    "farm": ("on a small farm", "in an old barn", "on a farm near the sea", "behind a little red house"),
    "water": ("by a blue lake", "beside a quiet river", "near a little pond", "in the tall grass by the river"),
    "village": (
        "in a small village",
        "in a little house on a hill",
        "near the sea",
        "at the foot of a mountain",
        "in a village by a river",
    ),
    "castle": ("in a castle by the sea", "in a white castle on a hill", "in a castle at the edge of a forest"),
    "mountain": ("high up in the mountains", "in a cold land in the north", "at the foot of a mountain"),
}


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of hero. `sex` is "m", "f", or "" where a tale may choose; `flags` are what plots ask about."""

    word: str
    home: str
    sex: str = ""
    flags: frozenset[str] = frozenset()


def _kind(word: str, home: str, sex: str = "", flags: str = "") -> Kind:
    return Kind(word, home, sex, frozenset(flags.split()))


# wings: does not fall into a well; swims: nor is in trouble in water; night: not afraid of the dark; slow: wins no race by speed;
# child: never called old; grown: never called little; person: not an animal.
KINDS = {
    kind.word: kind
    for kind in (
        _kind("fox", "forest"),
        _kind("mouse", "farm"),
        _kind("rabbit", "forest"),
        _kind("bear", "forest", flags="night"),
        _kind("owl", "forest", flags="wings night"),
        _kind("frog", "water", flags="swims"),
        _kind("cat", "village", flags="night"),
        _kind("dog", "farm"),
        _kind("duck", "water", flags="wings swims"),
        _kind("goose", "farm", flags="wings swims"),
        _kind("hen", "farm", "f", flags="wings"),
        _kind("squirrel", "forest"),
        _kind("hedgehog", "forest", flags="slow"),
        _kind("goat", "mountain"),
        _kind("donkey", "farm"),
        _kind("pony", "farm"),
        _kind("pig", "farm"),
        _kind("lamb", "farm", flags="child"),
        _kind("wolf", "forest", flags="night"),
        _kind("crow", "forest", flags="wings"),
        _kind("turtle", "water", flags="swims slow"),
        _kind("mole", "forest", flags="night slow"),
        _kind("badger", "forest", flags="night"),
        _kind("beaver", "water", flags="swims"),
        _kind("dragon", "mountain", flags="wings night"),
        _kind("giant", "mountain", "m", flags="grown"),
        _kind("girl", "village", "f", flags="child person"),
        _kind("boy", "village", "m", flags="child person"),
        _kind("king", "castle", "m", flags="grown person"),
        _kind("queen", "castle", "f", flags="grown person"),
        _kind("prince", "castle", "m", flags="child person"),
        _kind("princess", "castle", "f", flags="child person"),
        _kind("farmer", "village", flags="grown person"),
        _kind("baker", "village", flags="grown person"),
        _kind("miller", "village", flags="grown person"),
        _kind("shepherd", "mountain", flags="grown person"),
        _kind("sailor", "village", flags="grown person"),
        _kind("tailor", "village", flags="grown person"),
    )
}

HERO_ADJECTIVES = ("little", "young", "little", "clever", "kind", "cheerful", "little", "gentle", "merry", "small", "curious", "")
FRIEND_ADJECTIVES = ("kind", "old", "friendly", "gentle", "clever", "merry", "quiet", "wise old", "")
YOUNG_ADJECTIVES = ("little", "young", "small", "shy", "merry", "friendly", "")


def suits(adjective: str, kind: Kind) -> bool:
    """Whether the adjective may stand before this kind: no old girls, no little kings."""
    if "child" in kind.flags and "old" in adjective:
        return False
    return not ("grown" in kind.flags and adjective in ("little", "small"))


@dataclass(frozen=True, slots=True)
class Thing:
    """What a tale turns on. A `place` stands somewhere, anything else can be owned and carried."""

    word: str
    adjectives: tuple[str, ...]
    place: bool = False


def _things(place: bool, **adjectives: str) -> dict[str, Thing]:
    return {name.replace("_", " "): Thing(name.replace("_", " "), tuple(words.split()), place) for name, words in adjectives.items()}


THINGS = {
    **_things(
        True,
        well="old deep",
        bridge="old wooden stone",
        cave="dark deep",
        tower="old tall",
        mill="old white",
        lake="blue quiet",
        pond="quiet little",
        river="wide deep",
        gate="old wooden",
        hill="green high",
        oak="old tall",
        mountain="high white",
    ),
    **_things(
        False,
        hat="red green tall",
        bell="silver little",
        key="golden little",
        ring="silver golden",
        lantern="bright little",
        lamp="old little",
        candle="white tall",
        drum="red little",
        flute="wooden silver",
        horn="silver golden",
        kite="red blue",
        ball="red blue",
        coat="warm blue",
        blanket="warm soft",
        scarf="red long",
        basket="big round",
        boat="little wooden",
        cart="wooden little",
        clock="old big",
        map="old strange",
        book="old big",
        coin="golden silver",
        crown="golden silver",
        cake="sweet big",
        apple="red sweet",
        pear="sweet yellow",
        pie="sweet warm",
        pumpkin="big round",
        rose="red white",
        sunflower="tall yellow",
        apple_tree="little young",
    ),
}
