"""A wish, near or far. See `plot.py` for the placeholders."""

from __future__ import annotations

from demo_training.cast import YOUNG_ADJECTIVES
from demo_training.plots.plot import Plot

WISH = Plot(
    "wish",
    ("well", "pond", "oak", "ring", "lamp", "cave", "lake", "coin"),
    (
        ("{intro}",),
        (
            "It was a magic {thing}, and it could grant one wish.",
            "An old woman had told {him} that the {thing} could grant one wish.",
            "People said that the {thing} was magic and could grant one wish.",
        ),
        (
            '"I will wish for {gold}," thought {A}.',
            "{A} wanted to wish for {gold}.",
            '"If I had {gold}, I would be happy," said {A} to {himself}.',
        ),
        (
            "But that same day {he} met {a_friend} named {B}, who {need}.",
            "Then {a_friend} named {B} came along the road. {B} {need}.",
            "But first {he} met {a_friend} named {B}, and {B} {need}.",
        ),
        (
            "",
            '"Can you help me?" asked {B}.',
            '"I do not know what to do," said {B}, and a tear fell down.',
            "{B} said nothing, but {he2} looked very sad.",
        ),
        (
            "",
            "{A} thought for a long time. It was hard to give up the {gold_short}.",
            "The {hero} thought of the {gold_short}, and then {he} looked at {B}.",
            "{A} looked at {B} and forgot about the {gold_short}.",
        ),
        (
            'Then {A} said, "{Thing}, {thing}, I wish for {cure} for my friend {B}."',
            'At last {A} said, "I wish for {cure} for {B}."',
        ),
        (
            "At once there was a bright light, and {done}.",
            "The wind blew softly, a bell rang far away, and {done}.",
            "Then everything shone like silver, and {done}.",
        ),
        (
            "",
            '"You gave me your only wish!" cried {B}.',
            '"How kind you are!" said {B}, and {he2} laughed for joy.',
            '"I will never forget it," said {B}.',
        ),
        (
            "{A} had no {gold_short}, but {he} had a friend, and {he} was happy.",
            "And {A} found that a friend is better than {gold}.",
            "From that day on they were always together, and {A} wished for nothing more.",
        ),
    ),
    {
        "gold|gold_short": ("a bag of gold|gold", "a golden crown|golden crown", "a big castle|castle", "a mountain of cakes|cakes"),
        "need|cure|done": (
            "had no home|a warm house|a little house with a red door stood in the meadow",
            "was very hungry|a good supper|a table full of bread and soup stood under the tree",
            "was cold and had no coat|a warm coat|{B} wore a fine blue coat",
            "had lost the way home|the right way home|a row of little lights showed {B} the way home",
        ),
    },
)

JOURNEY = Plot(
    "journey",
    ("boat", "map", "cart", "coat", "basket"),
    (
        (
            "More than anything in the world {A} wanted to see {dream}.",
            "Every night {he} dreamed of {dream}.",
            '"One day I will see {dream}," {A} always said.',
        ),
        (
            "",
            '"It is too far," said the neighbors, and they laughed.',
            '"Stay at home," said the neighbors. "It is too far."',
        ),
        (
            "{Day} {he} took {his} {full} and set out.",
            "Then {his} grandmother gave {him} {a_thing}, and {he} set out.",
            "{A} had {a_thing}, and {day} {he} set out.",
        ),
        (
            "On the way {he} met {a_friend} named {B}.",
            "After a while {he} saw {a_friend} named {B}, who sat all alone.",
        ),
        (
            '"Where are you going?" asked {B}. "To see {dream}," said {A}.',
            '"Where are you going with that {thing}?" asked {B}. "To {dream}," said {A}.',
        ),
        (
            '"Then I will come with you," said {B}.',
            '"May I come with you?" asked {B}. "Yes," said {A}.',
            '"Take me with you," said {B}, and so they were two.',
        ),
        (
            "",
            "They traveled for seven days, over hills and through forests.",
            "They traveled a long, long way, in sun and in rain.",
        ),
        (
            "",
            '"I am so tired," said {A}. "Only one more hill," said {B}.',
            "When {A} was tired, {B} sang, and when {B} was tired, {A} told stories.",
        ),
        (
            "And then, one evening, they saw it. There was {dream}!",
            "At last they came over the last hill, and there was {dream}.",
        ),
        (
            "",
            "It was more beautiful than {A} had ever dreamed.",
            "They sat down side by side and could not say a word.",
        ),
        (
            '"It was far," said {A}, "but with you the way was short."',
            "Then they went home and told everybody what they had seen.",
            "And {A} kept the {full} for ever, to remember that day.",
        ),
    ),
    {"dream": ("the sea", "the great white city", "the end of the rainbow", "the land of flowers", "the big waterfall")},
)

CLIMB = Plot(
    "climb",
    ("mountain", "hill", "tower"),
    (
        ("{intro}",),
        (
            '"What can you see from the top of it?" {A} always asked, but nobody knew.',
            "{A} wanted to know what one could see from the top, but nobody could tell {him}.",
        ),
        (
            "",
            '"It is too high for you," said the neighbors.',
            '"Stay down here with us," said the neighbors.',
        ),
        (
            "{Day} {he} packed some bread and began to climb.",
            "{Day} {he} went to the {thing} and began to climb.",
        ),
        (
            "Soon {he} was tired. There sat {a_friend} named {B}, who was tired too.",
            "Half way up {he} met {a_friend} named {B}, who was afraid to go on.",
        ),
        (
            "",
            '"It is too high," said {B}. "I want to go home."',
            '"I cannot go up and I cannot go down," said {B}.',
        ),
        (
            '"Do not look down," said {A}. "Come, one step and then another."',
            '"Eat some of my bread," said {A}. "Then we will go on together."',
        ),
        (
            "",
            "So they climbed on together, slowly and carefully.",
            "One step and then another, they climbed up and up.",
        ),
        (
            "And when they came to the top of the {thing}, they saw {view}.",
            "At last they stood on the top of the {thing}, and far below they saw {view}.",
        ),
        (
            "",
            '"Now I know!" cried {A}. "You can see the whole world!"',
            '"How beautiful!" said {B}, and {he2} was not afraid any more.',
        ),
        (
            "",
            "They shared the rest of the bread and stayed until the stars came out.",
            "They sat there until the sun went down, and nobody was happier than they were.",
        ),
        (
            "Since then they have climbed the {thing} together every summer.",
            '"Alone I would have turned around," said {A}, and {B} said, "So would I."',
            "And from that day on {A} and {B} were friends.",
        ),
    ),
    {"view": ("the blue sea and a white ship", "the river, the forest and all the little houses", "all the fields, as small as flowers")},
    hero_not=frozenset({"wings"}),
    friend_not=frozenset({"wings"}),
    friend=YOUNG_ADJECTIVES,
)
