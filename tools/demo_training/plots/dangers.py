"""Somebody is afraid, or in need of help. See `plot.py` for the placeholders."""

from __future__ import annotations

from demo_training.cast import YOUNG_ADJECTIVES
from demo_training.plots.plot import Plot

AFRAID = Plot(
    "afraid",
    ("well", "bridge", "cave", "tower", "mill", "oak", "lake"),
    (
        ("{intro}",),
        (
            "{A} was afraid of the {thing}, for {he} thought that a monster lived there.",
            "{He} never went near it, because {he} was afraid.",
            "Everybody said that a monster lived there, and {A} was afraid.",
        ),
        (
            "{Day} {he} heard a soft cry coming from the {thing}.",
            "{Day} a strange sound came from the {thing}.",
            "{Day} {he} heard somebody crying near the {thing}.",
        ),
        (
            "{A} ran to {his} friend {B}, {a_friend}.",
            "{A} had a friend, {a_friend} named {B}, and {he} ran to {him2}.",
            "{A} ran as fast as {he} could to {his} friend {B}, who was {a_friend}.",
        ),
        (
            "",
            '"There is a monster at the {thing}!" {he} cried.',
            '"Help me, {B}! The monster is awake!" {he} cried.',
            '"I heard the monster," said {A}, "and I am so afraid."',
        ),
        (
            '"Let us go and see," said {B}. "I will be with you."',
            '"Come with me," said {B}. "Two need not be afraid."',
            '"I am a little afraid too," said {B}, "but we can go together."',
        ),
        (
            "",
            "Step by step they went to the {thing}.",
            "Slowly and quietly they walked to the {thing}.",
            "So they went to the {thing}, side by side.",
        ),
        (
            "But there was no monster at all. It was only {small}.",
            "And what did they see? There sat {small}, and no monster.",
            "There they found {small}, cold and alone.",
        ),
        (
            "",
            '"Do not cry, little one," said {A}, and they took it home to its mother.',
            "{A} gave it something to eat, and together they took it home.",
            "{A} picked it up, and {B} showed them the way to its mother.",
        ),
        (
            "After that {A} was never again afraid of the {thing}.",
            'Then {A} laughed. "I was afraid of nothing at all," {he} said.',
            "{A} learned that day that a friend makes the dark less dark.",
            'And {A} said, "With a friend I can be brave."',
        ),
    ),
    {"small": ("a lost puppy", "a baby bird", "a lost kitten", "a baby rabbit")},
    hero_not=frozenset({"night"}),
)

STUCK = Plot(
    "stuck",
    ("well", "lake", "river", "pond", "cave"),
    (
        (
            "{His} best friend was {a_friend} named {B}.",
            "{A} had a good friend, {a_friend} named {B}.",
            "Every day {he} played with {a_friend} named {B}.",
        ),
        (
            "{Day} they were playing near {a_thing}.",
            "{Day} the two friends went to {a_thing}.",
            "{Day} they walked together to {a_thing}.",
        ),
        (
            "",
            '"Do not go too near," said {A}, but {B} did not listen.',
            "{B} wanted to see how deep it was, and {he2} went too near.",
            '"Look how brave I am!" cried {B}, and {he2} went too near.',
        ),
        (
            "Suddenly {B} slipped and fell into the {thing}.",
            "Then {B} slipped and fell into the {thing}.",
            "All at once {B} fell into the {thing}.",
        ),
        (
            "",
            '"Help! Help!" cried {B}.',
            '"Help me, {A}!" cried the {kind2}. "I cannot get out!"',
            '"Oh, help me!" cried {B} from below.',
        ),
        (
            "",
            "{A} was afraid, but {he} did not run away.",
            "{A} looked around, but nobody was there to help.",
            "The {hero} was not strong, but {he} was clever.",
        ),
        (
            "{A} found a long rope and threw one end to {B}.",
            "{A} took a long branch and held it out to {B}.",
            "{A} ran to fetch a rope, and {he} tied it to a tree.",
        ),
        (
            "",
            '"Hold on!" cried {A}, and {he} pulled with all {his} might.',
            '"Do not let go!" cried {A}. {He} pulled and pulled.',
            "{B} held on, and {A} pulled as hard as {he} could.",
        ),
        (
            "At last {B} was out again, cold and tired, but safe.",
            "Slowly, slowly, {B} came up, and then {he2} was safe.",
        ),
        (
            "",
            '"You saved me," said {B}. "Next time I will listen to you."',
            "They went home, sat by the fire and drank hot milk.",
            '"What would I do without you?" said {B}.',
        ),
        (
            "And they never played near the {thing} again.",
            "Since then {B} has always been careful, and {A} has had the best friend in the world.",
            "And whenever {A} needed help, {B} was there.",
        ),
    ),
    friend_not=frozenset({"wings", "swims", "grown"}),
    friend=YOUNG_ADJECTIVES,
)

LIGHT = Plot(
    "light",
    ("lantern", "lamp", "candle"),
    (
        (
            "{His} best friend was {a_friend} named {B}, who lived on the other side of the hill.",
            "{A} had a friend, {a_friend} named {B}, who lived far away behind the hill.",
        ),
        (
            "{Day} in winter {B} wanted to visit {him}.",
            "{Day} {B} was on the way to visit {him}.",
        ),
        (
            "But it began to snow, and soon it was dark.",
            "But a great storm came, and the night was black.",
            "But a thick fog came down, and nobody could see the road.",
        ),
        (
            "",
            "{A} looked out of the window. {B} did not come.",
            "{A} waited and waited, but {B} did not come.",
        ),
        (
            "",
            '"{B} is lost," thought {A}. "I must help {him2}."',
            '"I must do something," said the {hero}.',
        ),
        (
            "{A} took {his} {full} and put it in the window.",
            "{A} was afraid of the dark, but {he} took {his} {full} and went out into the night.",
            "So {A} took {a_thing}, went up on the hill and held it high.",
        ),
        (
            "Far away in the dark {B} saw a little light.",
            "{B} was sitting under a tree, cold and tired. Then {he2} saw a small light far away.",
        ),
        (
            "",
            '"That must be {A}!" {he2} cried, and {he2} walked on, step by step.',
            '"Now I know the way," said {B}, and {he2} got up again.',
        ),
        (
            "At last {he2} stood at the door, white with snow.",
            "At last the two friends found each other.",
            "Before midnight {B} was safe in the warm house.",
        ),
        (
            "",
            "They sat by the fire and ate {food}.",
            "{A} gave {him2} a blanket and {food}.",
        ),
        (
            '"Your {thing} saved me," said {B}. "No," said {A}, "we saved each other."',
            "And every night since then {A} has thought of everybody who is lost in the dark.",
            '"One small {thing} is enough," said {B}, "when a friend is near it."',
            "From that night on {A} was never afraid of the dark again.",
        ),
    ),
    {"food": ("hot soup", "warm bread", "bread and honey", "apple pie")},
    hero_not=frozenset({"night"}),
    friend_not=frozenset({"night"}),
    friend=YOUNG_ADJECTIVES,
)

CHEER = Plot(
    "cheer",
    ("rose", "sunflower", "book", "cake", "pie", "pear", "apple", "blanket", "kite", "flute", "candle", "clock", "lantern"),
    (
        (
            "{His} best friend was {a_friend} named {B}.",
            "Next door lived {a_friend} named {B}, and the two were good friends.",
        ),
        (
            "{Day} {B} was ill and had to stay in bed.",
            "{Day} {B} was very sad, and nobody knew why.",
        ),
        (
            "",
            '"I will bring {him2} something," thought {A}.',
            "{A} wanted to make {him2} happy again.",
        ),
        (
            "{A} went to {seller} and asked for {a_thing}.",
            "{A} went to {seller}, who had {a_thing}.",
        ),
        (
            "",
            '"What will you give me for the {thing}?" asked {short}.',
            '"The {thing} is not cheap," said {short}.',
        ),
        (
            "",
            '"I have no money," said {A}, "but I can work."',
            '"I have nothing but my two ears and a good heart," said {A}, "but I can help you."',
        ),
        (
            "So {he} {work}, and in the evening {he} got the {thing}.",
            "All day long {he} {work}, and then the {thing} belonged to {him}.",
        ),
        (
            "",
            "It was raining, and the way was long, but {A} carried the {thing} carefully.",
            "{A} was tired, but {he} ran all the way to {B}.",
        ),
        (
            '"Look what I have for you!" {he} cried.',
            '"This is for you," said {A}, and {he} put the {thing} beside the bed.',
        ),
        (
            "",
            "{B} looked at the {full} and began to smile.",
            '"{A_thing}!" said {B}. "How did you know?"',
        ),
        (
            "",
            "The next morning {B} was well again, and they played in the sun.",
            "And from that hour on {he2} felt better and better.",
        ),
        (
            '"It was not the {thing}," said {B}. "It was you."',
            "And {A} was as happy as {B}.",
            "So it is with friends: when one laughs, the other laughs too.",
        ),
    ),
    {
        "seller|short|work": (
            "an old woman|the old woman|swept the house and carried the wood",
            "the merchant|the merchant|carried boxes and swept the shop",
            "an old man on the hill|the old man|carried water and cut wood",
        )
    },
)
